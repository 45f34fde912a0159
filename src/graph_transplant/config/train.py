"""Training options, shared by Python, the command line and scikit-learn."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from graph_transplant.config import options
from graph_transplant.methods import expand_methods, method_key
from graph_transplant.metrics import selection_metrics
from graph_transplant.utils.text import listed

# The command line evaluates these types for its help, which must not import torch.
if TYPE_CHECKING:
    from graph_transplant.augment import Augmentation
    from graph_transplant.datasets.splits import Split

    MethodLike = str | Augmentation | Sequence[Augmentation]
    SplitLike = options.TrainingSplit | Split
    ClassWeight = Literal["balanced"] | Mapping[Any, float] | Sequence[float]
else:
    MethodLike = Annotated[
        str, options.one_of(lambda: expand_methods(["all"]), key=method_key, objects=True)
    ]
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
