"""Why a trained model says what it says: node saliency of its predictions.

Only numbers and names are found here; ``graph_transplant.report`` draws them. What comes out is
plain Python, so that drawing needs no torch.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from graph_transplant.datasets import stream
from graph_transplant.datasets.rows import Chunk, TableOptions, TargetCodec
from graph_transplant.errors import DataError, GraphTransplantError, check_choice
from graph_transplant.experiments.shown import Structure as Structure
from graph_transplant.experiments.structures import (
    graph_id,
    label_words,
    output_words,
    structures,
)
from graph_transplant.graphs import Featurizer, GraphBatch, GraphStore, Skipped
from graph_transplant.models.model import LABEL_THRESHOLD, Predictions, TrainedModel
from graph_transplant.saliency import (
    EXPLAINING,
    KINDS,
    NodeSaliency,
    read_saliency,
    within_graphs,
)

_AT_ONCE: Final = 256


@dataclass(frozen=True)
class ModelView:
    """What one model says about one graph, and which nodes move it.

    Attributes:
        model: Name of the model.
        label: The predicted class or labels; for regression the predicted values, in words.
        confidence: Of the prediction, between 0 and 1; ``None`` for regression.
        correct: Whether it is right; ``None`` where that is not known, and for regression.
        output: The output that the saliency explains.
        saliency: Of every node, divided by the largest of the graph: between 0 and 1.
        share: Of every node, divided by the sum over the graph; all 0 if nothing is salient.
        kind: What saliency is: ``"gradient-x-activation"`` or ``"gradient"``.

    Example:
        >>> view = ModelView("mine", "toxic", 0.9, None, "toxic", (1.0, 0.5), (2 / 3, 1 / 3))
        >>> view.label
        'toxic'
    """

    model: str
    label: str
    confidence: float | None
    correct: bool | None
    output: str
    saliency: tuple[float, ...]
    share: tuple[float, ...]
    kind: str = "gradient-x-activation"


@dataclass(frozen=True)
class Explanation:
    """One graph, and what one or more models see in it.

    Attributes:
        id: What the graph is called in its file, or its number.
        text: What it was read from where that is one text, such as its SMILES; else empty.
        truth: Its true label or value in words; ``None`` where that is not known.
        structure: The graph.
        views: One for each model.

    Example:
        >>> graph = Structure(("O",), (), (), molecule=True, directed=False)
        >>> view = ModelView("mine", "toxic", 0.9, False, "toxic", (1.0,), (1.0,))
        >>> Explanation("water", "O", "harmless", graph, (view,)).views[0].correct
        False
    """

    id: str
    text: str
    truth: str | None
    structure: Structure
    views: tuple[ModelView, ...]


# The store that has the target of a graph, and its place there.
_Known = tuple[GraphStore, int] | None

Models = TrainedModel | Sequence[TrainedModel] | Mapping[str, TrainedModel]


def explain(
    models: Models,
    store: GraphStore,
    *,
    saliency: NodeSaliency | None = None,
    output: str | None = None,
    batch_size: int = _AT_ONCE,
) -> list[Explanation]:
    """Find out which nodes move a model's predictions.

    The saliency of a node is how much what the model says would change, to first order, if its
    embedding were gone; or as ``saliency`` defines it. What the model says is for classes the
    margin of the predicted class (its logit minus the log-sum-exp of the others, the logarithm of
    its odds), for labels the logit of one label, for regression one output.

    Args:
        models: One model, or several to see side by side: a sequence, or a mapping that names them.
        store: The graphs, read as the models' training graphs were.
        saliency: Where and how it is read. (default:
            :data:`~graph_transplant.saliency.EXPLAINING`)
        output: Name of the class, label or value to explain. (default: the predicted class; the
            label with the highest probability; the first value)
        batch_size: Graphs at a time.

    Returns:
        One explanation per graph, in order.

    Raises:
        GraphTransplantError: If an output has no such name, or models cannot be compared.
        DataError: If the graphs were read in another way than the model's.

    Example:
        >>> import graph_transplant as gt
        >>> from graph_transplant.models.fitting import train
        >>> store = gt.load("motifs", graphs=60)
        >>> model = train(store, method="vanilla", hidden=8, epochs=2)
        >>> found = explain(model, store.subset(range(3)))
        >>> len(found), max(found[0].views[0].saliency)
        (3, 1.0)
    """
    named = _named(models)
    if output is not None:
        check_choice("output", output, next(iter(named.values())).label_names)
    return _explain(named, store, saliency, output, batch_size, _Truths(store, None))


@dataclass(frozen=True)
class ExplainedRows:
    """Explanations of some rows of a file, and the rows that could not be read.

    Attributes:
        explanations: One for each row that could be read, in order.
        skipped: The others.
        source: What the rows were read from, in words.

    Example:
        >>> ExplainedRows((), (Skipped(2, "x", "the SMILES cannot be parsed"),), "a.csv").skipped[0]
        Skipped(row=2, id='x', reason='the SMILES cannot be parsed')
    """

    explanations: tuple[Explanation, ...]
    skipped: tuple[Skipped, ...]
    source: str


def explain_rows(
    models: Models,
    data: Any,
    *,
    rows: Sequence[int] | None = None,
    count: int = 12,
    label: str | None = None,
    saliency: str | NodeSaliency = "gradient-x-activation",
    **options: Any,
) -> ExplainedRows:
    """Explain some rows of anything that :func:`graph_transplant.datasets.stream` reads.

    Rows are read as the first model's training data were; no more of them than needed.

    Args:
        models: One model, or several to see side by side; see :func:`explain`.
        data: A name, a path or graphs.
        rows: Numbers of the rows, counted from 1, in any order. (default: the first ``count``)
        count: How many rows to explain when none are named.
        label: Name of the class, label or value to explain.
        saliency: ``"gradient"``, ``"gradient-x-activation"``, or a
            :class:`~graph_transplant.NodeSaliency`.
        **options: Further arguments of ``stream``: columns of a table, ``root``.

    Returns:
        Explanations in the order of the rows, with true labels where the data have them: in columns
        that ``target`` names, else in those that the model was trained on.

    Raises:
        DataError: If the data cannot be read, or a row is not there.
        GraphTransplantError: If the model has no such label.

    Example:
        >>> import graph_transplant as gt
        >>> from graph_transplant.models.fitting import train
        >>> store = gt.load("motifs", graphs=60)
        >>> model = train(store, method="vanilla", hidden=8, epochs=2)
        >>> [one.id for one in explain_rows(model, store, rows=[3, 1]).explanations]
        ['1', '3']
    """
    named = _named(models)
    if rows is not None and (not rows or min(rows) < 1):
        raise GraphTransplantError(f"`rows` must be numbers from 1 on, at least one; got {rows}")
    if count < 1:
        raise GraphTransplantError(f"`count` must be at least 1, got {count}")
    if not isinstance(saliency, NodeSaliency):
        check_choice("saliency", saliency, KINDS)
        saliency = NodeSaliency(kind=saliency)
    first = next(iter(named.values()))
    if label is not None:
        check_choice("label", label, first.label_names)
    wanted = sorted(set(rows)) if rows is not None else list(range(1, count + 1))
    asked = frozenset(wanted)
    parts: list[tuple[GraphStore, list[int]]] = []
    skipped: list[Skipped] = []
    seen = 0
    for chunk in _until(_stream(first, data, wanted, **options), wanted[-1]):
        seen = chunk.first + len(chunk) - 1
        skipped += [
            Skipped(row, chunk.ids[row - chunk.first], reason)
            for row, reason in sorted(chunk.problems.items())
            if row in asked
        ]
        parts += _taken(chunk, asked)
    if rows is not None and wanted[-1] > seen:
        missing = next(row for row in wanted if row > seen)
        raise DataError(f"{_source(data)} has no row {missing}{_row_count(data, seen)}")
    explained: list[Explanation] = []
    if parts:
        truths = _targets_of(first, data, [row for _, here in parts for row in here], **options)
        for part, here in parts:
            explained += _explain(named, part, saliency, label, _AT_ONCE, truths, here)
    return ExplainedRows(tuple(explained), tuple(skipped), _source(data))


def _taken(chunk: Chunk, asked: Collection[int]) -> list[tuple[GraphStore, list[int]]]:
    """Take the graphs of some rows out of a chunk, with the numbers of the rows."""
    if chunk.store is None:
        return []
    numbers = _numbers(chunk.store, chunk.first)
    places = [place for place, row in enumerate(numbers) if row in asked]
    return [(chunk.store.subset(places), [numbers[p] for p in places])] if places else []


def _row_count(data: Any, seen: int) -> str:
    """Say how many rows there are; rows of a file that were passed over were not counted."""
    if not seen and not _is_path(data):
        seen = len(data)
    return f": it has {seen} row{'' if seen == 1 else 's'}" if seen else ""


def _source(data: Any) -> str:
    return data.name if isinstance(data, GraphStore) else str(data) if _is_path(data) else "graphs"


def _is_path(data: Any) -> bool:
    return isinstance(data, str | PathLike)


def _numbers(store: GraphStore, first: int) -> list[int]:
    """Row numbers of the graphs of a chunk."""
    if store.rows is None:
        return list(range(first, first + len(store)))
    return [int(number) for number in store.rows.number]


def _stream(
    model: TrainedModel, data: Any, wanted: Sequence[int], **arguments: Any
) -> Iterator[Chunk]:
    """Begin to read at the first wanted row, as the model's training data were read."""
    skip = wanted[0] - 1
    return stream(
        data,
        featurizer=model.featurizer,
        widths=model.widths,
        skip_rows=skip,
        # Small files and small numbers of rows are the rule; no more is read than is looked at.
        rows_per_chunk=min(wanted[-1] - skip, _AT_ONCE),
        **arguments,
    )


