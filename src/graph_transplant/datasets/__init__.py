"""Data sets: by name, from files, from Python objects."""

from graph_transplant.config.datasets import DatasetInfo
from graph_transplant.datasets.duplicates import duplicate_groups
from graph_transplant.datasets.load import catalogue, load, stream
from graph_transplant.datasets.rows import Chunk

__all__ = [
    "Chunk",
    "DatasetInfo",
    "catalogue",
    "duplicate_groups",
    "load",
    "stream",
]
