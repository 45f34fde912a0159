"""scikit-learn estimators over graphs: ``fit``, ``predict``, ``predict_proba``, grid search.

``fit`` trains a :class:`~graph_transplant.models.model.TrainedModel`. Part of the graphs is held
out for early stopping and calibration.
"""

from __future__ import annotations

import copy
import inspect
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final, Literal, Self

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.metrics import r2_score
from sklearn.model_selection import GroupShuffleSplit
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,
    check_array,
    check_consistent_length,
    check_is_fitted,
    check_random_state,
    column_or_1d,
    validate_data,
)

from graph_transplant.augment import Augmentation
from graph_transplant.config.options import Convolution, Readout, RecipeName
from graph_transplant.config.training import ClassWeight, MethodLike, TrainConfig
from graph_transplant.data import GraphStore
from graph_transplant.data.targets import LABEL_THRESHOLD
from graph_transplant.data.validation import check_precision
from graph_transplant.datasets import stream
from graph_transplant.datasets.arrays import Array, from_table, items_of, label_matrix, values_of
from graph_transplant.datasets.molecules import from_smiles
from graph_transplant.datasets.rows import check_index
from graph_transplant.datasets.splits import Split
from graph_transplant.errors import DataError, GraphTransplantError, check_choice, check_in
from graph_transplant.methods import (
    METHODS,
    check_trainable,
    method_name,
    method_of,
    parse_method,
)
from graph_transplant.models.fitting import BALANCED, train
from graph_transplant.models.model import TrainedModel
from graph_transplant.training.defaults import unused_edge_features

__all__ = [
    "GraphTransplantClassifier",
    "GraphTransplantRegressor",
]

Names = Sequence[str] | None
RandomState = int | np.random.RandomState | None

# Fields of TrainConfig with another name in scikit-learn, and those that are not parameters.
_RENAMED: Final = {"method": "augment", "validation": "validation_fraction", "seed": "random_state"}
_OMITTED: Final = ("split", "test")
_NESTED: Final = "augment__"

# Two graphs to mix and one to hold out.
_FEWEST: Final = 3

# With fewer validation graphs than this, missing classes are normal and not warned about.
_FEWEST_JUDGED: Final = 10


