"""Drawings of graphs, and of molecules as chemists draw them.

Nothing is said by colour alone: saliency is also the size of a disc, a transplanted node is round,
a remaining one square, a new edge dashed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import lru_cache
from importlib.util import find_spec
from typing import Any
from xml.etree import ElementTree

import networkx as nx
import numpy as np

from graph_transplant.errors import GraphTransplantError
from graph_transplant.figures.style import COLOURS, plain
from graph_transplant.format import count, listed
from graph_transplant.shown import Structure

TRANSPLANTED, REMAINING, LEFT_OUT = PARTS = ("transplanted", "remaining", "left out")

MOST_NODES = 500
"""Nodes beyond these are not drawn, and the description says so."""

_MOST_NAMED = 60
_BY_STRESS = 100  # larger components are laid out by forces: stress takes cubic time
_EDGE, _BOND, _MARGIN = 38.0, 30.0, 20.0  # pixels
_LARGEST = 1.3  # molecules of few atoms are drawn larger, up to this
_LOOKS = {
    "": "fill:var(--paper);stroke:var(--ink);stroke-width:1.4",
    TRANSPLANTED: "fill:var(--grafted);fill-opacity:.42;stroke:var(--grafted);stroke-width:1.6",
    REMAINING: "fill:var(--kept);fill-opacity:.2;stroke:var(--kept);stroke-width:1.6",
    LEFT_OUT: "fill:var(--paper);stroke:var(--faint);stroke-width:1",
}

Places = np.ndarray[Any, np.dtype[np.float64]]


def _check(structure: Structure, *values: Sequence[Any] | None) -> None:
    for given in values:
        if given is not None and len(given) != len(structure.names):
            raise GraphTransplantError(
                f"a graph of {count(len(structure.names), 'node')} needs a value for each, got "
                f"{len(given)}"
            )


@lru_cache(maxsize=64)
def layout(nodes: int, edges: tuple[tuple[int, int], ...]) -> Places:
    """Places of nodes, the same for the same graph; edges are about 1 long.

    Kept, because a page shows a graph once per model.
    """
    graph: nx.Graph[int] = nx.Graph()
    graph.add_nodes_from(range(nodes))
    graph.add_edges_from(edges)
    found = np.zeros((nodes, 2))
    x = y = tall = 0.0
    wide = 1.6 * np.sqrt(max(nodes, 1))  # components stand in rows about so long
    for component in sorted(nx.connected_components(graph), key=lambda c: (-len(c), min(c))):
        members = sorted(component)
        points = _component(graph.subgraph(members), members)
        size = np.ptp(points, axis=0)
        if x > 0 and x + size[0] > wide:
            x, y, tall = 0.0, y + tall + 1.3, 0.0
        found[members] = points - points.min(axis=0) + (x, y)
        x, tall = x + size[0] + 1.3, max(tall, float(size[1]))
    found.flags.writeable = False
    return found


def _component(graph: nx.Graph[int], members: Sequence[int]) -> Places:
    if len(members) == 1:
        return np.zeros((1, 2))
    # Built anew in order: a subgraph view may give its nodes in any order.
    ordered: nx.Graph[int] = nx.Graph()
    ordered.add_nodes_from(members)
    ordered.add_edges_from(sorted((min(edge), max(edge)) for edge in graph.edges))
    if len(members) <= _BY_STRESS:
        places = nx.kamada_kawai_layout(ordered)
    else:
        places = nx.spring_layout(ordered, seed=0, iterations=80)
    points = np.array([places[node] for node in members])
    # The longer side lies across.
    _, _, axes = np.linalg.svd(points - points.mean(axis=0), full_matrices=False)
    points = (points - points.mean(axis=0)) @ axes.T * np.sign(axes[:, :1].T + 1e-9)
    index = {node: number for number, node in enumerate(members)}
    lengths = [
        np.linalg.norm(points[index[a]] - points[index[b]]) for a, b in ordered.edges if a != b
    ]
    return np.asarray(points / max(float(np.median(lengths)), 1e-9))


# -------------------------------------------------------------------- in words, for pages


def describe(
    structure: Structure, *, saliency: Sequence[float] | None = None,
    parts: Sequence[str] | None = None, new_edges: Collection[int] = (),
) -> str:  # fmt: skip
    """Say in words what a drawing shows."""
    molecule = structure.molecule
    kind, node, edge = ("Molecule", "atom", "bond") if molecule else ("Graph", "node", "edge")
    names = structure.names
    text = f"{kind} of {count(len(names), node)} and {count(len(structure.edges), edge)}"
    text += f", of which the first {MOST_NODES} are drawn." if len(names) > MOST_NODES else "."
    if saliency is not None:
        order = sorted(range(len(names)), key=lambda n: -abs(saliency[n]))[:3]
        told = [
            f"{names[n][:24] or node} {n + 1}{' (against)' if saliency[n] < 0 else ''}"
            for n in order
            if saliency[n]
        ]
        text += f" Most salient: {', '.join(told)}." if told else f" No {node} is salient."
    if parts is not None:
        counts = [f"{parts.count(part)} {part}" for part in PARTS if part in parts]
        text += f" Of the {node}s {listed(counts)}."
        text += f" {count(len(new_edges), f'new {edge}')} drawn dashed." if new_edges else ""
    return text


def graph_svg(
    structure: Structure,
    *,
    smiles: str = "",
    saliency: Sequence[float] | None = None,
    parts: Sequence[str] | None = None,
    new_edges: Collection[int] = (),
    signed: bool = False,
    width: float = 480,
    title: str = "",
) -> str:
    """A graph or molecule as an ``svg`` element for a page.

    Args:
        structure: The graph.
        smiles: Of a molecule: it is then drawn with charges and stereo.
        saliency: Of every node, at most 1; the larger, the larger and stronger its disc.
        parts: One of :data:`PARTS` for every node.
        new_edges: Numbers of the edges that join the two parts: they are dashed.
        signed: Saliency may be negative: what speaks against is a blue ring.
        width: Most pixels it takes across.
        title: What it is; a description follows it.
    """
    _check(structure, saliency, parts)
    label = describe(structure, saliency=saliency, parts=parts, new_edges=new_edges)
    label = f"{title}: {label}" if title else label
    given: dict[str, Any] = {"saliency": saliency, "parts": parts, "new_edges": new_edges}
    given |= {"signed": signed, "width": width, "label": label}
    if structure.molecule and len(structure.names) <= MOST_NODES:
        drawn = (smiles and molecule_svg(smiles, **given)) or molecule_svg(structure, **given)
        if drawn:
            return drawn
    return _plain_svg(structure, **given)


# -------------------------------------------------------------------- graphs


def _plain_svg(
    structure: Structure,
    *,
    saliency: Sequence[float] | None,
    parts: Sequence[str] | None,
    new_edges: Collection[int],
    signed: bool,
    width: float,
    label: str,
) -> str:
    names = structure.names[:MOST_NODES]
    edges = [(n, edge) for n, edge in enumerate(structure.edges) if max(edge) < len(names)]
    places = layout(len(names), tuple(edge for _, edge in edges))
    named = any(names) and len(names) <= _MOST_NAMED
    inside = named and max(map(len, names)) <= 3
    margin = 36.0 if named and not inside else _MARGIN  # names below nodes need room
    size = np.ptp(places, axis=0) if len(places) else np.zeros(2)
    unit = min(_EDGE, (width - 2 * margin) / max(size.max(initial=0.0), 1e-9))
    whole = np.maximum(unit * size + 2 * margin, 48)
    radius = min(10.0 if inside else 5.0, max(0.36 * unit, 2.0))
    points = unit * (places - places.min(axis=0, initial=np.inf)) + (whole - unit * size) / 2
    root = _root(f"0 0 {whole[0]:.0f} {whole[1]:.0f}", whole[0], whole[1], label)
    for (x, y), value in zip(points, saliency or (), strict=False):
        _disc(root, x, y, value, signed, radius, radius + 9)
    _draw_edges(root, structure, edges, points, parts, new_edges, radius)
    for number, (x, y) in enumerate(points):
        part = parts[number] if parts is not None else ""
        _node(root, x, y, part, radius, over=True)
        if named and part != LEFT_OUT and (radius >= 6 or not inside):
            _name(root, x, y, names[number], radius, inside)
    return ElementTree.tostring(root, encoding="unicode")


def _root(view: str, width: float, height: float, label: str) -> ElementTree.Element:
    size = {"viewBox": view, "width": f"{width:.0f}", "height": f"{height:.0f}"}
    words = {"class": "graph", "role": "img", "aria-label": plain(label)}
    return ElementTree.Element("svg", {**words, **size})


def _draw_edges(
    root: ElementTree.Element, structure: Structure,
    edges: Sequence[tuple[int, tuple[int, int]]], points: Places,
    parts: Sequence[str] | None, new_edges: Collection[int], radius: float,
) -> None:  # fmt: skip
    looks = {
        "lost": "stroke:var(--faint);stroke-opacity:.55;stroke-width:1.5",
        "usual": "stroke:var(--ink);stroke-width:1.5",
        "new": "stroke:var(--ink);stroke-width:2.2;stroke-dasharray:5 4",
    }
    lines: dict[str, list[str]] = {kind: [] for kind in looks}
    arrows: dict[str, list[str]] = {kind: [] for kind in looks}
    for number, (one, two) in edges:
        lost = parts is not None and LEFT_OUT in (parts[one], parts[two])
        kind = "new" if number in new_edges else "lost" if lost else "usual"
        (x, y), (u, v) = points[one], points[two]
        if one == two:
            lines[kind].append(f"M{x:.1f},{y:.1f}a{radius:.1f},{1.3 * radius:.1f} 0 1 1 .1,0")
            continue
        lines[kind].append(f"M{x:.1f},{y:.1f}L{u:.1f},{v:.1f}")
        if structure.directed:
            arrows[kind].append(_arrow(points[one], points[two], radius))
    for kind, look in looks.items():
        if lines[kind]:
            given = {"d": "".join(lines[kind]), "style": f"fill:none;{look}"}
            ElementTree.SubElement(root, "path", given)
        if arrows[kind]:
            fill = "var(--faint)" if kind == "lost" else "var(--ink)"
            given = {"d": "".join(arrows[kind]), "style": f"fill:{fill}"}
            ElementTree.SubElement(root, "path", given)


def _arrow(start: Places, end: Places, radius: float) -> str:
    """The head of an arrow that ends at the edge of a node."""
    along = (end - start) / max(float(np.linalg.norm(end - start)), 1e-9)
    tip = end - (radius + 1) * along
    side = 3.2 * np.array([-along[1], along[0]])
    (a, b), (c, d) = tip - 8 * along + side, tip - 8 * along - side
    return f"M{tip[0]:.1f},{tip[1]:.1f}L{a:.1f},{b:.1f}L{c:.1f},{d:.1f}Z"


def _disc(
    root: ElementTree.Element, x: float, y: float, value: float, signed: bool, least: float,
    most: float,
) -> None:  # fmt: skip
    """Saliency: the radius of a disc, and how strong it is."""
    strength = min(abs(value) if signed else max(value, 0.0), 1.0)
    if strength < 0.02:
        return
    # Neighbours nearly as salient are to look different, so strength goes with the square.
    opacity = f"{0.1 + 0.7 * strength**2:.2f}"
    look = f"fill:var(--halo);fill-opacity:{opacity}"
    if signed and value < 0:
        look = f"fill:none;stroke:var(--c1);stroke-width:3;stroke-opacity:{opacity}"
    _circle(root, x, y, least + (most - least) * strength, look)


def _node(
    root: ElementTree.Element, x: float, y: float, part: str, radius: float, *, over: bool = False
) -> None:
    """A node by its part; ``over`` hides the edges below one that is tinted."""
    if over and part in (TRANSPLANTED, REMAINING):
        _circle(root, x, y, radius, "fill:var(--paper)")
    if part == REMAINING:
        side = 1.8 * radius
        corner = {"x": f"{x - side / 2:.1f}", "y": f"{y - side / 2:.1f}"}
        size = {"width": f"{side:.1f}", "height": f"{side:.1f}", "style": _LOOKS[part]}
        ElementTree.SubElement(root, "rect", {**corner, **size})
    else:
        _circle(root, x, y, 0.6 * radius if part == LEFT_OUT else radius, _LOOKS[part])


def _circle(root: ElementTree.Element, x: float, y: float, radius: float, look: str) -> None:
    place = {"cx": f"{x:.1f}", "cy": f"{y:.1f}", "r": f"{radius:.1f}", "style": look}
    ElementTree.SubElement(root, "circle", place)


def _name(
    root: ElementTree.Element, x: float, y: float, name: str, radius: float, inside: bool
) -> None:
    text = plain(name)
    below = 4.0 if inside else radius + 12
    look = "fill:var(--ink);font-weight:600" if inside else "fill:var(--soft)"
    given = {"x": f"{x:.1f}", "y": f"{y + below:.1f}", "style": f"text-anchor:middle;{look}"}
    found = ElementTree.SubElement(root, "text", given)
    found.text = text if len(text) <= 8 else f"{text[:7]}…"


# -------------------------------------------------------------------- molecules

_ELEMENTS = {6: "ink", 7: "atom-n", 8: "atom-o", 16: "atom-s", 15: "atom-p"} | dict.fromkeys(
    (9, 17, 35, 53), "atom-x"
)


def molecule_svg(
    molecule: str | Structure,
    saliency: Sequence[float] | None = None,
    signed: bool = False,
    *,
    parts: Sequence[str] | None = None,
    new_edges: Collection[int] = (),
    width: float = 480,
    label: str = "",
) -> str | None:
    """A molecule as an ``svg`` element drawn by RDKit; ``None`` without RDKit or where it fails.

    SMILES are drawn with charges and stereo, a structure as its atoms and bonds. Saliency and parts
    are those of :func:`graph_svg`, in the order of the SMILES.
    """
    if find_spec("rdkit") is None:
        return None
    from rdkit import Chem, rdBase
    from rdkit.Chem.Draw import rdMolDraw2D

    block = rdBase.BlockLogs()
    try:
        mol: Any
        if isinstance(molecule, str):
            mol = Chem.MolFromSmiles(molecule)
        else:
            mol = _atoms(Chem, molecule, new_edges)
        if mol is None or not mol.GetNumAtoms():
            return None
        if any(v is not None and len(v) != mol.GetNumAtoms() for v in (saliency, parts)):
            return None  # the SMILES has other atoms than the graph
        drawer = rdMolDraw2D.MolDraw2DSVG(-1, -1)
        options: Any = drawer.drawOptions()
        options.clearBackground = False
        options.scalingFactor = _BOND / 1.5
        options.bondLineWidth = 1.5
        options.padding = 0.0
        options.additionalAtomLabelPadding = 0.08
        options.updateAtomPalette(
            {-1: _rgb("ink"), 0: _rgb("ink"), **{n: _rgb(c) for n, c in _ELEMENTS.items()}}
        )
        ready = rdMolDraw2D.PrepareMolForDrawing(mol, kekulize=isinstance(molecule, str))
        options.prepareMolsBeforeDrawing = False
        drawer.DrawMolecule(ready)
        drawer.FinishDrawing()
        places = [drawer.GetDrawCoords(n) for n in range(mol.GetNumAtoms())]
        return _page_svg(
            drawer, [(p.x, p.y) for p in places], saliency, signed, parts, width, label
        )
    except (ValueError, RuntimeError):
        return None  # no drawing of what RDKit does not understand: the plain graph serves
    finally:
        del block


def _atoms(chem: Any, structure: Structure, new_edges: Collection[int]) -> Any:
    """Atoms and bonds as they are, without chemistry: mixed molecules follow no valence."""
    mol = chem.RWMol()
    table = chem.GetPeriodicTable()
    known = {table.GetElementSymbol(n) for n in range(1, 119)}
    for name in structure.names:
        atom = chem.Atom(name if name in known else "*")
        atom.SetNoImplicit(bool(new_edges))
        if name not in known:
            atom.SetProp("atomLabel", plain(name)[:8] or "?")
        mol.AddAtom(atom)
    types = {2.0: chem.BondType.DOUBLE, 3.0: chem.BondType.TRIPLE, 1.5: chem.BondType.AROMATIC}
    orders = structure.orders or (1.0,) * len(structure.edges)  # none are given if all are single
    for number, ((one, two), order) in enumerate(zip(structure.edges, orders, strict=True)):
        if one != two and mol.GetBondBetweenAtoms(one, two) is None:
            # RDKit draws a bond of order zero dashed.
            kind = chem.BondType.ZERO if number in new_edges else types.get(order)
            mol.AddBond(one, two, kind or chem.BondType.SINGLE)
            if kind == chem.BondType.AROMATIC:
                bond = mol.GetBondBetweenAtoms(one, two)
                bond.SetIsAromatic(True)
                for end in (one, two):
                    mol.GetAtomWithIdx(end).SetIsAromatic(True)
    whole = mol.GetMol()
    whole.UpdatePropertyCache(strict=False)
    chem.FastFindRings(whole)
    return whole


def _rgb(name: str) -> tuple[float, ...]:
    colour = COLOURS[name]
    return tuple(int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))


def _page_svg(
    drawer: Any, places: Sequence[tuple[float, float]], saliency: Sequence[float] | None,
    signed: bool, parts: Sequence[str] | None, width: float, label: str,
) -> str:  # fmt: skip
    """RDKit's drawing in the page's colours, over discs of saliency and marks of parts."""
    root = ElementTree.fromstring(drawer.GetDrawingText())
    pad = 12.0
    wide, high = drawer.Width() + 2 * pad, drawer.Height() + 2 * pad
    scale = min(_LARGEST, width / wide)
    view = f"{-pad:g} {-pad:g} {wide:g} {high:g}"
    new = _root(view, scale * wide, scale * high, label)
    for number, (x, y) in enumerate(places):
        if saliency is not None:
            _disc(new, x, y, saliency[number], signed, 4, 13.5)
        if parts is not None and parts[number] != LEFT_OUT:
            _node(new, x, y, parts[number], 10)
    themes = {colour.upper(): f"var(--{name})" for name, colour in reversed(COLOURS.items())}

    def theme(value: str) -> str:
        return re.sub(r"#[0-9A-Fa-f]{6}", lambda m: themes.get(m[0].upper(), "var(--ink)"), value)

    for element in root.iter():
        tag = element.tag.rpartition("}")[2]
        if tag not in ("path", "text", "ellipse", "rect", "polygon") or not isinstance(tag, str):
            continue
        text = ";".join(
            [f"{key}:{element.attrib[key]}" for key in ("fill", "stroke") if key in element.attrib]
            + [element.get("style", "")]
        )
        if "fill" in element.attrib:  # a letter: discs must not swallow it
            text += (
                f"paint-order:stroke;stroke:{COLOURS['paper']};stroke-width:3;stroke-opacity:.85"
            )
        atoms = [int(n) for n in re.findall(r"\batom-(\d+)", element.get("class", ""))]
        if parts is not None and any(parts[n] == LEFT_OUT for n in atoms):
            text += ";opacity:.35"
        copy = ElementTree.SubElement(new, tag, {"style": theme(text).rstrip(";")})
        copy.text = element.text
        copy.attrib |= {
            key: value
            for key, value in element.attrib.items()
            if key in ("d", "x", "y", "cx", "cy", "rx", "ry", "width", "height", "points")
        }
    return ElementTree.tostring(new, encoding="unicode")
