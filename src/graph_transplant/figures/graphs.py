"""Drawings of graphs, and of molecules as structural formulas.

No information is carried by colour alone: saliency is also the size of a disc, transplanted nodes
are round and remaining ones square, new edges are dashed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from importlib.util import find_spec
from typing import Any
from xml.etree import ElementTree

import networkx as nx
import numpy as np

from graph_transplant.errors import GraphTransplantError
from graph_transplant.figures.style import LIGHT
from graph_transplant.results.examples import DrawnGraph
from graph_transplant.utils.text import count, listed, plain

TRANSPLANTED, REMAINING, LEFT_OUT = PARTS = ("transplanted", "remaining", "left out")

MOST_NODES = 500  # further nodes are not drawn; the description says so

_MOST_NAMED = 60
_LETTERS = 11.0  # pixels, as in the style sheet
# Pixels; names do not fit into smaller nodes, nor types on shorter edges.
_LEAST_NAMED, _LEAST_LEFT_OUT, _LEAST_TYPED = 5, 7, 26
_LONGEST = 24  # letters of a name in words
_BY_STRESS = 100  # larger components use a spring layout: Kamada-Kawai takes cubic time
# Pixels; edges are long with names below nodes or on edges.
_EDGE, _LONG_EDGE, _BOND, _MARGIN = 38.0, 54.0, 30.0, 20.0
_LARGEST = 1.3  # highest scale of small molecules
_NODES = {
    "": "fill:var(--paper);stroke:var(--ink);stroke-width:1.4",
    TRANSPLANTED: "fill:var(--grafted);fill-opacity:.42;stroke:var(--grafted);stroke-width:1.6",
    REMAINING: "fill:var(--kept);fill-opacity:.2;stroke:var(--kept);stroke-width:1.6",
    LEFT_OUT: "fill:var(--paper);stroke:var(--faint);stroke-width:1",
}
_EDGES = {
    "lost": "fill:none;stroke:var(--faint);stroke-opacity:.55;stroke-width:1.5",
    "usual": "fill:none;stroke:var(--ink);stroke-width:1.5",
    "new": "fill:none;stroke:var(--ink);stroke-width:2.2;stroke-dasharray:5 4",
}

# Keeps letters legible on discs and edges.
_OUTLINE = "paint-order:stroke;stroke:var(--paper);stroke-width:3;stroke-opacity:.85"

Places = np.ndarray[Any, np.dtype[np.float64]]


def graph_svg(
    structure: DrawnGraph,
    *,
    smiles: str = "",
    saliency: Sequence[float] | None = None,
    parts: Sequence[str] | None = None,
    new_edges: Collection[int] = (),
    numbered: Collection[int] = (),
    signed: bool = False,
    width: float = 480,
    title: str = "",
) -> str:
    """Draw a graph or molecule as an ``svg`` element.

    Args:
        structure: The graph.
        smiles: SMILES of a molecule, to draw charges and stereochemistry.
        saliency: Saliency of each node, at most 1; shown by the size and opacity of a disc.
        parts: One of :data:`PARTS` for each node.
        new_edges: Indices of the edges that join the two parts, drawn dashed.
        numbered: Indices of the nodes with their number beside them, counted from 1.
        signed: Saliency may be negative, which is drawn as a blue ring.
        width: Maximum width in pixels.
        title: Start of the text alternative, before the description.
    """
    for given in (saliency, parts):
        if given is not None and len(given) != len(structure.names):
            raise GraphTransplantError(
                "`saliency` and `parts` must have one value per node: expected "
                f"{len(structure.names)}, got {len(given)}"
            )
    label = describe(structure, saliency=saliency, parts=parts, new_edges=new_edges)
    look: dict[str, Any] = {"saliency": saliency, "parts": parts, "new_edges": new_edges}
    look |= {"numbered": numbered, "signed": signed, "width": width}
    look["label"] = f"{title}: {label}" if title else label
    drawn = None
    if structure.molecule and len(structure.names) <= MOST_NODES:
        drawn = (smiles and molecule_svg(smiles, **look)) or molecule_svg(structure, **look)
    return drawn or _plain_svg(structure, **look)


def describe(
    structure: DrawnGraph, *, saliency: Sequence[float] | None = None,
    parts: Sequence[str] | None = None, new_edges: Collection[int] = (),
) -> str:  # fmt: skip
    """Describe a drawing in words."""
    molecule = structure.molecule
    kind, node, edge = ("Molecule", "atom", "bond") if molecule else ("Graph", "node", "edge")
    names = structure.names
    text = f"{kind} of {count(len(names), node)} and {count(len(structure.edges), edge)}"
    text += f", of which the first {MOST_NODES} are drawn." if len(names) > MOST_NODES else "."
    if saliency is not None:
        order = sorted(range(len(names)), key=lambda n: -abs(saliency[n]))[:3]
        told = [
            f"{node_words(structure, n)}{' (against)' if saliency[n] < 0 else ''}"
            for n in order
            if saliency[n]
        ]
        text += f" Most salient: {', '.join(told)}." if told else f" No {node} is salient."
    if parts is not None:
        counts = [f"{parts.count(part)} {part}" for part in PARTS if part in parts]
        text += f" Of the {node}s {listed(counts)}."
        text += f" {count(len(new_edges), f'new {edge}')} drawn dashed." if new_edges else ""
    return text


def node_words(structure: DrawnGraph, node: int) -> str:
    """A node in words, by its number from 1: ``N 3`` of a molecule, ``node 3 (type a)``."""
    name = structure.names[node]
    name = name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"
    if structure.molecule:
        return f"{name or 'atom'} {node + 1}"
    return f"node {node + 1} (type {name})" if name else f"node {node + 1}"


# -------------------------------------------------------------------- layout


@lru_cache(maxsize=64)
def layout(nodes: int, edges: tuple[tuple[int, int], ...]) -> Places:
    """Deterministic node positions with edges of length about 1; cached, as pages repeat graphs."""
    graph: nx.Graph[int] = nx.Graph()
    graph.add_nodes_from(range(nodes))
    graph.add_edges_from(edge for edge in edges if edge[0] != edge[1])
    found = np.zeros((nodes, 2))
    x = y = tall = 0.0
    wide = 1.6 * np.sqrt(max(nodes, 1))  # width of a row of components
    for component in sorted(nx.connected_components(graph), key=lambda c: (-len(c), min(c))):
        members = sorted(component)
        points = _component(graph, members)
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
    # Rebuild in order: a subgraph view may return its nodes in any order.
    ordered: nx.Graph[int] = nx.Graph()
    ordered.add_nodes_from(members)
    ordered.add_edges_from(sorted((min(e), max(e)) for e in graph.subgraph(members).edges))
    if len(members) <= _BY_STRESS:
        places = nx.kamada_kawai_layout(ordered)
    else:
        places = nx.spring_layout(ordered, seed=0, iterations=80)
    points = np.array([places[node] for node in members])
    # Rotate the longer side to the horizontal.
    _, _, axes = np.linalg.svd(points - points.mean(axis=0), full_matrices=False)
    points = (points - points.mean(axis=0)) @ axes.T * np.sign(axes[:, :1].T + 1e-9)
    one, two = np.searchsorted(members, np.array(ordered.edges)).T
    lengths = np.linalg.norm(points[one] - points[two], axis=1)
    return np.asarray(points / max(float(np.median(lengths)), 1e-9))


# -------------------------------------------------------------------- graphs


def _plain_svg(
    structure: DrawnGraph,
    *,
    saliency: Sequence[float] | None,
    parts: Sequence[str] | None,
    new_edges: Collection[int],
    numbered: Collection[int],
    signed: bool,
    width: float,
    label: str,
) -> str:
    names = structure.names[:MOST_NODES]
    edges = {n: edge for n, edge in enumerate(structure.edges) if max(edge) < len(names)}
    places = layout(len(names), tuple(edges.values()))
    named = any(names) and len(names) <= _MOST_NAMED
    inside = named and max(map(len, names)) <= 3
    # Names below nodes and numbers beside them need room.
    margin = 36.0 if numbered or (named and not inside) else _MARGIN
    size = np.ptp(places, axis=0) if len(places) else np.zeros(2)
    # Types of edges would hide a dense graph, or names below nodes.
    sparse = len(edges) <= 1.25 * len(names)
    kinds = structure.kinds if sparse and (inside or not named) else ()
    unit = min(
        _LONG_EDGE if kinds or (named and not inside) else _EDGE,
        (width - 2 * margin) / max(size.max(initial=0.0), 1e-9),
    )
    whole = np.maximum(unit * size + 2 * margin, 48)
    radius = min(10.0 if inside else 5.0, max(0.36 * unit, 2.0))
    points = unit * (places - places.min(axis=0, initial=np.inf)) + (whole - unit * size) / 2
    root = _root(f"0 0 {whole[0]:.0f} {whole[1]:.0f}", whole[0], whole[1], label)
    for (x, y), value in zip(points, saliency or (), strict=False):
        _disc(root, x, y, value, signed, radius, radius + 9)
    lines: dict[str, list[str]] = {kind: [] for kind in _EDGES}
    for number, (one, two) in edges.items():
        lost = parts is not None and LEFT_OUT in (parts[one], parts[two])
        kind = "new" if number in new_edges else "lost" if lost else "usual"
        lines[kind].append(_line(points[one], points[two], radius, structure.directed))
    for kind, own in lines.items():
        if own:
            ElementTree.SubElement(root, "path", {"d": "".join(own), "style": _EDGES[kind]})
    if kinds and len(names) <= _MOST_NAMED and unit >= _LEAST_TYPED:
        for number, (one, two) in edges.items():
            x, y = (points[one] + points[two]) / 2
            _text(root, x, y + 3, kinds[number], f"fill:var(--soft);{_OUTLINE}", 9)
    for number, (x, y) in enumerate(points):
        part = parts[number] if parts is not None else ""
        if part in (TRANSPLANTED, REMAINING):  # translucent: hide the edges underneath
            _circle(root, x, y, radius, "fill:var(--paper)")
        _node(root, x, y, part, radius)
        least = _LEAST_LEFT_OUT if part == LEFT_OUT else _LEAST_NAMED
        if named and (radius >= least if inside else part != LEFT_OUT):
            _name(root, x, y, names[number], radius, inside, part == LEFT_OUT)
    below = points + np.array((0, radius + 8)) if named and not inside else points
    distances = {n: radius + 9 * _strength(saliency, n) + 8 for n in numbered if n < len(names)}
    _numbers(root, points, [*edges.values()], below, distances)
    return ElementTree.tostring(root, encoding="unicode")


def _root(view: str, width: float, height: float, label: str) -> ElementTree.Element:
    size = {"viewBox": view, "width": f"{width:.0f}", "height": f"{height:.0f}"}
    words = {"class": "graph", "role": "img", "aria-label": plain(label)}
    return ElementTree.Element("svg", {**words, **size})


def _line(start: Places, end: Places, radius: float, arrow: bool) -> str:
    """Path of an edge: a line with an optional arrowhead, or a loop."""
    (x, y), (u, v) = start, end
    if np.array_equal(start, end):
        return f"M{x:.1f},{y:.1f}a{radius:.1f},{1.3 * radius:.1f} 0 1 1 .1,0"
    path = f"M{x:.1f},{y:.1f}L{u:.1f},{v:.1f}"
    if arrow:
        along = (end - start) / np.linalg.norm(end - start)
        tip = end - (radius + 1) * along
        side = 3.2 * np.array([-along[1], along[0]])
        (a, b), (c, d) = tip - 8 * along + side, tip - 8 * along - side
        path += f"M{a:.1f},{b:.1f}L{tip[0]:.1f},{tip[1]:.1f}L{c:.1f},{d:.1f}"
    return path


def _disc(
    root: ElementTree.Element, x: float, y: float, value: float, signed: bool, least: float,
    most: float,
) -> None:  # fmt: skip
    strength = min(abs(value) if signed else max(value, 0.0), 1.0)
    if strength < 0.02:
        return
    # Squared, so that nodes of similar saliency look different.
    opacity = f"{0.1 + 0.7 * strength**2:.2f}"
    look = f"fill:var(--halo);fill-opacity:{opacity}"
    if signed and value < 0:
        look = f"fill:none;stroke:var(--c1);stroke-width:3;stroke-opacity:{opacity}"
    _circle(root, x, y, least + (most - least) * strength, look)


def _strength(saliency: Sequence[float] | None, node: int) -> float:
    return 0.0 if saliency is None else min(abs(saliency[node]), 1.0)


def _node(root: ElementTree.Element, x: float, y: float, part: str, radius: float) -> None:
    if part == REMAINING:
        side = 1.8 * radius
        corner = {"x": f"{x - side / 2:.1f}", "y": f"{y - side / 2:.1f}"}
        size = {"width": f"{side:.1f}", "height": f"{side:.1f}", "style": _NODES[part]}
        ElementTree.SubElement(root, "rect", {**corner, **size})
    else:
        _circle(root, x, y, 0.7 * radius if part == LEFT_OUT else radius, _NODES[part])


def _circle(root: ElementTree.Element, x: float, y: float, radius: float, look: str) -> None:
    place = {"cx": f"{x:.1f}", "cy": f"{y:.1f}", "r": f"{radius:.1f}", "style": look}
    ElementTree.SubElement(root, "circle", place)


def _name(
    root: ElementTree.Element, x: float, y: float, name: str, radius: float, inside: bool,
    left_out: bool,
) -> None:  # fmt: skip
    size = min(_LETTERS, (1.0 if left_out else 1.4) * radius) if inside else _LETTERS
    below = 0.36 * size if inside else radius + 12
    strong = inside and not left_out
    look = "fill:var(--ink);font-weight:600" if strong else "fill:var(--soft)"
    _text(root, x, y + below, name, look if inside else f"{look};{_OUTLINE}", size)


def _text(
    root: ElementTree.Element, x: float, y: float, text: str, look: str, size: float = _LETTERS
) -> ElementTree.Element:
    text = plain(text)
    look += f";font-size:{size:.1f}px" if size < _LETTERS else ""
    given = {"x": f"{x:.1f}", "y": f"{y:.1f}", "style": f"text-anchor:middle;{look}"}
    found = ElementTree.SubElement(root, "text", given)
    found.text = text if len(text) <= 8 else f"{text[:7]}…"
    return found


def _numbers(
    root: ElementTree.Element, points: Places, edges: Sequence[tuple[int, int]], names: Places,
    distances: Mapping[int, float],
) -> None:  # fmt: skip
    """Write numbers, from 1, beside nodes: at these distances, where the most room is."""
    start, end = points[np.array(edges, dtype=int).reshape(-1, 2)].swapaxes(0, 1)
    along = [start + part * (end - start) for part in (0.25, 0.5, 0.75)]
    taken = np.concatenate((points, names, *along))
    angles = np.linspace(0, 2 * np.pi, 16, endpoint=False)
    for node, distance in sorted(distances.items()):
        text = str(node + 1)
        away = np.array((distance + 2 * len(text), distance))  # numbers are wider than high
        spots = points[node] + away * np.stack((np.cos(angles), np.sin(angles)), axis=1)
        room = np.linalg.norm(spots[:, None] - taken, axis=2).min(axis=1)
        x, y = spots[room.argmax()]
        _text(root, x, y + 4, text, f"fill:var(--soft);{_OUTLINE}").set("class", "index")
        taken = np.concatenate((taken, [(x, y)]))


# -------------------------------------------------------------------- molecules

_ELEMENTS = {-1: "ink", 0: "ink", 6: "ink", 7: "atom-n", 8: "atom-o", 16: "atom-s", 15: "atom-p"}
_ELEMENTS |= dict.fromkeys((9, 17, 35, 53), "atom-x")
_THEMES = {colour.upper(): f"var(--{name})" for name, colour in reversed(LIGHT.items())}
_ATOM = re.compile(r"[A-Z][a-z]?(H\d?)?([+-]\d?)?")  # element, hydrogens, charge
_DRAWN = ("d", "x", "y", "cx", "cy", "rx", "ry", "width", "height", "points")


def molecule_svg(
    molecule: str | DrawnGraph,
    saliency: Sequence[float] | None = None,
    signed: bool = False,
    *,
    parts: Sequence[str] | None = None,
    new_edges: Collection[int] = (),
    numbered: Collection[int] = (),
    width: float = 480,
    label: str = "",
) -> str | None:
    """Draw a molecule as an ``svg`` element; return ``None`` if RDKit is missing or fails.

    SMILES are drawn with charges and stereochemistry, a structure as its atoms and bonds. The other
    arguments are as in :func:`graph_svg`, in the order of the SMILES.
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
            return None  # the SMILES does not match the graph
        drawer = rdMolDraw2D.MolDraw2DSVG(-1, -1)
        options: Any = drawer.drawOptions()
        options.clearBackground = False
        options.scalingFactor = _BOND / 1.5
        options.bondLineWidth = 1.5
        options.padding = 0.0
        options.additionalAtomLabelPadding = 0.08
        options.updateAtomPalette({atom: _rgb(name) for atom, name in _ELEMENTS.items()})
        ready = rdMolDraw2D.PrepareMolForDrawing(mol, kekulize=isinstance(molecule, str))
        options.prepareMolsBeforeDrawing = False
        drawer.DrawMolecule(ready)
        drawer.FinishDrawing()
    except (ValueError, RuntimeError):
        return None  # not understood by RDKit: the caller draws a plain graph
    finally:
        del block
    margin = 24 if numbered else 12
    wide, high = drawer.Width() + 2 * margin, drawer.Height() + 2 * margin
    scale = min(_LARGEST, width / wide)
    view = f"{-margin} {-margin} {wide:g} {high:g}"
    root = _root(view, scale * wide, scale * high, label)
    atoms = [drawer.GetDrawCoords(number) for number in range(mol.GetNumAtoms())]
    for number, place in enumerate(atoms):
        if saliency is not None:
            _disc(root, place.x, place.y, saliency[number], signed, 4, 13.5)
        if parts is not None and parts[number] != LEFT_OUT:
            _node(root, place.x, place.y, parts[number], 10)
    for element in ElementTree.fromstring(drawer.GetDrawingText()).iter():
        _themed(root, element, parts)
    points = np.array([(place.x, place.y) for place in atoms])
    bonds = [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in mol.GetBonds()]
    letters = [atom.GetSymbol() != "C" for atom in mol.GetAtoms()]
    # Hydrogens and charges stand left or right of an element.
    names = np.concatenate([points[letters] + np.array((side, 0)) for side in (-10, 10)])
    distances = {n: max(9.5 * _strength(saliency, n) + 4, 8) + 6 for n in numbered}
    _numbers(root, points, bonds, names, distances)
    return ElementTree.tostring(root, encoding="unicode")