class _GraphEstimator(BaseEstimator):  # type: ignore[misc]
    """Base class; the subclasses document the parameters."""

    augment: Any
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
        """Set parameters; ``augment__NAME`` sets one of the augmentation."""
        nested = {name: value for name, value in params.items() if name.startswith(_NESTED)}
        super().set_params(**{name: v for name, v in params.items() if name not in nested})
        if nested:
            given = {name.removeprefix(_NESTED): value for name, value in nested.items()}
            self.augment = _with_params(self.augment, given)
        return self

    def _config(self, store: GraphStore) -> TrainConfig:
        given: dict[str, Any] = self.get_params(deep=False)
        if isinstance(given["augment"], str):
            try:
                check_trainable(given["augment"])
                parse_method(given["augment"])
            except GraphTransplantError as problem:
                raise type(problem)(str(problem).replace("`method`", "`augment`")) from None
        elif not isinstance(given["augment"], Augmentation | list | tuple):
            raise GraphTransplantError(
                f"`augment` must be a name or an augmentation, got {given['augment']!r}"
            )
        check_in("(0, 1)", validation_fraction=given["validation_fraction"])
        if given["random_state"] is None:
            # Leave the global generators alone.
            given["random_state"] = np.random.RandomState(None)
        given["random_state"] = int(check_random_state(given["random_state"]).randint(2**31 - 1))
        named = given["augment"]
        if given["model"] == "auto" and not (isinstance(named, str) and method_of(named).model):
            # Folds are plain lists of graphs, which do not record that they were molecules.
            given["model"] = "gine" if store.num_edge_features else "gcs"
        own = {field.name: _RENAMED.get(field.name, field.name) for field in fields(TrainConfig)}
        settings = {name: given[mine] for name, mine in own.items() if mine in given}
        # Ignore the split of the data: an estimator has no test graphs.
        return TrainConfig(**{**settings, "split": "random", "test": 0.0})

    def fit(
        self,
        X: Any,  # noqa: N803
        y: Any = None,
        sample_weight: Any = None,
        *,
        groups: Any = None,
        eval_set: Any = None,
    ) -> Self:
        """Train a model.

        Args:
            X: Graphs.
            y: Targets; those of the graphs by default.
            sample_weight: Relative sampling weight of each graph, ``[graphs]``; those with weight 0
                are left out.
            groups: Graphs of one group stay on one side of the internal validation split.
            eval_set: Graphs and targets to validate on, as a pair, instead of a part of ``X``.
        """
        if isinstance(eval_set, list) and len(eval_set) == 1:
            eval_set = eval_set[0]
        if eval_set is not None and not (isinstance(eval_set, list | tuple) and len(eval_set) == 2):
            raise DataError("`eval_set` must be a pair: graphs and their targets")
        more, its = eval_set or (None, None)
        targets = self._targets(X, y)
        columns = [str(name) for name in y.columns] if hasattr(y, "columns") else None
        further = targets[:0] if more is None else self._targets(more, its, columns)
        store = self._read(X, fitting=True, more=more)
        # The graphs to train on, then those to validate on.
        graphs, judged = len(store) - len(further), len(further)
        targets = np.concatenate((targets, further))
        check_consistent_length(store, targets)
        kept = np.ones(graphs, dtype=bool)
        if sample_weight is not None:
            sample_weight = _check_sample_weight(
                sample_weight,
                np.zeros((graphs, 1)),
                dtype=np.float64,
                ensure_non_negative=True,
                allow_all_zero_weights=False,
            )
            kept = sample_weight > 0
        if groups is not None:
            if np.shape(groups) != (graphs,):
                raise DataError(f"`groups` must have {graphs} entries; got {np.size(groups)}")
            # Numbered, as missing names cannot be sorted; graphs without one are one group.
            groups = pd.factorize(np.asarray(groups), sort=True, use_na_sentinel=False)[0][kept]
        if not kept.all():
            every = np.concatenate((kept, np.ones(judged, dtype=bool)))
            store, targets = store.subset(torch.from_numpy(every)), targets[every]
            graphs = int(kept.sum())
        if graphs < _FEWEST:
            raise DataError(
                f"{type(self).__name__} needs at least {_FEWEST} graphs, one of which is held out "
                f"for validation; got n_samples = {graphs}"
            )
        store = self._with_targets(store, targets, columns)
        config, parts = self._config(store), None
        if judged:
            parts = np.arange(graphs), np.arange(graphs, len(store))
        elif groups is not None:
            if not np.ptp(groups):
                raise DataError("`groups` must name at least two groups, to validate on one")
            whole = GroupShuffleSplit(1, test_size=config.validation, random_state=config.seed)
            parts = next(whole.split(np.zeros(graphs), groups=groups))
        if parts is not None:
            trained_on, validated_on = map(torch.from_numpy, parts)
            nothing = torch.empty(0, dtype=torch.long)
            config = replace(config, split=Split(trained_on, validated_on, nothing))
        weights = None
        if sample_weight is not None and np.ptp(sample_weight[kept]):
            weights = np.concatenate((sample_weight[kept], np.ones(judged)))
        told: list[str] = []
        self.model_: TrainedModel = train(
            store,
            config,
            sample_weight=weights,
            device=self.device,
            progress=bool(self.verbose),
            note=told.append,
        )
        self.history_: list[dict[str, Any]] = [*map(dict, self.model_.description.curve)]
        training = self.model_.description.training
        unused = unused_edge_features(store, [training.model]) if training.model else None
        enough = training.sizes.validation >= _FEWEST_JUDGED
        for text in told:
            # The effect of balancing is documented: no warning.
            if text == unused or (enough and text != BALANCED):
                warnings.warn(text, UserWarning, stacklevel=2)
        return self

    def _with_targets(self, store: GraphStore, targets: Array, columns: Names) -> GraphStore:
        """Return the graphs with targets and the names of their columns."""
        raise NotImplementedError

    def _read(self, X: Any, *, fitting: bool, more: Any = None) -> GraphStore:  # noqa: N803
        """Convert ``X``, and ``more`` of the same kind, to a store."""
        kind, items = items_of(X)
        if kind == "table":
            # Sets or checks the number and names of columns; raises if not numeric.
            tables = [validate_data(self, X, dtype=np.float32, reset=fitting)]
            if more is not None:
                tables.append(validate_data(self, more, dtype=np.float32, reset=False))
            return from_table(np.concatenate(tables))
        if fitting:
            for name in ("n_features_in_", "feature_names_in_"):
                # Left over from an earlier fit on a table.
                self.__dict__.pop(name, None)
        if kind == "store" and more is None:
            return items  # type: ignore[no-any-return]
        if more is not None:
            other, further = items_of(more)
            alike = other == kind
            if alike and kind == "store" and X.featurizer is not None:
                alike = X.featurizer.same_features(more.featurizer)
            if not alike:
                raise DataError("`eval_set` must hold graphs of the same kind as `X`")
            items = [*items, *further]
        store: GraphStore | None
        problems: Mapping[int, str]
        if fitting and kind == "SMILES":
            store = from_smiles(items)
            problems = {skipped.row: skipped.reason for skipped in store.skipped}
        else:
            like: dict[str, Any] = {}
            if not fitting:
                like = {"featurizer": self.model_.featurizer}
                if kind == "SMILES" and like["featurizer"] is None:
                    raise DataError("`X` holds SMILES, but the model was not trained on molecules")
            (chunk,) = stream(items, rows_per_chunk=sys.maxsize, **like)
            store, problems = chunk.store, chunk.problems
        for row, reason in problems.items():
            text = f", {items[row - 1][:60]!r}" if kind == "SMILES" else ""
            raise DataError(f"`X`: item {row - 1}{text}: {reason}")
        assert store is not None
        if kind == "store":
            store.num_continuous, store.featurizer = X.num_continuous, X.featurizer
        if kind == "PyG graphs" and store.x is not None:
            # Columns up to the last one with values other than 0 and 1 count as continuous.
            quantities = ((store.x != 0) & (store.x != 1)).any(0).nonzero().flatten()
            store.num_continuous = int(quantities[-1]) + 1 if len(quantities) else 0
        return store

    def _predict(self, X: Any) -> Array:  # noqa: N803
        check_is_fitted(self)
        model = self.model_
        if model.device.type == "cpu":
            # In single precision, rounding depends on the other graphs of the batch.
            model = replace(model, fitted=copy.deepcopy(model.fitted).double())
        outputs: Array = model.predictions(self._read(X, fitting=False)).outputs.numpy()
        return outputs

    def _targets(self, X: Any, y: Any, columns: Names = None) -> Array:  # noqa: N803
        """Return ``y``, its ``columns`` in this order, or the graphs' own targets, as an array."""
        check_index(X, y)
        if hasattr(y, "columns") and columns:
            y = y.set_axis(list(map(str, y.columns)), axis=1)
            y = y[list(columns)] if set(y.columns) == set(columns) else y
        if y is None and isinstance(X, GraphStore):
            y = X.y[:, 0] if X.y.dim() == 2 and X.y.shape[1] == 1 else X.y
            if isinstance(self, ClassifierMixin) and X.task == "multiclass" and X.label_names:
                y = np.array(X.label_names)[y]  # stores may number the same classes differently
        if y is None:
            own = [getattr(one, "y", getattr(one, "graph", {}).get("y")) for one in X]
            missing = next((place for place, target in enumerate(own) if target is None), None)
            if missing is not None:
                raise DataError(
                    f"{type(self).__name__} requires y to be passed, but the target y is None, and "
                    f"item {missing} of `X` has no target"
                )
            rows = [np.asarray(target).reshape(-1) for target in own]
            y = [row.item() for row in rows] if all(row.size == 1 for row in rows) else rows
        try:
            targets = np.asarray(y)
        except ValueError:
            raise DataError("`y` must have the same number of entries for every graph") from None
        if targets.dtype.kind in "US" and not all(isinstance(label, str) for label in y):
            # Do not turn numbers among strings into strings.
            targets = np.asarray(y, dtype=object)
        return targets

    @classmethod
    def load(cls, directory: str | Path, device: str = "cpu") -> Self:
        """Load a model of ``TrainedModel.save`` or the command line; its classes are strings."""
        model = TrainedModel.load(directory, device)
        wanted = "regression" if issubclass(cls, RegressorMixin) else "classification"
        if (model.task == "regression") != (wanted == "regression"):
            raise DataError(f"the model in {directory} is for {model.task}, not for {wanted}")
        estimator = cls(device=device)
        training = {_RENAMED.get(k, k): v for k, v in vars(model.description.training).items()}
        known = set(estimator.get_params(deep=False)) - {"validation_fraction", "metric"}
        estimator.set_params(**{k: v for k, v in training.items() if k in known})
        estimator.model_ = model
        estimator.history_ = [*map(dict, model.description.curve)]
        if wanted == "classification":
            names = np.asarray(model.label_names)
            estimator.classes_ = np.arange(len(names)) if model.task == "multilabel" else names
        return estimator


