"""What runs leave behind, as data, and what is computed from it. Nothing here needs torch.

Public names are imported on first use, so that the command line starts without pandas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graph_transplant.utils.lazy import lazy

if TYPE_CHECKING:
    from graph_transplant.results.average_ranks import Across, across
    from graph_transplant.results.caveats import Caveat
    from graph_transplant.results.groups import Group, GroupResults
    from graph_transplant.results.predictions import Predictions
    from graph_transplant.results.results import Results, read_results
    from graph_transplant.results.statistics import Paired, holm, paired_test, wilcoxon

__all__ = [
    "Across",
    "Caveat",
    "Group",
    "GroupResults",
    "Paired",
    "Predictions",
    "Results",
    "across",
    "holm",
    "paired_test",
    "read_results",
    "wilcoxon",
]

__getattr__ = lazy(
    __name__,
    {
        "average_ranks": "Across across",
        "caveats": "Caveat",
        "groups": "Group GroupResults",
        "predictions": "Predictions",
        "results": "Results read_results",
        "statistics": "Paired holm paired_test wilcoxon",
    },
)
