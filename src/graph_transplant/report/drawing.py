"""Drawing graphs and molecules as SVG that lives inside the page and takes its colours from it.

A drawing says nothing by colour alone: saliency is the size and the strength of a disc, the
transplanted part has round marks, the remaining one square marks, new edges are dashed. Colours are
CSS classes, so that one drawing serves light, dark and paper.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

from graph_transplant.errors import GraphTransplantError
from graph_transplant.report.layout import Place, positions

if TYPE_CHECKING:
    from graph_transplant.experiments.shown import Structure

MOST_NODES = 500
"""Nodes of a larger graph beyond these are not drawn, and the drawing says so."""

MOST_NAMED = 60
"""In graphs with more nodes than this, names are shown only when pointed at."""

TRANSPLANTED, REMAINING, LEFT_OUT = "transplanted", "remaining", "left out"
PARTS = (TRANSPLANTED, REMAINING, LEFT_OUT)

# Elements with a colour of their own, as in most drawing programs; carbon is the ink.
_COLOURED = {"N": "n", "O": "o", "S": "s", "P": "p"} | dict.fromkeys(("F", "Cl", "Br", "I"), "x")

_A_NUMBER = re.compile(r"[-+]?[0-9]{1,12}(\.[0-9]{1,12})?")
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")

WIDTH = 480
"""Drawings are at most so many pixels wide unless told otherwise."""

_HIGH = 1.0  # height of a drawing at most, as a multiple of its width
_BOND, _EDGE, _NAMED = 30.0, 34.0, 62.0  # lengths of bonds, of edges, of edges between names
_MARGIN = 17.0
_INSIDE, _LETTERS = 3, 8  # letters of a name in its node, and below it
_LARGEST_RING = 8


@dataclass(frozen=True)
class GraphPicture:
    """Everything that a drawing of one graph shows.

    Attributes:
        names: What every node is called: element symbols for molecules; empty for none.
        edges: Pairs of node numbers, each drawn once.
        places: Where every node stands, edges about 1 long; see :func:`picture`.
        orders: Bond order of every edge, 1.5 for aromatic ones; empty where all are single.
        molecule: Whether to draw it as chemists do.
        directed: Whether edges are arrows.
        saliency: Of every node, between 0 and 1, or nothing.
        shares: Share of the graph's saliency of every node, for the words that show when a node is
            pointed at.
        parts: One of :data:`PARTS` for every node, or nothing.
        new_edges: Numbers of the edges that join the two parts.
        hidden: Number of further nodes that are not drawn.

    Example:
        >>> ethanol = GraphPicture(["C", "C", "O"], [(0, 1), (1, 2)],
        ...                        [(0, 0), (0.9, 0.5), (1.8, 0)], molecule=True)
        >>> description(ethanol)
        'Molecule of 3 atoms and 2 bonds.'
    """

    names: Sequence[str]
    edges: Sequence[tuple[int, int]]
    places: Sequence[Place]
    orders: Sequence[float] = ()
    molecule: bool = False
    directed: bool = False
    saliency: Sequence[float] | None = None
    shares: Sequence[float] | None = None
    parts: Sequence[str] | None = None
    new_edges: frozenset[int] = frozenset()
    hidden: int = 0

    def __post_init__(self) -> None:
        nodes = len(self.places)
        for field in ("names", "saliency", "shares", "parts"):
            values = getattr(self, field)
            if values is not None and len(values) != nodes:
                raise GraphTransplantError(
                    f"`{field}` of a picture must have {nodes} entries, one per node; got "
                    f"{len(values)}"
                )
        if self.orders and len(self.orders) != len(self.edges):
            raise GraphTransplantError(
                f"`orders` of a picture must have {len(self.edges)} entries, one per edge; got "
                f"{len(self.orders)}"
            )


def picture(
    names: Sequence[str],
    edges: Sequence[tuple[int, int]],
    *,
    orders: Sequence[float] = (),
    molecule: bool = False,
    directed: bool = False,
    saliency: Sequence[float] | None = None,
    shares: Sequence[float] | None = None,
    parts: Sequence[str] | None = None,
    new_edges: Iterable[int] = (),
) -> GraphPicture:
    """Lay out a graph for drawing; of a very large one only the first nodes.

    Args:
        names: What every node is called; empty texts where nodes have no names.
        edges: Pairs of node numbers.
        orders: Bond order of every edge.
        molecule: Whether to draw it as chemists do.
        directed: Whether edges are arrows.
        saliency: Of every node, between 0 and 1.
        shares: Share of the graph's saliency of every node.
        parts: One of :data:`PARTS` for every node.
        new_edges: Numbers of the edges that join the two parts.

    Example:
        >>> triangle = picture(["a", "b", "c"], [(0, 1), (1, 2), (2, 0)])
        >>> len(triangle.places), triangle.hidden
        (3, 0)
    """
    nodes = min(len(names), MOST_NODES)
    kept = [number for number, edge in enumerate(edges) if max(edge) < nodes]
    place = {number: new for new, number in enumerate(kept)}
    shown = [edges[number] for number in kept]
    bonds = [orders[number] for number in kept] if orders else []

    def first(values: Sequence[float] | None) -> Sequence[float] | None:
        return None if values is None else values[:nodes]

    return GraphPicture(
        names=[plain(name) for name in names[:nodes]],
        edges=shown,
        places=positions(
            nodes, shown, names=names[:nodes], orders=bonds or [1.0] * len(shown), molecule=molecule
        ),
        orders=bonds,
        molecule=molecule,
        directed=directed,
        saliency=first(saliency),
        shares=first(shares),
        parts=None if parts is None else parts[:nodes],
        new_edges=frozenset(place[number] for number in new_edges if number in place),
        hidden=len(names) - nodes,
    )


def picture_of(
    structure: Structure, *, parts: Sequence[str] | None = None, new_edges: Iterable[int] = ()
) -> GraphPicture:
    """Lay out a graph that is given in words and numbers; see :func:`picture`.

    Args:
        structure: The graph.
        parts: One of :data:`PARTS` for every node.
        new_edges: Numbers of the edges that join the two parts.

    Example:
        >>> from graph_transplant.experiments.shown import Structure
        >>> water = Structure(("O",), (), (), molecule=True, directed=False)
        >>> picture_of(water).molecule
        True
    """
    return picture(
        structure.names,
        structure.edges,
        orders=structure.orders,
        molecule=structure.molecule,
        directed=structure.directed,
        parts=parts,
        new_edges=new_edges,
    )


def plain(text: str) -> str:
    r"""Replace what no page can hold: control characters and halves of surrogate pairs.

    Example:
        >>> plain("a\x00b\ud800c") == "a\ufffdb\ufffdc"
        True
    """
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def shortened(text: str, most: int) -> str:
    """Cut a text that is longer than ``most`` characters.

    Example:
        >>> shortened("benzodiazepine", 6), shortened("C", 6)
        ('benzo…', 'C')
    """
    return text if len(text) <= most else text[: most - 1] + "…"


def node_word(names: Sequence[str], number: int, most: int = 24) -> str:
    """Call a node by its name and its number, which counts from 1.

    Example:
        >>> node_word(["C", ""], 0), node_word(["C", ""], 1)
        ('C 1', 'node 2')
    """
    return f"{shortened(names[number], most) or 'node'} {number + 1}"


def most_salient(values: Sequence[float], count: int = 3) -> list[int]:
    """Number the nodes with the largest values, largest first; those of value zero never.

    Example:
        >>> most_salient([0.1, 0.0, 0.7, 0.1])
        [2, 0, 3]
    """
    order = sorted(range(len(values)), key=lambda number: (-values[number], number))
    return [number for number in order[:count] if values[number] > 0]


def description(shown: GraphPicture) -> str:
    """Say in words what a drawing shows.

    Args:
        shown: The picture.

    Example:
        >>> shown = GraphPicture(["a", "b"], [(0, 1)], [(0, 0), (1, 0)], saliency=[1.0, 0.2])
        >>> description(shown)
        'Graph of 2 nodes and 1 edge. Most salient: a 1, b 2.'
    """
    nodes, edges = len(shown.places) + shown.hidden, len(shown.edges)
    kind, node, edge = ("Molecule", "atom", "bond") if shown.molecule else ("Graph", "node", "edge")
    if shown.hidden:
        text = f"{kind} of {count_of(nodes, node)}, of which the first {len(shown.places)} are "
        text += f"drawn with {count_of(edges, edge)}."
    else:
        text = f"{kind} of {count_of(nodes, node)} and {count_of(edges, edge)}."
    if shown.saliency is not None:
        found = most_salient(shown.saliency)
        words = ", ".join(node_word(shown.names, number) for number in found)
        text += f" Most salient: {words}." if found else f" No {node} is salient."
    if shown.parts is not None:
        counts = [(part, sum(other == part for other in shown.parts)) for part in PARTS]
        told = [f"{count} {part}" for part, count in counts if count]
        text += f" Of the {node}s {', '.join(told)}."
        if shown.new_edges:
            text += f" {count_of(len(shown.new_edges), 'new ' + edge)} drawn dashed."
    return text


def class_word(label: str) -> str:
    """Call a class by its name; a bare number is called a class.

    Example:
        >>> class_word("toxic"), class_word("-1")
        ('toxic', 'class -1')
    """
    return f"class {label}" if _A_NUMBER.fullmatch(label) else label


def count_of(number: int, noun: str) -> str:
    """Count things in words.

    Example:
        >>> count_of(1, "bond"), count_of(1204, "atom")
        ('1 bond', '1,204 atoms')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def draw_graph(shown: GraphPicture, title: str = "", width: int = WIDTH) -> Markup:
    """Draw a graph.

    Args:
        shown: The picture.
        title: What it is called for people who cannot see it; its description follows.
        width: Most pixels it may take across; large graphs get shorter edges, not smaller letters.

    Returns:
        An ``svg`` element with ``viewBox``, ``title`` and ``desc``.

    Example:
        >>> shown = picture(["<b>", "O"], [(0, 1)])
        >>> drawn = draw_graph(shown, "a graph")
        >>> "&lt;b&gt;" in drawn and "<b>" not in drawn
        True
    """
    return _Canvas(shown, width).render(plain(title))


