"""``model.json``: what a trained model is, how it was trained and how good it is."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn, TypedDict

from graph_transplant import __version__
from graph_transplant.config.recipes import Architecture
from graph_transplant.errors import DataError
from graph_transplant.metrics import TASKS
from graph_transplant.utils.schema import Count, Finite, read, refuse_unknown, shown

FORMAT: Final = 1
FORMAT_NAME: Final = "graph-transplant model"
FORMAT_LINE: Final = f"{FORMAT_NAME} {FORMAT}"
MOST_BYTES: Final = 16 << 20

Figures = dict[str, int | Finite | None]
"""Values by name; undefined ones are null."""

Interval = tuple[Finite, Finite]


class _Epoch(TypedDict):
    epoch: Count


class CurvePoint(_Epoch, total=False):
    """Losses and scores of one epoch."""

    train_loss: Finite | None
    validation_loss: Finite | None
    validation_accuracy: Finite | None
    validation_score: Finite | None
    measurements: Figures


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Numbers of graphs."""

    train: Count
    validation: Count
    test: Count


@dataclass(frozen=True, kw_only=True)
class Duplicates:
    """Duplicates among the graphs; older models have only some of the counts."""

    graphs: Count  # with a copy
    distinct: Count | None = None  # groups of identical graphs
    differing: Count = 0  # graphs whose copies have other targets
    across: Count  # held-out graphs with a copy in the training part


@dataclass(frozen=True, kw_only=True)
class DataSummary:
    """The data set of a model."""

    name: str
    source: str
    fingerprint: str
    graphs: Count
    max_nodes: Count | None = None  # of the training graphs
    mean_nodes: Finite
    mean_edges: Finite
    node_features: Count
    edge_features: Count
    skipped: Count
    class_counts: list[Count]
    measured: list[Count]
    # By part of the split: the share of graphs of each class or with each label.
    class_shares: dict[str, list[Finite | None]] = field(default_factory=dict)
    duplicates: Duplicates | None = None  # None if they were not searched for


@dataclass(frozen=True, kw_only=True)
class BaselineArchitecture:
    """What the arrays of a :class:`~graph_transplant.baselines.model.Baseline` follow from."""

    baseline: str
    task: str
    num_outputs: Count
    in_features: Count
    edge_features: Count
    parameters: dict[str, str | int | Finite]  # those chosen on the validation graphs
    arrays: dict[str, list[str | Count]]  # type and shape by name
    descriptors: list[str] = field(default_factory=list)  # those of molecules that it reads


@dataclass(frozen=True, kw_only=True)
class Training:
    """The values of a `TrainConfig`, and the course of training.

    Without a network, what belongs to one is empty or 0.
    """

    method: str
    model: str
    layers: Count
    recipe: str
    hidden: Count
    readout: str
    dropout: Finite
    epochs: Count
    batch_size: Count
    learning_rate: Finite
    split: str
    validation: Finite | None
    test: Finite | None
    balance: bool
    class_weight: str | list[Finite] | None
    ensemble: Count
    metric: str
    seed: Count
    sizes: Sizes
    best_epoch: Count  # this and `epochs_run` are those of the first member of an ensemble
    best_epochs: list[Count]
    epochs_run: Count
    stopped_early: bool
    seconds: Finite


@dataclass(frozen=True, kw_only=True)
class ModelMetrics:
    """Values of all metrics."""

    validation: Figures
    test: Figures
    test_uncalibrated: Figures
    intervals: dict[str, Interval]
    baseline: Figures = field(default_factory=dict)  # of a constant prediction
    forest_left_out: str | None = None  # why there is no forest
    forest: Figures = field(default_factory=dict)
    over_forest: dict[str, Interval] = field(default_factory=dict)  # of the differences to it


@dataclass(frozen=True, kw_only=True)
class DividedErrors:
    """Mean errors of some test graphs and of the rest, and the chance of such a difference."""

    graphs: Count
    first: Finite
    rest: Finite
    chance: Finite


@dataclass(frozen=True, kw_only=True)
class Similarity:
    """See `graph_transplant.models.uncertainty`."""

    threshold: Finite
    justified: bool
    test: DividedErrors | None


@dataclass(frozen=True, kw_only=True)
class Uncertainty:
    """See `graph_transplant.models.uncertainty`."""

    coverage: Finite | None
    held: Finite | None
    size: Finite | None
    spread: DividedErrors | None
    similarity: Similarity


@dataclass(frozen=True, kw_only=True)
class ReliabilityBin:
    """Confidence and accuracy of the predictions in one interval of confidence."""

    lower: Finite
    upper: Finite
    count: Count
    confidence: Finite | None
    accuracy: Finite | None

    def __post_init__(self) -> None:
        if self.count and None in (self.confidence, self.accuracy):
            raise DataError("a bin that is not empty must have confidence and accuracy")


@dataclass(frozen=True, kw_only=True)
class Reliability:
    """Reliability on the test graphs, before and after calibration."""

    before: list[ReliabilityBin]
    after: list[ReliabilityBin]


