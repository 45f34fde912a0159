"""Example graphs of a comparison page: saliency maps and virtual graphs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from graph_transplant.errors import GraphTransplantError
from graph_transplant.experiments.results import Results
from graph_transplant.figures.graphs import graph_svg
from graph_transplant.format import count, percent
from graph_transplant.report.explanations import draw_mixture
from graph_transplant.report.page import class_word, shortened
from graph_transplant.shown import Made, Mixture, Salient, read_example

MOST_MAPS = 4
"""Maps per graph: the motif if known, the reference and the best other methods."""

_SMALL = 240  # width of each of several drawings in a row

View = dict[str, str]


def gallery(results: Results) -> dict[str, Any]:
    """Draw the examples in the records of one group.

    ``maps`` are saliency maps of test graphs: graph, truth and views. ``made`` are virtual graphs:
    method, label, weight of the source's label, and drawings. ``left_out`` are methods whose maps
    are not drawn, ``damaged`` the errors of unreadable examples.
    """
    salient: dict[str, dict[str, Salient]] = {}
    made: dict[str, list[Mixture | Made]] = {}
    damaged = []
    for record in results.chosen:
        method = record["method"]
        for item in record.get("examples") or ():
            try:
                example = read_example(item)
            except GraphTransplantError as problem:
                damaged.append(f"{method}: {problem}")
                continue
            if isinstance(example, Salient):
                # Only the first trial is shown: other trials have other weights.
                salient.setdefault(example.graph, {}).setdefault(method, example)
            else:
                made.setdefault(method, []).append(example)
    ranked = results.summary()["method"].tolist()
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


def _map(graph: str, models: Mapping[str, Salient]) -> tuple[str, str, list[View]]:
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


def _made(method: str, one: Mixture | Made) -> tuple[str, str, str, list[tuple[str, str, str]]]:
    node, edge = ("atom", "bond") if one.structure.molecule else ("node", "edge")
    label = re.sub(r"(?<=% )-?\d+(?=,|$)", lambda match: class_word(match[0]), one.label)
    if isinstance(one, Made):
        size = count(len(one.structure.names), node)
        drawing = graph_svg(one.structure, width=_SMALL, title=f"Graph made by {method}")
        return method, label, "", [("Made", size, drawing)]
    words = [class_word(one.source.label), class_word(one.destination.label)]
    words.append(count(len(one.new_edges), f"new {edge}"))
    titles = ("Source", "Destination", "Mixed")
    drawings = list(zip(titles, words, draw_mixture(one, _SMALL), strict=True))
    return method, label, f"{one.weight:.2f}", drawings
