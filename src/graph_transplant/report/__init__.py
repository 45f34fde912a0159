"""Pages and figures made from records alone.

``figures.py`` computes the numbers of a figure, ``svg.py`` draws them, ``html.py`` puts the page
together. Nothing here needs torch, so that a report can be made wherever the records are.
"""

from graph_transplant.report.html import (
    render_across,
    render_report,
    write_across,
    write_report,
)

__all__ = ["render_across", "render_report", "write_across", "write_report"]
