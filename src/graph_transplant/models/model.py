"""A trained model as a folder: ``weights.safetensors`` beside ``model.json``.

Nothing is pickled, and neither file is trusted: the tensors in the file are held against the
architecture before any memory is asked for.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as tensors_as_bytes
from torch import Tensor

from graph_transplant import __version__
from graph_transplant.errors import DataError, GraphTransplantError
from graph_transplant.experiments.structures import LABELLED
from graph_transplant.files import replace_file
from graph_transplant.graphs import Featurizer, GraphStore
from graph_transplant.models.description import (
    check_description,
    format_line,
    plain,
    read_description,
)
from graph_transplant.nn import GraphClassifier, evaluating
from graph_transplant.targets import TargetScale
from graph_transplant.training import EVALUATED_GRAPHS, EVALUATED_ITEMS

WEIGHTS: Final = "weights.safetensors"
DESCRIPTION: Final = "model.json"

LABEL_THRESHOLD: Final = LABELLED
"""A label is given to a graph from this probability on."""

PREDICTED_ITEMS: Final = 1 << 14
"""About how many nodes and edges a processor predicts at a time: what stays in its caches."""

_MOST_NAMED: Final = 3
_LONGEST_REASON: Final = 300


@dataclass(frozen=True, eq=False)
class Predictions:
    """What a trained model says about some graphs.

    Args:
        task: ``"multiclass"``, ``"multilabel"`` or ``"regression"``.
        label_names: What the outputs are called.
        outputs: float64 ``[graphs, outputs]``: calibrated probabilities, or for regression values
            in the units of the data.

    Example:
        >>> found = Predictions("multiclass", ("no", "yes"), torch.tensor([[0.2, 0.8], [0.9, 0.1]]))
        >>> found.labels, found.confidence
        (['yes', 'no'], tensor([0.8000, 0.9000]))
    """

    task: str
    label_names: tuple[str, ...]
    outputs: Tensor

    def __len__(self) -> int:
        return len(self.outputs)

    @property
    def labels(self) -> list[str]:
        """The likeliest class of every graph; its labels of at least one half joined by ``;``.

        Empty texts for regression.
        """
        if self.task == "multiclass":
            return [self.label_names[place] for place in self.outputs.argmax(1).tolist()]
        if self.task == "regression":
            return [""] * len(self.outputs)
        return [
            ";".join(name for name, given in zip(self.label_names, row, strict=True) if given)
            for row in (self.outputs >= LABEL_THRESHOLD).tolist()
        ]

    @property
    def confidence(self) -> Tensor:
        """How sure the model is, float ``[graphs]``.

        The probability of the likeliest class; for several labels the mean over them of the
        probability of the likelier value; NaN for regression.
        """
        if self.task == "multiclass":
            return self.outputs.amax(1)
        if self.task == "multilabel":
            return torch.maximum(self.outputs, 1 - self.outputs).mean(1)
        return self.outputs.new_full((len(self.outputs),), float("nan"))


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """A trained network with all that is needed to use it on further graphs.

    Made by :func:`~graph_transplant.models.fitting.train`, kept with :meth:`save`.

    Args:
        network: The network, with its weights.
        temperature: What logits are divided by, so that probabilities are as sure as they are
            right; 1 for regression.
        scale: The units of the targets, for regression; else ``None``.
        description: The content of ``model.json``: data, training, figures.

    Example:
        >>> import tempfile
        >>> import graph_transplant as gt
        >>> from graph_transplant.models.fitting import train
        >>> store = gt.load("motifs", graphs=60)
        >>> model = train(store, method="vanilla", hidden=8, epochs=2)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save(folder)
        ...     again = TrainedModel.load(folder)
        >>> torch.equal(model.predict(store).outputs, again.predict(store).outputs)
        True
    """

    network: GraphClassifier
    temperature: float
    scale: TargetScale | None
    description: Mapping[str, Any]

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
        """What the outputs are called."""
        return tuple(self.description["label_names"])

    @cached_property
    def featurizer(self) -> Featurizer | None:
        """How the training graphs were read; further graphs are to be read alike."""
        found = self.description["featurizer"]
        return None if found is None else Featurizer.from_dict(found)

    @property
    def widths(self) -> tuple[int, int]:
        """Numbers of node and edge features that the network takes; 0 where it uses none."""
        config = self.network.config()
        return config["in_features"], config["edge_features"]

    @property
    def name(self) -> str:
        """Name of the data set that the model was trained on."""
        found: str = self.description["data"]["name"]
        return found

    @property
    def device(self) -> torch.device:
        """Where the network is."""
        return next(self.network.parameters()).device

    def check(self, store: GraphStore) -> None:
        """Refuse graphs of another shape than those the model was trained on.

        Args:
            store: The graphs.

        Raises:
            DataError: Naming both shapes.
        """
        config = self.network.config()
        for kind, given, wanted in (
            ("node", store.num_node_features, config["in_features"]),
            ("edge", store.num_edge_features, config["edge_features"]),
        ):
            # A network that does not look at edges does not mind what they are like.
            if given != wanted and (kind == "node" or wanted):
                raise DataError(
                    f"the graphs of {store.name} have {_columns(given, kind)}, but the model was "
                    f"trained on {self.name} with {_columns(wanted, kind)}: it needs graphs that "
                    "are read in the same way"
                )

    def logits(self, store: GraphStore, *, batch_size: int | None = None) -> Tensor:
        """Run the network alone: no temperature, no units.

        Args:
            store: The graphs.
            batch_size: Graphs at a time. (default: by their size, at most 512)

        Returns:
            float32 ``[graphs, outputs]``.
        """
        self.check(store)
        device = self.device
        if batch_size is None:
            items = int(store.node_counts.sum() + store.edge_counts.sum()) // len(store)
            room = PREDICTED_ITEMS if device.type == "cpu" else EVALUATED_ITEMS
            batch_size = max(1, min(EVALUATED_GRAPHS, room // max(1, items)))
        elif batch_size < 1:
            raise GraphTransplantError(f"`batch_size` must be at least 1, got {batch_size}")
        with evaluating(self.network), torch.inference_mode():
            parts = [
                self.network.run(batch.to(device), layers=False).logits.cpu()
                for batch in store.batches(torch.arange(len(store)), batch_size)
            ]
        # A tensor of inference mode could not be used in training any more.
        return torch.cat(parts).clone()

    def outputs(self, logits: Tensor) -> Tensor:
        """Turn what the network says into probabilities or values.

        Args:
            logits: float ``[graphs, outputs]``.

        Returns:
            float64 ``[graphs, outputs]``.
        """
        exact = logits.to(torch.double)
        if self.scale is not None:
            return self.scale.undo(exact)
        exact = exact / self.temperature
        return exact.softmax(1) if self.task == "multiclass" else exact.sigmoid()

    def predict(self, store: GraphStore, batch_size: int | None = None) -> Predictions:
        """Predict graphs.

        Args:
            store: The graphs; their targets are not looked at.
            batch_size: Graphs at a time. (default: by their size, at most 512)

        Raises:
            DataError: When the graphs have other features than those of training.
        """
        logits = self.logits(store, batch_size=batch_size)
        return Predictions(self.task, self.label_names, self.outputs(logits))

    def to(self, device: str | torch.device) -> TrainedModel:
        """Return the model on another device; the network is moved, not copied.

        Args:
            device: Such as ``"cpu"`` or ``"cuda"``.
        """
        return replace(self, network=self.network.to(usable_device(device)))

    def save(self, directory: str | Path) -> None:
        """Write ``weights.safetensors`` and ``model.json`` into a folder.

        Each file is written whole or not at all, and the description knows the checksum of its
        weights: a model that was half replaced is noticed when it is loaded.

        Args:
            directory: Made when it is not there.

        Raises:
            GraphTransplantError: If the disk refuses.
        """
        folder = Path(directory)
        state = {name: value.cpu().contiguous() for name, value in self._state().items()}
        # One entry only: several would be written in an order that changes from time to time.
        weights = tensors_as_bytes(state, {"format": "pt"})
        document = plain(
            {
                **self.description,
                "format": format_line(),
                "version": __version__,
                "architecture": self.network.config(),
                "temperature": self.temperature,
                "target_scale": None if self.scale is None else self.scale.as_dict(),
                "weights_sha256": hashlib.sha256(weights).hexdigest(),
            }
        )
        check_description(document, "the description of this model")
        text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            replace_file(folder / WEIGHTS, weights)
            # Lone surrogates have no place in UTF-8; they stand in names read from broken files.
            replace_file(folder / DESCRIPTION, text.encode("utf-8", "replace"))
        except OSError as problem:
            raise GraphTransplantError(
                f"cannot write the model into {folder}: {problem.strerror}"
            ) from problem

    def _state(self) -> dict[str, Tensor]:
        found: dict[str, Tensor] = self.network.state_dict()
        return found

    @classmethod
    def load(cls, directory: str | Path, device: str | torch.device = "cpu") -> TrainedModel:
        """Read a model that :meth:`save` wrote.

        Args:
            directory: The folder.
            device: Where the network is put.

        Raises:
            DataError: If the folder holds no model, a damaged one, or one of a newer version.
        """
        folder = Path(directory)
        place = usable_device(device)
        if not folder.is_dir():
            raise DataError(f"there is no folder {folder}: a model is a folder with {DESCRIPTION}")
        for name in (DESCRIPTION, WEIGHTS):
            if not (folder / name).is_file():
                raise DataError(f"{folder} holds no model: there is no file {name}")
        description = read_description(folder / DESCRIPTION)
        path = folder / WEIGHTS
        network = _network(description, folder / DESCRIPTION, path)
        if digest_of(path) != description.get("weights_sha256"):
            raise DataError(
                f"{path} is not the file that {DESCRIPTION} was written with: one of the two was "
                "replaced or damaged"
            )
        network.eval()
        scale = description["target_scale"]
        return cls(
            network.to(place),
            float(description["temperature"]),
            None if scale is None else TargetScale.from_dict(scale),
            description,
        )


def _columns(count: int, kind: str) -> str:
    return f"{count or 'no'} {kind} feature{'' if count == 1 else 's'}"


def _network(description: Mapping[str, Any], source: Path, path: Path) -> GraphClassifier:
    """Build the network of a description with the weights of a file.

    Args:
        description: A checked description.
        source: Its file, for errors.
        path: The file of the weights.
    """
    config = description["architecture"]
    try:
        with safe_open(str(path), framework="pt") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            shapes = {name: tuple(part.get_shape()) for name, part in slices.items()}
            _check_sizes(config, source, path, len(shapes))
            # The meta device asks for no memory: a made-up width of a million million is harmless.
            with torch.device("meta"):
                expected = GraphClassifier.from_config(config).state_dict()
            _check_tensors(path, shapes, {name: tuple(v.shape) for name, v in expected.items()})
            state = {name: file.get_tensor(name) for name in expected}
    except (SafetensorError, OSError) as error:
        raise DataError(f"{path} cannot be read as safetensors: {error}") from None
    except (GraphTransplantError, RuntimeError, OverflowError, TypeError) as error:
        if isinstance(error, DataError):
            raise
        reason = str(error)[:_LONGEST_REASON]
        raise DataError(f"{source}: `architecture` cannot be built: {reason}") from None
    for name, value in state.items():
        if value.dtype != expected[name].dtype:
            raise DataError(f"{path}: `{name}` must be {_type(expected[name])}; got {_type(value)}")
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            raise DataError(f"{path}: `{name}` holds a weight that is not a finite number")
    network = GraphClassifier.from_config(config)
    network.load_state_dict(state)
    return network


def _check_sizes(config: Mapping[str, Any], source: Path, path: Path, tensors: int) -> None:
    """Refuse sizes that no weights of this file can have, before anything is built."""
    room = path.stat().st_size
    limits = {
        "layers": tensors,
        **dict.fromkeys(("in_features", "num_outputs", "hidden", "edge_features"), room),
        **dict.fromkeys(("continuous", "max_degree"), room),
    }
    for name, most in limits.items():
        if (config[name] or 0) > most:
            raise DataError(
                f"{source}: `architecture.{name}` is {config[name]}, which {path.name} with its "
                f"{tensors} tensors in {room} bytes cannot hold"
            )


def _check_tensors(
    path: Path, given: Mapping[str, tuple[int, ...]], expected: Mapping[str, tuple[int, ...]]
) -> None:
    """Compare names and shapes of the tensors in a file with those of the architecture."""
    missing = [name for name in expected if name not in given]
    extra = [name for name in given if name not in expected]
    for what, names in (("lacks", missing), ("has, besides the model's,", extra)):
        if names:
            shown = ", ".join(f"`{name[:80]}`" for name in names[:_MOST_NAMED])
            more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
            raise DataError(f"{path} {what} the tensors {shown}{more}")
    for name, shape in expected.items():
        if given[name] != shape:
            raise DataError(
                f"{path}: `{name}` must have the shape {list(shape)} by the architecture; got "
                f"{list(given[name])}"
            )


def _type(value: Tensor) -> str:
    return str(value.dtype).removeprefix("torch.")


def usable_device(device: str | torch.device) -> torch.device:
    """Return a device that is there.

    Args:
        device: Such as ``"cpu"``, ``"cuda"`` or ``"cuda:1"``.

    Raises:
        GraphTransplantError: If this machine or this torch does not have it.

    Example:
        >>> usable_device("cpu")
        device(type='cpu')
        >>> usable_device("toaster")
        Traceback (most recent call last):
        ...
        graph_transplant.errors.GraphTransplantError: `device` must be one that torch knows, such \
as cpu or cuda; got 'toaster'
    """
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


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal.

    Args:
        path: The file.
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
