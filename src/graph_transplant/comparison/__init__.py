"""Comparisons under one protocol: trials, records, engines, selection, statistics, verdicts.

Import the modules directly: reading and analysing records does not need torch.
"""
