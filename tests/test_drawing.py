"""Drawn graphs: where nodes stand, what is drawn, what is said to people who cannot see it."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from xml.etree import ElementTree

import networkx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graph_transplant.errors import GraphTransplantError
from graph_transplant.report import layout
from graph_transplant.report.drawing import (
    LEFT_OUT,
    MOST_NODES,
    REMAINING,
    TRANSPLANTED,
    GraphPicture,
    class_word,
    description,
    draw_graph,
    draw_mark,
    draw_scale,
    most_salient,
    picture,
    plain,
)
from graph_transplant.report.layout import positions
from graph_transplant.report.plots import draw_learning, draw_reliability, draw_roc, draw_scatter

NASTY = ["<script>alert(1)</script>", "\"'&", "🧬", "x" * 10_000, "\u202eשלום", "a\x00b", "\ud800"]
BENZENE = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0)]


def parsed(drawn: str) -> ElementTree.Element:
    """The drawing as XML, which forgives nothing."""
    return ElementTree.fromstring(drawn)


def segments(path: str) -> list[tuple[float, ...]]:
    """The straight strokes of a path."""
    found = re.findall(r"M([-\d.]+),([-\d.]+)L([-\d.]+),([-\d.]+)", path)
    return [tuple(map(float, line)) for line in found]


def strokes(drawn: str, kind: str) -> list[tuple[float, ...]]:
    """Strokes of the elements of exactly one class."""
    paths = [one for one in parsed(drawn).iter("path") if one.get("class") == kind]
    return [line for path in paths for line in segments(path.get("d", ""))]


def texts(drawn: str) -> list[str]:
    return [one.text or "" for one in parsed(drawn).iter("text")]


def lengths(points: Sequence[tuple[float, float]], edges: Sequence[tuple[int, int]]) -> list[float]:
    return [math.dist(points[one], points[two]) for one, two in edges]


# -------------------------------------------------------------------- layout


def test_a_path_is_laid_out_straight_and_evenly() -> None:
    points = positions(6, [(k, k + 1) for k in range(5)])
    xs = sorted(x for x, _ in points)
    assert np.allclose(np.diff(xs), 1.0, atol=0.05)
    assert max(y for _, y in points) < 0.05
    assert min(xs) == 0


def test_distances_on_paper_follow_distances_in_the_graph() -> None:
    graph = networkx.random_labeled_tree(25, seed=1)
    points = positions(25, list(graph.edges))
    far = dict(networkx.all_pairs_shortest_path_length(graph))
    pairs = list(itertools.combinations(range(25), 2))
    drawn = [math.dist(points[one], points[two]) for one, two in pairs]
    assert np.corrcoef(drawn, [far[one][two] for one, two in pairs])[0, 1] > 0.9


@settings(max_examples=25)
@given(st.integers(1, 30), st.data())
def test_any_graph_is_laid_out_the_same_twice_with_finite_places(
    nodes: int, data: st.DataObject
) -> None:
    pairs = st.tuples(st.integers(0, nodes - 1), st.integers(0, nodes - 1))
    edges = data.draw(st.lists(pairs, max_size=40))
    points = positions(nodes, edges)
    assert points == positions(nodes, edges)
    assert len(points) == nodes
    assert np.isfinite(points).all()
    assert np.min(points) == 0
    # No two nodes stand on the same spot.
    assert len({(round(x, 6), round(y, 6)) for x, y in points}) == nodes


def test_components_lie_beside_each_other() -> None:
    triangle = [(0, 1), (1, 2), (2, 0)]
    edges = [(a + 3 * k, b + 3 * k) for k in range(4) for a, b in triangle]
    points = positions(14, edges)  # and two nodes alone
    parts = [points[3 * k : 3 * k + 3] for k in range(4)] + [[points[12]], [points[13]]]
    for one, two in itertools.combinations(parts, 2):
        assert min(math.dist(p, q) for p in one for q in two) >= 1.0
    wide, high = np.max(points, axis=0)
    assert 0.4 < wide / high < 4


def test_crowded_nodes_get_longer_edges() -> None:
    complete = list(itertools.combinations(range(12), 2))
    points = positions(12, complete)
    closest = min(math.dist(points[a], points[b]) for a, b in complete)
    assert closest > 0.45


def test_a_large_component_is_laid_out_by_forces_and_still_the_same_twice() -> None:
    ring = [(k, (k + 1) % 150) for k in range(150)]
    assert positions(150, ring) == positions(150, ring)
    assert 0.999 < np.median(lengths(positions(150, ring), ring)) < 2.201


def test_an_edge_to_nowhere_is_an_error() -> None:
    with pytest.raises(GraphTransplantError, match=r"between 0 and 1; got \(0, 2\)"):
        positions(2, [(0, 2)])


def test_a_molecule_is_laid_out_as_rdkit_does() -> None:
    chem = pytest.importorskip("rdkit.Chem")
    from rdkit.Chem import rdDepictor

    molecule = chem.MolFromSmiles("Oc1ccccc1")
    rdDepictor.Compute2DCoords(molecule)
    wanted = molecule.GetConformer().GetPositions()[:, :2]
    names = [atom.GetSymbol() for atom in molecule.GetAtoms()]
    bonds = [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in molecule.GetBonds()]
    orders = [bond.GetBondTypeAsDouble() for bond in molecule.GetBonds()]
    found = positions(len(names), bonds, names=names, orders=orders, molecule=True)
    pairs = list(itertools.combinations(range(len(names)), 2))
    ratio = [math.dist(found[a], found[b]) / math.dist(wanted[a], wanted[b]) for a, b in pairs]
    assert np.allclose(ratio, ratio[0], rtol=1e-3)
    assert np.median(lengths(found, bonds)) == pytest.approx(1, abs=1e-3)


def test_without_rdkit_a_molecule_is_laid_out_as_any_graph(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    usual = positions(6, BENZENE)
    monkeypatch.setattr(layout, "find_spec", lambda name: None)
    names, orders = ["C"] * 6, [1.5] * 6
    assert positions(6, BENZENE, names=names, orders=orders, molecule=True) == usual


def test_atoms_that_rdkit_puts_on_top_of_each_other_are_laid_out_as_any_graph() -> None:
    pytest.importorskip("rdkit")
    edges = list(itertools.combinations(range(7), 2))
    given = {"names": ["C"] * 7, "orders": [1.0] * len(edges)}
    points = positions(7, edges, molecule=True, **given)
    assert min(math.dist(points[a], points[b]) for a, b in edges) > 0.45


def test_ions_do_not_touch() -> None:
    pytest.importorskip("rdkit")
    points = positions(4, [], names=["Na", "Cl", "K", "Br"], orders=[], molecule=True)
    assert min(math.dist(*pair) for pair in itertools.combinations(points, 2)) >= 1


# -------------------------------------------------------------------- molecules


def test_carbon_is_not_written_unless_it_stands_alone() -> None:
    drawn = draw_graph(picture(["C", "C", "O", "C"], [(0, 1), (1, 2)], molecule=True))
    assert sorted(texts(drawn)) == ["C", "O"]
    kinds = {one.text: one.get("class") for one in parsed(drawn).iter("text")}
    assert kinds == {"O": "atom o", "C": "atom"}


@pytest.mark.parametrize(("order", "lines"), [(1.0, 1), (2.0, 2), (3.0, 3), (0.0, 1), (4.0, 1)])
def test_bond_order_is_the_number_of_lines(order: float, lines: int) -> None:
    shown = GraphPicture(["N", "N"], [(0, 1)], [(0, 0), (1, 0)], orders=[order], molecule=True)
    drawn = draw_graph(shown)
    assert len(strokes(drawn, "edge")) == lines
    assert not strokes(drawn, "edge aromatic")


def test_aromatic_bonds_have_a_dashed_line_inside_the_ring() -> None:
    places = [(math.cos(math.pi * k / 3), math.sin(math.pi * k / 3)) for k in range(6)]
    shown = GraphPicture(["C"] * 6, BENZENE, places, orders=[1.5] * 6, molecule=True)
    drawn = draw_graph(shown)
    outer, inner = strokes(drawn, "edge"), strokes(drawn, "edge aromatic")
    assert len(outer) == len(inner) == 6
    box = [float(v) for v in parsed(drawn).get("viewBox", "").split()]
    centre = (box[2] / 2, box[3] / 2)

    def away(line: tuple[float, ...]) -> float:
        return math.dist(centre, ((line[0] + line[2]) / 2, (line[1] + line[3]) / 2))

    assert max(map(away, inner)) < min(map(away, outer)) - 2


def test_bonds_stop_short_of_written_symbols() -> None:
    shown = GraphPicture(["N", "C", "O"], [(0, 1), (1, 2)], [(0, 0), (2, 0), (4, 0)], molecule=True)
    drawn = draw_graph(shown)
    place = {one.text: float(one.get("x", 0)) for one in parsed(drawn).iter("text")}
    (first, second) = sorted(strokes(drawn, "edge"))
    assert first[0] - place["N"] == pytest.approx(8, abs=0.2)
    assert place["O"] - second[2] == pytest.approx(8, abs=0.2)
    assert first[2] == second[0]  # at the carbon nothing is left out


# -------------------------------------------------------------------- graphs


def test_short_names_stand_in_nodes_and_long_ones_are_cut_below() -> None:
    short = draw_graph(picture(["a", "bcd"], [(0, 1)]))
    assert texts(short) == ["a", "bcd"]
    long = draw_graph(picture(["a", "benzodiazepine"], [(0, 1)]))
    assert texts(long) == ["a", "benzodi…"]
    assert "benzodiazepine 2" in long  # shown when pointed at


def test_edges_between_long_names_are_longer() -> None:
    short = strokes(draw_graph(picture(["a", "b"], [(0, 1)])), "edge")[0]
    long = strokes(draw_graph(picture(["account", "merchant"], [(0, 1)])), "edge")[0]
    assert long[2] - long[0] > 1.5 * (short[2] - short[0])
    path = [(k, k + 1) for k in range(29)]
    wide = parsed(draw_graph(picture(["merchant"] * 30, path), width=300))
    assert float(wide.get("width", 0)) <= 300


def test_names_of_nodes_that_are_left_out_are_not_written() -> None:
    shown = picture(["account", "merchant"], [(0, 1)], parts=[REMAINING, LEFT_OUT])
    assert texts(draw_graph(shown)) == ["account"]
    assert "merchant 2: left out" in draw_graph(shown)


def test_names_of_many_nodes_show_only_when_pointed_at() -> None:
    names = [f"n{k}" for k in range(61)]
    drawn = draw_graph(picture(names, [(k, k + 1) for k in range(60)]))
    assert texts(drawn) == []
    tips = [one.text for one in parsed(drawn).iter("title")]
    assert "n60 61" in tips


def test_arrows_point_along_directed_edges() -> None:
    shown = GraphPicture(["", ""], [(0, 1)], [(0, 0), (3, 0)], directed=True)
    arrows = [one for one in parsed(draw_graph(shown)).iter("path") if one.get("class") == "arrow"]
    tip, left, right = re.findall(r"[ML]([-\d.]+),", arrows[0].get("d", ""))
    assert float(tip) > float(left) == float(right)
    assert "arrow" not in draw_graph(GraphPicture(["", ""], [(0, 1)], [(0, 0), (3, 0)]))


def test_a_self_loop_is_drawn() -> None:
    shown = GraphPicture([""], [(0, 0)], [(0, 0)])
    (path,) = parsed(draw_graph(shown)).iter("path")
    assert "c" in path.get("d", "")
    assert "1 node and 1 edge" in description(shown)


def test_a_very_large_graph_is_cut_and_says_so() -> None:
    nodes = MOST_NODES + 7
    edges = [(k, k + 1) for k in range(nodes - 1)]
    shown = picture([f"n{k}" for k in range(nodes)], edges, saliency=[1.0] * nodes)
    assert len(shown.places) == MOST_NODES
    assert shown.hidden == 7
    assert len(shown.edges) == MOST_NODES - 1
    drawn = draw_graph(shown, "big")
    assert "Graph of 507 nodes, of which the first 500 are drawn" in drawn
    assert texts(drawn) == []


# -------------------------------------------------------------------- saliency and parts


def test_discs_grow_with_saliency_and_nothing_is_no_disc() -> None:
    shown = GraphPicture(
        [""] * 4,
        [],
        [(k, 0.0) for k in range(4)],
        saliency=[0.0, 0.3, 0.6, 1.0],
        shares=[0, 0.158, 0.316, 0.526],
    )
    drawn = draw_graph(shown)
    discs = [one for one in parsed(drawn).iter("circle") if one.get("class") == "halo"]
    sizes = [float(one.get("r", 0)) for one in discs]
    strength = [float(one.get("fill-opacity", 0)) for one in discs]
    assert len(discs) == 3
    assert sizes == sorted(set(sizes))
    assert strength == sorted(set(strength))
    assert "node 4: 52.6 % of the saliency" in drawn
    assert description(shown).endswith("Most salient: node 4, node 3, node 2.")


def test_a_graph_without_saliency_says_so() -> None:
    shown = GraphPicture(["C"], [], [(0, 0)], saliency=[0.0], molecule=True)
    assert description(shown) == "Molecule of 1 atom and 0 bonds. No atom is salient."
    assert "halo" not in draw_graph(shown)


@pytest.mark.parametrize("molecule", [False, True])
def test_parts_differ_in_shape_and_new_edges_are_dashed(molecule: bool) -> None:
    names = ["C", "C", "N", "O"] if molecule else [""] * 4
    shown = GraphPicture(
        names,
        [(0, 1), (1, 2), (2, 3)],
        [(k * 1.0, 0.0) for k in range(4)],
        orders=[1.0, 2.0, 1.0],
        molecule=molecule,
        parts=[TRANSPLANTED, TRANSPLANTED, REMAINING, LEFT_OUT],
        new_edges=frozenset({1}),
    )
    drawn = draw_graph(shown)
    tree = parsed(drawn)
    assert sum(one.get("class") == "grafted" for one in tree.iter("circle")) == 2
    assert sum(one.get("class") == "kept" for one in tree.iter("rect")) == 1
    (fresh,) = strokes(drawn, "edge fresh")
    (kept,) = strokes(drawn, "edge")
    (lost,) = strokes(drawn, "edge lost")
    assert kept[2] <= fresh[0] + 1e-6
    assert fresh[2] <= lost[0]
    words = description(shown)
    node, edge = ("atom", "bond") if molecule else ("node", "edge")
    assert f"Of the {node}s 2 transplanted, 1 remaining, 1 left out." in words
    assert f"1 new {edge} drawn dashed." in words


def test_edges_are_renumbered_when_a_graph_is_cut() -> None:
    nodes = MOST_NODES + 1
    edges = [(0, MOST_NODES), (0, 1), (1, 2)]
    shown = picture([""] * nodes, edges, parts=[REMAINING] * nodes, new_edges=[0, 2])
    assert list(shown.edges) == [(0, 1), (1, 2)]
    assert shown.new_edges == {1}


# -------------------------------------------------------------------- words and safety


@pytest.mark.parametrize("molecule", [False, True])
@pytest.mark.parametrize("name", NASTY, ids=range(len(NASTY)))
def test_names_from_data_are_escaped_and_short(name: str, molecule: bool) -> None:
    shown = picture([name, "C"], [(0, 1)], saliency=[1.0, 0.1], molecule=molecule)
    drawn = draw_graph(shown, name)
    root = parsed(drawn)  # a NUL or a tag that came through would not parse
    assert drawn.encode("utf-8")
    assert {one.tag for one in root.iter()} <= {
        *("svg", "title", "desc", "circle", "path", "text"),
    }
    assert all(len(text) <= 8 for text in texts(drawn))


@pytest.mark.parametrize("molecule", [False, True])
def test_every_drawing_has_words_and_lies_in_its_box(molecule: bool) -> None:
    names = ["C", "N", "C", "O", "S", "Cl"]
    shown = picture(names, BENZENE, orders=[1.5] * 6, molecule=molecule, saliency=[1.0] * 6)
    drawn = draw_graph(shown, "thing")
    root = parsed(drawn)
    assert root.get("role") == "img"
    assert root.findtext("title") == "thing"
    assert root.findtext("desc") == description(shown)
    _, _, wide, high = map(float, root.get("viewBox", "").split())
    for one in root.iter("circle"):
        x, y, r = (float(one.get(key, 0)) for key in ("cx", "cy", "r"))
        assert r <= x <= wide - r
        assert r <= y <= high - r
    assert wide <= 480
    assert not re.search(r"#[0-9a-f]{3,6}|rgb\(|fill=|stroke=", re.sub("&#\\d+;", "", drawn))


def test_drawings_keep_to_the_width_they_are_given() -> None:
    path = [(k, k + 1) for k in range(79)]
    narrow = parsed(draw_graph(picture([""] * 80, path), width=300))
    assert float(narrow.get("width", 0)) <= 300


def test_an_empty_graph_is_an_empty_drawing() -> None:
    drawn = draw_graph(picture([], []), "nothing")
    assert parsed(drawn).findtext("desc") == "Graph of 0 nodes and 0 edges."


def test_pictures_that_do_not_fit_are_refused() -> None:
    with pytest.raises(GraphTransplantError, match="`saliency` of a picture must have 1 entries"):
        GraphPicture([""], [], [(0, 0)], saliency=[1.0, 2.0])
    with pytest.raises(GraphTransplantError, match="`orders` of a picture must have 0 entries"):
        GraphPicture([""], [], [(0, 0)], orders=[1.0])


def test_words() -> None:
    assert most_salient([0.0, 0.5, 0.5], 5) == [1, 2]
    assert class_word("3.5") == "class 3.5"
    assert class_word("1e999999") == "1e999999"
    assert plain("a\tb\nc") == "a\tb\nc"


def test_legends_parse() -> None:
    radii = [float(one.get("r", 0)) for one in parsed(draw_scale()).iter("circle")]
    assert radii == sorted(set(radii))
    for part in (TRANSPLANTED, REMAINING, LEFT_OUT, "new edge"):
        assert len(list(parsed(draw_mark(part)).iter())) == 2


# -------------------------------------------------------------------- plots


def polylines(drawn: str, kind: str) -> list[list[tuple[float, float]]]:
    found = []
    for one in parsed(drawn).iter("polyline"):
        if kind in (one.get("class") or "").split():
            pairs = (pair.split(",") for pair in (one.get("points") or "").split())
            found.append([(float(x), float(y)) for x, y in pairs])
    return found


@pytest.mark.parametrize("width", [350, 720])
def test_a_perfect_ranking_goes_up_before_it_goes_right(width: int) -> None:
    drawn = draw_roc({"x": [[0, 0], [0, 1], [1, 1]]}, width=width, label="roc")
    (curve,) = polylines(drawn, "curve")
    (guess,) = polylines(drawn, "reference")
    assert curve[0] == guess[0]
    assert curve[-1] == guess[-1]
    assert curve[1] == (curve[0][0], curve[2][1])
    assert max(x for x, _ in curve) <= width


def test_many_roc_curves_are_drawn_alike_without_names() -> None:
    curves = {f"label {k}": [[0, 0], [1, 1]] for k in range(12)}
    drawn = draw_roc(curves, width=720, label="roc")
    assert len(polylines(drawn, "thin")) == 12
    assert "label 3" not in drawn


def test_reliability_leaves_out_empty_bins() -> None:
    bins = [
        {"confidence": None, "accuracy": None, "count": 0},
        {"confidence": 0.5, "accuracy": 0.5, "count": 9},
        {"confidence": 0.9, "accuracy": 0.6, "count": 1},
    ]
    drawn = draw_reliability(bins, bins[:2], width=350, label="r")
    assert [len(line) for line in polylines(drawn, "thin")] == [2, 1]
    sizes = [
        float(one.get("r", 0))
        for one in parsed(drawn).iter("circle")
        if one.find("title") is not None
    ]
    assert sizes == [9.0, 4.3, 9.0]  # the area above a least size goes with the count


def test_right_predictions_lie_on_the_diagonal() -> None:
    drawn = draw_scatter([[-5.0, -5.0], [5.0, 5.0]], width=350, name="y", label="s", form=str)
    (line,) = polylines(drawn, "reference")
    slope = (line[1][1] - line[0][1]) / (line[1][0] - line[0][0])
    for one in parsed(drawn).iter("circle"):
        x, y = float(one.get("cx", 0)), float(one.get("cy", 0))
        assert y - line[0][1] == pytest.approx(slope * (x - line[0][0]), abs=0.3)


def test_learning_curves_are_not_cut_off() -> None:
    drawn = draw_learning(
        {"training": [(1, 3.0), (2, 2.5)], "validation": [(1, -0.4), (2, 1.2)]},
        width=350,
        axis="R²",
        form=str,
        label="l",
        best=1,
    )
    lines = polylines(drawn, "curve")
    assert len(lines) == 2
    assert all(30 <= y <= 230 for line in lines for _, y in line)
    assert "kept: epoch 1" in drawn
