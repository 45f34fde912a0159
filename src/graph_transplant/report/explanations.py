"""Pages of explanations and of mixed graphs, and the examples in a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graph_transplant import __version__
from graph_transplant.errors import GraphTransplantError
from graph_transplant.figures.graphs import (
    LEFT_OUT,
    MOST_NODES,
    REMAINING,
    TRANSPLANTED,
    graph_svg,
    node_words,
)
from graph_transplant.methods import method_of
from graph_transplant.report.page import render
from graph_transplant.report.typography import class_word, class_words, shortened
from graph_transplant.results.examples import DrawnSaliency, DrawnVirtual, Mixture, read_example
from graph_transplant.results.groups import GroupResults
from graph_transplant.utils.text import count, percent
from graph_transplant.utils.text import number as number_words

if TYPE_CHECKING:
    from graph_transplant.results.examples import ExplainedRows, Explanation, ModelView


_SALIENT = 5
_THIRD = 350  # width of each of three drawings in a row

# -------------------------------------------------------------------- explanations


def render_explanations(rows: ExplainedRows) -> str:
    """Render explanations: one card per graph, with models side by side."""
    explained, skipped = rows.explanations, rows.skipped
    if not explained:
        reasons = "; ".join(f"row {one.row}: {one.reason}" for one in skipped[:3])
        raise GraphTransplantError(
            "a page of explanations needs at least one graph, got none"
            + (f" ({reasons})" if reasons else "")
        )
    first = explained[0]
    node = "atom" if first.structure.molecule else "node"
    return render(
        "explain.html",
        headline=f"Which {node}s the predictions are based on",
        notes=_notes(explained),
        data=Path(rows.source).name or rows.source,
        node=node,
        several=len(first.views) > 1,
        regression=first.views[0].confidence is None,
        by_gradient=first.views[0].kind == "gradient",
        cards=[_card(one) for one in explained],
        facts=_facts(explained),
        other=any(view.output != view.label for one in explained for view in one.views),
        trained_on=any(view.trained_on for one in explained for view in one.views),
        skipped=[(one.row, one.id, one.reason) for one in skipped],
        hidden=any(len(one.structure.names) > MOST_NODES for one in explained),
        most=MOST_NODES,
        typed=any(one.structure.typed for one in explained),
        version=__version__,
    )


def _notes(explained: Sequence[Explanation]) -> list[str]:
    first = explained[0]
    node, noun = ("atom", "molecule") if first.structure.molecule else ("node", "graph")
    found = []
    for number, view in enumerate(first.views):
        model = f"{shortened(view.model, 40)}: " if len(first.views) > 1 else ""
        if view.doubtful:
            found.append(
                f"{model}Do not rely on these drawings. On the validation {noun}s, taking away the "
                f"most salient {node}s changed the predictions no more than taking away random "
                "ones."
            )
        seen = sum(bool(one.views[number].trained_on) for one in explained)
        if seen:
            found.append(
                f"{model}{seen} of the {count(len(explained), noun)} "
                f"{'was' if seen == 1 else 'were'} in the training data, on which any model does "
                "well."
            )
    return found


def _facts(explained: Sequence[Explanation]) -> list[tuple[str, str]]:
    noun = "Molecules" if explained[0].structure.molecule else "Graphs"
    facts = [(noun, f"{len(explained):,}")]
    for number, view in enumerate(explained[0].views):
        judged = [one.views[number].correct for one in explained]
        known = [right for right in judged if right is not None]
        model = shortened(view.model, 40)
        facts.append(
            (f"{model}: right", f"{sum(known)} of {len(known)}") if known else ("Model", model)
        )
    return facts


def _card(one: Explanation) -> dict[str, object]:
    structure = one.structure
    node, edge = ("atom", "bond") if structure.molecule else ("node", "edge")
    nodes = len(structure.names)
    return {
        "id": one.id,
        # Mol blocks of an SDF are not shown.
        "text": one.text if "\n" not in one.text and one.text != one.id else "",
        "truth": None if one.truth is None else class_word(one.truth, one.target),
        "size": f"{count(nodes, node)}, {count(len(structure.edges), edge)}"
        + (f", of which the first {MOST_NODES} {node}s are drawn" if nodes > MOST_NODES else ""),
        "views": [_view(one, view) for view in one.views],
    }


def _view(one: Explanation, view: ModelView) -> dict[str, object]:
    structure, confidence = one.structure, view.confidence
    title = f"{shortened(one.id, 80)}, saliency of {shortened(view.model, 80)}"
    signed = view.kind != "gradient"
    # A single value is predicted as "NAME VALUE".
    told_of = view.label.rpartition(" ")[0] if confidence is None else view.label
    order = sorted(range(len(view.share)), key=lambda node: -abs(view.share[node]))[:_SALIENT]

    def told(sign: int) -> list[tuple[str, str]]:
        return [
            (node_words(structure, node), _share(abs(view.share[node])))
            for node in order
            if sign * view.share[node] > 0
        ]

    return {
        "model": view.model,
        "label": class_word(view.label, one.target),
        "confidence": "" if confidence is None else percent(confidence, 0, unit=True),
        "bar": "" if confidence is None else f"{100 * min(max(confidence, 0.0), 1.0):.1f}",
        "verdict": {None: "", True: "right", False: "wrong"}[view.correct],
        "output": class_word(view.output, one.target) if view.output != told_of else "",
        "trained_on": view.trained_on,
        "drawing": graph_svg(
            structure,
            smiles=one.text if "\n" not in one.text else "",
            saliency=view.saliency,
            numbered=[node for node in order if view.share[node]],
            signed=signed,
            title=title,
        ),
        "salient": [
            ("For" if signed else "Most salient", told(1)),
            ("Against", told(-1)),
            ("In no atom", _elsewhere(view)),
        ],
        "nothing": not any(view.share),
    }


def _elsewhere(view: ModelView) -> list[tuple[str, str]]:
    """What a forest on molecules finds in no atom, in votes."""
    if not view.rest:
        return []
    return [("descriptors and missing substructures", number_words(view.rest, sign=True))]


def _share(value: float) -> str:
    """Format a share in per cent; in large graphs it may be far below 1 %."""
    return percent(value, 0, unit=True) if value >= 0.01 else f"{100 * value:.2g}\u00a0%"


# -------------------------------------------------------------------- mixed graphs


def draw_mixture(one: Mixture, width: float) -> tuple[str, str, str]:
    """Draw source, destination and mixed graph as ``svg`` elements."""
    source, destination = one.source, one.destination
    return (
        graph_svg(
            source.structure,
            parts=[TRANSPLANTED if chosen else LEFT_OUT for chosen in source.chosen],
            width=width,
            title=f"Source {shortened(source.id, 80)}",
        ),
        graph_svg(
            destination.structure,
            parts=[REMAINING if chosen else LEFT_OUT for chosen in destination.chosen],
            width=width,
            title=f"Destination {shortened(destination.id, 80)}",
        ),
        graph_svg(
            one.structure,
            parts=[TRANSPLANTED if given else REMAINING for given in one.from_source],
            new_edges=one.new_edges,
            width=width,
            title="Mixed graph",
        ),
    )


def render_gallery(mixtures: Sequence[Mixture]) -> str:
    """Render mixed graphs: source, destination and mixed graph in a row."""
    if not mixtures:
        raise GraphTransplantError("a gallery needs at least one mixed graph, got none")
    first = mixtures[0]
    return render(
        "gallery.html",
        headline=f"Graphs mixed by {shortened(first.method, 60)}",
        data=first.data,
        method=first.method,
        about=method_of(first.method).summary,
        note=first.note,
        by_size=first.method.partition(":")[0] == "transplant-size-label",
        rows=[_row(one) for one in mixtures],
        molecules=first.structure.molecule,
        typed=any(one.structure.typed for one in mixtures),
        version=__version__,
    )


def _row(one: Mixture) -> dict[str, object]:
    shares = ", ".join(
        f"{percent(share, 0, unit=True)} {class_word(name, one.target)}"
        for name, share in one.labels
    )
    return {
        "source": one.source,
        "destination": one.destination,
        "labels": (
            class_word(one.source.label, one.target),
            class_word(one.destination.label, one.target),
            shares or one.label,
        ),
        "weight": f"{one.weight:.2f}",
        "source_share": f"{one.source.share:.2f}",
        "destination_share": f"{one.destination.share:.2f}",
        "drawings": draw_mixture(one, _THIRD),
        "new_edges": count(
            len(one.new_edges), f"new {'bond' if one.structure.molecule else 'edge'}"
        ),
    }


MOST_MAPS = 4
"""Maps per graph: the motif if known, the reference and the best other methods."""

_SMALL = 240  # width of each of several drawings in a row

View = dict[str, str]


def gallery(results: GroupResults) -> dict[str, Any]:
    """Draw the examples in the records of one group.

    ``maps`` are saliency maps of test graphs: graph, truth and views. ``made`` are virtual graphs:
    method, label, weight of the source's label, and drawings. ``left_out`` are methods whose maps
    are not drawn, ``damaged`` the errors of unreadable examples.
    """
    salient: dict[str, dict[str, DrawnSaliency]] = {}
    made: dict[str, list[Mixture | DrawnVirtual]] = {}
    damaged = []
    for record in results.chosen:
        method = record.method
        for item in record.examples:
            try:
                example = read_example(item)
            except GraphTransplantError as problem:
                damaged.append(f"{method}: {problem}")
                continue
            if isinstance(example, DrawnSaliency):
                # Only the first trial is shown: other trials have other weights.
                salient.setdefault(example.graph, {}).setdefault(method, example)
            else:
                made.setdefault(method, []).append(example)
    ranked = [row["method"] for row in results.rows]
    seen = [name for name in ranked if any(name in row for row in salient.values())]
    known = any(one.motif is not None for row in salient.values() for one in row.values())
    shown = [name for name in seen if name == results.reference]
    shown += [name for name in seen if name not in shown][: MOST_MAPS - known - len(shown)]
    every = [one.structure for row in salient.values() for one in row.values()]
    every += [one.structure for examples in made.values() for one in examples]
    each = 2 if len(made) <= 2 else 1
    maps = {g: {name: row[name] for name in shown if name in row} for g, row in salient.items()}
    return {
        "maps": [_map(graph, models) for graph, models in maps.items() if models],
        "made": [_made(name, one) for name in ranked for one in made.get(name, [])[:each]],
        "left_out": [name for name in seen if name not in shown],
        "damaged": damaged,
        "molecules": any(structure.molecule for structure in every),
        "typed": any(structure.typed for structure in every),
    }


def _map(graph: str, models: Mapping[str, DrawnSaliency]) -> tuple[str, str, list[View]]:
    first = next(iter(models.values()))
    views = []
    if first.motif is not None:
        truth = [float(inside) for inside in first.motif]
        title = f"{shortened(graph, 80)}, the motif that decides the class"
        drawing = graph_svg(first.structure, saliency=truth, width=_SMALL, title=title)
        views.append({"method": "", "drawing": drawing})
    for method, one in models.items():
        inside, total = "", sum(one.saliency)
        if one.motif is not None and total > 0:
            pairs = zip(one.saliency, one.motif, strict=True)
            inside = percent(sum(v for v, within in pairs if within) / total, 0, unit=True)
        title = f"{shortened(graph, 80)}, saliency of {shortened(method, 80)}"
        views.append(
            {
                "method": method,
                "predicted": class_word(one.predicted),
                "confidence": ""
                if one.confidence is None
                else percent(one.confidence, 0, unit=True),
                "verdict": {None: "", True: "right", False: "wrong"}[one.correct],
                "inside": inside,
                "drawing": graph_svg(
                    one.structure, saliency=one.saliency, width=_SMALL, title=title
                ),
            }
        )
    return graph, "" if first.truth is None else class_word(first.truth), views


def _made(
    method: str, one: Mixture | DrawnVirtual
) -> tuple[str, str, str, list[tuple[str, str, str]]]:
    node, edge = ("atom", "bond") if one.structure.molecule else ("node", "edge")
    label = class_words(one.label)
    if isinstance(one, DrawnVirtual):
        size = count(len(one.structure.names), node)
        drawing = graph_svg(one.structure, width=_SMALL, title=f"Graph made by {method}")
        return method, label, "", [("Made", size, drawing)]
    words = [class_word(one.source.label), class_word(one.destination.label)]
    words.append(count(len(one.new_edges), f"new {edge}"))
    titles = ("Source", "Destination", "Mixed")
    drawings = list(zip(titles, words, draw_mixture(one, _SMALL), strict=True))
    return method, label, f"{one.weight:.2f}", drawings
