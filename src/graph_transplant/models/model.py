"""Trained models, saved as a folder with ``weights.safetensors`` and ``model.json``.

Nothing is pickled, and neither file is trusted: tensors are checked against the architecture before
memory is allocated for the network.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import pandas as pd
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as tensors_as_bytes
from torch import Tensor
from torch.overrides import TorchFunctionMode

from graph_transplant import __version__
from graph_transplant.data import Featurizer, GraphStore, check_stores
from graph_transplant.data.targets import TargetScale
from graph_transplant.datasets.load import Loadable
from graph_transplant.datasets.rows import TableOptions, TargetCodec
from graph_transplant.errors import DataError, GraphTransplantError, brief, check_at_least
from graph_transplant.models.predict import Predictions, prediction_frames
from graph_transplant.models.uncertainty import Ensemble, Reference, members_of, pooled
from graph_transplant.nn import GraphClassifier, evaluating
from graph_transplant.results.model_json import (
    FORMAT_LINE,
    check_description,
    plain,
    read_description,
)
from graph_transplant.training.loop import EVALUATED_ITEMS, evaluated_at_once
from graph_transplant.utils.files import (
    MODEL_FILES,
    check_model,
    refuse_links,
    replace_file,
    write_atomically,
    writing,
)

WEIGHTS: Final = "weights.safetensors"
DESCRIPTION: Final = "model.json"

# Prefix of tensors that are not weights.
_REFERENCE: Final = "reference."
_REFERENCES: Final = tuple(field.name for field in fields(Reference))

# Limits of the file of weights, which may come from elsewhere.
MOST_BYTES: Final = 1 << 30
MOST_TENSORS: Final = 100_000

PREDICTED_ITEMS: Final = 1 << 14
"""Approximate number of nodes and edges per batch on a CPU, so that they stay in its caches."""


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """A trained network with everything needed to use it on new graphs.

    Created by :func:`~graph_transplant.train`, saved with :meth:`save`.

    Args:
        network: The network, with its weights.
        temperature: Divides the logits to calibrate the probabilities; 1 for regression.
        scale: The units of the targets for regression; otherwise ``None``.
        description: The content of ``model.json``: data, training, metrics.
        reference: Data for prediction sets and similarities; older models have none.

    Example:
        >>> import tempfile
        >>> import graph_transplant as gt
        >>> model = gt.train("motifs", graphs=60, method="vanilla", hidden=8, epochs=2)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save(folder)
        ...     again = gt.TrainedModel.load(folder)
        >>> again.predict("motifs", graphs=12)["prediction"].isin(model.label_names).all()
        np.True_
    """

    network: GraphClassifier
    temperature: float
    scale: TargetScale | None
    description: Mapping[str, Any]
    reference: Reference | None = None

    def __repr__(self) -> str:
        training = self.description["training"]
        return (
            f"TrainedModel({self.name!r}: {self.task}, {self.network.num_outputs} outputs, "
            f"{training['model']} with {training['layers']} layers, {training['method']})"
        )

    @property
    def task(self) -> str:
        """``"multiclass"``, ``"multilabel"`` or ``"regression"``."""
        return self.network.task

    @property
    def label_names(self) -> tuple[str, ...]:
        """Names of the outputs."""
        return tuple(self.description["label_names"])

    @cached_property
    def featurizer(self) -> Featurizer | None:
        """How the training graphs were read; new graphs must be read in the same way."""
        found = self.description["featurizer"]
        return None if found is None else Featurizer.from_dict(found)

    def reading(self, target: Any = None) -> dict[str, Any]:
        """Return arguments of ``stream`` that read labelled graphs like the training graphs.

        ``target`` names the target columns, in any order; by default those of the training data.
        """
        if self.task == "multiclass" and isinstance(target, str):
            target = [target]  # one column, even if its name has commas
        names = TableOptions.of(target=target).targets
        names = names or (self.featurizer.targets if self.featurizer else ())
        classes: tuple[str, ...] = ()
        if self.task == "multiclass":
            classes = self.label_names
            if len(names) > 1:
                raise GraphTransplantError(
                    f"`target` must name a single class column; got {', '.join(names)}"
                )
        elif len(names) != len(self.label_names):  # one entry may hold several values
            names = self.label_names
        elif set(names) == set(self.label_names):
            names = self.label_names
            target = None if target is None else names
        comma = self.featurizer is not None and self.featurizer.decimal_comma
        codec = TargetCodec(self.task, names or ("y",), classes, comma)
        given = {"featurizer": self.featurizer, "codec": codec}
        return given if target is None else {**given, "target": target}

    @property
    def widths(self) -> tuple[int, int]:
        """Numbers of node and edge features that the network uses."""
        return self.network.in_features, self.network.edge_features

    @property
    def name(self) -> str:
        """Name of the data set that the model was trained on."""
        found: str = self.description["data"]["name"]
        return found

    @property
    def device(self) -> torch.device:
        """Device of the network."""
        return next(self.network.parameters()).device

    def check(self, store: GraphStore) -> None:
        """Raise a `DataError` if the features differ from those in training."""
        check_stores(store=store)
        if self.featurizer is not None:
            self.featurizer.check_features(store.featurizer, store.name)
        given = (store.num_node_features, store.num_edge_features)
        for kind, mine, wanted in zip(("node", "edge"), given, self.widths, strict=True):
            # A network that does not use edge features accepts any.
            if mine != wanted and (kind == "node" or wanted):
                raise DataError(
                    f"{store.name}: the graphs have {_columns(mine, kind)}, but the model was "
                    f"trained on {self.name} with {_columns(wanted, kind)}: it needs graphs that "
                    "are read in the same way"
                )

    def logits(self, store: GraphStore, *, batch_size: int | None = None) -> Tensor:
        """Return outputs before temperature and target scaling, float32 ``[graphs, outputs]``."""
        return pooled(self._member_logits(store, batch_size), self.task)

    def _member_logits(self, store: GraphStore, batch_size: int | None = None) -> Tensor:
        """Return the logits of every member, float32 ``[members, graphs, outputs]``."""
        self.check(store)
        device, members = self.device, members_of(self.network)
        if batch_size is None:
            most_items = PREDICTED_ITEMS if device.type == "cpu" else EVALUATED_ITEMS
            batch_size = evaluated_at_once(store, most_items)
        check_at_least(1, batch_size=batch_size)
        with evaluating(self.network), torch.inference_mode():
            parts = [
                torch.stack([one.run(batch, layers=False).logits for one in members]).cpu()
                for batch in (
                    each.to(device) for each in store.batches(torch.arange(len(store)), batch_size)
                )
            ]
        # Inference tensors cannot be used in autograd; a copy can.
        return torch.cat(parts, dim=1).clone()

    def outputs(self, logits: Tensor) -> Tensor:
        """Turn logits into probabilities or values, float64 ``[graphs, outputs]``."""
        exact = logits.to(torch.double)
        if self.scale is not None:
            return self.scale.undo(exact)
        exact = exact / self.temperature
        return exact.softmax(1) if self.task == "multiclass" else exact.sigmoid()

    def predictions(self, store: GraphStore, batch_size: int | None = None) -> Predictions:
        """Predict the graphs of a store, as tensors; its targets are ignored."""
        each = self._member_logits(store, batch_size)
        deviation = None
        if len(each) > 1:
            deviation = torch.stack([self.outputs(one) for one in each]).std(0, correction=0)
        outputs = self.outputs(pooled(each, self.task))
        return Predictions(self.task, self.label_names, outputs, deviation)

    def predict(
        self,
        data: Loadable,
        *,
        coverage: float | None = None,
        batch_size: int | None = None,
        **options: Any,
    ) -> pd.DataFrame:
        """Predict graphs, one row each.

        The columns are ``row`` (from 1), ``id``, ``prediction``, ``p(NAME)`` of each class or
        label, ``confidence``, for ensembles ``spread``, the prediction ``set``, ``similarity`` to
        the training graphs, ``warning``, and ``error``, empty if there is a prediction. For
        regression, the value and half the width of its interval, ``NAME ±90``, stand for the rest.

        Args:
            data: Anything that :func:`~graph_transplant.load` accepts; read in the same way as the
                training data. The result has the index of a ``DataFrame`` or ``Series``.
            coverage: Share of new graphs whose true class or value the set or interval should
                contain. Approximate; assumes graphs like the validation graphs. (default: 0.9)
            batch_size: Graphs per batch. (default: depends on their size)
            **options: How the data are read; see :func:`~graph_transplant.load`.
        """
        given = {"coverage": coverage, "batch_size": batch_size, **options}
        frames = list(prediction_frames(self, data, **given))
        if not frames:
            raise DataError("there are no graphs to predict")
        table = pd.concat(frames, ignore_index=True)
        return table.set_axis(data.index) if isinstance(data, pd.DataFrame | pd.Series) else table

    def to(self, device: str | torch.device) -> TrainedModel:
        """Return the model on another device; the network is moved, not copied."""
        return replace(self, network=self.network.to(usable_device(device)))

    def report(self, path: str | Path, *, ignore: Collection[str] = ()) -> Path:
        """Write the model card, a self-contained HTML page.

        Warnings with codes to ``ignore``, such as ``["GT103"]``, are left out; see
        :doc:`/warnings`.
        """
        from graph_transplant.report.card import render_card

        write_atomically(Path(path), render_card(self.description, ignore))
        return Path(path)

    def save(self, directory: str | Path) -> None:
        """Write ``weights.safetensors`` and ``model.json`` into a folder.

        Each file is written atomically. The description has the checksum of the weights, so that
        :meth:`load` detects a partly replaced model.
        """
        folder = Path(directory)
        state = dict(self.network.state_dict())
        if self.reference is not None:
            state |= {f"{_REFERENCE}{name}": v for name, v in vars(self.reference).items()}
        state = {name: value.cpu().contiguous() for name, value in state.items()}
        # A single entry: the order of several would not be deterministic.
        weights = tensors_as_bytes(state, {"format": "pt"})
        if len(state) > MOST_TENSORS or len(weights) > MOST_BYTES:
            raise GraphTransplantError(
                f"a model of {len(state):,} tensors and {len(weights) >> 20:,} MiB is too large to "
                f"save: at most {MOST_TENSORS:,} and {MOST_BYTES >> 20:,} MiB can be loaded again"
            )
        document = plain(
            {
                **self.description,
                "format": FORMAT_LINE,
                "version": __version__,
                "architecture": self.network.config(),
                "temperature": self.temperature,
                "target_scale": None if self.scale is None else self.scale.as_dict(),
                "weights_sha256": hashlib.sha256(weights).hexdigest(),
            }
        )
        check_description(document, "the description of this model")
        text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            refuse_links(folder, MODEL_FILES)
            replace_file(folder / WEIGHTS, weights)
            # Names from damaged files may hold lone surrogates, which UTF-8 cannot encode.
            replace_file(folder / DESCRIPTION, text.encode("utf-8", "replace"))

    @classmethod
    def load(cls, directory: str | Path, device: str | torch.device = "cpu") -> TrainedModel:
        """Load a model; raise a `DataError` if it is missing, damaged or of another version."""
        folder = Path(directory)
        place = usable_device(device)
        check_model(folder, DESCRIPTION, WEIGHTS)
        description = read_description(folder / DESCRIPTION)
        network, reference = _tensors(description, folder / WEIGHTS)
        scale = description["target_scale"]
        model = cls(
            network.eval().to(place),
            float(description["temperature"]),
            None if scale is None else TargetScale.from_dict(scale),
            description,
            reference,
        )
        # The property is lazy: parse it here, so that `load` rejects a damaged file.
        _ = model.featurizer
        return model


def _columns(count: int, kind: str) -> str:
    return f"{count or 'no'} {kind} feature{'' if count == 1 else 's'}"


class _NoValues(TorchFunctionMode):
    """Skips weight initialisation, which on the meta device would import torch's compiler."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        if getattr(func, "__module__", None) == "torch.nn.init":
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs or {})


