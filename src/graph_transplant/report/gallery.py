"""Graphs to look at in the page of a comparison: what models attend to, what methods make."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from graph_transplant.errors import GraphTransplantError
from graph_transplant.experiments.protocol import BASELINE, Record
from graph_transplant.experiments.shown import Made, Mixture, Salient, Structure, read_example
from graph_transplant.report.drawing import (
    LEFT_OUT,
    REMAINING,
    TRANSPLANTED,
    GraphPicture,
    class_word,
    count_of,
    draw_graph,
    picture_of,
    shortened,
)
from graph_transplant.report.frame import Figure, Table
from graph_transplant.report.names import Names, short_names, slug
from graph_transplant.report.svg import percent

MOST_MAPS = 4
"""So many maps of a graph stand in a row: what is known, the baseline and the best others."""

FEW_METHODS = 2
"""With more methods than this, one example of each is drawn."""

_SMALL = 200  # width of a drawing when several stand in a row


@dataclass(frozen=True)
class SaliencyMap:
    """What one method's model makes of a graph.

    Args:
        method: Name of the method; empty for the truth.
        says: What the model says, in words.
        sure: Its confidence in words, or nothing.
        verdict: ``"right"``, ``"wrong"`` or nothing.
        inside: Share of its saliency that lies in the motif, in words; empty where there is none.
        drawing: The graph with its salient nodes.
    """

    method: str
    says: str
    sure: str
    verdict: str
    inside: str
    drawing: Figure


@dataclass(frozen=True)
class MapRow:
    """One test graph as several models see it."""

    graph: str
    truth: str
    maps: list[SaliencyMap]


@dataclass(frozen=True)
class MadeRow:
    """Graphs that a method made: source, destination and mixture, or the made graph alone."""

    method: str
    label: str
    weight: str
    drawings: list[tuple[str, str, Figure]]


@dataclass(frozen=True)
class Gallery:
    """The graphs that one section of the page shows.

    Args:
        maps: Saliency maps, one row per test graph.
        made: Graphs that the methods made.
        left_out: Methods whose maps are in the records and are not drawn.
        damaged: What could not be drawn, and why.
        molecules: Whether they are molecules.
    """

    maps: list[MapRow]
    made: list[MadeRow]
    left_out: list[str]
    damaged: list[str]
    molecules: bool

    @property
    def figures(self) -> list[Figure]:
        """Every drawing, for files of their own."""
        return [
            *(one.drawing for row in self.maps for one in row.maps),
            *(drawing for row in self.made for _, _, drawing in row.drawings),
        ]

    def renamed(self, name: Callable[[str], str]) -> Gallery:
        """Give the same gallery with every drawing called otherwise.

        Args:
            name: Makes the new name of the old one; it is asked in the order of :attr:`figures`.
        """

        def new(drawing: Figure) -> Figure:
            return replace(drawing, name=name(drawing.name))

        maps = [
            replace(row, maps=[replace(one, drawing=new(one.drawing)) for one in row.maps])
            for row in self.maps
        ]
        made = [
            replace(row, drawings=[(title, about, new(one)) for title, about, one in row.drawings])
            for row in self.made
        ]
        return replace(self, maps=maps, made=made)

    @property
    def anchors(self) -> list[tuple[str, str]]:
        """Headings that stand in it, and what they are called in links."""
        found = [("maps", "Saliency maps")] if self.maps else []
        return [*found, *([("made", "Made graphs")] if self.made else [])]


def gallery(methods: Mapping[str, Sequence[Record]]) -> Gallery:
    """Collect and draw the examples of one section.

    Args:
        methods: Records of each method, the best method first. Examples that are damaged are named
            instead of drawn.

    Returns:
        The drawings; none where the records hold no examples.
    """
    salient: dict[str, dict[str, Salient]] = {}
    made: dict[str, list[Mixture | Made]] = {}
    damaged = []
    for method, records in methods.items():
        for record in records:
            for item in record.get("examples", ()):
                try:
                    example = read_example(item, method=method, data=str(record["data"]))
                except GraphTransplantError as problem:
                    damaged.append(f"{method}: {problem}")
                    continue
                if isinstance(example, Salient):
                    # Of several trials the first one speaks: the others have other weights.
                    salient.setdefault(example.graph, {}).setdefault(method, example)
                else:
                    made.setdefault(method, []).append(example)
    seen = [name for name in methods if any(name in row for row in salient.values())]
    shown = [name for name in seen if name == BASELINE]
    known = any(one.motif is not None for row in salient.values() for one in row.values())
    shown += [name for name in seen if name != BASELINE][: MOST_MAPS - known - len(shown)]
    short = short_names(methods, 80)
    maps = [
        _map_row(number, graph, {name: row[name] for name in shown if name in row}, short)
        for number, (graph, row) in enumerate(salient.items(), 1)
        if any(name in row for name in shown)
    ]
    each = 2 if len(made) <= FEW_METHODS else 1
    rows = [
        _made_row(one, method, number, short[method])
        for method, examples in made.items()
        for number, one in enumerate(examples[:each], 1)
    ]
    structures = [one.structure for row in salient.values() for one in row.values()]
    structures += [one.structure for examples in made.values() for one in examples]
    found = Gallery(
        maps,
        rows,
        [name for name in seen if name not in shown],
        damaged,
        any(structure.molecule for structure in structures),
    )
    # Methods whose names begin alike, or differ in a sign, have one slug.
    return found.renamed(Names().claim)


def _map_row(
    number: int, graph: str, models: Mapping[str, Salient], short: Mapping[str, str]
) -> MapRow:
    first = next(iter(models.values()))
    # Laid out once: models differ in what they see, not in the graph.
    bare = picture_of(first.structure)

    def drawn(name: str, about: str, one: Salient, saliency: Sequence[float]) -> Figure:
        same = one.structure == first.structure
        title = f"{shortened(graph, 80)}, {about}"
        return _drawing(
            one.structure,
            f"map-{number}-{name}",
            title,
            saliency=saliency,
            bare=bare if same else None,
        )

    maps = []
    if first.motif is not None:
        truth = [float(inside) for inside in first.motif]
        about = "the motif that decides the class"
        maps.append(SaliencyMap("", "", "", "", "", drawn("motif", about, first, truth)))
    for method, one in models.items():
        about = f"saliency of {short[method]}"
        inside = ""
        if one.motif is not None and sum(one.saliency) > 0:
            pairs = zip(one.saliency, one.motif, strict=True)
            inside = percent(sum(value for value, within in pairs if within) / sum(one.saliency))
        maps.append(
            SaliencyMap(
                method,
                class_word(one.predicted),
                "" if one.confidence is None else percent(one.confidence),
                {None: "", True: "right", False: "wrong"}[one.correct],
                inside,
                drawn(slug(method), about, one, one.saliency),
            )
        )
    return MapRow(graph, "" if first.truth is None else class_word(first.truth), maps)


def _made_row(one: Mixture | Made, method: str, number: int, short: str) -> MadeRow:
    stem = f"made-{slug(method)}-{number}"
    if isinstance(one, Made):
        drawn = _drawing(one.structure, stem, f"Graph made by {short}")
        size = count_of(len(one.structure.names), "atom" if one.structure.molecule else "node")
        return MadeRow(method, one.label, "", [("Made", size, drawn)])
    source, destination = one.source, one.destination
    edge = "bond" if one.structure.molecule else "edge"
    return MadeRow(
        method,
        one.label,
        f"{one.weight:.2f}",
        [
            (
                "Source",
                class_word(source.label),
                _drawing(
                    source.structure,
                    f"{stem}-source",
                    f"Source {shortened(source.id, 80)}",
                    parts=[TRANSPLANTED if chosen else LEFT_OUT for chosen in source.chosen],
                ),
            ),
            (
                "Destination",
                class_word(destination.label),
                _drawing(
                    destination.structure,
                    f"{stem}-destination",
                    f"Destination {shortened(destination.id, 80)}",
                    parts=[REMAINING if chosen else LEFT_OUT for chosen in destination.chosen],
                ),
            ),
            (
                "Mixed",
                count_of(len(one.new_edges), f"new {edge}"),
                _drawing(
                    one.structure,
                    f"{stem}-mixed",
                    f"Mixed graph of {short}",
                    parts=[TRANSPLANTED if given else REMAINING for given in one.from_source],
                    new_edges=one.new_edges,
                ),
            ),
        ],
    )


def _drawing(
    structure: Structure,
    name: str,
    title: str,
    *,
    saliency: Sequence[float] | None = None,
    parts: Sequence[str] | None = None,
    new_edges: Sequence[int] = (),
    bare: GraphPicture | None = None,
) -> Figure:
    """Draw a graph; ``bare`` is its layout where that is known."""
    if bare is None and saliency is not None:
        bare = picture_of(structure)
    if bare is not None and saliency is not None:
        total = sum(saliency) or 1.0
        seen = saliency[: len(bare.places)]
        shown = replace(bare, saliency=seen, shares=[value / total for value in seen])
    else:
        shown = picture_of(structure, parts=parts, new_edges=new_edges)
    columns: tuple[str, ...] = ("node", "name")
    values: list[Sequence[str | float]] = [range(1, len(structure.names) + 1), structure.names]
    for column, given in (("saliency", saliency), ("part", parts)):
        if given is not None:
            columns, values = (*columns, column), [*values, given]
    data = Table(columns, tuple(zip(*values, strict=True)))
    return Figure(name, title, "", draw_graph(shown, title, _SMALL), Markup(""), data)
