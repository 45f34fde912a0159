"""Training: the step, the loop, checkpoints, several processes."""

from graph_transplant.training.loop import Evaluation, FitResult, evaluate, fit
from graph_transplant.training.state import EpochLog
from graph_transplant.training.step import StepLosses, augmented_loss, augmented_losses
from graph_transplant.training.tensorboard import TensorBoard

__all__ = [
    "EpochLog",
    "Evaluation",
    "FitResult",
    "StepLosses",
    "TensorBoard",
    "augmented_loss",
    "augmented_losses",
    "evaluate",
    "fit",
]
