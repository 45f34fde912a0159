"""HTML pages and tables of results."""

from graph_transplant.report.average_ranks import render_across
from graph_transplant.report.comparison import notebook_html, render_report, write_report

__all__ = ["notebook_html", "render_across", "render_report", "write_report"]
