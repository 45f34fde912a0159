"""A trial, the condition it runs under, and the record it leaves."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from itertools import product
from typing import Any, NamedTuple

from graph_transplant.config.compare import FOLD_SPLITS
from graph_transplant.config.options import MODELS
from graph_transplant.errors import GraphTransplantError, check_in
from graph_transplant.utils.text import capital, count

Record = dict[str, Any]
"""A finished trial, as stored in ``records.jsonl``."""


def metric_of(record: Record) -> str:
    """Return the name of the metric that a record is judged by."""
    name: str = record["settings"].get("metric", "accuracy")
    return name


def score(record: Record, part: str = "test") -> float | None:
    """Return the value of a record's metric, or ``None`` if it is missing or not finite."""
    value = record.get(part, {}).get(metric_of(record))
    return value if isinstance(value, int | float) and math.isfinite(value) else None


def one_split(settings: Mapping[str, Any]) -> bool:
    """Whether all trials share a single split (official or scaffold) instead of folds."""
    return settings.get("split", "folds") not in FOLD_SPLITS


class Condition(NamedTuple):
    """Training conditions shared by all methods."""

    label_noise: float = 0.0  # share of wrong training labels, in [0, 1)
    train_fraction: float = 1.0  # share of the training graphs that are used, in (0, 1]

    @staticmethod
    def of(record: Mapping[str, Any]) -> Condition:
        """Return the condition of a record; missing fields have their defaults."""
        return Condition(**{name: record[name] for name in Condition._fields if name in record})

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

    def as_record(self) -> Record:
        """Return the fields that differ from their defaults, for a record."""
        default = self._field_defaults
        return {name: value for name, value in self._asdict().items() if value != default[name]}

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

    @staticmethod
    def of_record(record: Record) -> Trial:
        """Return the trial of a record."""
        return Trial(
            record["method"],
            record.get("model") or "",
            record.get("layers") or 0,
            record["repeat"],
            record["fold"],
            *Condition.of(record),
        )


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
