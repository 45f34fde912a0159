"""Options of :func:`~graph_transplant.fit`, which a checkpoint must agree with."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from graph_transplant.config.options import (
    Count,
    MetricName,
    NonNegative,
    PatienceUnit,
    Positive,
    Seed,
    Ties,
    check_options,
)
from graph_transplant.errors import GraphTransplantError

# The types are evaluated to check the values, which must not import torch.
if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler

    LossFunction = Callable[[Tensor, Tensor], Tensor]
    MakeOptimizer = Callable[[Iterable[nn.Parameter]], Optimizer]
    MakeScheduler = Callable[[Optimizer], LRScheduler]
    Call = Callable[[nn.Module, Any], Any]
    Output = Callable[[Any], Tensor | tuple[Tensor, Tensor]]
    Submodule = nn.Module | str
    Weights = Tensor | Sequence[float]
else:
    LossFunction = MakeOptimizer = MakeScheduler = Call = Output = Submodule = Weights = Any


def _check_callable(**values: Any) -> None:
    for name, value in values.items():
        if value is not None and not callable(value):
            raise GraphTransplantError(
                f"`{name}` must be callable, such as a class or a functools.partial; got {value!r}"
            )


@dataclass(frozen=True, kw_only=True, eq=False)
class FitConfig:
    """All that determines a training besides the model, its augmentations and the data.

    See :func:`~graph_transplant.fit` for the meaning of the options. Every field is compared with
    a checkpoint before it is resumed.

    Example:
        >>> FitConfig(epochs=0)
        Traceback (most recent call last):
        graph_transplant.errors.GraphTransplantError: `epochs` must be at least 1, got 0
    """

    seed: Seed = 0
    epochs: Count = 1000
    batch_size: Count = 128
    learning_rate: Positive = 5e-4
    stop_patience: Count = 1500
    decay_patience: Count = 1000
    patience_unit: PatienceUnit = "iterations"
    metric: MetricName = "accuracy"
    ties: Ties = "first"
    clip_norm: Positive = 2.0
    loss_fn: LossFunction | None = None
    class_weight: Weights | None = None
    virtual_weight: NonNegative = 1.0
    optimizer: Annotated[MakeOptimizer | None, _check_callable] = None
    scheduler: Annotated[MakeScheduler | None, _check_callable] = None
    call: Call | None = None
    output: Output | None = None
    balance: bool = False
    graph_weight: Weights | None = None
    saliency_module: Submodule | None = None

    def __post_init__(self) -> None:
        check_options(self)
