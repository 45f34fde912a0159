"""What an option may be: names to choose from, limits of numbers, and checks by these types.

The same types are read by editors and by the command line, whose help must not import torch.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from functools import partial
from types import FunctionType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from graph_transplant.errors import (
    GraphTransplantError,
    check_at_least,
    check_choice,
    check_in,
    check_positive,
)
from graph_transplant.methods import GROUPS, METHODS, RENAMED_GROUPS, method_key
from graph_transplant.metrics import selection_metrics

# ------------------------------------------------------------------ networks and training

Convolution = Literal["gcn", "gcs", "gin", "gat", "gine", "gat-edge"]
Readout = Literal["mean", "sum", "max", "mean-max"]
Norm = Literal["none", "batch", "layer"]
RecipeName = Literal["paper", "strong"]
ScaleName = Literal["small", "medium", "large"]
PatienceUnit = Literal["iterations", "epochs"]
Ties = Literal["first", "loss", "reset"]
TrainingSplit = Literal["auto", "random", "scaffold", "official"]

MODELS: tuple[Convolution, ...] = get_args(Convolution)
"""Convolutions, see ``graph_transplant.nn.CONVOLUTIONS``."""

READOUTS: tuple[Readout, ...] = get_args(Readout)
"""Poolings of node embeddings into a graph embedding."""

NORMS: tuple[Norm, ...] = get_args(Norm)

TRAINING_SPLITS: tuple[TrainingSplit, ...] = get_args(TrainingSplit)
"""How graphs are split to train one model."""

# ------------------------------------------------------------------ Graph Transplant

Connect = Literal["dp", "ep", "none"]
RENAMED_CONNECTIONS: dict[str, Connect] = {"degree": "dp", "predict": "ep"}
"""Former ways to connect, which are accepted with a warning until version 0.4."""

Anchors = Literal["salient", "random"]
Cut = Literal["subgraph", "scattered"]
Importance = Literal["saliency", "size"]
NewEdgeAttr = Literal["drawn", "zero"]
PairingPolicy = Literal["random", "same-class", "cross-class", "minority"]
SaliencyKind = Literal["gradient", "gradient-x-activation"]
SaliencyName = Literal["gradient", "gradient-x-activation", "gradient-after-activation"]

# ------------------------------------------------------------------ comparisons

ComparisonSplit = Literal["folds", "scaffold-folds", "official", "scaffold"]
Selection = Literal["none", "validation"]
Engine = Literal["local", "ray"]

# ------------------------------------------------------------------ numbers

Count = Annotated[int, partial(check_at_least, 1)]
Folds = Annotated[int, partial(check_at_least, 3)]
Seed = Annotated[int, partial(check_at_least, 0)]
Positive = Annotated[float, check_positive]
NonNegative = Annotated[float, partial(check_in, "[0, inf)")]
PositiveShare = Annotated[float, partial(check_in, "(0, 1]")]
ShareBelowOne = Annotated[float, partial(check_in, "[0, 1)")]
InnerShare = Annotated[float, partial(check_in, "(0, 1)")]


# ------------------------------------------------------------------ names in registries


def one_of(
    names: Callable[[], Iterable[str]],
    *,
    key: Callable[[str], str] = str,
    objects: bool = False,
) -> Callable[..., None]:
    """Make a check of names, which a registry may add to; ``objects`` are checked where used."""

    def check(**values: Any) -> None:
        for option, value in values.items():
            if isinstance(value, str) or not objects:
                check_choice(option, key(value), names())

    return check


def _transplants() -> list[str]:
    return [name for name in METHODS if name.startswith("transplant-")]


MetricName = Annotated[str, one_of(selection_metrics)]
ModelName = Annotated[str, one_of(lambda: ("auto", *MODELS))]
MethodName = Annotated[
    str,
    one_of(lambda: (*GROUPS, *METHODS, *RENAMED_GROUPS), key=method_key, objects=True),
]
TransplantName = Annotated[str, one_of(_transplants, key=method_key)]


# ------------------------------------------------------------------ checks


def check_options(options: Any) -> None:
    """Check every field of a dataclass by its type; store plain numbers, and lists as tuples."""
    for option in fields(options):
        value = checked(option.name, option.type, getattr(options, option.name))
        object.__setattr__(options, option.name, value)


def checked(name: str, kind: Any, value: Any) -> Any:
    """Return the value of an option as its type has it; raise if it is not allowed."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):  # an option or `None`
        return None if value is None else checked(name, parts[0], value)
    if origin is Annotated:
        for check in (part for part in parts[1:] if isinstance(part, FunctionType | partial)):
            check(**{name: value})
        return checked(name, parts[0], value)
    if origin is Literal:
        return check_choice(name, value, parts)
    if origin is tuple:
        return _several(name, parts[0], value)
    if kind is float:
        return float(value) + 0.0  # turns -0.0 into 0.0
    return kind(value) if kind in (bool, int) else value  # records cannot hold NumPy scalars


def _several(name: str, kind: Any, value: Any) -> Any:
    """Return one value or several as a tuple without duplicates; a mapping names own objects."""
    if isinstance(value, Mapping):
        return value
    single = isinstance(value, str) or not isinstance(value, Iterable)
    return tuple(dict.fromkeys(checked(name, kind, one) for one in ([value] if single else value)))


def check_shares(validation: float, test: float) -> None:
    """Raise if the shares of validation and test graphs leave none to train on."""
    check_in("(0, 1)", validation=validation)
    check_in("[0, 1)", test=test)
    if validation + test >= 1:
        raise GraphTransplantError(
            "`validation` and `test` must leave graphs to train on: together they must be below 1; "
            f"got {validation} and {test}"
        )
