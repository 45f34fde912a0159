"""scikit-learn estimators over graphs: ``fit``, ``predict``, ``predict_proba``, grid search.

What is fitted is a :class:`~graph_transplant.models.model.TrainedModel`. A part of the graphs
given to ``fit`` is held out: it decides when training stops and how sure probabilities are.
"""

from __future__ import annotations

import copy
import inspect
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.model_selection import GroupShuffleSplit
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,
    check_array,
    check_is_fitted,
    check_random_state,
    column_or_1d,
    validate_data,
)
from torch import Tensor
from torch_geometric.data import Data

from graph_transplant.augment import METHODS, Augmentation
from graph_transplant.config import TrainConfig
from graph_transplant.errors import DataError, GraphTransplantError, check_choice
from graph_transplant.graphs import Featurizer, GraphStore
from graph_transplant.methods import method_name, parse_method
from graph_transplant.models.fitting import BALANCED, train
from graph_transplant.models.model import LABEL_THRESHOLD, TrainedModel
from graph_transplant.settings import unused_edge_features
from graph_transplant.splits import Split

Array = npt.NDArray[Any]

# What an item of X can be, in words.
_KINDS: Final = {
    "data": "a PyG Data",
    "networkx": "a networkx graph",
    "smiles": "a SMILES string",
    "number": "a row of numbers",
}

# Fields of TrainConfig that scikit-learn calls otherwise, and those it decides itself.
_RENAMED: Final = {"method": "augment", "validation": "validation_fraction", "seed": "random_state"}
_OMITTED: Final = ("split", "test")
_NESTED: Final = "augment__"

# Two to mix with each other, and one to hold out.
_FEWEST: Final = 3

# With fewer validation graphs than this it is normal that a class is not among them.
_FEWEST_JUDGED: Final = 10


def _init(*left_out: str) -> Callable[..., None]:
    """Make an ``__init__`` that takes the fields of :class:`TrainConfig` as parameters."""
    defaults = {
        _RENAMED.get(field.name, field.name): field.default
        for field in fields(TrainConfig)
        if field.name not in (*_OMITTED, *left_out)
    }
    defaults |= {"random_state": None, "features": "ogb", "device": "cpu", "verbose": 0}
    first, *others = (
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
        for name, default in defaults.items()
    )
    place = inspect.Parameter.POSITIONAL_OR_KEYWORD
    signature = inspect.Signature(
        [inspect.Parameter("self", place), first.replace(kind=place), *others]
    )

    def __init__(self: Any, *args: Any, **given: Any) -> None:  # noqa: N807
        bound = signature.bind(self, *args, **given)
        bound.apply_defaults()
        for name, value in list(bound.arguments.items())[1:]:
            setattr(self, name, value)

    __init__.__signature__ = signature  # type: ignore[attr-defined]
    return __init__


