"""What one comparison fixes (:class:`Settings`) and what one trial of it is (:class:`Trial`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import product
from numbers import Real
from typing import Any, NamedTuple

from graph_transplant.errors import GraphTransplantError, check_choice
from graph_transplant.metrics import deciding
from graph_transplant.recipes import PATIENCE_UNITS, RECIPES, TIES

Record = dict[str, Any]
"""One finished trial as it is written to ``records.jsonl``."""

BASELINE = "vanilla"
"""The method that every other method is compared with."""

FOLD_SPLITS = ("folds", "scaffold-folds")
"""Splits that are cross-validation."""

SPLITS = (*FOLD_SPLITS, "official", "scaffold")
"""Cross-validation, of molecules by whole scaffolds; the one split that the publishers of the data
set fixed; or, for molecules, one split that keeps those of one scaffold together."""

NUMERICS = 2
"""Raised whenever the same settings give other numbers; records of two numerics are not mixed.
Those of version 1 do not say so."""

IMBALANCED = 0.2
"""Two classes are imbalanced when the smaller one has less than this share of the graphs."""


@dataclass(frozen=True)
class Settings:
    """Everything that all trials of a comparison share; the defaults are the paper's protocol.

    Records with different settings are never mixed in one directory.

    Args:
        folds: Number of folds: one is the test set, the next one the validation set.
        epochs: Most epochs a trial trains.
        batch_size: Graphs per training batch.
        seed: The one number that all randomness derives from.
        learning_rate: Learning rate of Adam at the start.
        stop_patience: Iterations without a higher validation metric after which training stops.
        decay_patience: Iterations without a lower validation loss after which the learning rate is
            halved.
        patience_unit: What the two patiences count, ``"iterations"`` or ``"epochs"``.
        clip_norm: Largest gradient norm.
        hidden: Width of the hidden layers.
        readout: How node embeddings become a graph embedding.
        dropout: Dropout of the classifier head.
        metric: What checkpoints, candidates and methods are judged by: ``"accuracy"``, ``"auroc"``
            or ``"average_precision"`` (for several labels their mean over them), or ``"r2"`` for
            numbers.
        split: ``"folds"``, or one split, of which repeats differ in their seed alone:
            ``"official"`` for the split that comes with the data set, ``"scaffold"`` for one by the
            scaffolds of molecules.
        shards: Processes that share every batch, each mixing within its own part.
        attack: Budgets of the GradArgmax attack on the test graphs, as shares of the mean number of
            edges; none by default.
        balance: Draw training graphs so that all classes are equally likely.
        group_duplicates: Keep graphs that are the same in one fold.
        ties: Which of several epochs with the same validation metric is the best: ``"first"``,
            ``"loss"`` or ``"reset"``, see :func:`~graph_transplant.fit`.
        recipe: Name of the recipe, for what the other settings do not say: optimiser, schedule, and
            the network's normalisation, residual connections and so on.

    Example:
        >>> Settings(folds=3).folds
        3
        >>> Settings(folds=2)
        Traceback (most recent call last):
        graph_transplant.errors.GraphTransplantError: `folds` must be at least 3, got 2
    """

    folds: int = 5
    epochs: int = 1000
    batch_size: int = 128
    seed: int = 0
    learning_rate: float = 5e-4
    stop_patience: int = 1500
    decay_patience: int = 1000
    clip_norm: float = 2.0
    hidden: int = 128
    readout: str = "mean"
    dropout: float = 0.5
    patience_unit: str = "iterations"
    metric: str = "accuracy"
    split: str = "folds"
    shards: int = 1
    attack: tuple[float, ...] = ()
    balance: bool = False
    ties: str = "first"
    group_duplicates: bool = False
    recipe: str = "paper"

    def __post_init__(self) -> None:
        smallest = {
            "folds": 3,
            "epochs": 1,
            "batch_size": 1,
            "seed": 0,
            "stop_patience": 1,
            "decay_patience": 1,
            "hidden": 1,
            "shards": 1,
        }
        for name, least in smallest.items():
            value = getattr(self, name)
            if value < least:
                raise GraphTransplantError(f"`{name}` must be at least {least}, got {value}")
        for name in ("learning_rate", "clip_norm"):
            value = getattr(self, name)
            if not value > 0:
                raise GraphTransplantError(f"`{name}` must be above 0, got {value}")
        check_choice("metric", self.metric, deciding())
        check_choice("split", self.split, SPLITS)
        check_choice("patience_unit", self.patience_unit, PATIENCE_UNITS)
        check_choice("ties", self.ties, TIES)
        check_choice("recipe", self.recipe, RECIPES)
        for budget in self.attack:
            if not 0 < budget <= 1:
                raise GraphTransplantError(f"`attack` must be shares in (0, 1], got {budget}")

    @classmethod
    def of(cls, recipe: str, scale: str, **given: Any) -> Settings:
        """Settings of a recipe for data of a scale; what is given and not ``None`` comes first.

        Example:
            >>> Settings.of("strong", scale="small", epochs=50, readout=None).stop_patience
            50
            >>> Settings.of("paper", scale="large").batch_size
            64
        """
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

    def network(self) -> dict[str, Any]:
        """Keyword arguments of :class:`~graph_transplant.GraphClassifier`."""
        given = {"hidden": self.hidden, "readout": self.readout, "dropout": self.dropout}
        return RECIPES[self.recipe].network() | given

    def fitting(self) -> dict[str, Any]:
        """Keyword arguments of :func:`~graph_transplant.fit`."""
        names = (
            "epochs", "batch_size", "learning_rate", "stop_patience", "decay_patience",
            "patience_unit", "metric", "ties", "clip_norm", "balance",
        )  # fmt: skip
        chosen = RECIPES[self.recipe].fitting(self.epochs, self.learning_rate)
        return chosen | {name: getattr(self, name) for name in names}

    def as_record(self, version: str) -> Record:
        """Give the settings as they stand in a record, with the library version."""
        return {
            **asdict(self),
            "attack": list(self.attack),
            "numerics": NUMERICS,
            "version": version,
        }

    @staticmethod
    def complete(settings: Mapping[str, Any]) -> Record:
        """Add to the settings of a record what it lacks, which then had its default.

        Records made before a setting existed stay comparable with new ones in this way.

        Example:
            >>> Settings.complete({"folds": 3, "version": "0.1.0"})["metric"]
            'accuracy'
        """
        complete = {**asdict(Settings()), "attack": [], "numerics": 1, **settings}
        # What `shards` was called once.
        complete["shards"] = complete.pop("parts", complete["shards"])
        # Records made before budgets were sorted have them in any order.
        complete["attack"] = sorted(set(complete["attack"]))
        return complete


@dataclass(frozen=True)
class Scale:
    """How the paper trains on data sets of at most ``most`` graphs ("Evaluation protocol")."""

    most: int | None
    batch_size: int
    stop_patience: int
    decay_patience: int
    patience_unit: str


SCALES = {
    "small": Scale(9_999, 128, 1500, 1000, "iterations"),
    "medium": Scale(99_999, 128, 50, 20, "epochs"),
    "large": Scale(None, 64, 10, 5, "epochs"),
}
"""The paper's presets by the size of the data set, in ascending order."""


