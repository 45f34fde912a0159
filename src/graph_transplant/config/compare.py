"""Options of a comparison, and its settings as resolved and recorded."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from cyclopts import Parameter

from graph_transplant.config import options
from graph_transplant.config.recipes import RECIPES, SCALES, Recipe
from graph_transplant.config.training import FitConfig
from graph_transplant.errors import GraphTransplantError, check_choice
from graph_transplant.methods import NUMERICS
from graph_transplant.metrics import selection_metrics
from graph_transplant.utils.text import listed

# In Python, a mapping names the user's own. The command line evaluates these types.
if TYPE_CHECKING:
    Methods = tuple[str, ...] | Mapping[str, Any]
    Models = tuple[str, ...] | Mapping[str, Any]
else:
    Methods = tuple[options.MethodName, ...]
    Models = tuple[options.ModelName, ...]

FOLD_SPLITS = ("folds", "scaffold-folds")
"""Splits for cross-validation; the others are a single split."""


@dataclass(frozen=True, kw_only=True)
class CompareConfig:
    """What a comparison compares, and how.

    In Python, ``methods`` may also hold augmentations, which are called by their class, or map
    names to augmentations (a list for several, an empty list for none) or to names, and ``model``
    names to functions that create a model for a store; your own methods and models are identified
    by these names. Lists are sequences; one value stands for a list of one.

    Args:
        methods: Methods, separated by commas; `all` selects those that train a network, `baselines`
            those that do not; see `graph-transplant methods` for names and parameters. All methods
            are compared with `vanilla`. [default: vanilla,transplant-dp,transplant-ep; for
            molecules read from SMILES also forest,majority]
        model: Convolutions, separated by commas: gcn, gcs, gin, gat, and with edge features gine,
            gat-edge; auto selects gine for molecules read with their bonds, otherwise gcs.
        layers: Numbers of convolution layers, separated by commas.
        folds: Folds of the cross-validation; one is the test set, one the validation set.
        repeats: Number of times the cross-validation is repeated, each with a new shuffle.
        select: `validation` expands each method named without parameters to its search space (on
            small data sets, not for Graph Transplant), and reports each with the number of layers
            and the parameters that have the best mean validation metric; `none` reports all.
        metric: Metric that ranks the methods: METRIC_NAMES. [default: auroc for several labels, for
            two classes of molecules in a table, and for two classes if one is rare; r2 for numbers;
            otherwise accuracy]
        split: scaffold-folds keep molecules with the same Bemis-Murcko scaffold together; official
            is the split provided with the data set, scaffold a single scaffold split of molecules.
        scale: The paper's patience and batch size for a size of data set; auto decides by the
            number of graphs.
        recipe: How networks are built and trained; strong has normalisation, residual connections,
            AdamW with warm-up and cosine decay.
        epochs: Maximum number of epochs per trial; the paper's recipe stops earlier if nothing
            improves. [default: 1000; 200 with the strong recipe]
        batch_size: Graphs per training batch. [default: 128; 64 for large data sets; 32 for small
            ones with the strong recipe]
        learning_rate: Highest learning rate. [default: 0.0005; 0.001 with the strong recipe]
        readout: How node embeddings are pooled. [default: mean; mean-max with the strong recipe]
        balance: Draw each class equally often.
        attack: Also attack the test graphs (GradArgmax), changing this share of the mean number of
            edges; several shares, separated by commas, give a curve. For models that use edge
            features, edges are only removed.
        label_noise: Share of the training labels to make wrong; several shares, separated by
            commas, give a curve.
        train_fraction: Share of the training graphs to train on; several shares, separated by
            commas, give a curve.
        group_duplicates: Keep identical graphs in the same fold. [default: for molecules read from
            a table]
        ties: Which epoch to keep if several have the same validation metric: the first, the one
            with the lowest validation loss, or the last, where every tie restarts patience (reset).
            [default: first; loss with the strong recipe]
        equal_within: Methods are practically equal if the whole 95 % interval of their difference
            lies within this distance of zero; 0.01 is one point.
        ignore: Codes of warnings to leave out, such as GT007, separated by commas.
        seed: Seed for all randomness.
        workers: Number of trials to run in parallel, one core each.
        engine: What runs the trials: processes on this machine, or a Ray cluster.
        address: Address of the Ray cluster. [default: one is started on this machine]

    Example:
        >>> CompareConfig(methods="vanilla", layers=[3, 4]).layers
        (3, 4)
        >>> CompareConfig(folds=2)
        Traceback (most recent call last):
        graph_transplant.errors.GraphTransplantError: `folds` must be at least 3, got 2
    """

    methods: Methods | None = None
    model: Annotated[Models, Parameter(name="--models")] = ("auto",)
    layers: tuple[options.Count, ...] = (3,)
    folds: options.Folds = 5
    repeats: options.Count = 1
    select: Annotated[options.Selection, Parameter(parse=False)] = "none"  # a flag
    metric: options.MetricName | None = None
    split: options.ComparisonSplit = "folds"
    scale: Literal["auto", options.ScaleName] = "auto"
    recipe: options.RecipeName = "paper"
    epochs: options.Count | None = None
    batch_size: options.Count | None = None
    learning_rate: options.Positive | None = None
    readout: options.Readout | None = None
    balance: bool = False
    attack: tuple[options.PositiveShare, ...] = ()
    label_noise: tuple[options.ShareBelowOne, ...] = (0.0,)
    train_fraction: tuple[options.PositiveShare, ...] = (1.0,)
    group_duplicates: bool | None = None
    ties: options.Ties | None = None
    equal_within: options.ShareBelowOne = 0.01
    ignore: tuple[str, ...] = ()
    seed: options.Seed = 0
    workers: options.Count = 1
    engine: options.Engine = "local"
    address: str | None = None

    def __post_init__(self) -> None:
        if callable(self.model):
            raise GraphTransplantError(
                "`model` must be a name, a list of names or a dict of functions, such as "
                f"{{'mine': function}}; got {self.model!r}"
            )
        options.check_options(self)
        for name in ("methods", "model", "layers", "label_noise", "train_fraction"):
            value = getattr(self, name)
            if value is not None and not value:
                raise GraphTransplantError(f"`{name}` must have at least one value, got none")
        if self.address is not None and self.engine != "ray":
            raise GraphTransplantError(
                f"`address` names a Ray cluster and needs the engine ray, got {self.engine!r}"
            )


# The names come from the registry of metrics.
CompareConfig.__doc__ = (CompareConfig.__doc__ or "").replace(
    "METRIC_NAMES", listed(selection_metrics(), "or")
)


@dataclass(frozen=True)
class Settings:
    """Settings that all trials of a comparison share; the defaults are the paper's protocol.

    See :class:`CompareConfig` and :func:`~graph_transplant.fit` for their meaning. ``shards`` is
    the number of processes that shared every batch in earlier versions; now it is 1.

    Example:
        >>> Settings(folds=2)
        Traceback (most recent call last):
        graph_transplant.errors.GraphTransplantError: `folds` must be at least 3, got 2
    """

    folds: options.Folds = CompareConfig.folds
    epochs: options.Count = FitConfig.epochs
    batch_size: options.Count = FitConfig.batch_size
    seed: options.Seed = CompareConfig.seed
    learning_rate: options.Positive = FitConfig.learning_rate
    stop_patience: options.Count = FitConfig.stop_patience
    decay_patience: options.Count = FitConfig.decay_patience
    clip_norm: options.Positive = FitConfig.clip_norm
    hidden: options.Count = Recipe.hidden
    readout: options.Readout = Recipe.readout
    dropout: options.ShareBelowOne = Recipe.dropout
    patience_unit: options.PatienceUnit = FitConfig.patience_unit
    metric: options.MetricName = FitConfig.metric
    split: options.ComparisonSplit = CompareConfig.split
    shards: options.Count = 1
    attack: tuple[options.PositiveShare, ...] = ()
    balance: bool = CompareConfig.balance
    ties: options.Ties = FitConfig.ties
    group_duplicates: bool = False
    recipe: options.RecipeName = CompareConfig.recipe

    def __post_init__(self) -> None:
        options.check_options(self)
        object.__setattr__(self, "attack", tuple(sorted(self.attack)))

    @classmethod
    def of(cls, recipe: str, scale: str, **given: Any) -> Self:
        """Settings of a recipe for data of a scale; given values override unless ``None``."""
        chosen = RECIPES[check_choice("recipe", recipe, RECIPES)]
        size = SCALES[check_choice("scale", scale, SCALES)]
        named = {name: value for name, value in given.items() if value is not None}
        training = asdict(size) | chosen.fitting(named.get("epochs"))
        if scale != "small":  # a small batch would take too many steps
            training["batch_size"] = size.batch_size
        names = {one.name for one in fields(cls)}
        defaults = {
            name: value for name, value in (training | chosen.network()).items() if name in names
        }
        return cls(**{**defaults, **named, "recipe": recipe})

    @classmethod
    def resolved(cls, config: CompareConfig, scale: str, **known: Any) -> Self:
        """Settings of a comparison; ``known`` is what the data decide."""
        shared = [one.name for one in fields(cls) if hasattr(config, one.name)]
        return cls.of(scale=scale, **{**{name: getattr(config, name) for name in shared}, **known})

    def network(self) -> dict[str, Any]:
        """Keyword arguments of :class:`~graph_transplant.GraphClassifier`."""
        given = {"hidden": self.hidden, "readout": self.readout, "dropout": self.dropout}
        return RECIPES[self.recipe].network() | given

    def fitting(self, seed: int, **given: Any) -> FitConfig:
        """Options of :func:`~graph_transplant.fit`; given ones override the settings."""
        recipe = RECIPES[self.recipe].fitting(self.epochs, self.learning_rate)
        shared = {one.name for one in fields(FitConfig)} & vars(self).keys()
        own = {name: getattr(self, name) for name in shared}
        return FitConfig(**{**recipe, **own, "seed": seed, **given})

    def as_record(self, version: str, numerics: int = NUMERICS) -> dict[str, Any]:
        """The settings as stored in a record, with the version and the method's numerics."""
        more = {"attack": list(self.attack), "numerics": numerics, "version": version}
        return asdict(self) | more