def draw_scale(steps: int = 5) -> Markup:
    """Draw the legend of saliency: discs from little to much.

    Args:
        steps: Number of discs.

    Example:
        >>> draw_scale().count("<circle")
        5
    """
    parts = []
    for step in range(1, steps + 1):
        strength = step / steps
        parts.append(_disc(16.0 + 32 * (step - 1), 16.0, strength, "", 13.5))
    opening = '<svg class="graph" viewBox="0 0 {0} 32" width="{0}" height="32" role="img">'
    return (
        Markup(opening).format(32 * steps)
        + Markup("<title>Discs from small and faint to large and strong</title>")
        + Markup("").join(parts)
        + Markup("</svg>")
    )


def draw_mark(part: str) -> Markup:
    """Draw the mark of a part of a mixed graph, for a legend.

    Args:
        part: One of :data:`PARTS`, or ``"new edge"``.

    Example:
        >>> "<rect" in draw_mark(REMAINING)
        True
    """
    mark = Markup('<path class="edge fresh" d="M2,10H30"/>') if part == "new edge" else None
    if mark is None:
        mark = _mark(16.0, 10.0, part, 7.0, "")
    return (
        Markup('<svg class="graph" viewBox="0 0 32 20" width="32" height="20" aria-hidden="true">')
        + mark
        + Markup("</svg>")
    )