def scale_of(graphs: int) -> str:
    """Name the preset for a data set of so many graphs.

    Example:
        >>> scale_of(600), scale_of(40353), scale_of(158100)
        ('small', 'medium', 'large')
    """
    for name, scale in SCALES.items():
        if scale.most is None or graphs <= scale.most:
            return name
    raise AssertionError("the last scale has no upper end")


def default_metric(task: str, class_counts: Sequence[int]) -> str:
    """Choose the metric that suits a data set; ``class_counts`` matter for classes alone.

    Accuracy says little when one class is rare, and nothing when a graph may have several labels.
    Numbers are judged by R².

    Deviation: metric-decides. The paper stops and selects by validation accuracy, also where it
    reports AUROC; here the metric that is reported decides.

    Example:
        >>> default_metric("multiclass", [300, 300]), default_metric("multiclass", [950, 50])
        ('accuracy', 'auroc')
    """
    if task != "multiclass":
        return deciding(task)[0]
    if len(class_counts) == 2 and min(class_counts) < IMBALANCED * sum(class_counts):
        return "auroc"
    return "accuracy"


def metric_of(record: Record) -> str:
    """Name the metric a record is judged by."""
    name: str = record["settings"].get("metric", "accuracy")
    return name


def score(record: Record, part: str = "test") -> float | None:
    """Give the value of a record's metric, or ``None`` if it has no finite one."""
    value = record.get(part, {}).get(metric_of(record))
    return value if isinstance(value, int | float) and math.isfinite(value) else None