class _GraphEstimator(BaseEstimator):  # type: ignore[misc]
    """What both estimators share; they document the parameters."""

    augment: Any
    features: str
    device: str
    verbose: int

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.string = True
        return tags

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters; those of the augmentation as ``augment__NAME``."""
        found: dict[str, Any] = super().get_params(deep)
        nested = _augment_params(self.augment) if deep else {}
        return found | {f"{_NESTED}{name}": value for name, value in nested.items()}

    def set_params(self, **params: Any) -> Self:
        """Set parameters; ``augment__NAME`` is one of the augmentation."""
        nested = {name: value for name, value in params.items() if name.startswith(_NESTED)}
        super().set_params(**{name: v for name, v in params.items() if name not in nested})
        if nested:
            given = {name.removeprefix(_NESTED): value for name, value in nested.items()}
            self.augment = _with_params(self.augment, given)
        return self

    def _config(self, store: GraphStore) -> TrainConfig:
        given = {name: _plain(value) for name, value in self.get_params(deep=False).items()}
        fraction = given["validation_fraction"]
        if not 0 < fraction < 1:
            raise GraphTransplantError(f"`validation_fraction` must be in (0, 1), got {fraction}")
        given["random_state"] = _seed(given["random_state"])
        if given["model"] == "auto":
            # By what a graph has on its own: scikit-learn hands out folds as lists of graphs, which
            # do not know any more that they were read as molecules.
            given["model"] = "gine" if store.num_edge_features else "gcs"
        own = {field.name: _RENAMED.get(field.name, field.name) for field in fields(TrainConfig)}
        settings = {name: given[mine] for name, mine in own.items() if mine in given}
        # Whatever split the data come with: test graphs are not this estimator's business.
        return TrainConfig(**{**settings, "split": "random", "test": 0.0})

    def _fit(
        self,
        store: GraphStore,
        judged: int,
        sample_weight: Any,
        groups: Any,
        changes: Mapping[str, Any],
    ) -> None:
        """Train on graphs with their targets, of which the last ``judged`` are the ``eval_set``."""
        graphs = len(store) - judged
        if graphs < _FEWEST:
            raise DataError(
                f"{type(self).__name__} needs at least {_FEWEST} graphs, one of which is held out "
                f"for validation; got n_samples = {graphs}"
            )
        config = replace(self._config(store), **changes)
        nothing = torch.empty(0, dtype=torch.long)
        if judged:
            split = Split(torch.arange(graphs), torch.arange(graphs, len(store)), nothing)
            config = replace(config, split=split)
        elif groups is not None:
            whole = GroupShuffleSplit(1, test_size=config.validation, random_state=config.seed)
            first, second = next(whole.split(np.zeros(graphs), groups=groups))
            split = Split(torch.from_numpy(first), torch.from_numpy(second), nothing)
            config = replace(config, split=split)
        if sample_weight is not None:
            sample_weight = np.concatenate((sample_weight, np.ones(judged)))
        told: list[str] = []
        self.model_: TrainedModel = train(
            store,
            config,
            sample_weight=sample_weight,
            device=self.device,
            progress=bool(self.verbose),
            note=told.append,
        )
        training = self.model_.description["training"]
        unused = unused_edge_features(store, [training["model"]])
        for text in told:
            # Who asks for balance has read what it does.
            enough = training["sizes"]["validation"] >= _FEWEST_JUDGED
            if text == unused or (enough and text != BALANCED):
                # At the line that calls `fit`.
                warnings.warn(text, UserWarning, stacklevel=3)
        self.history_: list[dict[str, Any]] = list(self.model_.description["curve"])

    def _read(self, X: Any, *, fitting: bool, more: Any = None) -> GraphStore:  # noqa: N803
        """Make a store of whatever stands for graphs, and of ``more`` of the same kind."""
        kind, items = _items(X)
        if kind == "table":
            # Sets or checks the number of columns and their names, and refuses what is no number.
            tables = [validate_data(self, X, dtype=np.float32, reset=fitting)]
            if more is not None:
                tables.append(validate_data(self, more, dtype=np.float32, reset=False))
            return _from_table(np.concatenate(tables))
        if fitting:
            for name in ("n_features_in_", "feature_names_in_"):
                # Of a table that was fitted before.
                self.__dict__.pop(name, None)
        featurizer = None if fitting else self.model_.featurizer
        if kind == "store" and more is None:
            return items  # type: ignore[no-any-return]
        if more is not None:
            other, further = _items(more)
            if other != kind:
                raise DataError("`eval_set` must hold graphs of the same kind as `X`")
            items = [*items, *further]
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
        outputs: Array = model.predictions(self._read(X, fitting=False)).outputs.numpy()
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
            found = [None if item.y is None else np.asarray(item.y).reshape(-1) for item in items]
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

    def _given(
        self,
        X: Any,  # noqa: N803
        y: Any,
        as_array: Callable[[Any], Array],
        sample_weight: Any,
        groups: Any,
        eval_set: Any,
    ) -> tuple[GraphStore, Array, int, Array | None, Array | None]:
        """Read what ``fit`` is given: graphs and targets, those of ``eval_set`` last."""
        if isinstance(eval_set, list) and len(eval_set) == 1:
            eval_set = eval_set[0]
        labels = as_array(self._own_targets(X, y))
        judged, more = 0, None
        if eval_set is not None:
            more, its = eval_set
            further = as_array(self._own_targets(more, its))
            judged, labels = len(further), np.concatenate((labels, further))
        store = self._read(X, fitting=True, more=more)
        if len(store) != len(labels):
            raise DataError(_other_length(len(store), len(labels)))
        graphs = len(store) - judged
        weights = None
        if sample_weight is not None:
            weights = _check_sample_weight(
                sample_weight,
                np.zeros((graphs, 1)),
                dtype=np.float64,
                ensure_non_negative=True,
                allow_all_zero_weights=False,
            )
        if groups is not None and len(groups) != graphs:
            raise DataError(f"`groups` must have {graphs} entries; got {len(groups)}")
        groups = None if groups is None else np.asarray(groups)
        if weights is not None and not weights.all():
            # Graphs of weight 0 are as good as not there.
            kept = np.concatenate((weights > 0, np.ones(judged, dtype=bool)))
            groups = None if groups is None else groups[weights > 0]
            store, labels = store.subset(torch.from_numpy(kept)), labels[kept]
            weights = weights[weights > 0]
        if weights is not None and np.ptp(weights) == 0:
            weights = None
        return store, labels, judged, weights, groups

    @classmethod
    def load(cls, directory: str | Path, device: str = "cpu") -> Self:
        """Make a fitted estimator of a model that ``TrainedModel.save`` or the command line wrote.

        Its classes are texts, as they stand in ``model.json``.
        """
        model = TrainedModel.load(directory, device)
        wanted = "regression" if issubclass(cls, RegressorMixin) else "classification"
        if (model.task == "regression") != (wanted == "regression"):
            raise DataError(f"the model in {directory} is for {model.task}, not for {wanted}")
        estimator = cls(device=device)
        training = {_RENAMED.get(k, k): v for k, v in model.description["training"].items()}
        if model.featurizer is not None:
            training["features"] = model.featurizer.features
        known = set(estimator.get_params(deep=False)) - {"validation_fraction", "metric"}
        estimator.set_params(**{k: v for k, v in training.items() if k in known})
        estimator.model_ = model
        estimator.history_ = list(model.description["curve"])
        if not issubclass(cls, RegressorMixin):
            names = np.asarray(model.label_names)
            estimator.classes_ = np.arange(len(names)) if model.task == "multilabel" else names
        return estimator


class GraphTransplantClassifier(ClassifierMixin, _GraphEstimator):  # type: ignore[misc]
    """A graph classifier trained with Graph Transplant, as a scikit-learn estimator.

    ``X`` is a sequence of graphs: PyG ``Data`` (a list or a PyG data set), networkx graphs, SMILES
    strings (also as the only column of a table); or a :class:`~graph_transplant.GraphStore`. Node
    features that are not all 0 and 1 are standardised. Rows of a plain table of numbers are graphs
    of one node.

    ``y`` has one label per graph, of any type; or, for several labels per graph, 0, 1 or NaN
    (missing) in ``[graphs, labels]``. Without ``y`` the graphs' own targets are used.

    Parameters are the fields of :class:`~graph_transplant.config.TrainConfig` but ``split`` and
    ``test``; ``method`` is called ``augment``, ``validation`` is ``validation_fraction`` and
    ``seed`` is ``random_state``. Besides these:

    Args:
        augment: Augmentation by name, such as ``"transplant-dp"`` or ``"vanilla"`` for none, or an
            :class:`~graph_transplant.Augmentation`. Its own parameters can be set as
            ``augment__anchor_ratio`` and the like.
        model: As in ``TrainConfig``; ``"auto"`` is ``"gine"`` for graphs with edge features.
        class_weight: ``"balanced"``, or weights by label.
        features: Of SMILES: ``"ogb"`` or ``"elements"``.
        random_state: A number, a ``RandomState``, or ``None`` for another result every time. Global
            generators are left as they are.
        device: Such as ``"cpu"`` or ``"cuda"``.
        verbose: 1 shows a progress bar.

    Attributes:
        classes_: The labels, sorted, ``[classes]``; for several labels per graph the numbers of
            their columns.
        model_: The :class:`~graph_transplant.models.model.TrainedModel`; its ``save`` keeps it.
        history_: Some points of the learning curve, oldest first.

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

    __init__ = _init()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    def fit(
        self,
        X: Any,  # noqa: N803
        y: Any = None,
        sample_weight: Any = None,
        *,
        groups: Any = None,
        eval_set: Any = None,
    ) -> Self:
        """Train.

        Args:
            X: Graphs.
            y: Labels; those of the graphs by default.
            sample_weight: How likely each graph is drawn in training, ``[graphs]``; those of
                weight 0 are left out.
            groups: Graphs of one group stay on one side of the internal validation split.
            eval_set: Graphs and labels to validate on, as a pair, instead of a part of ``X``.
        """
        names = _columns(y)
        own = isinstance(X, GraphStore) and X.task == "multiclass" and y is None
        store, labels, judged, weights, groups = self._given(
            X, y, _as_array, sample_weight, groups, eval_set
        )
        changes: dict[str, Any] = {}
        if labels.ndim == 2 and labels.shape[1] > 1:
            targets = _label_matrix(labels)
            self.classes_ = np.arange(targets.shape[1])
            store = store.with_targets(targets, task="multilabel", label_names=names)
        else:
            classes, numbers = _classes(labels)
            if len(classes) < 2:
                raise DataError(
                    f"{type(self).__name__} needs at least two classes to tell apart; got one "
                    f"class, {classes.tolist()[0]!r}"
                )
            names = [str(name) for name in classes.tolist()]
            if own and X.label_names:
                names = [X.label_names[number] for number in classes.tolist()]
            store = store.with_targets(
                numbers, task="multiclass", num_outputs=len(names), label_names=names
            )
            self.classes_ = classes
            if isinstance(self.class_weight, Mapping):
                weighed = [self.class_weight.get(label, 1.0) for label in classes.tolist()]
                changes["class_weight"] = weighed
        self._fit(store, judged, weights, groups, changes)
        return self

    def predict_proba(self, X: Any) -> Array:  # noqa: N803
        """Return calibrated probabilities, float64 ``[graphs, classes]``."""
        return self._predict(X)

    def predict_log_proba(self, X: Any) -> Array:  # noqa: N803
        """Return the logarithms of :meth:`predict_proba`."""
        with np.errstate(divide="ignore"):
            logarithms: Array = np.log(self.predict_proba(X))
        return logarithms

    def predict(self, X: Any) -> Array:  # noqa: N803
        """Return the likeliest class of every graph; 0 or 1 for several labels."""
        probabilities = self.predict_proba(X)
        if self.model_.task == "multilabel":
            return (probabilities >= LABEL_THRESHOLD).astype(np.int64)
        found: Array = self.classes_[probabilities.argmax(1)]
        return found

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:  # noqa: N803
        """Return the accuracy; of several labels, all that are not missing must be right."""
        check_is_fitted(self)
        labels, predicted = _as_array(self._own_targets(X, y)), self.predict(X)
        if len(labels) != len(predicted):
            raise DataError(_other_length(len(predicted), len(labels)))
        if self.model_.task == "multilabel":
            given = _label_matrix(labels).numpy()
            right = ((given == predicted) | np.isnan(given)).all(1)
            return float(np.average(right, weights=sample_weight))
        return float(accuracy_score(column_or_1d(labels), predicted, sample_weight=sample_weight))


