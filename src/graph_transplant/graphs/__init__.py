"""Data sets of graphs, their files, and batches."""

from graph_transplant.graphs.batch import GraphBatch, as_batch
from graph_transplant.graphs.checks import PARTS
from graph_transplant.graphs.featurizer import Featurizer
from graph_transplant.graphs.file import StoreWriter
from graph_transplant.graphs.store import GraphStore, Origin, Rows, Skipped, check_stores
from graph_transplant.graphs.tensors import moments, task_of

__all__ = [
    "PARTS",
    "Featurizer",
    "GraphBatch",
    "GraphStore",
    "Origin",
    "Rows",
    "Skipped",
    "StoreWriter",
    "as_batch",
    "check_stores",
    "moments",
    "task_of",
]
