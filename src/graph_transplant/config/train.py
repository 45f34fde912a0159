"""Training options, shared by Python, the command line and scikit-learn."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from graph_transplant.metrics import selection_metrics
from graph_transplant.utils.text import listed

# The command line evaluates these types for its help, which must not import torch.
if TYPE_CHECKING:
    from graph_transplant.augment import Augmentation
    from graph_transplant.datasets.splits import Split

    MethodLike = str | Augmentation | Sequence[Augmentation]
    SplitLike = str | Split
    ClassWeight = str | Mapping[str, float] | Sequence[float]
else:
    MethodLike = SplitLike = ClassWeight = str


@dataclass(frozen=True)
class TrainConfig:
    """How a model is trained.

    In Python, ``method`` may also be an augmentation or a list of augmentations, ``split`` your own
    :class:`~graph_transplant.datasets.splits.Split`, whose test part may be empty, and
    ``class_weight`` one weight per class, in order or by name.

    Args:
        method: One method, with or without parameters; see `graph-transplant methods`.
        model: Convolution: gcn, gcs, gin, gat, or with edge features gine, gat-edge; auto selects
            gine for molecules that were read with their bonds, otherwise gcs.
        layers: Number of convolution layers.
        recipe: How the network is built and trained: strong (random-walk features, normalisation,
            residual connections, AdamW with warm-up and cosine decay), or paper.
        hidden: Width of the layers. [default: 128]
        readout: How node embeddings are pooled: mean, sum, max or mean-max. [default: mean-max;
            paper mean]
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
    model: str = "auto"
    layers: int = 3
    recipe: str = "strong"
    hidden: int | None = None
    readout: str | None = None
    dropout: float | None = None
    epochs: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    split: SplitLike = "auto"
    validation: float = 0.1
    test: float = 0.1
    balance: bool = False
    class_weight: ClassWeight | None = None
    ensemble: int = 1
    metric: str | None = None
    seed: int = 0


# The names come from the registry of metrics.
TrainConfig.__doc__ = (TrainConfig.__doc__ or "").replace(
    "METRIC_NAMES", listed(selection_metrics(), "or")
)