def _until(chunks: Iterator[Chunk], last: int) -> Iterator[Chunk]:
    """Stop reading behind a row."""
    for chunk in chunks:
        yield chunk
        if chunk.first + len(chunk) > last:
            return


def _targets_of(model: TrainedModel, data: Any, wanted: Sequence[int], **options: Any) -> _Truths:
    """Read the targets of some rows, where the data have any.

    Graphs are read without their targets first: a row that lacks a target is still a graph.
    """
    nothing = _Truths(None, {})
    if _lack_targets(data, wanted):
        return nothing
    codec = _codec(model, options.get("target"))
    try:
        chunks = _stream(model, data, wanted, targets=True, codec=codec, **options)
    except DataError:
        # The graphs could be read and nothing is read yet: the columns that the model learned from
        # are not there. Columns that somebody has named must be.
        if options.get("target"):
            raise
        return nothing
    asked = frozenset(wanted)
    found: dict[int, tuple[GraphStore, int]] = {}
    for chunk in _until(chunks, wanted[-1]):
        for part, rows in _taken(chunk, asked):
            found.update((row, (part, place)) for place, row in enumerate(rows))
    return _Truths(None, found)


def _lack_targets(data: Any, wanted: Sequence[int]) -> bool:
    """Whether these are PyG graphs none of which has a target."""
    if _is_path(data) or isinstance(data, GraphStore):
        return False
    graphs = [data[row - 1] for row in wanted]
    return all(isinstance(graph, Data) and graph.y is None for graph in graphs)


