"""Comparisons under one protocol: trials, records, engines, selection, statistics, verdicts.

Modules are imported one by one: reading records and doing statistics on them needs no torch.
"""
