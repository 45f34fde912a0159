"""Training: the step, the loop, checkpoints, several processes."""

from graph_transplant.training.loop import Evaluation, FitResult, evaluate, fit
from graph_transplant.training.state import EpochLog
from graph_transplant.training.step import augmented_loss
from graph_transplant.training.tensorboard import TensorBoard

__all__ = [
    "EpochLog",
    "Evaluation",
    "FitResult",
    "TensorBoard",
    "augmented_loss",
    "evaluate",
    "fit",
]
