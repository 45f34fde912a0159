"""How the trials of a comparison were asked for: the commands on its page are built from this.

``DIR/comparison.json`` holds one entry per call of :func:`~graph_transplant.compare`, the latest
last, whether it came from the command line or from Python.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from graph_transplant import __version__
from graph_transplant.config.datasets import READING
from graph_transplant.config.training import TrainConfig
from graph_transplant.errors import GraphTransplantError
from graph_transplant.methods import BUILT_IN as BUILT_IN_METHODS
from graph_transplant.methods import GROUPS, RENAMED_GROUPS, method_key
from graph_transplant.metrics import BUILT_IN
from graph_transplant.results.record import TrialRecord
from graph_transplant.utils.files import COMMANDS, folder_name, write_atomically

if TYPE_CHECKING:
    from graph_transplant.results.groups import Group

CALLS = "comparison.json"
"""File of a comparison with the calls that made its records."""

FORMAT: Final = 2
"""Increased when earlier versions cannot read the file."""

LARGEST: Final = 2**22
"""Most bytes that the file may have."""

MOST_VALUES: Final = 100
"""Longer lists are treated as objects: no command should spell them out."""

_OWN: Final = ("methods", "model")  # arguments that may hold the user's own objects
_TRAIN_SPLITS: Final = {"folds": "random", "scaffold-folds": "scaffold"}


@dataclass(frozen=True)
class Asked:
    """The trials that a call asked for; candidates of a search one by one."""

    methods: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    layers: tuple[int, ...] = ()
    label_noise: tuple[float, ...] = (0.0,)
    train_fraction: tuple[float, ...] = (1.0,)

    def covers(self, group: Group) -> bool:
        """Whether trials of a group of results were asked for."""
        return (
            (not group.model or group.model in self.models)
            and (not group.layers or group.model is None or group.layers in self.layers)
            and group.label_noise in self.label_noise
            and group.train_fraction in self.train_fraction
        )


@dataclass(frozen=True)
class Call:
    """One call of :func:`~graph_transplant.compare`.

    Attributes:
        data: Name or path of the data; ``None`` for Python objects.
        reading: How the data were read, such as ``target``.
        options: Arguments of ``compare`` that differ from their defaults.
        objects: Names of arguments that are Python objects, which no file can hold.
        asked: What these arguments asked for.
        out: Directory of the records; ``None`` for a temporary one.
        contradictory: Number of graphs with identical copies whose targets differ.
    """

    data: str | None
    reading: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    objects: tuple[str, ...] = ()
    asked: Asked = Asked()
    out: str | None = None
    contradictory: int = 0

    def compare(self, **changes: Any) -> str:
        """The command that repeats the call, with changes; ``None`` stands for a default."""
        options = {name: v for name, v in {**self.options, **changes}.items() if v is not None}
        if self.out is not None:
            options["out"] = self.out
        words = None if self.objects else self._words(options)
        if words is not None:
            return shlex.join(["graph-transplant", "compare", *words])
        return f"gt.compare({self._arguments(options, self.objects)})"

    def train(self, record: TrialRecord) -> str:
        """The command that trains a model as a trial of this comparison was trained."""
        setup, settings, split = record.setup, record.settings, record.settings["split"]
        options = {
            "recipe": settings["recipe"],
            "model": record.model,
            "layers": setup.layers,
            "method": setup.method,
            "epochs": settings["epochs"],
            "split": _TRAIN_SPLITS.get(split, split),
        }
        usual = asdict(TrainConfig())
        options |= {
            name: value
            for name, value in self.options.items()
            if name in usual and name not in options
        }
        options = {name: value for name, value in options.items() if value != usual[name]}
        objects = [name for name in self.objects if name not in _OWN]
        words = None if objects else self._words(options, train=True)
        if words is not None:
            return shlex.join(["graph-transplant", "train", *words])
        folder = f"models/{folder_name(record.data)}"
        return f"gt.train({self._arguments(options, objects)}).save({folder!r})"

    def _words(self, options: Mapping[str, Any], *, train: bool = False) -> list[str] | None:
        """The arguments on the command line; ``None`` if it cannot express them."""
        if self.data is None or not self.reading.keys() <= set(READING):
            return None
        if options.get("metric", "accuracy") not in BUILT_IN:
            return None
        methods = options.get("method" if train else "methods", ())
        named = [methods] if isinstance(methods, str) else methods
        if not {method_key(one) for one in named} <= {*BUILT_IN_METHODS, *GROUPS, *RENAMED_GROUPS}:
            return None
        words = [self.data]
        for name, value in {**self.reading, **options}.items():
            option = "--" + "-".join(name.split("_"))
            if name == "model" and not train:
                option = "--models"
            if name == "select":
                value = value == "validation"
            if isinstance(value, bool):
                # Most options cannot be switched off, since that is their default.
                off = [f"{option}=false"] if name == "group_duplicates" else []
                words += [option] if value else off
                continue
            several = [str(one) for one in (value if isinstance(value, list) else [value])]
            if len(several) > 1 and any("," in one for one in several):
                return None
            text = ",".join(several)
            words += [f"{option}={text}"] if text.startswith("-") else [option, text]
        return words

    def _arguments(self, options: Mapping[str, Any], objects: Sequence[str]) -> str:
        """The arguments in Python; objects are named as their parameters."""
        given = ["data" if self.data is None else repr(self.data)]
        given += [f"{name}={name}" for name in objects]
        given += [f"{name}={value!r}" for name, value in {**self.reading, **options}.items()]
        return ", ".join(given)


def plain_value(value: Any) -> Any:
    """Convert a value to one that JSON can hold; raise ``TypeError`` if it is none."""
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:  # a scalar of NumPy
        value = value.item()
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, list | tuple) and len(value) <= MOST_VALUES:
        return [plain_value(one) for one in value]
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    raise TypeError(type(value).__name__)


def split_plain(values: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Split arguments into plain values and the names of all others."""
    plain: dict[str, Any] = {}
    objects: list[str] = []
    for name, value in values.items():
        try:
            plain[name] = plain_value(value)
        except TypeError:
            objects.append(name)
    return plain, tuple(objects)


