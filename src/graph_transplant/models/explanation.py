"""Explanations of predictions by node saliency; ``graph_transplant.report`` draws them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from graph_transplant.analysis.drawing import drawn_graphs
from graph_transplant.config.options import SaliencyKind
from graph_transplant.data import GraphStore
from graph_transplant.data.targets import class_column, graph_id, is_correct, output_words
from graph_transplant.datasets import stream
from graph_transplant.datasets.load import Loadable
from graph_transplant.datasets.rows import Target
from graph_transplant.errors import (
    DataError,
    GraphTransplantError,
    Skipped,
    check_at_least,
    check_choice,
)
from graph_transplant.metrics import no_better_than_random
from graph_transplant.models.model import TrainedModel
from graph_transplant.models.predict import Predictions, remarks, warn
from graph_transplant.models.uncertainty import in_training_set
from graph_transplant.nn.saliency import (
    EXPLANATION_SALIENCY,
    KINDS,
    NodeSaliency,
    read_saliency,
    within_graphs,
)
from graph_transplant.results.examples import ExplainedRows, Explanation, ModelView
from graph_transplant.utils.text import count as counted

_AT_ONCE: Final = 256


Models = TrainedModel | Sequence[TrainedModel] | Mapping[str, TrainedModel]


def explain(
    models: Models,
    data: Loadable,
    *,
    saliency: NodeSaliency | None = None,
    output: str | None = None,
    target: Any = None,
    note: Callable[[str], None] = warn,
    **options: Any,
) -> list[Explanation]:
    """Find out which nodes influence a model's predictions, and in which direction.

    The saliency of a node is how much it contributes, to first order, to the prediction: the
    log-odds of the predicted class, the logit of one label, or one output of a regression.

    Args:
        models: One model, or several to show side by side: a sequence, or a mapping from names to
            models.
        data: Anything that :func:`~graph_transplant.load` accepts, with or without targets; read
            like the first model's training data. Every row must be readable.
        saliency: Where and how it is computed. (default:
            :data:`~graph_transplant.nn.saliency.EXPLANATION_SALIENCY`)
        output: Name of the class, label or value to explain. (default: the predicted class; the
            label with the highest probability; the first value)
        target: Columns with the true values. (default: as in the training data, if present)
        note: Called with remarks on how the data were read. (default: warnings)
        **options: How the data are read; see :func:`~graph_transplant.load`.

    Example:
        >>> import graph_transplant as gt
        >>> store = gt.load("motifs", graphs=60)
        >>> model = gt.train(store, method="vanilla", hidden=8, epochs=2)
        >>> found = explain(model, store.subset(range(3)))
        >>> len(found), max(map(abs, found[0].views[0].saliency))
        (3, 1.0)
    """
    named = _named(models)
    first = next(iter(named.values()))
    if output is not None:
        check_choice("output", output, first.label_names)
    found: list[Explanation] = []
    for chunk in remarks(stream(data, **first.reading(target), **options), note):
        for row, reason in chunk.problems.items():
            raise DataError(f"row {row} cannot be read: {reason}")
        assert chunk.store is not None
        targets = [chunk.targets.get(chunk.first + place) for place in range(len(chunk))]
        found += _explain(named, chunk.store, saliency or EXPLANATION_SALIENCY, output, targets)
    return found


def explain_rows(
    models: Models,
    data: Loadable,
    *,
    rows: Sequence[int] | None = None,
    count: int = 12,
    label: str | None = None,
    saliency: SaliencyKind | NodeSaliency = "gradient-x-activation",
    target: Any = None,
    note: Callable[[str], None] = warn,
    **options: Any,
) -> ExplainedRows:
    """Explain some rows of anything that :func:`graph_transplant.load` takes.

    Rows are read like the first model's training data, and no more than needed. ``rows`` are
    numbers from 1 in the order to show, by default the first ``count``; ``label`` is the class,
    label or value to explain. True values are read from the ``target`` columns, by default those
    that the model was trained on.

    Example:
        >>> import graph_transplant as gt
        >>> store = gt.load("motifs", graphs=60)
        >>> model = gt.train(store, method="vanilla", hidden=8, epochs=2)
        >>> [one.id for one in explain_rows(model, store, rows=[3, 1]).explanations]
        ['3', '1']
    """
    named = _named(models)
    if rows is not None:
        numbers = np.asarray(rows)
        whole = numbers.ndim == 1 and numbers.dtype.kind in "iu"
        if not (whole and numbers.size and numbers.min() > 0):
            raise GraphTransplantError(
                f"`rows` must be a list of numbers from 1 on, at least one; got {rows!r}"
            )
        rows = numbers.tolist()
    check_at_least(1, count=count)
    if not isinstance(saliency, NodeSaliency):
        saliency = NodeSaliency(kind=check_choice("saliency", saliency, KINDS))
    first = next(iter(named.values()))
    if label is not None:
        check_choice("label", label, first.label_names)
    wanted = sorted(set(rows)) if rows is not None else list(range(1, count + 1))
    explained: dict[int, Explanation] = {}
    skipped: list[Skipped] = []
    last, skip = 0, wanted[0] - 1
    chunks = stream(
        data,
        skip_rows=skip,
        # Usually few rows are needed: read no more than those.
        rows_per_chunk=min(wanted[-1] - skip, _AT_ONCE),
        **first.reading(target),
        **options,
    )
    for chunk in remarks(chunks, note):
        last = chunk.first + len(chunk) - 1
        skipped += [
            Skipped(row, chunk.ids[row - chunk.first], reason)
            for row, reason in sorted(chunk.problems.items())
            if row in wanted
        ]
        there = chunk.store.rows.number.tolist() if chunk.store and chunk.store.rows else []
        here = {row: place for place, row in enumerate(there) if row in wanted}
        if chunk.store and here:
            part, targets = chunk.store.subset([*here.values()]), [*map(chunk.targets.get, here)]
            explained |= zip(here, _explain(named, part, saliency, label, targets), strict=True)
        if last >= wanted[-1]:
            break
    path = isinstance(data, str | Path)
    source = data.name if isinstance(data, GraphStore) else str(data) if path else "graphs"
    if rows is not None and wanted[-1] > last:
        # Skipped rows of a file were not counted, so its length may be unknown.
        count = last or (0 if isinstance(data, str | Path) else len(data))
        known = f": it has {counted(count, 'row')}" if count else ""
        raise DataError(f"{source} has no row {next(r for r in wanted if r > last)}{known}")
    shown = tuple(explained[row] for row in dict.fromkeys(rows or wanted) if row in explained)
    return ExplainedRows(shown, tuple(skipped), source)


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
    other, first = next(iter(models.items()))
    for name, model in models.items():
        together = f"models {other} and {name} cannot be shown side by side"
        own = model.featurizer
        if own is not None and not own.same_features(first.featurizer):
            raise GraphTransplantError(
                f"{together}: they read data in different ways, {first.featurizer} and {own}"
            )
        if (model.task, model.label_names) != (first.task, first.label_names):
            aims = [f"{m.task} ({', '.join(m.label_names[:5])})" for m in (first, model)]
            raise GraphTransplantError(f"{together}: one predicts {aims[0]}, the other {aims[1]}")
    return dict(models)


def _explain(
    named: Mapping[str, TrainedModel],
    store: GraphStore,
    reading: NodeSaliency,
    output: str | None,
    targets: Sequence[Target | None],
) -> list[Explanation]:
    for model in named.values():
        model.check(store)
    views = [
        list(_views(name, model, store, targets, reading, output)) for name, model in named.items()
    ]
    first = next(iter(named.values()))
    column = class_column(first.task, first.featurizer)
    graphs = (
        graph
        for batch in store.batches(torch.arange(len(store)), _AT_ONCE)
        for graph in drawn_graphs(batch, store)
    )
    return [
        Explanation(
            id=graph_id(store, number),
            text="" if store.rows is None else store.rows.texts[number],
            truth=_truth(first, targets[number]),
            structure=graph,
            views=tuple(own[number] for own in views),
            target=column,
        )
        for number, graph in enumerate(graphs)
    ]


def _views(
    name: str,
    model: TrainedModel,
    store: GraphStore,
    targets: Sequence[Target | None],
    reading: NodeSaliency,
    output: str | None,
) -> Iterator[ModelView]:
    chosen = None if output is None else model.label_names.index(output)
    quality = model.description.get("saliency") or {}
    doubtful = reading == EXPLANATION_SALIENCY and no_better_than_random(quality)
    trained_on = in_training_set(model.description.get("training_graphs"), store, model.widths[1])
    start = 0
    for batch in store.batches(torch.arange(len(store)), _AT_ONCE):
        prediction, outputs, saliency = read_saliency(
            model.network, batch.to(model.device), model.task, reading, chosen, signed=True
        )
        values = model.outputs(prediction.logits.detach().cpu())
        predicted = Predictions(model.task, model.label_names, values)
        confidence = predicted.confidence.tolist()
        counts = batch.offsets.diff().tolist()
        scaled, share = (torch.split(s, counts) for s in within_graphs(saliency.cpu(), batch))
        for number, row in enumerate(values.tolist()):
            yield ModelView(
                model=name,
                label=output_words(model.task, model.label_names, row),
                confidence=None if math.isnan(confidence[number]) else confidence[number],
                correct=_correct(model.task, row, targets[start + number]),
                output=model.label_names[int(outputs[number])],
                saliency=tuple(scaled[number].tolist()),
                share=tuple(share[number].tolist()),
                kind=reading.kind,
                trained_on=None if trained_on is None else trained_on[start + number],
                doubtful=doubtful,
            )
        start += len(counts)


def _truth(model: TrainedModel, target: Target | None) -> str | None:
    if target is None or isinstance(target, str):
        return None
    if model.task == "multiclass":
        return model.label_names[int(target[0])]
    return output_words(model.task, model.label_names, target)


def _correct(task: str, outputs: Sequence[float], target: Target | None) -> bool | None:
    return None if target is None or isinstance(target, str) else is_correct(task, outputs, target)