def _atoms(chem: Any, structure: DrawnGraph, new_edges: Collection[int]) -> Any:
    """Build an unsanitised RDKit molecule: mixed molecules may violate valence rules.

    Implicit hydrogens are added only if there are no new edges, no atom name states hydrogens or a
    charge, and all valences are valid. A nitro group without charges would otherwise gain an OH.
    """
    mol = chem.RWMol()
    found = [_ATOM.fullmatch(name) for name in structure.names]
    told = bool(new_edges) or any(match and any(match.groups()) for match in found)
    for name, match in zip(structure.names, found, strict=True):
        atom = match and chem.AtomFromSmiles(f"[{name}]")
        if not atom:
            atom = chem.Atom("*")
            atom.SetProp("atomLabel", plain(name)[:8] or "?")
        atom.SetNoImplicit(told)
        mol.AddAtom(atom)
    types = {2.0: chem.BondType.DOUBLE, 3.0: chem.BondType.TRIPLE, 1.5: chem.BondType.AROMATIC}
    orders = structure.orders or (1.0,) * len(structure.edges)  # empty if all are single
    for number, ((one, two), order) in enumerate(zip(structure.edges, orders, strict=True)):
        if one != two and mol.GetBondBetweenAtoms(one, two) is None:
            # RDKit draws zero-order bonds dashed.
            new = number in new_edges
            kind = chem.BondType.ZERO if new else types.get(order, chem.BondType.SINGLE)
            mol.AddBond(one, two, kind)
            if kind == chem.BondType.AROMATIC:
                mol.GetBondBetweenAtoms(one, two).SetIsAromatic(True)
                for end in (one, two):
                    mol.GetAtomWithIdx(end).SetIsAromatic(True)
    whole = mol.GetMol()
    if chem.DetectChemistryProblems(whole, chem.SANITIZE_PROPERTIES):
        for atom in whole.GetAtoms():
            atom.SetNoImplicit(True)
    whole.UpdatePropertyCache(strict=False)
    chem.FastFindRings(whole)
    return whole