def one_split(settings: Mapping[str, Any]) -> bool:
    """Whether all trials share one split, official or by scaffold, instead of folds."""
    return settings.get("split", "folds") not in FOLD_SPLITS


class Condition(NamedTuple):
    """How hard training was made, the same for all methods that are compared.

    Args:
        label_noise: Share of the training labels that are wrong, in [0, 1).
        train_fraction: Share of the training graphs that are used, in (0, 1].

    Example:
        >>> Condition(label_noise=0.2).words
        'with 20 % of the training labels wrong'
        >>> Condition(0.2, 0.1).short
        'noise 20 %, size 10 %'
        >>> Condition().words
        ''
    """

    label_noise: float = 0.0
    train_fraction: float = 1.0

    @staticmethod
    def of(record: Mapping[str, Any]) -> Condition:
        """Give the condition of a record; one that names none has the default."""
        default = Condition()
        return Condition(
            record.get("label_noise", default.label_noise),
            record.get("train_fraction", default.train_fraction),
        )

    @property
    def words(self) -> str:
        """The condition in words; empty for the default."""
        parts = []
        if self.train_fraction != 1:
            parts.append(f"on {_share(self.train_fraction)} of the training graphs")
        if self.label_noise:
            parts.append(f"with {_share(self.label_noise)} of the training labels wrong")
        return " ".join(parts)

    @property
    def short(self) -> str:
        """The condition in short, for a narrow place; empty for the default."""
        parts = []
        if self.label_noise:
            parts.append(f"noise {_share(self.label_noise)}")
        if self.train_fraction != 1:
            parts.append(f"size {_share(self.train_fraction)}")
        return ", ".join(parts)

    @property
    def order(self) -> tuple[float, float]:
        """What conditions are sorted by: the default comes first, then the harder the later."""
        return self.label_noise, -self.train_fraction

    def as_record(self) -> Record:
        """Give what a record says of it: nothing of what has its default.

        So a trial without either has the record that it had before there were conditions.
        """
        default = Condition()._asdict()
        return {name: value for name, value in self._asdict().items() if value != default[name]}

    def sentence(self, text: str) -> str:
        """Put the condition before a sentence or a headline.

        Example:
            >>> Condition(train_fraction=0.1).sentence("No method helps")
            'On 10 % of the training graphs, no method helps'
        """
        words = self.words
        if not words:
            return text
        return f"{words[0].upper()}{words[1:]}, {text[0].lower()}{text[1:]}"


def _share(value: float) -> str:
    return f"{100 * value:.4g} %"


