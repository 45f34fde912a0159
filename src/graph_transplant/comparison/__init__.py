"""Comparisons under one protocol: trials, records, engines, selection, statistics, verdicts.

The public name is :func:`graph_transplant.compare`; the command line imports modules from here
before it needs torch.
"""

__all__: list[str] = []