class GraphTransplantClassifier(ClassifierMixin, _GraphEstimator):  # type: ignore[misc]
    """A graph classifier trained with Graph Transplant, as a scikit-learn estimator.

    ``X`` is a sequence of graphs: PyG ``Data`` (a list or a PyG data set), networkx graphs, SMILES
    strings (also as the only column of a table); or a :class:`~graph_transplant.GraphStore`.
    Continuous node features are standardised; those of PyG graphs are the columns up to the last
    one with values other than 0 and 1. Each row of a numeric table is a graph with one node.

    ``y`` has one label per graph, of any type; or, for several labels per graph, 0, 1 or NaN
    (missing) in ``[graphs, labels]``. Without ``y`` the graphs' own targets are used.

    Parameters are the fields of :class:`~graph_transplant.config.TrainConfig` except ``split`` and
    ``test``; ``method`` is called ``augment``, ``validation`` is called ``validation_fraction`` and
    ``seed`` is called ``random_state``. Additional or different parameters:

    Args:
        augment: Augmentation by name, such as ``"transplant-dp"`` or ``"vanilla"`` for none, or an
            :class:`~graph_transplant.Augmentation`. Its own parameters can be set as
            ``augment__anchor_ratio`` and the like.
        model: As in ``TrainConfig``; ``"auto"`` is ``"gine"`` for graphs with edge features.
        class_weight: ``"balanced"``, or weights by label.
        random_state: A number, a ``RandomState``, or ``None`` for a different result every time.
            Global generators are not affected.
        device: Such as ``"cpu"`` or ``"cuda"``.
        verbose: 1 shows a progress bar.

    Attributes:
        classes_: The sorted labels, ``[classes]``; for several labels per graph, column numbers.
        model_: The :class:`~graph_transplant.models.model.TrainedModel`; save it with ``save``.
        history_: Points of the learning curve, oldest first.

    Example:
        >>> import networkx as nx
        >>> graphs = [kind(n) for n in range(4, 14) for kind in (nx.cycle_graph, nx.star_graph)]
        >>> labels = ["ring", "star"] * 10
        >>> classifier = GraphTransplantClassifier(
        ...     "transplant-dp", hidden=16, layers=2, epochs=40, learning_rate=0.01, random_state=0
        ... )
        >>> classifier.fit(graphs, labels).predict([nx.cycle_graph(20), nx.star_graph(20)])
        array(['ring', 'star'], dtype='<U4')
    """

    class_weight: Any

    def __init__(
        self,
        augment: MethodLike = "transplant-ep",
        *,
        model: Literal["auto", Convolution] = "auto",
        layers: int = 3,
        recipe: RecipeName = "strong",
        hidden: int | None = None,
        readout: Readout | None = None,
        dropout: float | None = None,
        epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        validation_fraction: float = 0.1,
        balance: bool = False,
        class_weight: ClassWeight | None = None,
        ensemble: int = 1,
        metric: str | None = None,
        random_state: RandomState = None,
        device: str = "cpu",
        verbose: int = 0,
    ) -> None:
        _store(self, locals())

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    def _with_targets(self, store: GraphStore, targets: Array, columns: Names) -> GraphStore:
        if targets.ndim == 2 and targets.shape[1] > 1:
            labels = label_matrix(targets)
            self.classes_ = np.arange(labels.shape[1])
            return store.with_targets(
                torch.from_numpy(labels).float(), task="multilabel", label_names=columns
            )
        labels = column_or_1d(targets, warn=True)
        if labels.dtype.kind == "f":
            check_array(labels, ensure_2d=False, input_name="y")
        try:
            check_classification_targets(labels)
            self.classes_, numbers = np.unique(labels, return_inverse=True)
        except (TypeError, ValueError):
            kinds = sorted({type(label).__name__ for label in labels.tolist()})
            if len(kinds) == 1:
                raise
            raise DataError(
                "Unknown label type: the labels in `y` must be of one type, none missing; got "
                f"{', '.join(kinds)}"
            ) from None
        found = self.classes_.tolist()
        if len(found) < 2:
            raise DataError(
                f"{type(self).__name__} needs at least two classes; got one class, {found[0]!r}"
            )
        return store.with_targets(
            torch.from_numpy(numbers),
            task="multiclass",
            num_outputs=len(found),
            label_names=[str(label) for label in found],
        )

    def _config(self, store: GraphStore) -> TrainConfig:
        config = super()._config(store)
        if isinstance(self.class_weight, Mapping):
            unknown = [label for label in self.class_weight if label not in self.classes_.tolist()]
            if unknown:
                raise GraphTransplantError(
                    f"`class_weight` has {unknown[0]!r}, which is not a class; the classes are "
                    f"{', '.join(map(repr, self.classes_.tolist()))}"
                )
            weights = [self.class_weight.get(label, 1.0) for label in self.classes_.tolist()]
            config = replace(config, class_weight=weights)
        return config

    def predict_proba(self, X: Any) -> Array:  # noqa: N803
        """Return calibrated probabilities, float64 ``[graphs, classes]``."""
        return self._predict(X)

    def predict_log_proba(self, X: Any) -> Array:  # noqa: N803
        """Return the logarithms of :meth:`predict_proba`."""
        with np.errstate(divide="ignore"):
            logarithms: Array = np.log(self.predict_proba(X))
        return logarithms

    def predict(self, X: Any) -> Array:  # noqa: N803
        """Return the most likely class of every graph; 0 or 1 for several labels."""
        probabilities = self.predict_proba(X)
        if self.model_.task == "multilabel":
            return (probabilities >= LABEL_THRESHOLD).astype(np.int64)
        found: Array = self.classes_[probabilities.argmax(1)]
        return found

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:  # noqa: N803
        """Return the accuracy; with several labels, all that are not missing must be correct."""
        check_is_fitted(self)
        labels = self._targets(X, y, self.model_.label_names)
        predicted = self.predict(X)
        check_consistent_length(predicted, labels)
        if self.model_.task == "multilabel":
            given = label_matrix(labels)
            right = ((given == predicted) | np.isnan(given)).all(1)
        else:
            right = column_or_1d(labels) == predicted
            kinds = {labels.dtype.kind, self.classes_.dtype.kind}
            if kinds & set("US") and kinds & set("biuf"):  # texts and numbers are never equal
                raise DataError(
                    f"`y`: the labels are not classes of the model; got {labels.tolist()[0]!r}, "
                    f"the classes are {', '.join(map(repr, self.classes_.tolist()[:10]))}"
                )
        return float(np.average(right, weights=sample_weight))


