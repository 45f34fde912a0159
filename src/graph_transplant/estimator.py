"""scikit-learn estimators over graphs: ``fit``, ``predict``, ``predict_proba``, grid search.

What is fitted is a :class:`~graph_transplant.models.model.TrainedModel`. A part of the graphs
given to ``fit`` is held out: it decides when training stops and how sure probabilities are.
"""

from __future__ import annotations

import copy
import json
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    check_array,
    check_is_fitted,
    check_random_state,
    column_or_1d,
    validate_data,
)
from torch import Tensor
from torch_geometric.data import Data

from graph_transplant.errors import DataError, GraphTransplantError, check_choice
from graph_transplant.experiments.compare import unused_edge_features
from graph_transplant.files import write_atomically
from graph_transplant.graphs import Featurizer, GraphStore
from graph_transplant.models.fitting import BALANCED, train
from graph_transplant.models.model import LABEL_THRESHOLD, WEIGHTS, TrainedModel, digest_of

Array = npt.NDArray[Any]

_FORMAT: Final = "graph-transplant estimator 1"
_FILE: Final = "estimator.json"

# What an item of X can be, in words.
_KINDS: Final = {
    "data": "a PyG Data",
    "networkx": "a networkx graph",
    "smiles": "a SMILES string",
    "number": "a row of numbers",
}

# Parameters that training takes as they are.
_TRAINED_WITH: Final = (
    "method",
    "model",
    "layers",
    "hidden",
    "readout",
    "dropout",
    "epochs",
    "batch_size",
    "learning_rate",
)

# Two to mix with each other, and one to hold out.
_FEWEST: Final = 3

# With fewer validation graphs than this it is normal that a class is not among them.
_FEWEST_JUDGED: Final = 10


