"""Trained models: training, calibration, saving, loading, prediction and explanation."""

from graph_transplant.analysis.drawing import mixtures
from graph_transplant.models.explanation import explain, explain_rows
from graph_transplant.models.fitting import train
from graph_transplant.models.model import TrainedModel
from graph_transplant.models.onnx import to_onnx
from graph_transplant.models.predict import Predictions, PredictionSummary, predict_table
from graph_transplant.results.examples import ExplainedRows, Explanation, Mixture

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
