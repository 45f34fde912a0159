"""Sample quality: how similar the virtual graphs of a method are to the original graphs."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from torch import nn

from graph_transplant.analysis.saliency import spread
from graph_transplant.augment import Augmentation, CleanPass, MixedGraphs, VirtualGraphs
from graph_transplant.augment.sub_mix import SubMixedGraphs
from graph_transplant.data import GraphBatch, GraphStore
from graph_transplant.data.targets import Loss, batch_targets
from graph_transplant.errors import check_at_least
from graph_transplant.kernels import csr
from graph_transplant.nn import evaluating
from graph_transplant.nn.adapter import Predictor, as_predictor, module_of

AtomReader = Callable[[GraphBatch], tuple[list[str], list[float]] | None]
"""Returns the element of every node and the bond order of every edge, for molecules."""

AROMATIC: Final = 1.5
"""Bond order of an aromatic bond; also the tolerance for the valence of aromatic atoms."""

# Graphs per step; small, to sample more of the choices made once per step, such as subgraph sizes.
_TOGETHER: Final = 32
# Number of random halvings of the originals, for the control.
_HALVINGS: Final = 20
# Tolerance for rounding errors.
_SAME: Final = 1e-6

_Ints = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]


def sample_quality(
    model: Predictor | nn.Module,
    augmentations: Sequence[Augmentation],
    store: GraphStore,
    *,
    seed: int,
    graphs: int = 500,
    atoms: AtomReader | None = None,
) -> dict[str, float | int | None]:
    """Measure the virtual graphs that a method creates with a trained model.

    They are created as in a training step, but with the model in evaluation mode, 32 graphs at a
    time. An edge counts if its weight is above one half; directions, repeats and self-loops do not
    count. The model, the augmentations and torch's global generator are not changed.

    Args:
        model: The trained model.
        augmentations: Those that it was trained with, in their final state.
        store: The training graphs.
        seed: Seed for all randomness.
        graphs: Maximum number of graphs of the store to use, evenly spaced.
        atoms: For molecules, reads elements and bonds of a batch; see
            :func:`graph_transplant.datasets.molecules.atoms_of`.

    Returns:
        Empty for methods that create no graphs. Otherwise, where ``…_original`` is the same for the
        originals and ``None`` means undefined:

        - ``graphs``: number of virtual graphs;
        - ``nodes_ratio``, ``edges_ratio``: their mean size divided by that of the originals;
        - ``degree_distance``: 1-Wasserstein distance between the degrees of all their nodes and
          those of the originals; ``…_control``: between two random halves of the originals;
        - ``components``, ``disconnected``: mean number of connected components, share of graphs
          with more than one; ``isolated``: share of nodes without an edge;
        - for methods that insert a part of one graph into another, ``label_gap``: mean absolute
          difference between the weight of the source's label and its share of the nodes, and
          ``label_share_correlation``: Pearson correlation between the two;
        - for molecules, if RDKit is installed, ``valence_violations``: share of graphs in which an
          atom has more bonds than its element allows, see :func:`valence_limits`.

    Example:
        >>> import graph_transplant as gt
        >>> motifs = gt.load("motifs", graphs=60)
        >>> model = gt.GraphClassifier.for_data(motifs, hidden=8, seed=0)
        >>> found = sample_quality(model, [gt.augment.DropNodes(0.2)], motifs, seed=0)
        >>> found["graphs"], found["nodes_ratio"] < 1, found["disconnected_original"]
        (60, True, 0.0)
    """
    check_at_least(1, graphs=graphs)
    # Some augmentations are stateful.
    makers = [copy.deepcopy(each) for each in augmentations if each.gives_graphs]
    if not makers:
        return {}
    count = min(graphs, len(store))
    generator = torch.Generator().manual_seed(seed)
    order = spread(len(store), count)[torch.randperm(count, generator=generator)]
    # Drawn before any augmentation, so that they are the same for every method.
    halves = [torch.randperm(count, generator=generator).numpy() for _ in range(_HALVINGS)]
    predictor = as_predictor(model)
    originals: list[_Shape] = []
    virtual: list[_Shape] = []
    labels: list[_Floats] = []
    for part in torch.tensor_split(order, math.ceil(count / _TOGETHER)):
        batch = store.batch(part).to(next(module_of(predictor).parameters()).device)
        originals.append(_Shape.of(batch, atoms))
        with evaluating(module_of(predictor)), torch.enable_grad():
            clean = CleanPass(batch, batch_targets(batch), predictor.run(batch), Loss(store.task))
            made = [maker(clean, model=predictor, generator=generator) for maker in makers]
        for samples in made:
            if isinstance(samples, VirtualGraphs):
                virtual.append(_Shape.of(samples.batch, atoms))
            if isinstance(samples, MixedGraphs | SubMixedGraphs):
                labels.append(_label_shares(samples))
    if not virtual:
        return {}
    return _measured(_Shape.join(virtual), _Shape.join(originals), halves) | _label_fit(labels)


def present_edges(batch: GraphBatch) -> npt.NDArray[np.bool_]:
    """Mark the edges that count as present: those with a weight above one half."""
    weight = batch.edge_weight
    if weight is None:
        return np.ones(batch.num_edges, dtype=np.bool_)
    there: npt.NDArray[np.bool_] = (weight.detach() > 0.5).cpu().numpy()
    return there


def degree_distance(one: npt.ArrayLike, two: npt.ArrayLike) -> float:
    """Return the 1-Wasserstein distance between two degree distributions."""
    first, second = (np.asarray(each, dtype=np.int64) for each in (one, two))
    length = int(max(first.max(), second.max())) + 1
    gap = np.bincount(first, minlength=length) / first.size
    gap -= np.bincount(second, minlength=length) / second.size
    return float(np.abs(np.cumsum(gap)).sum())


@cache
def valence_limits() -> dict[str, float]:
    """Return the maximum valence of each element, by RDKit's periodic table; empty without RDKit.

    Graphs have no charges, so boron, nitrogen and oxygen may have one bond more, as in nitro groups
    and oxonium. Elements without a limit, such as iron, are left out.
    """
    if find_spec("rdkit") is None:
        return {}
    from rdkit.Chem import GetPeriodicTable

    table = GetPeriodicTable()
    limits: dict[str, float] = {}
    for number in range(1, 119):
        allowed = list(table.GetValenceList(number))
        if allowed and -1 not in allowed:
            limits[table.GetElementSymbol(number)] = float(max(allowed))
    return limits | {symbol: limits[symbol] + 1 for symbol in ("B", "N", "O")}


class _Shape(NamedTuple):
    """Structural statistics of some graphs."""

    nodes: _Ints  # [graphs]
    edges: _Ints  # connected pairs of nodes, [graphs]
    components: _Ints  # [graphs]
    degree: _Ints  # [nodes]
    violates: npt.NDArray[np.bool_]  # whether an atom has too many bonds, [graphs] or empty

    @staticmethod
    def of(batch: GraphBatch, atoms: AtomReader | None) -> _Shape:
        graphs, nodes = batch.num_graphs, batch.num_nodes
        segment = csr.rows_of(batch.ptr)
        sender, receiver = batch.column, csr.rows_of(batch.row_ptr)
        edge = np.flatnonzero((sender != receiver) & present_edges(batch))
        low = np.minimum(sender[edge], receiver[edge])
        high = np.maximum(sender[edge], receiver[edge])
        code, first = np.unique(low * nodes + high, return_index=True)
        low, high, edge = code // max(nodes, 1), code % max(nodes, 1), edge[first]
        degree = np.bincount(low, minlength=nodes) + np.bincount(high, minlength=nodes)
        joined = coo_array((np.ones(len(low), dtype=np.int8), (low, high)), shape=(nodes, nodes))
        _, component = connected_components(joined.tocsr(), directed=False)
        _, member = np.unique(component, return_index=True)
        return _Shape(
            nodes=np.diff(batch.ptr),
            edges=np.bincount(segment[low], minlength=graphs),
            components=np.bincount(segment[member], minlength=graphs),
            degree=degree,
            violates=_violations(batch, atoms, low, high, edge, segment),
        )

    @staticmethod
    def join(shapes: Sequence[_Shape]) -> _Shape:
        return _Shape(*(np.concatenate(each) for each in zip(*shapes, strict=True)))

    @property
    def disconnected(self) -> float:
        """Share of graphs with more than one component."""
        return float((self.components > 1).mean())

    @property
    def isolated(self) -> float:
        """Share of nodes without an edge."""
        return float((self.degree == 0).mean())


def _violations(
    batch: GraphBatch,
    atoms: AtomReader | None,
    low: _Ints,
    high: _Ints,
    edge: _Ints,
    segment: _Ints,
) -> npt.NDArray[np.bool_]:
    """Mark the molecules in which an atom has too many bonds; empty if unknown."""
    limits = valence_limits() if atoms is not None else {}
    known = atoms(batch) if atoms is not None and limits else None
    if known is None:
        return np.empty(0, dtype=np.bool_)
    symbols, place = np.unique(np.asarray(known[0], dtype=np.str_), return_inverse=True)
    most = np.array([limits.get(symbol, math.inf) for symbol in symbols.tolist()])[place]
    order = np.asarray(known[1], dtype=np.float64)[edge]
    aromatic = (order == AROMATIC).astype(np.float64)

    def per_atom(bonds: _Floats) -> _Floats:
        ends = np.concatenate((low, high))
        total = np.bincount(ends, np.tile(bonds, 2), minlength=len(segment))
        return total.astype(np.float64)

    # The positions of double bonds in a ring are unknown; RDKit has the same tolerance.
    slack = np.where(per_atom(aromatic) > 0, AROMATIC, 0.0)
    wrong = per_atom(order) > most + slack + _SAME
    found: npt.NDArray[np.bool_] = np.bincount(segment[wrong], minlength=batch.num_graphs) > 0
    return found


def _measured(
    virtual: _Shape, originals: _Shape, halves: Sequence[_Ints]
) -> dict[str, float | int | None]:
    edges = float(originals.edges.mean())
    found: dict[str, float | int | None] = {
        "graphs": len(virtual.nodes),
        "nodes_ratio": float(virtual.nodes.mean() / originals.nodes.mean()),
        "edges_ratio": float(virtual.edges.mean()) / edges if edges else None,
        "degree_distance": degree_distance(virtual.degree, originals.degree),
        "degree_distance_control": _chance(originals, halves),
        "components": float(virtual.components.mean()),
        "components_original": float(originals.components.mean()),
        "disconnected": virtual.disconnected,
        "disconnected_original": originals.disconnected,
        "isolated": virtual.isolated,
        "isolated_original": originals.isolated,
    }
    if virtual.violates.size and originals.violates.size:
        found["valence_violations"] = float(virtual.violates.mean())
        found["valence_violations_original"] = float(originals.violates.mean())
    return found


def _chance(originals: _Shape, halves: Sequence[_Ints]) -> float | None:
    """Mean degree distance between random halves of the originals; ``None`` for one graph."""
    graphs = len(originals.nodes)
    if graphs < 2:
        return None
    distances = []
    for order in halves:
        first = np.zeros(graphs, dtype=np.bool_)
        first[order[: graphs // 2]] = True
        inside = np.repeat(first, originals.nodes)
        distances.append(degree_distance(originals.degree[inside], originals.degree[~inside]))
    return float(np.mean(distances))


def _label_shares(mixed: MixedGraphs | SubMixedGraphs) -> _Floats:
    """Weight of the source's label and its share of the nodes, float64 ``[2, graphs]``."""
    nodes = np.diff(mixed.batch.ptr)
    segment = csr.rows_of(mixed.batch.ptr)
    taken = np.bincount(segment[mixed.node_from_source], minlength=len(nodes))
    weight = mixed.label_weight.detach().cpu().numpy().astype(np.float64)
    return np.stack((weight, taken / nodes))


def _label_fit(labels: Sequence[_Floats]) -> dict[str, float | int | None]:
    if not labels:
        return {}
    weight, share = np.concatenate(labels, axis=1)
    varies = len(weight) > 1 and min(np.ptp(weight), np.ptp(share)) > _SAME
    return {
        "label_gap": float(np.abs(weight - share).mean()),
        "label_share_correlation": float(np.corrcoef(weight, share)[0, 1]) if varies else None,
    }