def _tensors(
    description: Mapping[str, Any], path: Path
) -> tuple[GraphClassifier, Reference | None]:
    """Load the network of a checked description, and its reference data, from a file.

    Names and shapes are compared with the architecture before anything is read or built.
    """
    if path.stat().st_size > MOST_BYTES:
        raise DataError(f"{path} is larger than {MOST_BYTES >> 20} MiB, too large for a model")
    try:
        with safe_open(str(path), framework="pt") as file:
            shapes = {name: file.get_slice(name).get_shape() for name in _few(file.keys(), path)}
            kept = {name: shapes.pop(f"{_REFERENCE}{name}", None) for name in _REFERENCES}
            network = _without_values(description, shapes, path)
            whole = all(shape is not None for shape in kept.values())
            # Copied out of the mapped file, which may change later.
            state = {name: file.get_tensor(name).clone() for name in shapes}
            reference = None
            if whole and "uncertainty" in description:
                parts = {name: file.get_tensor(f"{_REFERENCE}{name}").clone() for name in kept}
                reference = Reference(**parts)
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        if isinstance(error, GraphTransplantError):
            raise
        raise DataError(f"{path} cannot be read as safetensors: {brief(error)}") from None
    types = {name: value.dtype for name, value in network.state_dict().items()}
    for name, value in state.items():
        if value.dtype != types[name]:
            raise DataError(f"{path}: `{name}` must be {types[name]}; got {value.dtype}")
        # Minimum and maximum need no further memory, and keep NaN.
        ends = value.aminmax() if value.is_floating_point() and value.numel() else ()
        if not all(bool(end.isfinite()) for end in ends):
            raise DataError(f"{path}: `{name}` holds a weight that is not a finite number")
    network.load_state_dict(state, assign=True)
    with path.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    if digest != description.get("weights_sha256"):
        raise DataError(
            f"{path} is not the file that {DESCRIPTION} was written with: one of the two was "
            "replaced or damaged"
        )
    if reference is not None:
        columns = 1 if network.task == "multiclass" else network.num_outputs
        reference.check(str(path), columns, (network.in_features, network.edge_features))
    return network, reference