def pixels(value: float) -> str:
    """Write a coordinate with one digit after the point where one is needed.

    Example:
        >>> pixels(3.04), pixels(-0.02)
        ('3', '0')
    """
    text = f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


def _disc(x: float, y: float, strength: float, tip: str, size: float) -> Markup:
    # Neighbours nearly as salient are to look different, so strength goes with the square.
    radius = size * (0.3 + 0.7 * strength)
    return Markup(
        '<circle class="halo" cx="{}" cy="{}" r="{}" fill-opacity="{}">{}</circle>'
    ).format(pixels(x), pixels(y), pixels(radius), f"{0.1 + 0.7 * strength**2:.2f}", _tip(tip))


def _tip(text: str) -> Markup:
    return Markup("<title>{}</title>").format(text) if text else Markup("")


def _mark(x: float, y: float, part: str, radius: float, tip: str) -> Markup:
    if part == REMAINING:
        side = 1.8 * radius
        return Markup(
            '<rect class="kept" x="{}" y="{}" width="{}" height="{}" rx="2">{}</rect>'
        ).format(pixels(x - side / 2), pixels(y - side / 2), pixels(side), pixels(side), _tip(tip))
    kind, size = ("grafted", radius) if part == TRANSPLANTED else ("gone", 0.6 * radius)
    return Markup('<circle class="{}" cx="{}" cy="{}" r="{}">{}</circle>').format(
        kind, pixels(x), pixels(y), pixels(size), _tip(tip)
    )


