"""Augmentations for PyG pipelines: transforms for single graphs, a collate function for mixing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import get_worker_info
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader
from torch_geometric.transforms import BaseTransform

from graph_transplant import augment
from graph_transplant.augment.base import Augmentation, CleanPass, VirtualGraphs
from graph_transplant.augment.perturb import Perturbation, RatioPerturbation
from graph_transplant.augment.transplant import equal_saliency
from graph_transplant.data import GraphBatch, as_batch
from graph_transplant.data.batch import refers
from graph_transplant.data.targets import Loss, batch_targets, targets_of
from graph_transplant.errors import DataError, GraphTransplantError
from graph_transplant.nn import Prediction

__all__ = [
    "DropEdges",
    "DropNodes",
    "MaskNodes",
    "MixCollate",
    "MixLoader",
    "NodeSam",
    "PerturbEdges",
    "RandomSubgraph",
    "SwapOpenTriads",
    "soft_targets",
]


class _WorkerGenerator(torch.Generator):
    """The generator of a ``DataLoader`` worker."""


def _for_worker(generator: torch.Generator | None) -> torch.Generator | None:
    """Give each worker its own generator; copies of one would all draw the same numbers."""
    worker = get_worker_info()
    if generator is None or worker is None or isinstance(generator, _WorkerGenerator):
        return generator
    # Draw a seed, so that the next transform with the same generator gets a different one.
    drawn = int(torch.randint(2**62, (), generator=generator, device=generator.device))
    own = _WorkerGenerator()
    own.manual_seed((drawn + worker.seed) % 2**63)
    return own


class _Edit(BaseTransform):  # type: ignore[misc]
    """Edits one graph; graph-level fields such as ``y`` or ``smiles`` are kept.

    ``generator=None`` uses torch's global generator. Either way, each ``DataLoader`` worker draws
    its own random numbers, new ones in every epoch.
    """

    def __init__(self, augmentation: Perturbation, generator: torch.Generator | None) -> None:
        self.augmentation = augmentation
        self.generator = generator

    def forward(self, data: Data) -> Data:
        if isinstance(data, Batch):
            return Batch.from_data_list([self(graph) for graph in data.to_data_list()])
        graph = GraphBatch.from_pyg(data)
        graph.check_nodes()
        self.generator = _for_worker(self.generator)
        clean = CleanPass(graph, torch.empty(1, 0), _no_prediction)
        result = self.augmentation(clean, model=None, generator=self.generator)
        edited = result.batch
        if not np.array_equal(result.node_origin, np.arange(graph.num_nodes)):
            for name in set(data.keys()) - {"edge_index"}:
                if isinstance(data[name], Tensor) and refers(data, name):
                    raise DataError(
                        f"`{name}` holds node indices, which {self} would invalidate: remove it "
                        "first"
                    )
        # PyG passes a shallow copy, so the caller's graph is not changed.
        data.update({**edited.nodes, **edited.edges, "edge_index": edited.edge_index})
        if "num_nodes" in data or not {"x", "pos"} & edited.nodes.keys():
            data.num_nodes = edited.num_nodes
        return data

    def __repr__(self) -> str:
        return repr(self.augmentation)


class _RatioEdit(_Edit):
    kind: ClassVar[type[RatioPerturbation]]

    def __init__(self, ratio: float = 0.2, generator: torch.Generator | None = None) -> None:
        super().__init__(self.kind(ratio), generator)


class DropNodes(_RatioEdit):
    """:class:`graph_transplant.augment.DropNodes` as a PyG transform.

    Example:
        >>> import graph_transplant as gt
        >>> star = Data(x=torch.eye(5), edge_index=torch.tensor([[1, 2, 3, 4], [0, 0, 0, 0]]))
        >>> gt.transforms.DropNodes(0.4)(star).num_nodes, star.num_nodes
        (3, 5)
    """

    kind = augment.DropNodes


class DropEdges(_RatioEdit):
    """:class:`graph_transplant.augment.DropEdges` as a PyG transform."""

    kind = augment.DropEdges


class PerturbEdges(_RatioEdit):
    """:class:`graph_transplant.augment.PerturbEdges` as a PyG transform."""

    kind = augment.PerturbEdges


class MaskNodes(_RatioEdit):
    """:class:`graph_transplant.augment.MaskNodes` as a PyG transform; masked features are 0."""

    kind = augment.MaskNodes


class RandomSubgraph(_Edit):
    """:class:`graph_transplant.augment.RandomSubgraph` as a PyG transform."""

    def __init__(self, size: float = 0.8, generator: torch.Generator | None = None) -> None:
        super().__init__(augment.RandomSubgraph(size), generator)


class SwapOpenTriads(_RatioEdit):
    """:class:`graph_transplant.augment.SwapOpenTriads` as a PyG transform."""

    kind = augment.SwapOpenTriads


class NodeSam(_Edit):
    """:class:`graph_transplant.augment.NodeSam` as a PyG transform."""

    def __init__(self, adjust: bool = True, generator: torch.Generator | None = None) -> None:
        super().__init__(augment.NodeSam(adjust), generator)


def _no_prediction() -> Prediction:
    raise GraphTransplantError(
        "this augmentation needs a model, which a collate function does not have: use "
        "gt.augmented_loss in the training loop"
    )


class MixCollate:
    """Mixes the graphs of every batch that a ``torch.utils.data.DataLoader`` collates.

    PyG's ``DataLoader`` ignores it; :class:`MixLoader` stands for both.

    Without a model there is no saliency: all nodes have the same weight, so Graph Transplant draws
    its anchors at random and mixes labels by size, as in the paper's ablation. For saliency use
    ``gt.augmented_loss`` in the training loop. Edge prediction and manifold mixup need a model.

    Args:
        augmentation: Creates the graphs; :class:`~graph_transplant.augment.GMixup` must be
            prepared.
        num_outputs: Number of classes, labels or values.
        keep_originals: Whether the original graphs come first in the batch.
        generator: Source of all randomness; ``None`` uses torch's global generator. Either way,
            each worker of the loader draws its own random numbers, new ones in every epoch.
        task: ``"multiclass"``, ``"multilabel"`` or ``"regression"``.

    Example:
        >>> import graph_transplant as gt
        >>> from torch.utils.data import DataLoader
        >>> mix = gt.transforms.MixCollate(gt.GraphTransplant(), num_outputs=6)
        >>> loader = DataLoader(list(gt.load("motifs")), batch_size=32, collate_fn=mix)
        >>> batch = next(iter(loader))
        >>> batch.num_graphs, list(batch.y.shape)
        (64, [64, 6])
    """

    def __init__(
        self,
        augmentation: Augmentation,
        num_outputs: int,
        keep_originals: bool = True,
        generator: torch.Generator | None = None,
        *,
        task: str = "multiclass",
    ) -> None:
        if not isinstance(augmentation, Augmentation):
            raise GraphTransplantError(
                f"`augmentation` must be one augmentation; got {augmentation!r}; OneOf and "
                "Sequential make one of several"
            )
        self.augmentation = augmentation
        self.num_outputs = num_outputs
        self.keep_originals = keep_originals
        self.generator = generator
        self.loss_of = Loss(task)

    def __call__(self, graphs: Sequence[Data]) -> Batch:
        """Collate graphs and their mixtures; ``y`` becomes float ``[graphs, outputs]``."""
        batch = GraphBatch.from_pyg(Batch.from_data_list(list(graphs)))
        batch = replace(batch, y=batch_targets(batch, self.num_outputs, self.loss_of.task))
        clean = CleanPass(
            batch, targets_of(batch), _no_prediction, self.loss_of, saliency=equal_saliency
        )
        with torch.no_grad():
            self.generator = _for_worker(self.generator)
            virtual = self.augmentation(clean, model=None, generator=self.generator)
        if not isinstance(virtual, VirtualGraphs):
            _no_prediction()
        mixed = replace(virtual.batch, y=virtual.targets)
        return (_joined(batch, mixed) if self.keep_originals else mixed).to_pyg()


class MixLoader(DataLoader):  # type: ignore[misc]
    """PyG's ``DataLoader`` with :class:`MixCollate`, which PyG's own drops without a word.

    Args:
        dataset: A PyG data set or a list of graphs.
        augmentation: See :class:`MixCollate`.
        num_outputs: Number of classes, labels or values; by default, the data set's
            ``num_classes``.
        batch_size: Original graphs per batch.
        shuffle: Draw the graphs in a new order in every epoch.
        keep_originals: See :class:`MixCollate`.
        generator: Source of all randomness, also of the order.
        task: See :class:`MixCollate`.
        **options: Those of torch's ``DataLoader``, such as ``num_workers``.

    Example:
        >>> import graph_transplant as gt
        >>> graphs = gt.load("motifs").to_pyg()
        >>> loader = gt.transforms.MixLoader(graphs, gt.GraphTransplant(), batch_size=32)
        >>> next(iter(loader)).num_graphs
        64
    """

    def __init__(
        self,
        dataset: Any,
        augmentation: Augmentation,
        num_outputs: int | None = None,
        batch_size: int = 1,
        shuffle: bool = False,
        *,
        keep_originals: bool = True,
        generator: torch.Generator | None = None,
        task: str = "multiclass",
        **options: Any,
    ) -> None:
        for name in ("collate_fn", "follow_batch", "exclude_keys"):
            if name in options:
                raise GraphTransplantError(f"`{name}` cannot be used with mixed graphs")
        num_outputs = num_outputs or getattr(dataset, "num_classes", None)
        if num_outputs is None:
            raise GraphTransplantError(
                "`num_outputs`, the number of classes, labels or values, must be given for a list"
            )
        mix = MixCollate(augmentation, num_outputs, keep_originals, generator, task=task)
        super().__init__(dataset, batch_size, shuffle, generator=generator, **options)
        self.collate_fn = mix


def soft_targets(
    batch: Data | GraphBatch,
    num_outputs: int,
    like: Data | GraphBatch | None = None,
    *,
    task: str = "multiclass",
) -> Batch:
    """Convert graphs to the form of mixed ones: float targets, and only tensors as fields.

    Only fields that the graphs of ``like`` also have are kept; edges get weight one if only those
    graphs have weights.

    Example:
        >>> import graph_transplant as gt
        >>> batch = gt.load("motifs").batch(range(8))
        >>> mixed = gt.GraphTransplant().mix(batch).batch.to_pyg()
        >>> originals = soft_targets(batch, 6, like=mixed)
        >>> Batch.from_data_list(originals.to_data_list() + mixed.to_data_list()).y.shape
        torch.Size([16, 6])
    """
    graphs = as_batch(batch).dense()
    graphs = replace(graphs, y=batch_targets(graphs, num_outputs, task))
    return (graphs if like is None else _fitted(graphs, as_batch(like).dense())).to_pyg()


def _fitted(batch: GraphBatch, other: GraphBatch) -> GraphBatch:
    """Keep only fields that ``other`` has; add edge weights of one if only it has weights."""
    edges = {"edge_weight": torch.ones(batch.num_edges, device=batch.device), **batch.edges}
    return replace(
        batch,
        nodes={name: value for name, value in batch.nodes.items() if name in other.nodes},
        edges={name: value for name, value in edges.items() if name in other.edges},
        graphs={name: value for name, value in batch.graphs.items() if name in other.graphs},
    )


def _joined(first: GraphBatch, second: GraphBatch) -> GraphBatch:
    first = _fitted(first, second)
    second = _fitted(second, first)
    return GraphBatch(
        ptr=np.concatenate((first.ptr, second.ptr[1:] + first.num_nodes)),
        row_ptr=np.concatenate((first.row_ptr, second.row_ptr[1:] + first.num_edges)),
        column=np.concatenate((first.column, second.column + first.num_nodes)),
        symmetric=first.symmetric and second.symmetric,
        nodes={name: torch.cat((one, second.nodes[name])) for name, one in first.nodes.items()},
        edges={name: torch.cat((one, second.edges[name])) for name, one in first.edges.items()},
        graphs={name: torch.cat((one, second.graphs[name])) for name, one in first.graphs.items()},
        y=torch.cat((targets_of(first), targets_of(second))),
        device=first.device,
    )
