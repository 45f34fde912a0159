"""Comparisons under one protocol: splits, trials, records, engines, statistics.

The rooms here are imported one by one (``graph_transplant.experiments.compare`` and so on): reading
records and doing statistics on them needs no torch, and the command line relies on that.
"""