class _Canvas:
    """One drawing: places in pixels, then discs, lines, nodes and names, each over the last."""

    def __init__(self, shown: GraphPicture, width: int) -> None:
        self.shown = shown
        xs = [x for x, _ in shown.places] or [0.0]
        ys = [y for _, y in shown.places] or [0.0]
        wide, high = max(xs) - min(xs), max(ys) - min(ys)
        named = not shown.molecule and any(shown.names) and len(shown.names) <= MOST_NAMED
        short = max(map(len, shown.names), default=0) <= _INSIDE
        unit = _BOND if shown.molecule else _EDGE if short or not named else _NAMED
        # Names below nodes need room at the sides and at the foot.
        side, foot = (_MARGIN, _MARGIN) if short or not named else (_MARGIN + 14, _MARGIN + 12)
        if wide > 0:
            unit = min(unit, (width - 2 * side) / wide)
        if high > 0:
            unit = min(unit, (_HIGH * width - _MARGIN - foot) / high)
        self.unit = unit
        self.inside = named and short and unit > 24
        self.below = named and not self.inside
        self.width = max(unit * wide + 2 * side, 48.0)
        self.height = max(unit * high + _MARGIN + foot, 48.0)
        left = (self.width - unit * wide) / 2 - unit * min(xs)
        top = _MARGIN - unit * min(ys) + (self.height - unit * high - _MARGIN - foot) / 2
        self.places = [(left + unit * x, top + unit * y) for x, y in shown.places]
        self.radius = 10.0 if self.inside else max(2.4, min(5.5, 0.22 * unit))
        self.neighbours: list[set[int]] = [set() for _ in shown.places]
        for one, two in shown.edges:
            if one != two:
                self.neighbours[one].add(two)
                self.neighbours[two].add(one)

    def render(self, title: str) -> Markup:
        text = description(self.shown)
        opening = Markup(
            '<svg class="graph" viewBox="0 0 {0} {1}" width="{0}" height="{1}" role="img">'
            "<title>{2}</title><desc>{3}</desc>"
        ).format(pixels(self.width), pixels(self.height), title or text, text if title else "")
        parts = [opening, *self._discs()]
        parts += self._bonds() if self.shown.molecule else self._edges()
        parts += self._atoms() if self.shown.molecule else self._nodes()
        return Markup("").join([*parts, Markup("</svg>")])

    def _tip(self, node: int) -> str:
        tip = node_word(self.shown.names, node, most=200)
        if self.shown.shares is not None:
            tip += f": {100 * self.shown.shares[node]:.1f} % of the saliency"
        if self.shown.parts is not None:
            tip += f": {self.shown.parts[node]}"
        return tip

    def _discs(self) -> Iterable[Markup]:
        """Discs of saliency, and the marks of parts under the atoms of a molecule."""
        if self.shown.saliency is not None:
            size = max(6.0, min(13.5 if self.shown.molecule else 15.0, 0.45 * self.unit))
            for node, (x, y) in enumerate(self.places):
                strength = min(max(self.shown.saliency[node], 0.0), 1.0)
                if strength >= 0.02:
                    yield _disc(x, y, strength, self._tip(node), size)
        if self.shown.parts is not None and self.shown.molecule:
            for node, (x, y) in enumerate(self.places):
                if self.shown.parts[node] != LEFT_OUT:
                    size = min(10.0, 0.36 * self.unit)
                    yield _mark(x, y, self.shown.parts[node], size, self._tip(node))

    def _kind(self, edge: int) -> str:
        """CSS class of an edge beside its own."""
        if edge in self.shown.new_edges:
            return " fresh"
        parts = self.shown.parts
        if parts is not None and LEFT_OUT in (parts[end] for end in self.shown.edges[edge]):
            return " lost"
        return ""

    # ---------------------------------------------------------------- graphs

    def _edges(self) -> Iterable[Markup]:
        lines: dict[str, list[str]] = {}
        arrows: dict[str, list[str]] = {}
        for edge, (one, two) in enumerate(self.shown.edges):
            kind = f"edge{self._kind(edge)}"
            (x1, y1), (x2, y2) = self.places[one], self.places[two]
            if one == two:
                size = self.radius + 3
                lines.setdefault(kind, []).append(
                    f"M{pixels(x1)},{pixels(y1)}c{pixels(-2 * size)},{pixels(-2.6 * size)} "
                    f"{pixels(2 * size)},{pixels(-2.6 * size)} 0,0"
                )
                continue
            length = math.hypot(x2 - x1, y2 - y1) or 1.0
            step = ((x2 - x1) / length, (y2 - y1) / length)
            if self.shown.directed:
                gap = min(self.radius + 1.5, length / 3)
                x2, y2 = x2 - gap * step[0], y2 - gap * step[1]
                arrows.setdefault(f"arrow{self._kind(edge)}", []).append(_arrow(x2, y2, step))
            lines.setdefault(kind, []).append(_line(x1, y1, x2, y2))
        yield from _paths(lines)
        yield from _paths(arrows)

    def _nodes(self) -> Iterable[Markup]:
        shown = self.shown
        for node, (x, y) in enumerate(self.places):
            tip = self._tip(node)
            if shown.parts is not None:
                yield _mark(x, y, shown.parts[node], self.radius, tip)
            else:
                yield Markup('<circle class="node" cx="{}" cy="{}" r="{}">{}</circle>').format(
                    pixels(x), pixels(y), pixels(self.radius), _tip(tip)
                )
            name = shown.names[node]
            left_out = shown.parts is not None and shown.parts[node] == LEFT_OUT
            if not name or left_out:
                continue
            if self.inside:
                yield _text(x, y + 3.8, name, "inside", tip)
            elif self.below:
                yield _text(x, y + self.radius + 11, shortened(name, _LETTERS), "below", tip)

    # ---------------------------------------------------------------- molecules

    def _symbol(self, node: int) -> str:
        """What is written at an atom: carbon stands at the corners, unwritten."""
        name = self.shown.names[node]
        return "" if name == "C" and self.neighbours[node] else name

    def _atoms(self) -> Iterable[Markup]:
        shown = self.shown
        for node, (x, y) in enumerate(self.places):
            symbol = self._symbol(node)
            if symbol:
                kind = f"atom {_COLOURED.get(symbol, '')}".rstrip()
                if shown.parts is not None and shown.parts[node] == LEFT_OUT:
                    kind += " gone"
                yield _text(x, y + 4.4, shortened(symbol, _LETTERS), kind, self._tip(node))

    def _bonds(self) -> Iterable[Markup]:
        lines: dict[str, list[str]] = {}
        spread = 0.11 * self.unit
        for edge, (one, two) in enumerate(self.shown.edges):
            if one == two:
                continue
            kind = self._kind(edge)
            start, end = self._trimmed(one, two)
            order = self.shown.orders[edge] if self.shown.orders else 1.0
            if kind == " fresh" or order not in (1.5, 2.0, 3.0):
                lines.setdefault(f"edge{kind}", []).append(_line(*start, *end))
                continue
            side = self._inner_side(one, two)
            dashed: list[float] = []
            if order == 3.0:
                shifts = [-spread, 0.0, spread]
            elif side == 0:
                shifts = [-spread / 1.6, spread / 1.6]
            elif order == 2.0:
                shifts = [0.0, 1.5 * side * spread]
            else:
                shifts, dashed = [0.0], [1.5 * side * spread]
            if order == 1.5 and side == 0:
                shifts, dashed = shifts[:1], shifts[1:]
            for shift in shifts:
                lines.setdefault(f"edge{kind}", []).append(_shifted(start, end, shift))
            for shift in dashed:
                lines.setdefault(f"edge aromatic{kind}", []).append(_shifted(start, end, shift))
        return _paths(lines)

    def _trimmed(self, one: int, two: int) -> tuple[Place, Place]:
        """Ends of a bond, clear of written symbols."""
        (x1, y1), (x2, y2) = self.places[one], self.places[two]
        length = math.hypot(x2 - x1, y2 - y1) or 1.0
        step = ((x2 - x1) / length, (y2 - y1) / length)
        gap = min(8.0, length / 3)
        first = gap if self._symbol(one) else 0.0
        last = gap if self._symbol(two) else 0.0
        return (
            (x1 + first * step[0], y1 + first * step[1]),
            (x2 - last * step[0], y2 - last * step[1]),
        )

    def _inner_side(self, one: int, two: int) -> int:
        """Side of a bond, +1 or -1, on which its ring lies or else most neighbours; 0 for none."""
        around = self._ring(one, two) or [
            node for end in (one, two) for node in self.neighbours[end] - {one, two}
        ]
        (x1, y1), (x2, y2) = self.places[one], self.places[two]
        total = 0.0
        for node in around:
            x, y = self.places[node]
            total += (x2 - x1) * (y - y1) - (y2 - y1) * (x - x1)
        if abs(total) < 0.1 * self.unit**2:
            return 0
        return 1 if total > 0 else -1

    def _ring(self, one: int, two: int) -> list[int]:
        """Atoms of the smallest ring of a bond."""
        before = {one: one}
        queue = deque([(one, 1)])
        while queue:
            node, size = queue.popleft()
            if size >= _LARGEST_RING:
                break
            for other in sorted(self.neighbours[node]):
                if other in before or (node == one and other == two):
                    continue
                before[other] = node
                if other == two:
                    ring = [two]
                    while ring[-1] != one:
                        ring.append(before[ring[-1]])
                    return ring
                queue.append((other, size + 1))
        return []


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f"M{pixels(x1)},{pixels(y1)}L{pixels(x2)},{pixels(y2)}"


