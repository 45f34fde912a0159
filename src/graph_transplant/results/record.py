"""A trial, the condition it runs under, and the record it leaves."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, astuple, dataclass, field, fields
from itertools import product
from typing import Any, Final, NamedTuple, TypedDict

from graph_transplant.config.compare import FOLD_SPLITS, Settings
from graph_transplant.config.options import MODELS
from graph_transplant.errors import GraphTransplantError, check_choice, check_in
from graph_transplant.methods import method_of
from graph_transplant.metrics import METRICS
from graph_transplant.utils.schema import Count, Fraction, Share, read
from graph_transplant.utils.text import capital, count


class Condition(NamedTuple):
    """Training conditions shared by all methods."""

    label_noise: float = 0.0  # share of wrong training labels, in [0, 1)
    train_fraction: float = 1.0  # share of the training graphs that are used, in (0, 1]

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
        """Short form, for narrow places; empty for the default."""
        parts = []
        if self.label_noise:
            parts.append(f"noise {_share(self.label_noise)}")
        if self.train_fraction != 1:
            parts.append(f"size {_share(self.train_fraction)}")
        return ", ".join(parts)

    @property
    def order(self) -> tuple[float, float]:
        """Sort key: the default first, harder conditions later."""
        return self.label_noise, -self.train_fraction

    def sentence(self, text: str) -> str:
        """Prepend the condition to a sentence that begins with a name."""
        return f"{capital(self.words)}, {text}" if self.words else text


def _share(value: float) -> str:
    return f"{100 * value:.4g} %"


def check_conditions(
    label_noise: Sequence[float], train_fraction: Sequence[float]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Check the values of both axes; return them as floats without duplicates."""
    noise = _shares("label_noise", label_noise, "[0, 1)")
    return noise, _shares("train_fraction", train_fraction, "(0, 1]")


def _shares(name: str, given: Sequence[Any], kind: str) -> tuple[float, ...]:
    if not given:
        raise GraphTransplantError(f"`{name}` must have at least one share in {kind}; got none")
    for value in given:
        check_in(kind, **{name: value})
    # Adding zero turns -0.0 into 0.0.
    return tuple(dict.fromkeys(float(value) + 0.0 for value in given))


@dataclass(frozen=True, order=True)
class Trial:
    """One training run: a method and a model on one fold of one repeat.

    Without a network, ``model`` is empty and ``layers`` is 0.
    """

    method: str
    model: str
    layers: int
    repeat: int
    fold: int
    label_noise: float = 0.0
    train_fraction: float = 1.0

    @property
    def condition(self) -> Condition:
        """Label noise and training fraction."""
        return Condition(self.label_noise, self.train_fraction)

    @property
    def file_name(self) -> str:
        """Name for files of the trial, without an ending; distinct even where case is ignored."""
        key = "-".join(str(value) for value in astuple(self))
        digest = hashlib.sha256(repr(astuple(self)).encode()).hexdigest()[:12]
        return f"{re.sub(r'[^-.=A-Za-z0-9]', '_', key)[:100]}-{digest}"

    def __str__(self) -> str:
        parts = [
            self.method,
            f"{self.model} with {count(self.layers, 'layer')}"
            if self.model in MODELS
            else self.model,
            f"repeat {self.repeat}, fold {self.fold}",
            self.condition.short,
        ]
        return ", ".join(filter(None, parts))


def all_trials(
    *,
    methods: Sequence[str],
    models: Sequence[str],
    layers: Sequence[int],
    repeats: int,
    folds: int,
    label_noise: Sequence[float] = (0.0,),
    train_fraction: Sequence[float] = (1.0,),
) -> Iterator[Trial]:
    """Yield the trials of a comparison.

    All methods of one fold and condition come before the next, so that an interrupted comparison
    has complete pairs. A single split counts as one fold.
    """
    places = product(range(repeats), range(folds), label_noise, train_fraction)
    for repeat, fold, noise, fraction in places:
        for model, depth, method in product(models, layers, methods):
            yield Trial(method, model, depth, repeat, fold, noise, fraction)


# -------------------------------------------------------------------- what a trial leaves

Number = bool | int | float | None
"""A measured number; undefined ones are null."""

Numbers = dict[str, Number]

Entry = dict[str, Number | Numbers]
"""Numbers of one epoch, bin or budget; ``measurements`` holds further ones."""


class Setup(NamedTuple):
    """A candidate of a method: its number of layers, and the method with its parameters."""

    layers: int | None
    method: str


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What times depend on."""

    processor: str
    threads: int


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Numbers of graphs."""

    train: Count
    validation: Count
    test: Count
    left_out: Count = 0

    @property
    def graphs(self) -> int:
        """All of them together."""
        return self.train + self.validation + self.test + self.left_out