class _GraphEstimator(BaseEstimator):  # type: ignore[misc]
    """What both estimators share; they document the parameters."""

    def __init__(
        self,
        method: str = "transplant-ep",
        *,
        model: str = "auto",
        layers: int = 3,
        hidden: int = 128,
        readout: str = "mean",
        dropout: float = 0.5,
        epochs: int = 300,
        batch_size: int = 128,
        learning_rate: float = 5e-4,
        validation_fraction: float = 0.1,
        features: str = "ogb",
        random_state: Any = None,
        device: str = "cpu",
        verbose: int = 0,
    ) -> None:
        self.method = method
        self.model = model
        self.layers = layers
        self.hidden = hidden
        self.readout = readout
        self.dropout = dropout
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.validation_fraction = validation_fraction
        self.features = features
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.string = True
        return tags

    def _fit(self, store: GraphStore, *, balance: bool = False) -> None:
        """Train on graphs with their targets."""
        if len(store) < _FEWEST:
            raise DataError(
                f"{type(self).__name__} needs at least {_FEWEST} graphs, one of which is held out "
                f"for validation; got n_samples = {len(store)}"
            )
        given = {name: _plain(value) for name, value in self.get_params(deep=False).items()}
        if not 0 < given["validation_fraction"] < 1:
            raise GraphTransplantError(
                f"`validation_fraction` must be in (0, 1), got {given['validation_fraction']}"
            )
        if given["model"] == "auto":
            # By what a graph has on its own: scikit-learn hands out folds as lists of graphs, which
            # do not know any more that they were read as molecules.
            given["model"] = "gine" if store.num_edge_features else "gcs"
        told: list[str] = []
        self.model_: TrainedModel = train(
            store,
            **{name: given[name] for name in _TRAINED_WITH},
            # Whatever split the data come with: test graphs are not this estimator's business.
            split="random",
            validation=given["validation_fraction"],
            test=0.0,
            balance=balance,
            seed=_seed(self.random_state),
            device=self.device,
            progress=bool(self.verbose),
            note=told.append,
        )
        training = self.model_.description["training"]
        unused = unused_edge_features(store, [training["model"]])
        judged = training["sizes"]["validation"] >= _FEWEST_JUDGED
        for text in told:
            # Who asks for balance has read what it does.
            if text == unused or (judged and text != BALANCED):
                # At the line that calls `fit`.
                warnings.warn(text, UserWarning, stacklevel=3)
        self.history_: list[dict[str, Any]] = list(self.model_.description["curve"])

    def _read(self, X: Any, *, fitting: bool) -> GraphStore:  # noqa: N803
        """Make a store of whatever stands for graphs; its targets mean nothing yet."""
        kind, items = _items(X)
        if kind == "table":
            # Sets or checks the number of columns and their names, and refuses what is no number.
            table = validate_data(self, X, dtype=np.float32, reset=fitting)
            return _from_table(table)
        if fitting:
            for name in ("n_features_in_", "feature_names_in_"):
                # Of a table that was fitted before.
                self.__dict__.pop(name, None)
        featurizer = None if fitting else self.model_.featurizer
        if kind == "store":
            return items  # type: ignore[no-any-return]
        if kind == "smiles":
            if not fitting and (featurizer is None or featurizer.kind != "molecules"):
                raise DataError(
                    "`X` holds SMILES strings, but the model was not trained on molecules"
                )
            return _from_smiles(items, self.features, featurizer)
        if kind == "networkx":
            return _from_networkx(items, featurizer)
        return _from_data(items)

    def _predict(self, X: Any) -> Array:  # noqa: N803
        """Return what the model says, float64 ``[graphs, outputs]``."""
        check_is_fitted(self)
        model = self.model_
        if model.device.type == "cpu":
            # In single precision the last digits of a graph depend on the graphs beside it.
            model = replace(model, network=copy.deepcopy(model.network).double())
        outputs: Array = model.predict(self._read(X, fitting=False)).outputs.numpy()
        return outputs

    def _own_targets(self, X: Any, y: Any) -> Any:  # noqa: N803
        """Return ``y``, or the graphs' own targets if there is none."""
        if y is not None:
            return y
        kind, items = _items(X)
        if kind == "store":
            own = items.y.numpy()
            return own[:, 0] if own.ndim == 2 and own.shape[1] == 1 else own
        found: list[Any] = []
        if kind == "data":
            found = [item.y if "y" in item else None for item in items]
            found = [None if own is None else np.asarray(own).reshape(-1) for own in found]
        elif kind == "networkx":
            found = [item.graph.get("y") for item in items]
        missing = [number for number, own in enumerate(found) if own is None]
        if missing or not found:
            where = f": graph {missing[0]} has none of its own" if missing else ""
            raise DataError(
                f"{type(self).__name__} requires y to be passed, but the target y is None{where}"
            )
        if kind == "data" and all(own.size == 1 for own in found):
            found = [own.item() for own in found]
        return found

    def save(self, directory: str | Path) -> None:
        """Write the fitted estimator into a folder, without pickle.

        The folder is that of :meth:`TrainedModel.save()
        <graph_transplant.models.model.TrainedModel.save>`, which ``graph-transplant predict``
        takes as well, with one file more.

        Args:
            directory: Made when it is not there.

        Raises:
            NotFittedError: Before ``fit``.
            GraphTransplantError: If the disk refuses.
        """
        check_is_fitted(self)
        classes = getattr(self, "classes_", None)
        if classes is not None and not _keepable(classes):
            raise GraphTransplantError(
                "classes that are saved must be texts, numbers or truth values; got "
                f"{_types(classes)} ({classes.dtype})"
            )
        given = {name: _plain(value) for name, value in self.get_params(deep=False).items()}
        # A random generator has no place in the file; what it drew does not matter any more.
        if not isinstance(given["random_state"], int):
            given["random_state"] = None
        written: dict[str, Any] = {
            "format": _FORMAT,
            "estimator": type(self).__name__,
            "parameters": given,
            "classes": None,
            "n_features_in": getattr(self, "n_features_in_", None),
            "feature_names_in": None,
        }
        names = getattr(self, "feature_names_in_", None)
        if names is not None:
            written["feature_names_in"] = names.tolist()
        if classes is not None:
            written["classes"] = {"type": classes.dtype.str, "values": classes.tolist()}
        try:
            json.dumps(written)
        except TypeError as problem:
            raise GraphTransplantError(
                f"parameters and classes that are saved must be texts or numbers: {problem}"
            ) from None
        self.model_.save(directory)
        written["weights_sha256"] = digest_of(Path(directory) / WEIGHTS)
        write_atomically(Path(directory) / _FILE, json.dumps(written, indent=1) + "\n")

    @classmethod
    def load(cls, directory: str | Path, device: str = "cpu") -> Self:
        """Read what :meth:`save`, or ``graph-transplant train``, wrote.

        Classes of a model that the command line made are texts, as they were in the table.

        Args:
            directory: The folder.
            device: Where the model is put.

        Raises:
            DataError: If there is no such model, or one of another kind.
        """
        model = TrainedModel.load(directory, device)
        wanted = "regression" if issubclass(cls, RegressorMixin) else "classification"
        if (model.task == "regression") != (wanted == "regression"):
            raise DataError(f"the model in {directory} is for {model.task}, not for {wanted}")
        path = Path(directory) / _FILE
        written = _read_json(path, cls.__name__) if path.exists() else {}
        if written and written.get("weights_sha256") != model.description.get("weights_sha256"):
            raise DataError(
                f"{path} belongs to another model than the one beside it; without this file, the "
                "model can be loaded with texts for classes"
            )
        estimator = cls()
        known = estimator.get_params(deep=False)
        parameters = written.get("parameters") or _parameters_of(model)
        estimator.set_params(**{k: v for k, v in parameters.items() if k in known})
        estimator.set_params(device=device)
        estimator.model_ = model
        estimator.history_ = list(model.description["curve"])
        estimator._restore(written)
        return estimator

    def _restore(self, written: Mapping[str, Any]) -> None:
        """Set what is known after ``fit`` besides the model.

        Args:
            written: What :meth:`save` wrote; empty for a model that was trained elsewhere.
        """
        columns, names = written.get("n_features_in"), written.get("feature_names_in")
        if isinstance(columns, int):
            self.n_features_in_ = columns
        if names is not None:
            if not isinstance(names, list) or not all(map(_is_text, names)):
                names = []
            if len(names) != columns:
                raise DataError(f"`feature_names_in` in {_FILE} must be {columns} texts")
            self.feature_names_in_ = np.asarray(names, dtype=object)


