"""Options of training: of :func:`~graph_transplant.fit`, and of a model that is kept."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from graph_transplant.config import options
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
from graph_transplant.methods import check_trainable
from graph_transplant.metrics import selection_metrics
from graph_transplant.utils.text import listed

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


def _check_method(**values: Any) -> None:
    for method in values.values():
        if isinstance(method, str):
            check_trainable(method)


# The command line evaluates these types for its help, which must not import torch.
if TYPE_CHECKING:
    from graph_transplant.augment import Augmentation
    from graph_transplant.datasets.splits import Split

    MethodLike = str | Augmentation | Sequence[Augmentation]
    SplitLike = options.TrainingSplit | Split
    ClassWeight = Literal["balanced"] | Mapping[Any, float] | Sequence[float]
else:
    MethodLike = Annotated[str, _check_method]
    SplitLike = Annotated[str, options.one_of(lambda: options.TRAINING_SPLITS, objects=True)]
    ClassWeight = Annotated[str, options.one_of(lambda: ["balanced"], objects=True)]


@dataclass(frozen=True)
class TrainConfig:
    """How a model is trained.

    In Python, ``method`` may also be an augmentation or a list of augmentations, ``split`` your own
    :class:`~graph_transplant.datasets.splits.Split`, whose test part may be empty, and
    ``class_weight`` one weight per class, in order or by name.

    Args:
        method: One method, with or without parameters; see `graph-transplant methods`.
        model: Convolution; gine and gat-edge use edge features. auto selects gine for molecules
            that were read with their bonds, otherwise gcs.
        layers: Number of convolution layers.
        recipe: How the network is built and trained; strong has random-walk features,
            normalisation, residual connections, AdamW with warm-up and cosine decay.
        hidden: Width of the layers. [default: 128]
        readout: How node embeddings are pooled. [default: mean-max; paper mean]
        dropout: Dropout rate in the head. [default: 0.2; paper 0.5]
        epochs: Maximum number of epochs; with the recipe paper, training stops earlier if nothing
            improves. [default: 200; paper 300]
        batch_size: Graphs per training batch. [default: 32; paper 128; with 10,000 graphs or more
            128, with 100,000 or more 64]
        learning_rate: Highest learning rate. [default: 0.001; paper 0.0005]
        split: random, scaffold (molecules with the same Bemis-Murcko scaffold stay together) or
            official; auto uses the official split if there is one, scaffold for SMILES, otherwise
            random.
        validation: Share of the graphs used for early stopping and calibration.
        test: Share of the graphs used for the final evaluation; 0 for none.
        balance: Draw each class equally often.
        class_weight: balanced weights the loss of each class by how rare it is.
        ensemble: Number of networks to train with different seeds on the same split; predictions
            are their mean.
        metric: Metric that selects the best epoch: METRIC_NAMES. [default: depends on the data]
        seed: Seed for all randomness.

    Example:
        >>> TrainConfig(epochs=50).model
        'auto'
    """

    method: MethodLike = "transplant-ep"
    model: Literal["auto", options.Convolution] = "auto"
    layers: options.Count = 3
    recipe: options.RecipeName = "strong"
    hidden: options.Count | None = None
    readout: options.Readout | None = None
    dropout: options.ShareBelowOne | None = None
    epochs: options.Count | None = None
    batch_size: options.Count | None = None
    learning_rate: options.Positive | None = None
    split: SplitLike = "auto"
    validation: options.InnerShare = 0.1
    test: options.ShareBelowOne = 0.1
    balance: bool = False
    class_weight: ClassWeight | None = None
    ensemble: options.Count = 1
    metric: options.MetricName | None = None
    seed: options.Seed = 0

    def __post_init__(self) -> None:
        options.check_options(self)
        options.check_shares(self.validation, self.test)


# The names come from the registry of metrics.
TrainConfig.__doc__ = (TrainConfig.__doc__ or "").replace(
    "METRIC_NAMES", listed(selection_metrics(), "or")
)