def _few(names: Sequence[str], path: Path) -> Sequence[str]:
    if len(names) > MOST_TENSORS:
        raise DataError(
            f"{path} holds {len(names):,} tensors, too many for a model: at most {MOST_TENSORS:,}"
        )
    return names


def _without_values(
    description: Mapping[str, Any], shapes: Mapping[str, Sequence[int]], path: Path
) -> GraphClassifier:
    """Build the network of a description on the meta device, if the tensors of a file fit it."""
    config, members = description["architecture"], description["training"].get("ensemble", 1)

    def build() -> GraphClassifier:
        # The meta device allocates no memory: a forged width of 10^12 is harmless.
        with torch.device("meta"), _NoValues():
            return GraphClassifier.from_config(config)

    fits = f"does not fit the architecture in {DESCRIPTION}"
    try:
        one = build()
    except (GraphTransplantError, RuntimeError, OverflowError, TypeError, IndexError) as error:
        reason = " ".join(str(error).split())[:300]
        raise DataError(f"{path} {fits}: {reason}") from None
    wanted = {name: list(value.shape) for name, value in one.state_dict().items()}
    if members != 1:
        # Before the names of all members are listed: there may be a forged billion.
        if members * len(wanted) != len(shapes):
            raise DataError(
                f"{path} {fits}: it holds {len(shapes):,} tensors, and {members:,} networks have "
                f"{members * len(wanted):,}"
            )
        wanted = {f"members.{n}.{k}": v for n in range(members) for k, v in wanted.items()}
    for name in {**wanted, **shapes}:
        found = list(shapes[name]) if name in shapes else None
        needed = wanted.get(name)
        if found != needed:
            words = ["missing" if each is None else f"of shape {each}" for each in (found, needed)]
            raise DataError(
                f"{path} {fits}: `{name[:100]}` is {words[0]} in the file and {words[1]} in the "
                "architecture"
            )
    return one if members == 1 else Ensemble([one, *(build() for _ in range(members - 1))])


def usable_device(device: str | torch.device) -> torch.device:
    """Return a device such as ``"cpu"`` or ``"cuda:1"``; raise if it is not available."""
    try:
        found = torch.device(device)
    except RuntimeError:
        raise GraphTransplantError(
            f"`device` must be one that torch knows, such as cpu or cuda; got {device!r}"
        ) from None
    try:
        torch.zeros(1, device=found).cpu()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).partition("\n")[0]
        raise GraphTransplantError(f"`device` {device} cannot be used here: {reason}") from None
    return found