class GraphTransplantClassifier(ClassifierMixin, _GraphEstimator):  # type: ignore[misc]
    """A graph classifier trained with Graph Transplant, as a scikit-learn estimator.

    ``X`` is a sequence of graphs: PyG ``Data`` (a list or a PyG data set), networkx graphs, SMILES
    strings (also as the only column of a table); or a :class:`~graph_transplant.GraphStore`. Node
    features that are not all 0 and 1 are standardised. A plain table of numbers is taken as well:
    each row is a graph of one node, and the model a multi-layer perceptron.

    ``y`` has one label per graph, of any type; or, for several labels per graph, 0, 1 or NaN
    (missing) in ``[graphs, labels]``. Without ``y`` the graphs' own targets are used.

    Args:
        method: Augmentation by name, such as ``"transplant-ep"``, ``"transplant-dp"``, or
            ``"vanilla"`` for none; see
            :data:`~graph_transplant.methods.METHODS`.
        model: Layers: ``"gcn"``, ``"gcs"``, ``"gin"``, ``"gat"``, with edge features ``"gine"`` or
            ``"gat-edge"``; ``"auto"`` is ``"gine"`` for graphs with edge features, molecules or
            not, and ``"gcs"`` for all others.
        layers: Number of message-passing layers.
        hidden: Their width.
        readout: ``"mean"``, ``"sum"`` or ``"max"``.
        dropout: Rate in the head.
        epochs: At most so many passes over the training graphs.
        batch_size: Graphs per step.
        learning_rate: At the start.
        balance: Draw graphs of all classes equally often.
        validation_fraction: Share of the graphs that is held out, in equal parts of each class, to
            stop in time and to calibrate probabilities.
        features: Of SMILES: ``"ogb"`` or ``"elements"``.
        random_state: A number, a ``RandomState``, or ``None`` for another result every time. Global
            generators are left as they are.
        device: Such as ``"cpu"`` or ``"cuda"``.
        verbose: 1 shows a progress bar.

    Attributes:
        classes_: The labels, sorted, ``[classes]``; for several labels per graph the numbers of
            their columns.
        model_: The :class:`~graph_transplant.models.model.TrainedModel`.
        history_: Some points of the learning curve, oldest first.
        n_features_in_: Columns of a plain table; not there for graphs.
        feature_names_in_: Their names, where the table is a data frame.

    Example:
        >>> import networkx as nx
        >>> graphs = [kind(n) for n in range(4, 14) for kind in (nx.cycle_graph, nx.star_graph)]
        >>> labels = ["ring", "star"] * 10
        >>> classifier = GraphTransplantClassifier(
        ...     "transplant-dp", hidden=16, layers=2, epochs=40, learning_rate=0.01, random_state=0
        ... )
        >>> classifier.fit(graphs, labels).predict([nx.cycle_graph(20), nx.star_graph(20)])
        array(['ring', 'star'], dtype='<U4')
        >>> classifier.predict_proba([nx.cycle_graph(20)]).shape
        (1, 2)
    """

    def __init__(
        self,
        method: str = "transplant-ep",
        *,
        model: str = "auto",
        layers: int = 3,
        hidden: int = 128,
        readout: str = "mean",
        dropout: float = 0.5,
        epochs: int = 300,
        batch_size: int = 128,
        learning_rate: float = 5e-4,
        balance: bool = False,
        validation_fraction: float = 0.1,
        features: str = "ogb",
        random_state: Any = None,
        device: str = "cpu",
        verbose: int = 0,
    ) -> None:
        super().__init__(
            method,
            model=model,
            layers=layers,
            hidden=hidden,
            readout=readout,
            dropout=dropout,
            epochs=epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            validation_fraction=validation_fraction,
            features=features,
            random_state=random_state,
            device=device,
            verbose=verbose,
        )
        self.balance = balance

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: N803
        """Train.

        Args:
            X: Graphs.
            y: Labels; those of the graphs by default.

        Returns:
            The estimator itself.

        Raises:
            GraphTransplantError: If graphs, labels or parameters cannot be used.
        """
        own = y is None
        y = self._own_targets(X, y)
        store = self._read(X, fitting=True)
        labels = _as_array(y)
        _check_lengths(store, labels)
        if labels.ndim == 2 and labels.shape[1] > 1:
            targets = _label_matrix(labels)
            classes = np.arange(targets.shape[1])
            store = store.with_targets(targets, task="multilabel", label_names=_columns(y))
        else:
            classes, numbers = _classes(labels)
            if len(classes) < 2:
                raise DataError(
                    f"{type(self).__name__} needs at least two classes to tell apart; got one "
                    f"class, {classes.tolist()[0]!r}"
                )
            names = [str(name) for name in classes.tolist()]
            if own and isinstance(X, GraphStore) and X.label_names and X.task == "multiclass":
                names = [X.label_names[number] for number in classes.tolist()]
            store = store.with_targets(
                numbers, task="multiclass", num_outputs=len(names), label_names=names
            )
        self.classes_ = classes
        self._fit(store, balance=self.balance)
        return self

    def predict_proba(self, X: Any) -> Array:  # noqa: N803
        """Return calibrated probabilities.

        Args:
            X: Graphs.

        Returns:
            float64 ``[graphs, classes]``; for several labels ``[graphs, labels]``, each on its own.
        """
        return self._predict(X)

    def predict_log_proba(self, X: Any) -> Array:  # noqa: N803
        """Return the logarithms of :meth:`predict_proba`.

        Args:
            X: Graphs.

        Returns:
            float64 ``[graphs, classes]``.
        """
        with np.errstate(divide="ignore"):
            logarithms: Array = np.log(self.predict_proba(X))
        return logarithms

    def predict(self, X: Any) -> Array:  # noqa: N803
        """Return the likeliest class of every graph.

        Args:
            X: Graphs.

        Returns:
            ``[graphs]`` of the type of the labels; for several labels 0 or 1, int64
            ``[graphs, labels]``.
        """
        probabilities = self.predict_proba(X)
        if self.model_.task == "multilabel":
            return (probabilities >= LABEL_THRESHOLD).astype(np.int64)
        found: Array = self.classes_[probabilities.argmax(1)]
        return found

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:  # noqa: N803
        """Return the accuracy.

        Args:
            X: Graphs.
            y: Labels; those of the graphs by default. For several labels a graph counts as right
                when all of its labels that are not missing are.
            sample_weight: Weight of every graph, ``[graphs]``.
        """
        check_is_fitted(self)
        labels = _as_array(self._own_targets(X, y))
        predicted = self.predict(X)
        if len(labels) != len(predicted):
            raise DataError(_other_length(len(predicted), len(labels)))
        if self.model_.task == "multilabel":
            given = _label_matrix(labels).numpy()
            right = ((given == predicted) | np.isnan(given)).all(1)
        else:
            labels = column_or_1d(labels)
            _check_types(labels, self.classes_)
            right = labels == predicted
        return float(np.average(right, weights=sample_weight))

    def _restore(self, written: Mapping[str, Any]) -> None:
        super()._restore(written)
        names = list(self.model_.label_names)
        classes = written.get("classes")
        if self.model_.task == "multilabel" or classes is None:
            labels = self.model_.task == "multilabel"
            self.classes_ = np.arange(len(names)) if labels else np.asarray(names)
            return
        try:
            kept = np.asarray(classes["values"], dtype=np.dtype(classes["type"]))
        except (KeyError, TypeError, ValueError, OverflowError):
            kept = np.zeros(0)
        if not _keepable(kept) or kept.shape != (len(names),):
            raise DataError(f"`classes` in {_FILE} must be {len(names)} texts or numbers")
        self.classes_ = kept