def _rgb(name: str) -> tuple[float, ...]:
    colour = LIGHT[name]
    return tuple(int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))


def _themed(
    root: ElementTree.Element, element: ElementTree.Element, parts: Sequence[str] | None
) -> None:
    """Copy an element drawn by RDKit, in the page's colours."""
    tag = element.tag.rpartition("}")[2]
    if tag not in ("path", "text", "ellipse", "rect", "polygon"):
        return
    look = [f"{key}:{element.attrib[key]}" for key in ("fill", "stroke") if key in element.attrib]
    look.append(element.get("style", "").rstrip(";"))
    if "fill" in element.attrib:  # a letter: outline it so that it stays legible on discs
        look.append(_OUTLINE)
    atoms = [int(n) for n in re.findall(r"\batom-(\d+)", element.get("class", ""))]
    if parts is not None and any(parts[n] == LEFT_OUT for n in atoms):
        look.append("opacity:.35")
    style = ";".join(part for part in look if part)
    style = re.sub(r"#[0-9A-Fa-f]{6}", lambda m: _THEMES.get(m[0].upper(), "var(--ink)"), style)
    copy = ElementTree.SubElement(root, tag, {"style": style})
    copy.text = element.text
    copy.attrib |= {key: value for key, value in element.attrib.items() if key in _DRAWN}