# -------------------------------------------------------------------- the file


def read_calls(directory: Path) -> tuple[Call, ...]:
    """Read the calls of a comparison, the latest last; none if earlier versions made it."""
    path = directory / CALLS
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
    except FileNotFoundError:
        return ()
    try:
        if len(content) > LARGEST:
            raise ValueError(f"more than {LARGEST} bytes")
        found = json.loads(content)
        newer = found["format"] > FORMAT
        version = str(found["version"])
        calls = () if newer else tuple(map(_call, found["calls"]))
    except (ValueError, TypeError, KeyError, RecursionError) as problem:
        raise GraphTransplantError(
            f"{path} is damaged ({problem}); remove it to go on without the commands it holds"
        ) from problem
    if newer:
        raise GraphTransplantError(
            f"{path} was written by graph-transplant {version}, which is newer than this one "
            f"({__version__}): upgrade graph-transplant"
        )
    return calls


def remember_call(directory: Path, call: Call, *, fresh: bool) -> tuple[Call, ...]:
    """Add a call as the latest, also to the list of commands; ``fresh`` forgets earlier ones."""
    earlier = () if fresh else read_calls(directory)
    calls = (*(one for one in earlier if one != call), call)
    content = {"format": FORMAT, "version": __version__, "calls": [asdict(one) for one in calls]}
    write_atomically(directory / CALLS, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    path, command = directory / COMMANDS, call.compare()
    known = path.read_text("utf-8").splitlines() if path.is_file() and not fresh else []
    if command not in known:
        write_atomically(path, "".join(f"{line}\n" for line in [*known, command]))
    return calls


def _call(entry: Mapping[str, Any]) -> Call:
    """Check an entry of the file, which may come from anywhere."""
    given = {one.name: entry[one.name] for one in fields(Call)}
    asked = {one.name: entry["asked"][one.name] for one in fields(Asked)}
    for one in (given["data"], given["out"]):
        _require(one, str | None)
    for one in (given["reading"], given["options"]):
        _require(one, dict)
        if not all(name.isidentifier() for name in one):
            raise ValueError(f"{', '.join(one)!r} are no arguments")
        for value in one.values():
            _require(value, str | bool | int | float | list | None)
            for item in value if isinstance(value, list) else ():
                _require(item, str | bool | int | float | None)
    kinds: dict[str, Any] = {"methods": str, "models": str, "layers": int}
    for name, values in {**asked, "objects": given["objects"]}.items():
        _require(values, list)
        for value in values:
            _require(value, str if name == "objects" else kinds.get(name, int | float))
    if not all(name.isidentifier() for name in given["objects"]):
        raise ValueError(f"{given['objects']!r} are no arguments")
    _require(given["contradictory"], int)
    if given["options"].get("engine") == "torchrun":  # an engine of format 1
        del given["options"]["engine"]
    lists = {name: tuple(values) for name, values in asked.items()}
    return Call(**{**given, "objects": tuple(given["objects"]), "asked": Asked(**lists)})


def _require(value: Any, kind: Any) -> None:
    if not isinstance(value, kind):
        raise TypeError(f"{type(value).__name__} found")