class GraphTransplantRegressor(RegressorMixin, _GraphEstimator):  # type: ignore[misc]
    """A graph regressor trained with Graph Transplant, as a scikit-learn estimator.

    ``X`` and the parameters are those of :class:`GraphTransplantClassifier`, except for ``balance``
    and ``class_weight``. ``y`` has one number per graph, or several as ``[graphs, outputs]``, where
    NaN marks a missing one.

    Example:
        >>> import networkx as nx
        >>> graphs = [nx.path_graph(nodes) for nodes in range(3, 23)]
        >>> regressor = GraphTransplantRegressor("vanilla", hidden=8, epochs=2, random_state=0)
        >>> regressor.fit(graphs, [len(graph) for graph in graphs]).predict(graphs[:3]).shape
        (3,)
    """

    def __init__(
        self,
        augment: MethodLike = "transplant-ep",
        *,
        model: Literal["auto", Convolution] = "auto",
        layers: int = 3,
        recipe: RecipeName = "strong",
        hidden: int | None = None,
        readout: Readout | None = None,
        dropout: float | None = None,
        epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        validation_fraction: float = 0.1,
        ensemble: int = 1,
        metric: str | None = None,
        random_state: RandomState = None,
        device: str = "cpu",
        verbose: int = 0,
    ) -> None:
        _store(self, locals())

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _with_targets(self, store: GraphStore, targets: Array, columns: Names) -> GraphStore:
        values = torch.from_numpy(values_of(targets))
        for column in values.reshape(len(values), -1).unbind(1):
            check_precision("`y`: the targets", column.tolist())
        return store.with_targets(values, task="regression", label_names=columns)

    def predict(self, X: Any) -> Array:  # noqa: N803
        """Return values in the units of ``y``, ``[graphs]`` or ``[graphs, outputs]``."""
        values = self._predict(X)
        return values[:, 0] if values.shape[1] == 1 else values

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:  # noqa: N803
        """Return the mean R² over the outputs; missing targets are ignored."""
        check_is_fitted(self)
        values = values_of(self._targets(X, y, self.model_.label_names))
        predicted = self._predict(X)
        check_consistent_length(predicted, values)
        values = values.reshape(len(values), -1)
        weights = np.ones(len(values)) if sample_weight is None else np.asarray(sample_weight)
        scores = [
            r2_score(wanted[there], found[there], sample_weight=weights[there])
            for wanted, found in zip(values.T, predicted.T, strict=True)
            if len(there := np.flatnonzero(~np.isnan(wanted)))
        ]
        return float(np.mean(scores))


