"""What a comparison fixes: settings, scales, metrics, trials."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import graph_transplant as gt
from graph_transplant.config.compare import Settings
from graph_transplant.config.recipes import scale_of
from graph_transplant.errors import GraphTransplantError
from graph_transplant.training.defaults import metric_for


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"metric": "accurracy"}, r"`metric` must be one of accuracy, auroc, .*r2; .*did you mean"),
        ({"split": "random"}, "`split` must be one of folds, scaffold-folds, official, scaffold;"),
        ({"patience_unit": "steps"}, "`patience_unit` must be one of iterations, epochs"),
        ({"attack": (0.2, 0.0)}, r"`attack` must be in \(0, 1\], got 0.0"),
        ({"attack": ("0.1",)}, r"`attack` must be in \(0, 1\], got '0.1'"),
        ({"shards": 0}, "`shards` must be at least 1, got 0"),
        ({"ties": "last"}, "`ties` must be one of first, loss, reset; got 'last'"),
        ({"clip_norm": math.nan}, "`clip_norm` must be above 0, got nan"),
    ],
)
def test_settings_that_cannot_be_are_named(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(GraphTransplantError, match=message):
        Settings(**changed)


# The paper, appendix "Evaluation protocol".
@pytest.mark.parametrize(
    ("graphs", "batch_size", "stop", "decay", "unit"),
    [
        (600, 128, 1500, 1000, "iterations"),  # ENZYMES
        (5000, 128, 1500, 1000, "iterations"),  # COLLAB
        (39765, 128, 50, 20, "epochs"),  # MOLT-4
        (41472, 128, 50, 20, "epochs"),  # P388
        (158100, 64, 10, 5, "epochs"),  # ogbg-ppa
    ],
)
def test_scales_are_those_of_the_paper(
    graphs: int, batch_size: int, stop: int, decay: int, unit: str
) -> None:
    settings = Settings.of("paper", scale_of(graphs), epochs=7)
    assert settings.epochs == 7
    assert settings.batch_size == batch_size
    assert (settings.stop_patience, settings.decay_patience) == (stop, decay)
    assert settings.patience_unit == unit
    assert Settings.of("paper", scale_of(graphs), batch_size=16).batch_size == 16
    bounds = (9_999, 10_000, 99_999, 100_000)
    assert [scale_of(count) for count in bounds] == ["small", "medium", "medium", "large"]


@pytest.mark.parametrize(
    ("counts", "metric"),
    [
        ([20] * 6, "accuracy"),
        ([160, 40], "accuracy"),  # one in five, as AIDS
        ([190, 10], "auroc"),
        ([10, 190], "auroc"),  # whichever class is the rare one
        ([190, 5, 5], "accuracy"),  # more than two classes have no ROC curve
    ],
)
def test_rare_classes_are_judged_by_auroc(counts: list[int], metric: str) -> None:
    labels = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    store = gt.load("motifs", graphs=len(labels)).with_targets(labels, num_outputs=len(counts))
    assert metric_for(store) == metric