class GraphTransplantRegressor(RegressorMixin, _GraphEstimator):  # type: ignore[misc]
    """A graph regressor trained with Graph Transplant, as a scikit-learn estimator.

    ``X`` and the parameters are those of :class:`GraphTransplantClassifier`, but for ``balance``
    and ``class_weight``. ``y`` has one number per graph, or several in ``[graphs, outputs]``;
    there NaN marks one that is missing.

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

    __init__ = _init("balance", "class_weight")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(
        self,
        X: Any,  # noqa: N803
        y: Any = None,
        sample_weight: Any = None,
        *,
        groups: Any = None,
        eval_set: Any = None,
    ) -> Self:
        """Train; arguments are those of :meth:`GraphTransplantClassifier.fit`."""
        names = _columns(y)
        store, values, judged, weights, groups = self._given(
            X, y, _values, sample_weight, groups, eval_set
        )
        store = store.with_targets(torch.tensor(values), task="regression", label_names=names)
        self._fit(store, judged, weights, groups, {})
        return self

    def predict(self, X: Any) -> Array:  # noqa: N803
        """Return the predicted numbers in the units of ``y``, ``[graphs]`` or several columns."""
        values = self._predict(X)
        return values[:, 0] if values.shape[1] == 1 else values

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:  # noqa: N803
        """Return R², the mean over outputs, of each over the graphs that have it."""
        check_is_fitted(self)
        values, predicted = _values(self._own_targets(X, y)), self._predict(X)
        if len(values) != len(predicted):
            raise DataError(_other_length(len(predicted), len(values)))
        values = values.reshape(len(values), -1)
        if values.shape != predicted.shape:
            raise DataError(
                f"`y` must have {predicted.shape[1]} columns, one per output; got {values.shape[1]}"
            )
        weights = np.ones(len(values)) if sample_weight is None else np.asarray(sample_weight)
        scores = [
            r2_score(wanted[there], found[there], sample_weight=weights[there])
            for wanted, found in zip(values.T, predicted.T, strict=True)
            if len(there := np.flatnonzero(~np.isnan(wanted)))
        ]
        return float(np.mean(scores))


# -------------------------------------------------------------------- nested parameters


def _augment_params(augment: Any) -> dict[str, Any]:
    """Parameters of an augmentation that can be set."""
    if isinstance(augment, str):
        try:
            name, changed = parse_method(augment)
        except GraphTransplantError:
            return {}  # refused when it is fitted
        return {**METHODS[name].parameters, **changed}
    if not isinstance(augment, Augmentation):
        return {}
    names = inspect.signature(type(augment)).parameters
    return {name: getattr(augment, name) for name in names if hasattr(augment, name)}


def _with_params(augment: Any, given: Mapping[str, Any]) -> Any:
    """Return an augmentation with some parameters changed."""
    known = _augment_params(augment)
    for name in given:
        if name not in known:
            check_choice(f"{_NESTED}{name}", name, known)
    if isinstance(augment, str):
        name, changed = parse_method(augment)
        return method_name(name, {**changed, **given})
    # Made anew to check the values; everything else, such as what was learnt, is kept.
    made, changed_one = type(augment)(**given), copy.deepcopy(augment)
    for name in given:
        setattr(changed_one, name, getattr(made, name))
    return changed_one


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
    flat = getattr(graphs, "ndim", 1) == 1 and not hasattr(graphs, "columns")
    if not flat or not hasattr(graphs, "__len__"):
        cells = graphs.to_numpy() if hasattr(graphs, "to_numpy") else graphs
        one = isinstance(cells, np.ndarray) and cells.ndim == 2 and cells.shape[1] == 1
        if not one or not _are_structures(cells[:, 0]):
            return "table", graphs
        graphs = cells[:, 0]
    items = graphs.tolist() if isinstance(graphs, np.ndarray) else list(graphs)
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


def _are_structures(column: Array) -> bool:
    """Whether a column holds texts that are no numbers."""
    if column.dtype.kind not in "OUT":
        return False
    try:
        column.astype(np.float64)
    except (ValueError, TypeError):
        return any(isinstance(cell, str) for cell in column.tolist())
    return False


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
    kept = ("x", "edge_index", "edge_attr", "num_nodes")
    bare = [Data(**{name: getattr(item, name) for name in kept}, y=nothing) for item in items]
    store = GraphStore.from_pyg(bare, num_outputs=1)
    if store.x is None:
        return store
    # Columns up to the last one that holds more than 0 and 1 are quantities, to be standardised.
    quantities = ((store.x != 0) & (store.x != 1)).any(0).nonzero().flatten()
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


def _other_length(graphs: int, labels: int) -> str:
    return f"`y` must have one entry per graph: there are {graphs} graphs, but {labels} entries"


def _classes(labels: Array) -> tuple[Array, Tensor]:
    """Find the classes, and the number of the class of every graph, int64 ``[graphs]``."""
    labels = column_or_1d(labels, warn=True)
    for number, label in enumerate(labels.tolist()):
        if label is None or (isinstance(label, float) and np.isnan(label)):
            raise DataError(
                f"Input y contains NaN: the label of graph {number} is missing; only of several "
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
    _check_some(matrix)
    return torch.from_numpy(matrix.astype(np.float32))


def _values(y: Any) -> Array:
    """Return numbers to predict, float64 ``[graphs]`` or ``[graphs, outputs]``."""
    values = _as_array(y)
    if values.ndim == 2 and values.shape[1] == 1:
        values = column_or_1d(values, warn=True)
    # Of several numbers per graph some may be missing.
    several = values.ndim == 2
    finite = "allow-nan" if several else True
    checked: Array = check_array(
        values, ensure_2d=False, dtype=np.float64, ensure_all_finite=finite, input_name="y"
    )
    if several:
        _check_some(checked)
    return checked


def _check_some(targets: Array) -> None:
    empty = np.flatnonzero(np.isnan(targets).all(axis=1))
    if len(empty):
        raise DataError(f"Input y contains NaN: all targets of graph {empty[0]} are missing")


def _plain(value: Any) -> Any:
    """Return a number of numpy, such as a grid search may set, as one of Python."""
    return value.item() if isinstance(value, np.generic) else value


def _seed(random_state: Any) -> int:
    """Draw a seed; global generators are not touched."""
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1)[0] >> 1)
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))
