"""The model a person keeps: trained, calibrated, saved, loaded, and used on further graphs."""

from graph_transplant.trained.explanation import ExplainedRows, Explanation, explain, explain_rows
from graph_transplant.trained.export import to_onnx
from graph_transplant.trained.fitting import train
from graph_transplant.trained.gallery import Mixture, mixtures
from graph_transplant.trained.model import Predictions, TrainedModel
from graph_transplant.trained.predict import PredictionSummary, predict_table

__all__ = [
    "ExplainedRows",
    "Explanation",
    "Mixture",
    "PredictionSummary",
    "Predictions",
    "TrainedModel",
    "explain",
    "explain_rows",
    "mixtures",
    "predict_table",
    "to_onnx",
    "train",
]
