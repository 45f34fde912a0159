"""Data sets of graphs, their files, and batches."""

from graph_transplant.data.batch import GraphBatch, as_batch
from graph_transplant.data.featurizer import Featurizer
from graph_transplant.data.store import GraphStore, InputRows, Origin, check_stores
from graph_transplant.data.store_file import StoreWriter
from graph_transplant.data.tensors import moments, task_of
from graph_transplant.data.validation import PARTS
from graph_transplant.errors import Skipped

__all__ = [
    "PARTS",
    "Featurizer",
    "GraphBatch",
    "GraphStore",
    "InputRows",
    "Origin",
    "Skipped",
    "StoreWriter",
    "as_batch",
    "check_stores",
    "moments",
    "task_of",
]