def _shifted(start: Place, end: Place, shift: float) -> str:
    """A line beside another, a little shorter where it is not the middle one."""
    (x1, y1), (x2, y2) = start, end
    length = math.hypot(x2 - x1, y2 - y1) or 1.0
    dx, dy = (x2 - x1) / length, (y2 - y1) / length
    cut = 0.09 * length if shift else 0.0
    return _line(
        x1 - shift * dy + cut * dx,
        y1 + shift * dx + cut * dy,
        x2 - shift * dy - cut * dx,
        y2 + shift * dx - cut * dy,
    )


def _arrow(x: float, y: float, step: Place) -> str:
    back, wide = 6.5, 3.2
    return (
        f"M{pixels(x)},{pixels(y)}"
        f"L{pixels(x - back * step[0] - wide * step[1])},"
        f"{pixels(y - back * step[1] + wide * step[0])}"
        f"L{pixels(x - back * step[0] + wide * step[1])},"
        f"{pixels(y - back * step[1] - wide * step[0])}Z"
    )


def _text(x: float, y: float, text: str, kind: str, tip: str) -> Markup:
    return Markup('<text class="{}" x="{}" y="{}" text-anchor="middle">{}{}</text>').format(
        kind, pixels(x), pixels(y), text, _tip(tip)
    )


def _paths(lines: dict[str, list[str]]) -> Iterable[Markup]:
    """One element per class: most of a drawing is lines, and most lines look alike."""
    draw: Callable[[str, str], Markup] = Markup('<path class="{}" d="{}"/>').format
    return [draw(kind, "".join(steps)) for kind, steps in lines.items()]