def _codec(model: TrainedModel, target: Any) -> TargetCodec:
    """How the model's targets are written: what it learned from says which classes there are.

    Args:
        model: The model.
        target: Columns that were named for these data.
    """
    names = TableOptions.of(target=target).targets
    names = names or (model.featurizer.targets if model.featurizer else ())
    if model.task == "multiclass":
        if len(names) > 1:
            raise GraphTransplantError(
                f"`target` must be one column, that of the classes; got {', '.join(names)}"
            )
        return TargetCodec(model.task, names or ("y",), model.label_names)
    # Several values may stand in one entry.
    return TargetCodec(
        model.task, names if len(names) == len(model.label_names) else model.label_names
    )


@dataclass(frozen=True)
class _Truths:
    """Where the true targets of graphs are: in the store of the graphs, or by row elsewhere."""

    store: GraphStore | None
    rows: Mapping[int, tuple[GraphStore, int]] | None

    def of(self, place: int, row: int) -> tuple[GraphStore, int] | None:
        if self.store is not None:
            return self.store, place
        return (self.rows or {}).get(row)


def _explain(
    named: Mapping[str, TrainedModel],
    store: GraphStore,
    saliency: NodeSaliency | None,
    output: str | None,
    batch_size: int,
    truths: _Truths,
    rows: Sequence[int] | None = None,
) -> list[Explanation]:
    if batch_size < 1:
        raise GraphTransplantError(f"`batch_size` must be at least 1, got {batch_size}")
    other, first = next(iter(named.items()))
    for name, model in named.items():
        _check_alike(name, model, other, first)
        model.check(store)
        if not same_features(model.featurizer, store.featurizer):
            raise DataError(
                f"the graphs of {store.name} were read in another way than those that model "
                f"{name} was trained on: {store.featurizer} instead of {model.featurizer}"
            )
    reading = EXPLAINING if saliency is None else saliency
    known = [truths.of(place, 0 if rows is None else rows[place]) for place in range(len(store))]
    seen = {
        name: list(_views(name, model, store, known, reading, output, batch_size))
        for name, model in named.items()
    }
    graphs = (
        graph
        for batch in store.batches(torch.arange(len(store)), batch_size)
        for graph in structures(batch, store)
    )
    return [
        Explanation(
            id=graph_id(store, number),
            text="" if store.rows is None else store.rows.texts[number],
            truth=_truth(known[number], first.task),
            structure=graph,
            views=tuple(views[number] for views in seen.values()),
        )
        for number, graph in enumerate(graphs)
    ]


