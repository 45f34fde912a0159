"""Charts: their numbers, their SVG, and the registry."""

from __future__ import annotations

import io
import itertools
import re
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from graph_transplant.analysis.drawing import drawn_graphs
from graph_transplant.datasets.molecules import from_smiles
from graph_transplant.errors import GraphTransplantError
from graph_transplant.figures import CHARTS, card, networks, render_chart, write
from graph_transplant.figures.analysis import draw_reliability, joined
from graph_transplant.figures.chart import default_colours
from graph_transplant.figures.graphs import (
    LEFT_OUT,
    REMAINING,
    TRANSPLANTED,
    describe,
    graph_svg,
    layout,
    molecule_svg,
    node_words,
)
from graph_transplant.figures.style import DARK, LIGHT, WIDTH, palette, style, svg
from graph_transplant.results.average_ranks import Across
from graph_transplant.results.examples import DrawnGraph
from graph_transplant.results.results import Results, read_results
from helpers.made_up_records import PLAIN, made_up

sys.path.insert(0, str(Path(__file__).parents[1] / "golden"))
from make import unpack

HOSTILE = "$x$ <script>&\"'\x07"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def golden(tmp_path_factory):
    found: dict[str, Results] = {}

    def read(name: str) -> Results:
        if name not in found:
            found[name] = read_results(unpack(name, tmp_path_factory.mktemp(name)))
        return found[name]

    return read


@pytest.fixture(scope="module")
def enzymes(golden) -> Results:
    parts = golden("paper-quick-enzymes").groups
    return next(part for group, part in parts.items() if group.model == "gcs")


@pytest.fixture(scope="module")
def motifs(golden) -> Results:
    return next(iter(golden("motifs-conditions").groups.values()))


@pytest.fixture(scope="module")
def across() -> Across:
    names = ("transplant-ep", "transplant-disconnected", "vanilla", "subgraph", "m-evolve")
    return Across(
        "gcs", names, ("a", "b"), ((0.0,) * 5,) * 2, (1.3, 2.2, 3.1, 4.0, 4.4), 0.02, 1.9,
        (), (), "",
    )  # fmt: skip


@pytest.fixture(scope="module")
def sources(golden, enzymes, across):
    """Something to draw every chart from."""
    conditions = next(iter(networks(golden("motifs-conditions")).values()))
    found = dict.fromkeys(CHARTS, enzymes)
    found |= {"label_noise": conditions, "train_size": conditions, "ranks": across}
    found["motif"] = next(iter(golden("motifs-conditions").groups.values()))
    return found | {"sensitivity": next(iter(networks(golden("motifs-sensitivity")).values()))}


@pytest.fixture(autouse=True)
def _no_global_figures():
    before = dict(matplotlib.rcParams)
    yield
    assert plt.get_fignums() == []
    assert dict(matplotlib.rcParams) == before


# -------------------------------------------------------------------- numbers


def test_the_forest_shows_mean_differences_their_intervals_and_single_folds(enzymes):
    ax = enzymes.plot.forest()
    table = enzymes.frame.pivot_table("score", ["repeat", "fold"], "method")
    gaps = table.drop(columns="vanilla").sub(table["vanilla"], axis=0)
    names = [text.get_text() for text in ax.texts if text.get_text() in gaps]
    assert names == gaps.mean().sort_values(ascending=False, kind="stable").index.tolist()
    markers = [line for line in ax.get_lines() if line.get_marker() == "o"]
    assert [line.get_xdata()[0] for line in markers] == pytest.approx(gaps.mean()[names].tolist())
    intervals = [
        line.get_xdata()
        for line in ax.get_lines()
        if len(set(line.get_ydata())) == 1 and len(line.get_xdata()) == 2
    ]
    summary = enzymes.summary().set_index("method").loc[names]
    assert np.array(intervals) == pytest.approx(summary[["ci_low", "ci_high"]].to_numpy())
    dots = np.concatenate([np.asarray(points.get_offsets())[:, 0] for points in ax.collections])
    assert np.sort(dots) == pytest.approx(np.sort(gaps.to_numpy().ravel()))
    paper = LIGHT["paper"]
    assert {line.get_markerfacecolor() for line in markers} == {paper}, "none is significant here"
    # Filled by its p-value, as the caption says, also where it is practically equal.
    near = [value + gain for value, gain in zip(PLAIN, (3e-3, 2e-3, 3e-3, 4e-3, 3e-3), strict=True)]
    ax = Results(made_up("vanilla", PLAIN) + made_up("a", near)).plot.forest()
    assert ax.texts[1].get_text().startswith("+0.3, p = 0.00")
    markers = [line for line in ax.get_lines() if line.get_marker() == "o"]
    assert paper not in {line.get_markerfacecolor() for line in markers}