@dataclass(frozen=True, kw_only=True)
class ModelDescription:
    """The content of ``model.json``."""

    format: str
    version: str
    architecture: Architecture | None = None  # of a network
    baseline: BaselineArchitecture | None = None  # of a model without one
    task: str
    label_names: list[str]
    temperature: Finite
    target_scale: dict[str, list[Finite]] | None
    featurizer: dict[str, Any] | None
    data: DataSummary
    training: Training
    curve: list[CurvePoint]
    saliency: Figures | None
    training_graphs: str | None
    metrics: ModelMetrics
    reliability: Reliability | None
    confusion: list[list[Count]] | None
    roc: dict[str, list[Interval]] | None
    scatter: list[Interval] | None
    residual_90: list[Finite | None] | None
    uncertainty: Uncertainty | None = None
    command: str | None = None  # of models trained on the command line
    weights_sha256: str = ""  # of the file of weights

    def __post_init__(self) -> None:
        if problem := _mismatch(self):
            raise DataError(problem)


def upgrade(document: dict[str, Any]) -> dict[str, Any]:
    """Convert the content of an earlier version."""
    document = {"saliency": None, "training_graphs": None, **document}
    if "reading" in document:  # its name in version 0.1
        document["featurizer"] = document.pop("reading")
    training = document.get("training")
    if isinstance(training, dict):
        older = {"recipe": "paper", "class_weight": None, "ensemble": 1}
        last = {"best_epochs": [training.get("best_epoch")]}
        document["training"] = older | last | training
    return document


def read_description(path: Path) -> ModelDescription:
    """Read a ``model.json``; raise a `DataError` if it is invalid."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise DataError(
                f"{path} is larger than {MOST_BYTES >> 20} MiB, too large for a model description"
            )
        document = json.loads(path.read_bytes().decode(), parse_constant=_no_constant)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not valid JSON: {error}") from None
    return description_of(document, str(path))


def description_of(content: Any, where: str) -> ModelDescription:
    """Convert the content of a file; raise a `DataError` that names the first invalid field."""
    document = content if isinstance(content, dict) else {}
    written = re.fullmatch(rf"{FORMAT_NAME} ([0-9]{{1,9}})", str(document.get("format")))
    if written is None:
        raise DataError(
            f"{where} does not describe a model: `format` must be {FORMAT_LINE!r}; got "
            f"{shown(document.get('format'))}"
        )
    found = f"{where} was written by version {shown(document.get('version'))} (format {written[1]})"
    here = _release(__version__)  # unknown in a source tree that is not installed
    if int(written[1]) > FORMAT or (here and _release(document.get("version")) > here):
        raise DataError(
            f"{found}, which is newer than this one, {__version__} (format {FORMAT}): update "
            "graph-transplant, or train again"
        )
    if int(written[1]) < FORMAT:
        raise DataError(
            f"{found}; this is {__version__}, which reads format {FORMAT}: load it with that "
            "version, or train again"
        )
    for name, kind in (("architecture", Architecture), ("baseline", BaselineArchitecture)):
        refuse_unknown(kind, document.get(name), f"{where}: `{name}`")
    return read(ModelDescription, upgrade(document), where)


def _release(version: object) -> tuple[int, ...]:
    """Return the numbers of a version such as 0.2.1; none if it is unknown."""
    known = re.match(r"[0-9]{1,6}(\.[0-9]{1,6}){1,3}(?![0-9])", str(version))
    return tuple(map(int, known[0].split("."))) if known else ()


def _mismatch(d: ModelDescription) -> str:
    """Describe the first inconsistency between fields; empty if there is none."""
    made = d.architecture or d.baseline
    if made is None or (d.architecture and d.baseline):
        return "either `architecture` or `baseline` must be given"
    outputs, scale = made.num_outputs, d.target_scale or {}
    if d.task not in TASKS or made.task != d.task:
        return f"`task` must be one of {', '.join(TASKS)}, and `architecture.task` the same"
    if d.training.ensemble < 1:
        return "`training.ensemble` must be at least 1; got 0"
    if d.baseline and d.training.ensemble != 1:
        return "`training.ensemble` must be 1 without a network"
    if not d.temperature > 0:
        return f"`temperature` must be above 0; got {d.temperature:g}"
    if (d.target_scale is not None) != (d.task == "regression"):
        return "`target_scale` must be given for regression and null otherwise"
    lists: dict[str, Any] = {"label_names": d.label_names, "residual_90": d.residual_90}
    lists |= {f"target_scale.{name}": values for name, values in scale.items()}
    lists |= {f"confusion[{n}]": row for n, row in enumerate(d.confusion or ())}
    lists["confusion"] = d.confusion
    for name, values in lists.items():
        if values is not None and len(values) != outputs:
            return f"`{name}` must have {outputs} entries, one per output; got {len(values)}"
    if not all((d.roc or {}).values()):
        return "`roc` must hold no empty curve"
    if not d.training.best_epochs:
        return "`training.best_epochs` must not be empty"
    return ""


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")