def same_features(one: Featurizer | None, two: Featurizer | None) -> bool:
    """Whether two featurizers give the same columns; one that is not known may."""
    return one is None or one.same_features(two)


def _named(models: Models) -> dict[str, TrainedModel]:
    if isinstance(models, TrainedModel):
        models = [models]
    if not isinstance(models, Mapping):
        methods = [str(model.description["training"]["method"]) for model in models]
        models = {
            method if methods.count(method) == 1 else f"{method}, model {number}": model
            for number, (method, model) in enumerate(zip(methods, models, strict=True), start=1)
        }
    if not models:
        raise GraphTransplantError("`models` must be at least one trained model, got none")
    return dict(models)


def _check_alike(name: str, model: TrainedModel, other: str, first: TrainedModel) -> None:
    """Refuse models whose pages could not be read side by side."""
    if not same_features(model.featurizer, first.featurizer):
        raise GraphTransplantError(
            f"models {other} and {name} cannot be shown side by side: they read data in different "
            f"ways, {first.featurizer} and {model.featurizer}"
        )
    if (model.task, model.label_names) != (first.task, first.label_names):
        raise GraphTransplantError(
            f"models {other} and {name} cannot be shown side by side: one predicts {_aim(first)}, "
            f"the other {_aim(model)}"
        )


def _aim(model: TrainedModel) -> str:
    names = model.label_names
    shown = ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
    return f"{model.task} ({shown})"


# -------------------------------------------------------------------- saliency


def _views(
    name: str,
    model: TrainedModel,
    store: GraphStore,
    known: Sequence[_Known],
    reading: NodeSaliency,
    output: str | None,
    batch_size: int,
) -> Iterator[ModelView]:
    """Say what a model sees in every graph; one pass per batch."""
    start = 0
    for batch in store.batches(torch.arange(len(store)), batch_size):
        logits, chosen, saliency = explained(model, batch, reading, output)
        scaled, share = within_graphs(saliency, batch)
        predicted = Predictions(model.task, model.label_names, model.outputs(logits))
        confidence, rows = predicted.confidence.tolist(), predicted.outputs.tolist()
        counts = np.diff(batch.ptr).tolist()
        drawn = zip(torch.split(scaled, counts), torch.split(share, counts), strict=True)
        for number, (strength, part) in enumerate(drawn):
            yield ModelView(
                model=name,
                label=output_words(model.task, model.label_names, rows[number]),
                confidence=None if math.isnan(confidence[number]) else confidence[number],
                correct=_correct(known[start + number], predicted, number),
                output=model.label_names[int(chosen[number])],
                saliency=tuple(strength.tolist()),
                share=tuple(part.tolist()),
                kind=reading.kind,
            )
        start += len(counts)


def explained(
    model: TrainedModel, batch: GraphBatch, reading: NodeSaliency, output: str | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Run a model on a batch and read the saliency of every node.

    Args:
        model: The model; its mode and gradients stay as they are.
        batch: The graphs.
        reading: Where and how saliency is read.
        output: Name of the output to explain.

    Returns:
        Logits ``[graphs, outputs]``, the number of the output that was explained, int64
        ``[graphs]``, and the saliency, float ``[nodes]``, all on the CPU.
    """
    number = None if output is None else model.label_names.index(output)
    prediction, chosen, saliency = read_saliency(
        model.network, batch.to(model.device), model.task, reading, number
    )
    return prediction.logits.detach().cpu(), chosen.cpu(), saliency.cpu()


# -------------------------------------------------------------------- words


def _truth(known: _Known, task: str) -> str | None:
    if known is None or known[0].task != task:
        return None
    return label_words(*known)


def _correct(known: _Known, predicted: Predictions, number: int) -> bool | None:
    """Whether a prediction is right; labels that were not measured do not count."""
    truth = _truth(known, predicted.task)
    if known is None or truth is None or predicted.task == "regression":
        return None
    if predicted.task == "multiclass":
        return truth == predicted.labels[number]
    store, place = known
    if store.num_outputs != len(predicted.label_names):
        return None
    wanted = store.y[place]
    given = predicted.outputs[number] >= LABEL_THRESHOLD
    return bool((given == (wanted > LABEL_THRESHOLD))[~wanted.isnan()].all())