def _store(estimator: BaseEstimator, parameters: dict[str, Any]) -> None:
    """Keep the arguments of ``__init__`` as attributes, unchanged, as scikit-learn demands."""
    names = inspect.signature(type(estimator)).parameters
    vars(estimator).update({name: parameters[name] for name in names})


def _augment_params(augment: Any) -> dict[str, Any]:
    if isinstance(augment, str):
        try:
            name, changed = parse_method(augment, network=True)
        except GraphTransplantError:
            return {}  # raised by `fit`
        return {**METHODS[name].parameters, **changed}
    if not isinstance(augment, Augmentation):
        return {}
    # `connect` also decides whether there is an edge predictor.
    names = inspect.signature(type(augment)).parameters.keys() - {"connect"}
    return {name: getattr(augment, name) for name in sorted(names) if hasattr(augment, name)}


def _with_params(augment: Any, given: Mapping[str, Any]) -> Any:
    known = _augment_params(augment)
    for name in given:
        if not known:
            raise GraphTransplantError(
                f"`{_NESTED}{name}` cannot be set: {augment!r} has no parameters"
            )
        check_choice(f"{_NESTED}{name}", name, known)
    if isinstance(augment, str):
        name, changed = parse_method(augment)
        return method_name(name, {**changed, **given})
    # A new instance checks the values; all other state, such as learnt weights, is kept.
    made, changed_one = type(augment)(**given), copy.deepcopy(augment)
    for name in given:
        setattr(changed_one, name, getattr(made, name))
    return changed_one