def check_conditions(
    label_noise: Sequence[float], train_fraction: Sequence[float]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Check the values of both axes, and give them as numbers, each once."""
    noise = _shares("label_noise", label_noise, "[0, 1)", lambda value: 0 <= value < 1)
    fraction = _shares("train_fraction", train_fraction, "(0, 1]", lambda value: 0 < value <= 1)
    return noise, fraction


def _shares(name: str, values: Any, kind: str, fits: Callable[[float], bool]) -> tuple[float, ...]:
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise GraphTransplantError(
            f"`{name}` must be a sequence of shares in {kind}, got {values!r}"
        )
    given = list(values)
    if not given:
        raise GraphTransplantError(f"`{name}` must have at least one share in {kind}; got none")
    for value in given:
        if isinstance(value, bool) or not isinstance(value, Real) or not fits(float(value)):
            raise GraphTransplantError(f"`{name}` must be shares in {kind}, got {value!r}")
    # Adding zero takes the sign off a zero.
    return tuple(dict.fromkeys(float(value) + 0.0 for value in given))


@dataclass(frozen=True, order=True)
class Trial:
    """One training run: a method and a model on one fold of one repeat.

    Args:
        method: Name of the method.
        model: Name of the convolution; empty without a network, where ``layers`` is 0.
        layers: Number of convolution layers.
        repeat: Number of the repeat; each repeat shuffles anew.
        fold: Number of the test fold.
        inner: Which of the other folds is validated on, counted from the one after the test fold.
            Only nested selection uses others than 0.
        label_noise: Share of the training labels that are wrong.
        train_fraction: Share of the training graphs that are used.

    Example:
        >>> print(Trial("transplant-dp", "gcs", 3, repeat=0, fold=2))
        transplant-dp, gcs with 3 layers, repeat 0, fold 2
        >>> print(Trial("vanilla", "gcs", 3, repeat=0, fold=2, label_noise=0.2))
        vanilla, gcs with 3 layers, repeat 0, fold 2, noise 20 %
    """

    method: str
    model: str
    layers: int
    repeat: int
    fold: int
    inner: int = 0
    label_noise: float = 0.0
    train_fraction: float = 1.0

    @property
    def condition(self) -> Condition:
        """How hard training is made."""
        return Condition(self.label_noise, self.train_fraction)

    def __str__(self) -> str:
        network = ""
        if self.model:
            layers = f"{self.layers} layer{'s' if self.layers != 1 else ''}"
            network = f"{self.model} with {layers}, "
        place = f"repeat {self.repeat}, fold {self.fold}"
        if self.inner:
            place += f", inner {self.inner}"
        if self.condition.short:
            place += f", {self.condition.short}"
        return f"{self.method}, {network}{place}"

    @staticmethod
    def of_record(record: Record) -> Trial:
        """Give the trial that a record is the result of."""
        return Trial(
            record["method"],
            record.get("model") or "",
            record.get("layers") or 0,
            record["repeat"],
            record["fold"],
            record.get("inner", 0),
            *Condition.of(record),
        )


def all_trials(
    *,
    methods: Sequence[str],
    models: Sequence[str],
    layers: Sequence[int],
    repeats: int,
    folds: int,
    nested: bool = False,
    label_noise: Sequence[float] = (0.0,),
    train_fraction: Sequence[float] = (1.0,),
) -> Iterator[Trial]:
    """List the trials of a comparison, fold by fold.

    All methods of one fold and condition come before the next, so that a comparison stopped
    half-way holds complete pairs. One split counts as one fold; ``nested`` validates on each of the
    other folds in turn.

    Example:
        >>> trials = all_trials(methods=["vanilla", "transplant-dp"], models=["gcs"], layers=[3],
        ...                     repeats=1, folds=3)
        >>> [(trial.fold, trial.method) for trial in trials][:3]
        [(0, 'vanilla'), (0, 'transplant-dp'), (1, 'vanilla')]
    """
    inner_splits = range(folds - 1 if nested else 1)
    places = product(range(repeats), range(folds))
    for (repeat, fold), condition in product(places, product(label_noise, train_fraction)):
        for model in models:
            for depth in layers:
                for method in methods:
                    for inner in inner_splits:
                        yield Trial(method, model, depth, repeat, fold, inner, *condition)