@dataclass(frozen=True, kw_only=True)
class TrialRecord:
    """A finished trial, as stored in ``records.jsonl``; fields with their defaults are left out.

    ``model``, ``layers`` and epochs are ``None`` without a network.
    """

    data: str
    source: str = ""  # how the user specified the data
    fingerprint: str
    task: str | None = None
    method: str
    model: str | None
    layers: int | None
    repeat: int
    fold: int
    seed: int | None = None
    validation: Numbers
    test: Numbers
    epochs: int | None
    best_epoch: int | None
    seconds: int | float
    machine: Machine | None = None
    sizes: Sizes
    settings: dict[str, Any]
    label_noise: Share = 0.0
    train_fraction: Fraction = 1.0
    majority: Number = None  # accuracy of always predicting the largest class
    wrong_labels: int | None = None
    stopped_early: bool | None = None
    curve: list[Entry] = field(default_factory=list)
    cost: Numbers = field(default_factory=dict)
    calibrated: Numbers = field(default_factory=dict)
    reliability: list[Entry] = field(default_factory=list)
    reliability_calibrated: list[Entry] = field(default_factory=list)
    attacked: list[Entry] = field(default_factory=list)
    saliency: Numbers = field(default_factory=dict)
    saliency_curve: list[Entry] = field(default_factory=list)
    samples: Numbers = field(default_factory=dict)
    examples: list[dict[str, Any]] = field(default_factory=list)
    parameters: dict[str, Any] = field(default_factory=dict)
    chosen: Setup | None = None  # set by selection, which removes parameters from `method`

    @property
    def condition(self) -> Condition:
        """Label noise and training fraction."""
        return Condition(self.label_noise, self.train_fraction)

    @property
    def setup(self) -> Setup:
        """The layers and the method with its parameters, also after selection."""
        return self.chosen or Setup(self.layers, self.method)

    @property
    def trial(self) -> Trial:
        """The trial that left the record."""
        layers, method = self.setup
        place = self.repeat, self.fold
        return Trial(method, self.model or "", layers or 0, *place, *self.condition)

    @property
    def metric(self) -> str:
        """The name of the metric that it is judged by."""
        name: str = self.settings["metric"]
        return name

    def score(self, part: str = "test") -> float | None:
        """The value of its metric, or ``None`` if it is missing or not finite."""
        value = getattr(self, part).get(self.metric)
        return value if isinstance(value, int | float) and math.isfinite(value) else None

    @property
    def numerics(self) -> int:
        """What its method's numbers depend on besides the settings."""
        numerics: int = self.settings["numerics"]
        return numerics

    @property
    def current(self) -> bool:
        """Whether the trial would give the same numbers today."""
        return self.numerics == method_of(self.method).numerics

    @property
    def one_split(self) -> bool:
        """Whether all trials share a single split (official or scaffold) instead of folds."""
        return self.settings["split"] not in FOLD_SPLITS

    @property
    def folds(self) -> int:
        """The number of folds; 1 for a single split."""
        folds: int = 1 if self.one_split else self.settings["folds"]
        return folds


def newest(records: Sequence[TrialRecord]) -> list[TrialRecord]:
    """Leave out the trials of a method that also has trials of higher numerics."""
    highest: dict[str, int] = {}
    for record in records:
        highest[record.method] = max(record.numerics, highest.get(record.method, 0))
    return [record for record in records if record.numerics == highest[record.method]]


OBJECTS: Final = ("sizes", *(one.name for one in fields(TrialRecord) if one.type == "Numbers"))
"""Fields with numbers by name."""

LISTS: Final = tuple(one.name for one in fields(TrialRecord) if one.type == "list[Entry]")
"""Fields with a list of such objects."""


class _Settings(TypedDict):
    folds: int
    epochs: int
    numerics: int
    metric: str
    split: str
    recipe: str
    shards: int
    attack: list[float]


class _WithSettings(TypedDict):
    settings: _Settings


_DEFAULTS: Final = asdict(Settings()) | {"attack": [], "numerics": 1, "version": ""}
del _DEFAULTS["folds"], _DEFAULTS["epochs"]  # never missing


def upgrade(content: Any) -> Any:
    """Convert a record of an earlier version; ``None`` for a trial of nested selection."""
    if not isinstance(content, dict):
        return content or {}
    if content.get("inner"):
        return None
    settings, curve = content.get("settings"), content.get("curve")
    if isinstance(settings, dict):
        settings = settings | {k: v for k, v in _DEFAULTS.items() if k not in settings}
        if "parts" in settings:  # the former name of `shards`
            settings["shards"] = settings.pop("parts")
        if isinstance(settings["attack"], list):
            settings["attack"] = sorted(set(settings["attack"]))
        content = content | {"settings": settings}
    if isinstance(curve, list) and curve and "validation_score" not in curve[0]:
        scored = [{**p, "validation_score": p.get("validation_accuracy")} for p in curve]
        content = content | {"curve": scored}
    return content


def record_of(content: Any) -> TrialRecord | None:
    """Convert the JSON values of a line; raise a `DataError` that names the first wrong field."""
    with suppress(TypeError, AttributeError):  # damaged: reported below
        content = upgrade(content)
    if content is None:
        return None
    record = read(TrialRecord, content)
    # Kept as recorded, with settings that this version does not know.
    known = _Settings.__annotations__
    settings = {name: value for name, value in record.settings.items() if name in known}
    read(_WithSettings, {"settings": settings})
    check_choice("settings.metric", record.metric, METRICS)
    return record
