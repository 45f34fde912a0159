"""Pages, figures and tables made from records alone.

``figures.py`` computes the numbers of a figure, ``svg.py`` draws them, ``tables.py`` ranks the
methods, ``html.py`` puts the page together. Nothing here needs torch, so that a report can be made
wherever the records are.
"""

from graph_transplant.report.frame import FOLDER, Figure, Table, write_figures
from graph_transplant.report.html import (
    render_across,
    render_report,
    write_across,
    write_report,
)
from graph_transplant.report.tables import ranking_table

__all__ = [
    "FOLDER",
    "Figure",
    "Table",
    "ranking_table",
    "render_across",
    "render_report",
    "write_across",
    "write_figures",
    "write_report",
]
