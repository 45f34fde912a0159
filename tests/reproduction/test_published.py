"""The paper's figures: every cell there, every value as printed."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest

from reproduction.experiments import EXPERIMENTS, MEDIUM, SMALL
from reproduction.published import all_published, published

MAIN = EXPERIMENTS["table1"].methods


def row(experiment: str, model: str, method: str, data: tuple[str, ...]) -> list[float | None]:
    found = [published(experiment, name, model, method) for name in data]
    return [None if figure is None else figure.mean for figure in found]


def test_every_cell_is_there_once() -> None:
    figures = all_published()
    keys = [(f.experiment, f.data, f.model, f.method) for f in figures]
    assert len(set(keys)) == len(keys)
    numbers = Counter(f.source.label for f in figures if f.status == "number")
    assert numbers == {
        # 9 methods on 5 small data sets with 3 models, less 3 dashes, and 3 medium ones with 2.
        "tb:maintable": 9 * 5 * 3 - 3 + 9 * 3 * 2,
        "tb:gcn_main": 9 * 5 - 1,
        "tb:super_large": 7,
        "tb:adversarial": 8 * 3,
        "supp:adversarial_gin": 7 * 3,
        "tb:ece": 8 * 3 * 2,
    }
    assert {(f.experiment, f.data, f.model, f.method) for f in figures if f.status == "empty"} == {
        ("table1", "COLLAB", "gcs", "mask-nodes"),
        ("table1", "COLLAB", "gin", "mask-nodes"),
        ("table1", "COLLAB", "gat", "mask-nodes"),
        ("gcn", "COLLAB", "gcn", "mask-nodes"),
    }
    for experiment, models, data in (
        ("table1", ("gcs", "gin", "gat"), SMALL),
        ("table1", ("gcs", "gin"), MEDIUM),
        ("gcn", ("gcn",), SMALL),
    ):
        assert {(experiment, *place) for place in product(data, models, MAIN)} <= set(keys)


def test_sums_agree_with_the_printed_tables() -> None:
    # Added up straight from the lines of the TeX source, without taking the tables apart.
    sums = {
        "tb:maintable": (145.931, 5.049),
        "tb:super_large": (4.537, 0.047),
        "tb:adversarial": (14.433, 0.760),
        "tb:ece": (7.189, 0.0),
        "tb:gcn_main": (31.155, 0.933),
        "supp:adversarial_gin": (12.917, 0.656),
    }
    for label, (means, spreads) in sums.items():
        rows = [f for f in all_published() if f.source.label == label]
        assert sum(f.mean or 0 for f in rows) == pytest.approx(means, abs=1e-6)
        assert sum(f.std or 0 for f in rows) == pytest.approx(spreads, abs=1e-6)


def test_rows_typed_from_the_tables() -> None:
    assert row("table1", "gin", "mask-nodes", SMALL + MEDIUM) == [
        None, 0.794, 0.624, 0.820, 0.632, 0.877, 0.831, 0.898,
    ]  # fmt: skip
    assert row("table1", "gat", "transplant-dp", SMALL) == [0.813, 0.793, 0.527, 0.815, 0.796]
    assert row("table1", "gat", "vanilla", MEDIUM) == [None, None, None]
    assert row("gcn", "gcn", "subgraph", SMALL) == [0.813, 0.741, 0.623, 0.808, 0.551]
    assert row("table2", "gcs", "drop-nodes", ("ogbg-ppa",)) == [0.660]
    attacked = ("ENZYMES", "Mutagenicity", "NCI1")
    assert row("table3-robustness", "gcs", "perturb-edges", attacked) == [0.623, 0.645, 0.602]
    assert row("table3-robustness", "gin", "manifold-mixup", attacked) == [0.547, 0.568, 0.660]
    calibrated = ("ENZYMES", "Mutagenicity", "COIL-DEL")
    assert row("table4-calibration", "gin", "transplant-ep", calibrated) == [0.136, 0.061, 0.061]


def test_charts_have_no_number_and_what_the_paper_does_not_have_is_none() -> None:
    for place in (
        ("ablation", "COLLAB", "gat", "transplant-scattered"),
        ("readout", "ENZYMES", "gcs", "subgraph"),
        ("edge-predictor", "NCI1", "gcn", "transplant-ep"),
    ):
        figure = published(*place)
        assert (figure.status, figure.mean, figure.std) == ("chart", None, None)
        assert figure.source.note.startswith("published as a chart only")
    for place in (
        ("table1", "motifs", "gcs", "vanilla"),
        ("readout", "ENZYMES", "gin", "vanilla"),
        ("table3-robustness", "NCI1", "gin", "m-evolve"),
        ("ablation", "NCI1", "gcs", "vanilla"),
    ):
        assert published(*place) is None