class GraphTransplantRegressor(RegressorMixin, _GraphEstimator):  # type: ignore[misc]
    """A graph regressor trained with Graph Transplant, as a scikit-learn estimator.

    ``X`` and the parameters are those of :class:`GraphTransplantClassifier`, but for ``balance``,
    which has no meaning without classes. ``y`` has one number per graph, or several in
    ``[graphs, outputs]``; there NaN marks one that is missing.

    Args:
        method: See :class:`GraphTransplantClassifier`, likewise all others.
        model: Layers.
        layers: Number of message-passing layers.
        hidden: Their width.
        readout: ``"mean"``, ``"sum"`` or ``"max"``.
        dropout: Rate in the head.
        epochs: At most so many passes over the training graphs.
        batch_size: Graphs per step.
        learning_rate: At the start.
        validation_fraction: Share of the graphs that is held out to stop in time.
        features: Of SMILES.
        random_state: Seed.
        device: Such as ``"cpu"``.
        verbose: 1 shows a progress bar.

    Attributes:
        model_: The :class:`~graph_transplant.models.model.TrainedModel`.
        history_: Some points of the learning curve, oldest first.
        n_features_in_: Columns of a plain table; not there for graphs.
        feature_names_in_: Their names, where the table is a data frame.

    Example:
        >>> import networkx as nx
        >>> graphs = [nx.gnm_random_graph(8, m, seed=m) for m in range(4, 28)]
        >>> edges = [graph.number_of_edges() for graph in graphs]
        >>> regressor = GraphTransplantRegressor(
        ...     "vanilla", model="gin", hidden=16, epochs=60, learning_rate=0.01, random_state=0
        ... )
        >>> regressor.fit(graphs, edges).predict(graphs[:3]).shape
        (3,)
        >>> regressor.score(graphs, edges) > 0.5
        True
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: N803
        """Train.

        Args:
            X: Graphs.
            y: Numbers; those of the graphs by default.

        Returns:
            The estimator itself.

        Raises:
            GraphTransplantError: If graphs, numbers or parameters cannot be used.
        """
        y = self._own_targets(X, y)
        store = self._read(X, fitting=True)
        values = _values(y)
        _check_lengths(store, values)
        store = store.with_targets(torch.tensor(values), task="regression", label_names=_columns(y))
        self._fit(store)
        return self

    def predict(self, X: Any) -> Array:  # noqa: N803
        """Return the predicted number of every graph, in the units of ``y``.

        Args:
            X: Graphs.

        Returns:
            float64 ``[graphs]``, or ``[graphs, outputs]`` if there are several outputs.
        """
        values = self._predict(X)
        return values[:, 0] if values.shape[1] == 1 else values

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:  # noqa: N803
        """Return the coefficient of determination R².

        Args:
            X: Graphs.
            y: Numbers; those of the graphs by default. Of several outputs the mean over them is
                taken, of each over the graphs that have it.
            sample_weight: Weight of every graph, ``[graphs]``.
        """
        check_is_fitted(self)
        values = _values(self._own_targets(X, y))
        predicted = self.predict(X)
        if len(values) != len(predicted):
            raise DataError(_other_length(len(predicted), len(values)))
        values, predicted = values.reshape(len(values), -1), predicted.reshape(len(predicted), -1)
        if values.shape != predicted.shape:
            raise DataError(
                f"`y` must have {predicted.shape[1]} columns, one per output; got {values.shape[1]}"
            )
        weights = None if sample_weight is None else np.asarray(sample_weight)
        scores = []
        for wanted, found in zip(values.T, predicted.T, strict=True):
            there = ~np.isnan(wanted)
            each = None if weights is None else weights[there]
            scores.append(r2_score(wanted[there], found[there], sample_weight=each))
        return float(np.mean(scores))


# -------------------------------------------------------------------- graphs


def _kind(item: Any) -> str:
    """Say what an item of X is."""
    if isinstance(item, Data):
        return "data"
    if isinstance(item, str):
        return "smiles"
    # Nobody has a networkx graph without having imported networkx.
    networkx = sys.modules.get("networkx")
    if networkx is not None and isinstance(item, networkx.Graph):
        return "networkx"
    return "number"


def _items(graphs: Any) -> tuple[str, Any]:
    """Say what X holds, and give its items; those of a plain table are left alone."""
    if isinstance(graphs, GraphStore):
        return "store", graphs
    alone = _kind(graphs)
    if alone != "number":
        raise DataError(f"`X` must be a sequence of graphs; got {_KINDS[alone]} alone")
    if (
        getattr(graphs, "ndim", 1) != 1
        or hasattr(graphs, "columns")
        or not hasattr(graphs, "__len__")
    ):
        texts = _column_of_texts(graphs)
        return ("table", graphs) if texts is None else ("smiles", texts)
    items = list(graphs)
    if not items:
        raise DataError("`X` holds no graphs: found 0 sample(s) where a minimum of 1 is required")
    kinds = [_kind(item) for item in items]
    if kinds[0] == "number":
        return "table", graphs
    for number, kind in enumerate(kinds):
        if kind != kinds[0]:
            found = _KINDS[kind] if kind != "number" else f"a {type(items[number]).__name__}"
            raise DataError(
                f"`X` must hold graphs of one kind: item 0 is {_KINDS[kinds[0]]}, but item "
                f"{number} is {found}"
            )
    return kinds[0], items


def _column_of_texts(table: Any) -> list[str] | None:
    """Return SMILES that stand in the only column of a table; ``None`` for a table of numbers."""
    cells = table.to_numpy() if hasattr(table, "to_numpy") else table
    if not isinstance(cells, np.ndarray) or cells.ndim != 2 or cells.dtype.kind not in "OU":
        return None
    words = [cell for cell in cells.ravel().tolist() if _is_text(cell) and not _is_number(cell)]
    if not words:
        return None
    if cells.shape[1] > 1:
        raise DataError(
            f"`X` must be numbers, or one column of SMILES strings; got {cells.shape[1]} columns "
            f"with texts such as {words[0][:60]!r}"
        )
    texts: list[Any] = cells[:, 0].tolist()
    for number, text in enumerate(texts):
        if not _is_text(text):
            raise DataError(
                f"`X` must hold graphs of one kind: there are SMILES strings, but item {number} is "
                f"a {type(text).__name__}"
            )
    return texts


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _from_table(table: Array) -> GraphStore:
    """Make every row a graph of one node."""
    rows, columns = table.shape
    return GraphStore(
        # A copy: the table may be one that must not be written to.
        x=torch.tensor(table, dtype=torch.float32),
        edge_index=torch.empty(2, 0, dtype=torch.long),
        y=torch.zeros(rows, dtype=torch.long),
        node_counts=torch.ones(rows, dtype=torch.long),
        edge_counts=torch.zeros(rows, dtype=torch.long),
        name="table",
        num_continuous=columns,
    )


def _from_data(items: Sequence[Data]) -> GraphStore:
    """Make a store of PyG graphs, whatever targets they have."""
    nothing = torch.zeros(1, dtype=torch.long)
    bare = [
        Data(
            x=item.x,
            edge_index=item.edge_index,
            edge_attr=item.edge_attr,
            y=nothing,
            num_nodes=item.num_nodes,
        )
        for item in items
    ]
    store = GraphStore.from_pyg(bare, num_outputs=1)
    x = store.x
    if x is None:
        return store
    # Columns up to the last one that holds more than 0 and 1 are quantities, to be standardised.
    quantities = ((x != 0) & (x != 1)).any(0).nonzero().flatten()
    if not len(quantities):
        return store
    return GraphStore.from_pyg(bare, num_outputs=1, num_continuous=int(quantities[-1]) + 1)


def _from_smiles(items: Sequence[str], features: str, featurizer: Featurizer | None) -> GraphStore:
    """Make a store of SMILES, which must all be readable."""
    from graph_transplant.datasets.molecules import featurize, from_smiles

    check_choice("features", features, ("ogb", "elements"))
    texts = [str(item) for item in items]
    if featurizer is None:
        found = from_smiles(texts, features=features)
        problems = {skipped.row: skipped.reason for skipped in found.skipped}
        store: GraphStore | None = found
    else:
        chunk = featurize(texts, featurizer)
        store, problems = chunk.store, dict(chunk.problems)
    for row, reason in problems.items():
        raise DataError(f"`X`: item {row - 1}, {texts[row - 1][:60]!r}: {reason}")
    assert store is not None
    return store


def _from_networkx(items: Sequence[Any], featurizer: Featurizer | None) -> GraphStore:
    from graph_transplant.datasets.networks import from_networkx

    return from_networkx(items, [0.0] * len(items), task="regression", featurizer=featurizer)


# -------------------------------------------------------------------- targets


def _as_array(y: Any) -> Array:
    """Make an array of labels, without making texts of numbers that stand beside them."""
    if isinstance(y, Tensor):
        y = y.detach().cpu().numpy()
    if isinstance(y, np.ndarray):
        return y
    if hasattr(y, "to_numpy"):
        found: Array = y.to_numpy()
        return found
    try:
        labels = np.asarray(y)
    except ValueError:
        raise DataError("`y` must have one label per graph, or as many for every graph") from None
    if labels.dtype.kind in "US" and not all(isinstance(label, str) for label in y):
        labels = np.asarray(y, dtype=object)
    return labels


def _columns(y: Any) -> list[str] | None:
    """Return what the columns of a data frame are called."""
    return [str(name) for name in y.columns] if hasattr(y, "columns") else None


def _check_lengths(store: GraphStore, y: Array) -> None:
    if len(store) != len(y):
        raise DataError(_other_length(len(store), len(y)))


def _other_length(graphs: int, labels: int) -> str:
    return f"`y` must have one entry per graph: there are {graphs} graphs, but {labels} entries"


def _classes(labels: Array) -> tuple[Array, Tensor]:
    """Find the classes, and the number of the class of every graph, int64 ``[graphs]``."""
    labels = column_or_1d(labels, warn=True)
    missing = [
        number
        for number, label in enumerate(labels.tolist())
        if label is None or (isinstance(label, float) and np.isnan(label))
    ]
    if missing:
        raise DataError(
            f"Input y contains NaN: the label of graph {missing[0]} is missing; only of several "
            "labels per graph some may be"
        )
    if labels.dtype.kind == "f":
        check_array(labels, ensure_2d=False, input_name="y")
    try:
        check_classification_targets(labels)
        classes, numbers = np.unique(labels, return_inverse=True)
    except TypeError:
        kinds = sorted({type(label).__name__ for label in labels.tolist()})
        raise DataError(f"the labels in `y` must be of one type; got {', '.join(kinds)}") from None
    return classes, torch.from_numpy(numbers.astype(np.int64))


def _check_types(labels: Array, classes: Array) -> None:
    """Refuse labels that cannot be classes because they are of another type, such as '1' for 1."""
    given, known = set(labels.tolist()), set(classes.tolist())
    # A class that was not trained on is a mistake of the model, not of the labels.
    if given & known or {type(one) for one in given} & {type(one) for one in known}:
        return
    raise DataError(
        f"`y` holds labels of the type {_types(labels)}, such as {labels.tolist()[0]!r}, but the "
        f"classes are of the type {_types(classes)}, such as {classes.tolist()[0]!r}: none of the "
        "labels is among them"
    )


def _label_matrix(labels: Array) -> Tensor:
    """Return several labels per graph, 0, 1 or NaN, float32 ``[graphs, labels]``."""
    try:
        matrix = labels.astype(np.float64)
    except (TypeError, ValueError):
        matrix = None
    if matrix is None or matrix.ndim != 2 or not np.isin(matrix[~np.isnan(matrix)], (0, 1)).all():
        raise DataError(
            "several labels per graph must be 0, 1 or NaN (missing) in an array of shape "
            f"[graphs, labels]; got {labels.dtype} of shape {list(labels.shape)}"
        )
    empty = np.flatnonzero(np.isnan(matrix).all(axis=1))
    if len(empty):
        raise DataError(f"Input y contains NaN: all labels of graph {empty[0]} are missing")
    return torch.from_numpy(matrix.astype(np.float32))


def _values(y: Any) -> Array:
    """Return numbers to predict, float64 ``[graphs]`` or ``[graphs, outputs]``."""
    values = _as_array(y)
    if values.ndim == 2 and values.shape[1] == 1:
        values = column_or_1d(values, warn=True)
    # Of several numbers per graph some may be missing.
    several = values.ndim == 2
    checked: Array = check_array(
        values,
        ensure_2d=False,
        dtype=np.float64,
        ensure_all_finite="allow-nan" if several else True,
        input_name="y",
    )
    if several:
        empty = np.flatnonzero(np.isnan(checked).all(axis=1))
        if len(empty):
            raise DataError(f"Input y contains NaN: all numbers of graph {empty[0]} are missing")
    return checked


def _plain(value: Any) -> Any:
    """Return a number of numpy, such as a grid search may set, as one of Python."""
    return value.item() if isinstance(value, np.generic) else value


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _keepable(classes: Array) -> bool:
    """Whether classes can be written to a file and be read again.

    Only texts may stand as objects: anything else would be made of whatever the file says.
    """
    kind = classes.dtype.kind
    return kind in "biufU" or (kind == "O" and all(map(_is_text, classes.ravel())))


def _types(values: Array) -> str:
    """Name the types of some labels."""
    return ", ".join(sorted({type(value).__name__ for value in values.ravel().tolist()}))


def _seed(random_state: Any) -> int:
    """Draw a seed; global generators are not touched."""
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1)[0] >> 1)
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


# -------------------------------------------------------------------- files


def _parameters_of(model: TrainedModel) -> dict[str, Any]:
    """Return the parameters that a model trained elsewhere would have had."""
    training = model.description["training"]
    names = ("method", "model", "layers", "hidden", "readout", "dropout", "epochs", "batch_size")
    found = {name: training[name] for name in (*names, "learning_rate", "balance")}
    return {**found, "features": model.featurizer.features if model.featurizer else "ogb"}


def _read_json(path: Path, name: str) -> dict[str, Any]:
    try:
        written = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as problem:
        raise DataError(f"{path} cannot be read: {problem}") from None
    if not isinstance(written, dict) or written.get("format") != _FORMAT:
        raise DataError(f"{path} was not written by an estimator of this version ({_FORMAT})")
    if written.get("estimator") != name:
        raise DataError(f"{path} holds a {written.get('estimator')}, not a {name}")
    if not isinstance(written.get("parameters"), dict):
        raise DataError(f"{path}: `parameters` must be an object")
    return written