def test_every_fold_and_the_mean_are_shown(enzymes):
    ax = enzymes.plot.scores()
    values = enzymes.frame.groupby("method")["score"]
    names = enzymes.summary()["method"].tolist()
    strokes = [line.get_xdata()[0] for line in ax.get_lines() if line.get_linewidth() > 2]
    assert strokes == pytest.approx(values.mean()[names].tolist())
    for points, method in zip(ax.collections, names, strict=True):
        found = np.sort(np.asarray(points.get_offsets())[:, 0])
        assert found == pytest.approx(np.sort(values.get_group(method)))


def test_learning_is_the_mean_over_trials_that_still_train(motifs):
    curves = motifs.long("curve")
    ax = motifs.plot.learning()
    found = {line.get_color(): line.get_xydata() for line in ax.get_lines()
             if len(line.get_xdata()) > 2}  # fmt: skip
    for method, colour in palette(motifs.methods, motifs.reference).items():
        own = curves[curves["method"] == method]
        for epoch, value in found[colour][:: len(found[colour]) // 4]:
            values = [
                np.interp(epoch, one["epoch"], one["validation_score"])
                for _, one in own.groupby(["repeat", "fold"])
            ]
            assert value == pytest.approx(np.mean(values))


def test_a_curve_ends_where_fewer_than_half_train():
    records = made_up("vanilla", [0.5] * 3, folds=3)
    for record, last in zip(records, (4, 6, 9), strict=True):
        record.curve[:] = [{"epoch": e, "validation_score": e / 10} for e in range(1, last + 1)]
    table = CHARTS["learning"].data(Results(records))
    assert table["epoch"].tolist() == [1, 2, 3, 4, 5, 6]
    assert table["mean"].tolist() == pytest.approx([e / 10 for e in range(1, 7)])


def test_robustness_starts_at_the_clean_accuracy(enzymes):
    table = CHARTS["robustness"].data(enzymes)
    attacked = table[(table["series"] == "attacked") & (table["method"] == "transplant-ep")]
    raw = [r for r in enzymes.chosen if r.method == "transplant-ep"]
    clean = np.mean([r.test["accuracy"] for r in raw])
    worst = np.mean([r.attacked[-1]["accuracy"] for r in raw])
    assert attacked["mean"].iloc[[0, -1]].tolist() == pytest.approx([clean, worst])
    panel = next(ax for ax in enzymes.plot.robustness() if ax.get_title("left") == "transplant-ep")
    colour = palette(enzymes.methods, "vanilla")["transplant-ep"]
    own = next(
        line
        for line in panel.get_lines()
        if (line.get_color(), line.get_linestyle()) == (colour, "-")
    )
    assert own.get_ydata() == pytest.approx(attacked["mean"].to_numpy())


def test_reliability_bins_are_pooled_by_their_counts(enzymes):
    table = CHARTS["reliability"].data(enzymes)
    own = table[(table["method"] == "vanilla") & (table["stage"] == "as trained")]
    trials = [record for record in enzymes.chosen if record.method == "vanilla"]
    raw = [one for record in trials for one in record.reliability if one["bin"] == 14]
    total = sum(one["count"] for one in raw)
    right = sum(one["count"] * one["accuracy"] for one in raw)
    last = own[own["bin"] == 14].iloc[0]
    assert last["count"] == total
    assert last["accuracy"] == pytest.approx(right / total)


def test_conditions_are_means_over_trials(sources, golden):
    frame = golden("motifs-conditions").frame
    table = CHARTS["label_noise"].data(sources["label_noise"]).set_index(["method", "label_noise"])
    whole = frame[frame["train_fraction"] == 1].groupby(["method", "label_noise"])["score"]
    assert table["mean"].to_dict() == pytest.approx(whole.mean().to_dict())
    table = CHARTS["train_size"].data(sources["train_size"])
    assert table["train_fraction"].nunique() > 1


def test_sensitivity_holds_the_default_and_each_value(sources):
    table = CHARTS["sensitivity"].data(sources["sensitivity"])
    own = table[table["parameter"] == "anchor_ratio"]
    assert own["value"].tolist() == [0.05, 0.1, 0.2, 0.3]
    assert own["default"].tolist() == [False, True, False, False]
    frame = sources["sensitivity"].frame
    expected = frame[frame["method"] == "transplant-dp:anchor_ratio=0.2"]["score"].mean()
    assert own["mean"].iloc[2] == pytest.approx(expected)


def test_ranks_differ_where_their_bars_do_not_overlap(across):
    with style():
        ax = CHARTS["ranks"].plot(across)
    bars = [line.get_xdata() for line in ax.get_lines() if len(set(line.get_ydata())) == 1]
    bars = [x for x in bars if len(x) == 2]
    assert np.mean(bars, axis=1) == pytest.approx(across.ranks)
    assert np.ptp(bars, axis=1) == pytest.approx([across.critical_difference] * 5)


# -------------------------------------------------------------------- every chart


@pytest.mark.parametrize("name", CHARTS)
def test_every_chart_is_drawn_once_for_desk_and_phone(sources, name, tmp_path, monkeypatch):
    drawn = []

    def noted(axes, salt):
        drawn.append((axes if isinstance(axes, Axes) else axes[0]).get_figure(root=True))
        return svg(axes, salt)

    monkeypatch.setattr("graph_transplant.figures.svg", noted)
    found = render_chart(sources[name], name, prefix="gcs-3-")
    assert found.name == f"gcs-3-{name.replace('_', '-')}"
    assert found.title
    assert found.caption
    (figure,) = drawn
    check_texts(figure)
    text = found.element
    root = ElementTree.fromstring(text)
    assert root.get("viewBox").startswith(f"0 0 {0.72 * WIDTH:g} ")
    assert (root.get("role"), root.get("aria-label")) == ("img", found.title)
    # No letter is below 12 pixels where the chart is 354 pixels wide, as on a phone.
    sizes = re.findall(r"([\d.]+)px", text)
    assert min(map(float, sizes)) / (0.72 * WIDTH) * 354 >= 12
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(set(ids)) == len(ids)
    assert set(re.findall(r'"#([\w-]+)|url\(#([\w-]+)\)', text)) <= {
        pair for one in ids for pair in ((one, ""), ("", one))
    }
    for never in ("<image", "<style", "<metadata", "<?xml", "<!DOCTYPE", "data:", "xlink"):
        assert never not in text
    colours = set(re.findall(r"var\(--([\w-]+)\)", text))
    assert colours
    assert colours <= set(LIGHT) == set(DARK)
    assert set(re.findall(r": (#[0-9a-f]{6})", text)) == set(), "colours are the page's"
    image, numbers = write(found, tmp_path)
    assert ElementTree.parse(image).getroot().tag == f"{SVG}svg"
    assert "var(" not in image.read_text()
    assert len(pd.read_csv(numbers)) == len(found.data) > 0
    # On the axes of somebody's own figure.
    mine = Figure(figsize=(8, 6)).subplots()
    with style():
        axes = CHARTS[name].plot(sources[name], mine)
    several = axes if isinstance(axes, list) else [axes]
    assert all(ax.get_figure(root=True) is mine.figure for ax in several)
    assert isinstance(axes, list) or axes is mine


def test_charts_of_one_page_have_ids_of_their_own(enzymes):
    ids = [
        one
        for prefix in ("gcs-3-", "gin-3-")
        for one in re.findall(
            r'\bid="([^"]+)"', render_chart(enzymes, "forest", prefix=prefix).element
        )
    ]
    assert len(set(ids)) == len(ids) > 0


def check_texts(figure: Figure) -> None:
    """No text covers another or leaves the figure."""
    written: list[Text] = []
    draw = Text.draw

    def note(self, renderer, *args, **kwargs):
        if self.get_visible() and self.get_text():
            written.append(self)
        return draw(self, renderer, *args, **kwargs)

    canvas = FigureCanvasAgg(figure)
    with pytest.MonkeyPatch.context() as patch, style():
        patch.setattr(Text, "draw", note)
        canvas.draw()
        boxes = [(t.get_text(), t.get_window_extent(canvas.get_renderer())) for t in written]
    assert boxes
    whole = figure.bbox.padded(2)
    outside = [text for text, box in boxes if not all(map(whole.contains, *box.get_points().T))]
    assert outside == []
    pairs = itertools.combinations(boxes, 2)
    assert [(one, two) for (one, a), (two, b) in pairs if a.padded(-2).overlaps(b.padded(-2))] == []


def test_plots_say_what_there_is_and_what_is_missing(golden, enzymes):
    old = golden("bace-scaffold")
    assert render_chart(old, "robustness") is None
    with pytest.raises(GraphTransplantError, match="no data for the chart 'robustness'"):
        old.plot.robustness()
    assert {name for name in dir(old.plot) if render_chart(old, name)} >= {
        "forest",
        "scores",
        "learning",
    }
    with pytest.raises(AttributeError, match="did you mean 'forest'"):
        _ = enzymes.plot.forrest
    with pytest.raises(GraphTransplantError, match="needs a single group of results"):
        golden("paper-quick-enzymes").plot.forest()
    file = io.BytesIO()
    enzymes.plot.forest().figure.savefig(file, format="pdf")
    assert file.getvalue().startswith(b"%PDF")


# -------------------------------------------------------------------- names and colours


@pytest.mark.parametrize("name", ["forest", "scores", "learning", "reliability", "samples", "cost"])
def test_hostile_names_are_drawn_literally(enzymes, name, tmp_path):
    names = {"vanilla": "vanilla", "transplant-ep": "transplant-ep", "transplant-dp": HOSTILE}
    renamed = [
        replace(record, method=names[record.method])
        for record in enzymes.chosen
        if record.method in names
    ]
    found = render_chart(Results(renamed), name)
    assert "<script" not in found.element
    told = "".join(ElementTree.fromstring(found.element).itertext())
    assert ">&\"'�" in told  # its end, where there is no room for all of it
    image, _ = write(found, tmp_path)
    ElementTree.parse(image)


def test_a_method_has_one_colour_on_a_page(golden):
    results = golden("paper-quick-enzymes")
    whole = default_colours(results)
    assert whole["vanilla"] == LIGHT["c0"]
    other = whole | {"transplant-dp": LIGHT["c8"]}
    part = next(part for group, part in results.groups.items() if group.model == "gcs")
    for colours in (whole, other):
        drawn = render_chart(part, "learning", colours=colours).file
        assert all(colours[name] in drawn for name in part.methods)


def bins_of(*rows):
    return pd.DataFrame(rows, columns=["confidence", "accuracy", "count"]).to_dict("records")


LOSSES = pd.DataFrame(
    {"epoch": [1, 2, 3], "train_loss": [1.0, 0.7, 0.5], "validation_loss": [1.1, 0.9, 0.8]}
)
CARDS = {
    "roc": lambda: card.roc({"toxic": [[0, 0], [0.2, 0.7], [1, 1]], HOSTILE: [[0, 0], [1, 1]]}),
    "one": lambda: card.roc({HOSTILE: [[0, 0], [1, 1]]}),
    "many": lambda: card.roc({str(n): [[0, 0], [0.1, 0.5], [1, 1]] for n in range(12)}),
    "scatter": lambda: card.scatter([(1.0, 1.5), (2.0, 1.8), (3.0, 2.9)], [HOSTILE], 0.3, "graph"),
    "learning": lambda: card.learning(LOSSES, 3, "accuracy", "graph", 1)[0],
    "reliability": lambda: card.reliability(
        {"after": bins_of((0.5, 0.4, 4), (0.9, 0.8, 30)), "before": bins_of((0.9, 0.8, 30))},
        1.3,
        "graph",
    ),
}


@pytest.mark.parametrize("name", CARDS)
def test_cards_are_drawn_from_plain_numbers(name, monkeypatch):
    drawn = []
    monkeypatch.setattr(
        "graph_transplant.figures.card.svg", lambda ax, salt: drawn.append(ax) or svg(ax, salt)
    )
    found = CARDS[name]()
    (ax,) = drawn
    check_texts(ax.get_figure(root=True))
    assert "<script" not in found.element
    assert found.caption.endswith(".")


@pytest.mark.parametrize("counts", [[1, 2, 30, 1, 9, 1], [2, 1], [10, 10], [40, 3], [1, 1, 12]])
def test_small_bins_are_joined_with_their_neighbours(counts):
    numbers = np.arange(1, len(counts) + 1) / 10
    bins = pd.DataFrame({"count": counts, "confidence": numbers, "accuracy": 1 - numbers})
    found = joined(bins)
    assert found["count"].sum() == sum(counts)
    assert len(found) == 1 or found["count"].min() >= 10
    assert found["confidence"].is_monotonic_increasing
    # The gap to the diagonal, weighted by the counts, stays as it is.
    for name in ("confidence", "accuracy"):
        whole = (bins["count"] * bins[name]).sum()
        assert (found["count"] * found[name]).sum() == pytest.approx(whole)
    if counts == [10, 10]:
        assert found["confidence"].tolist() == pytest.approx([0.1, 0.2])
    with style():
        ax = Figure().subplots()
        draw_reliability(ax, bins.assign(stage="after", bin=range(len(counts))), LIGHT["c1"])
    dots = [x for line in ax.get_lines() if line.get_marker() == "o" for x in line.get_xdata()]
    assert sorted(dots) == pytest.approx(found["confidence"].tolist())


# -------------------------------------------------------------------- graphs


GRAPH = DrawnGraph(
    ("a", "b", HOSTILE, "d", ""), ((0, 1), (1, 2), (2, 0), (2, 3)), (1.0,) * 4, False, False
)


def test_graphs_show_saliency_and_parts():
    found = graph_svg(GRAPH, saliency=[1.0, 0.5, 0.0, 0.0, 0.1])
    assert found.count("fill:var(--halo)") == 3
    found = graph_svg(GRAPH, saliency=[1.0, -0.5, 0.0, 0.0, 0.1], signed=True)
    assert (found.count("fill:var(--halo)"), found.count("stroke:var(--c1)")) == (2, 1)
    parts = [TRANSPLANTED, TRANSPLANTED, REMAINING, LEFT_OUT, REMAINING]
    found = graph_svg(GRAPH, parts=parts, new_edges={1})
    assert (found.count("fill:var(--grafted)"), found.count("<rect")) == (2, 2)
    lost, usual, new = (path.get("d").count("L") for path in _paths(found))
    assert (lost, usual, new) == (1, 2, 1)
    with pytest.raises(GraphTransplantError, match="one value per node: expected 5, got 1"):
        graph_svg(GRAPH, saliency=[1.0])


def _paths(text: str) -> list[ElementTree.Element]:
    return ElementTree.fromstring(text).findall("path")


@pytest.mark.parametrize("width", [480, 200])
def test_numbers_stand_beside_their_nodes(width):
    edges = tuple((n, n // 2) for n in range(1, 24))
    tree = DrawnGraph(tuple("abc"[n % 3] for n in range(24)), edges, (), False, False)
    saliency = [1.0 - n / 24 for n in range(24)]
    found = graph_svg(tree, saliency=saliency, numbered=[0, 7, 22], width=width)
    assert found == graph_svg(tree, saliency=saliency, numbered=[22, 0, 7], width=width)
    root = ElementTree.fromstring(found)
    nodes = [c for c in root.findall("circle") if "halo" not in c.get("style", "")]
    places = np.array([(float(c.get("cx")), float(c.get("cy"))) for c in nodes])
    numbers = {one.text: one for one in root.iter("text") if one.get("class") == "index"}
    assert set(numbers) == {"1", "8", "23"}
    for text, one in numbers.items():
        at = np.array((float(one.get("x")), float(one.get("y")) - 4))
        distance = np.linalg.norm(places - at, axis=1)
        assert distance.argmin() == int(text) - 1
        assert distance.min() > float(nodes[0].get("r")), "not on the node"
        assert ((at > 0) & (at < [float(root.get("width")), float(root.get("height"))])).all()
    names = [one.text for one in root.iter("text") if one.get("class") is None]
    assert names == list(tree.names), "every node has its type"
    assert 'class="index"' not in graph_svg(tree)


def test_types_of_edges_stand_on_them_unless_the_graph_is_dense():
    path = DrawnGraph(("a",) * 4, ((0, 1), (1, 2), (2, 3)), (), False, False, ("owns", "x", ""))
    root = ElementTree.fromstring(graph_svg(path))
    texts = [one for one in root.iter("text") if "font-weight" not in one.get("style")]
    assert [one.text or "" for one in texts] == ["owns", "x", ""]
    nodes = [(float(one.get("cx")), float(one.get("cy"))) for one in root.iter("circle")]
    middle = (np.array(nodes[0]) + nodes[1]) / 2
    at = [float(texts[0].get("x")), float(texts[0].get("y")) - 3]
    assert at == pytest.approx(middle.tolist(), abs=0.11)
    edges = tuple(itertools.combinations(range(4), 2))
    assert "owns" not in graph_svg(replace(path, edges=edges, kinds=("owns",) * 6))


def test_atoms_have_their_numbers_as_in_the_smiles():
    pytest.importorskip("rdkit")
    texts = ElementTree.fromstring(molecule_svg("CC(=O)Nc1ccc(O)cc1", numbered=[2, 3])).iter("text")
    assert [one.text for one in texts if one.get("class") == "index"] == ["3", "4"]


def test_nodes_in_words():
    assert [node_words(GRAPH, node) for node in (0, 4)] == ["node 1 (type a)", "node 5"]
    assert len(node_words(GRAPH, 2)) <= len("node 3 (type )") + 24
    assert node_words(DrawnGraph(("N",), (), (), True, False), 0) == "N 1"


def test_graphs_are_laid_out_the_same_each_time():
    edges = ((0, 1), (1, 2), (3, 4))
    assert np.array_equal(layout(6, edges), layout.__wrapped__(6, edges))
    assert len(np.unique(layout(6, edges).round(6), axis=0)) == 6
    assert layout(0, ()).shape == (0, 2)
    assert "<script" not in graph_svg(GRAPH, title=HOSTILE)
    assert "Graph of 0 nodes" in graph_svg(DrawnGraph((), (), (), False, False))
    tree = tuple((n, n // 2) for n in range(1, 600))
    large = DrawnGraph(("",) * 600, tree, (1.0,) * 599, False, True)
    assert "the first 500 are drawn" in describe(large)
    found = graph_svg(replace(large, edges=((0, 0), *large.edges[1:])))
    assert found.count("<circle") == 500
    (path,) = _paths(found)
    assert (path.get("d").count("L"), path.get("d").count("a")) == (3 * 498, 1)


@pytest.mark.parametrize("nodes", [1, 7, 40])
def test_graphs_keep_to_their_width(nodes):
    edges = tuple((n, n + 1) for n in range(nodes - 1))
    path = DrawnGraph(("C",) * nodes, edges, (1.0,) * len(edges), False, False)
    root = ElementTree.fromstring(graph_svg(path, width=200, saliency=[1.0] * nodes))
    assert float(root.get("width")) <= 200
    for one in root.iter("circle"):
        assert float(one.get("cx")) - float(one.get("r")) + 1 >= 0
        assert float(one.get("cx")) + float(one.get("r")) <= float(root.get("width")) + 1


def test_molecules_have_charges_hydrogens_stereo_and_the_colours_of_the_page():
    pytest.importorskip("rdkit")
    found = molecule_svg("C[C@H](N)C(=O)[O-]", [0.9, 0, 0, 0.5, 0, -0.7], True)
    assert found == molecule_svg("C[C@H](N)C(=O)[O-]", [0.9, 0, 0, 0.5, 0, -0.7], True)
    assert "var(--atom-n)" in found
    assert "var(--atom-o)" in found
    assert (found.count("<circle"), found.count("stroke:var(--c1)")) == (3, 1)
    assert re.findall(r"#[0-9A-Fa-f]{6}", found) == []
    assert "<rect" not in found, "the background is the page's"
    assert molecule_svg("not a molecule") is None


def test_mixed_molecules_follow_no_valence():
    pytest.importorskip("rdkit")
    ring = [(n, (n + 1) % 6) for n in range(6)]
    names, orders = ("C",) * 6 + ("O", "?x"), (1.5,) * 6 + (3.0, 3.0)
    odd = DrawnGraph(names, (*ring, (0, 6), (6, 7)), orders, molecule=True, directed=False)
    parts = [TRANSPLANTED] * 6 + [REMAINING, LEFT_OUT]
    found = graph_svg(odd, parts=parts, new_edges={6})
    assert (found.count("<circle"), found.count("<rect")) == (6, 1)
    assert "6 transplanted, 1 remaining and 1 left out" in found


def _letters(found: str) -> int:
    return sum("paint-order" in one.get("style") for one in ElementTree.fromstring(found))


def test_molecules_are_drawn_from_features_with_their_charges_and_hydrogens():
    pytest.importorskip("rdkit")
    charged = ["Cc1ccc(cc1)[N+](=O)[O-]", "c1ccc2[nH]ccc2c1", "C[NH3+].[Cl-]", "[Fe+2]", "CO"]
    store = from_smiles(charged)
    drawings = drawn_graphs(store.batch(range(len(charged))), store)
    for smiles, structure in zip(charged, drawings, strict=True):
        assert _letters(molecule_svg(structure)) == _letters(molecule_svg(smiles)), smiles
    # Where charges are not known, a nitro group has no hydrogen.
    nitro = DrawnGraph(("C", "N", "O", "O"), ((0, 1), (1, 2), (1, 3)), (1.0, 2.0, 1.0), True, False)
    assert _letters(molecule_svg(nitro)) == len("NOO")
    alcohol = DrawnGraph(("C", "O"), ((0, 1),), (), True, False)
    assert _letters(molecule_svg(alcohol)) == len("OH")


def test_without_rdkit_a_molecule_is_a_plain_graph(monkeypatch):
    monkeypatch.setattr("graph_transplant.figures.graphs.find_spec", lambda name: None)
    plain = replace(GRAPH, molecule=True)
    assert molecule_svg(plain) is None
    assert graph_svg(plain).count("<circle") == 5
