"""HTML pages and tables of results."""

from graph_transplant.report.comparison import notebook_html, render_report, write_report

__all__ = ["notebook_html", "render_report", "write_report"]
