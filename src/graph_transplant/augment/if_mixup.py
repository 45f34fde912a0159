"""ifMixup (Guo and Mao, AAAI 2023): two graphs laid over each other, node on node."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.data import Data

from graph_transplant.augment.assemble import assemble, edge_order
from graph_transplant.augment.base import Augmentation, CleanPass, VirtualGraphs
from graph_transplant.augment.pairing import Pairing, as_pairing, mix_rows
from graph_transplant.augment.sampling import beta as draw_beta
from graph_transplant.augment.subgraphs import View
from graph_transplant.errors import DataError, GraphTransplantError
from graph_transplant.graphs import GraphStore
from graph_transplant.saliency import Predictor
from graph_transplant.segments import offsets

# Keeps a mean of attributes defined where an edge's share is exactly zero.
_TINY = 1e-30


@dataclass(frozen=True, kw_only=True)
class InterpolatedGraphs(VirtualGraphs):
    """Graphs between two graphs each.

    Attributes:
        label_weight: 1 - λ, the weight of the source's features, edges and label, float
            ``[graphs]``.
        source_of: The source graph of every mixed graph, int64 ``[graphs]``.

    Example:
        >>> import graph_transplant as gt
        >>> batch = gt.load("motifs").batch(range(4))
        >>> mixed = interpolate(batch, torch.eye(4), torch.tensor([1, 0, 2, 3]), torch.zeros(4))
        >>> bool((mixed.targets == torch.eye(4)).all())
        True
    """

    label_weight: Tensor
    source_of: Tensor


def interpolate(
    batch: Data, targets: Tensor, source_of: Tensor, label_weight: Tensor
) -> InterpolatedGraphs:
    """Lay the source of every graph over it (Algorithm 1); no chance is involved.

    The i-th node of the source falls on the i-th node of the destination. The smaller of the two is
    filled up with dummy nodes without features (zeros) and without edges.

    Args:
        batch: The original graphs.
        targets: float ``[graphs, outputs]``.
        source_of: The source graph of every graph, int64 ``[graphs]``.
        label_weight: 1 - λ, the weight of the source, float ``[graphs]`` between 0 and 1.

    Example:
        >>> from torch_geometric.data import Batch
        >>> edge = Data(x=torch.ones(2, 1), edge_index=torch.tensor([[0, 1], [1, 0]]))
        >>> node = Data(x=torch.ones(1, 1), edge_index=torch.empty(2, 0, dtype=torch.long))
        >>> mixed = interpolate(
        ...     Batch.from_data_list([edge, node]), torch.eye(2), torch.tensor([1, 0]),
        ...     torch.tensor([0.25, 0.25]),
        ... )
        >>> mixed.batch.edge_index, mixed.batch.edge_weight
        (tensor([[0, 1, 2, 3],
                [1, 0, 3, 2]]), tensor([0.7500, 0.7500, 0.2500, 0.2500]))
        >>> mixed.batch.x.flatten()
        tensor([1.0000, 0.7500, 1.0000, 0.2500])
    """
    x = _interpolable(batch, "x")
    attributes = _interpolable(batch, "edge_attr")
    view = View.of(batch)
    source = view.take(source_of)
    share = torch.cat((1 - label_weight, label_weight)).to(torch.double)

    counts = torch.maximum(view.layout.counts, source.layout.counts)
    ptr = offsets(counts)
    graphs, total = counts.numel(), int(ptr[-1])
    # Where the nodes and edges of both sides go. The order within each side stays as it was.
    segment = torch.cat((view.layout.segment, source.layout.segment + graphs))
    starts = torch.cat((view.layout.ptr[:-1], source.layout.ptr[:-1] + view.layout.num_nodes))
    place = torch.arange(segment.numel(), device=segment.device)
    place += (ptr[:-1].repeat(2) - starts).index_select(0, segment)
    node_share = share.index_select(0, segment)

    nodes: dict[str, Tensor] = {}
    if x is not None:
        origin = torch.cat((view.node, source.node))
        weighted = x.index_select(0, origin) * _column(node_share, x)
        nodes["x"] = x.new_zeros((total, *x.shape[1:])).index_add(0, place, weighted)

    row = torch.cat((view.row, source.row + view.layout.num_nodes))
    column = torch.cat((view.column, source.column + view.layout.num_nodes))
    code = place.index_select(0, row) * total + place.index_select(0, column)
    # Both sides are sorted already, and a stable sort is much faster on sorted runs.
    order = torch.argsort(code, stable=True)
    code, entry = torch.unique_consecutive(code.index_select(0, order), return_inverse=True)
    edge_share = node_share.index_select(0, row).index_select(0, order)
    weight: Tensor | None = batch.get("edge_weight", None)
    if weight is not None or attributes is not None:
        edge = torch.cat((view.edge, source.edge)).index_select(0, order)
    kind = torch.get_default_dtype() if weight is None else weight.dtype
    weighted = edge_share if weight is None else edge_share * weight.index_select(0, edge)
    # In double precision, an edge and its reverse come out alike in whichever order repeats add up.
    mixed_weight = edge_share.new_zeros(code.numel()).index_add(0, entry, weighted).to(kind)
    if attributes is not None:
        edge_share = edge_share.clamp(min=_TINY)
        whole = edge_share.new_zeros(code.numel()).index_add(0, entry, edge_share)
        part = _column(edge_share / whole.index_select(0, entry), attributes)
        found = attributes.index_select(0, edge) * part
        attributes = found.new_zeros((code.numel(), *found.shape[1:])).index_add(0, entry, found)

    sender, receiver = code // total, code % total
    if not view.rows_send:
        sender, receiver = receiver, sender
        order = edge_order(sender, receiver, total)
        sender, receiver = sender.index_select(0, order), receiver.index_select(0, order)
        mixed_weight = mixed_weight.index_select(0, order)
        attributes = None if attributes is None else attributes.index_select(0, order)

    mixed = mix_rows(targets, source_of, label_weight)
    virtual = assemble(
        node_counts=counts,
        nodes=nodes,
        sender=sender,
        receiver=receiver,
        edges={"edge_weight": mixed_weight, "edge_attr": attributes},
        targets=mixed,
        symmetric=view.symmetric,
    )
    return InterpolatedGraphs(
        batch=virtual, targets=mixed, label_weight=label_weight, source_of=source_of
    )


def _interpolable(batch: Data, name: str) -> Tensor | None:
    """A field of the batch that can be interpolated, or ``None`` if there is none."""
    value: Tensor | None = batch.get(name, None)
    if value is not None and not value.is_floating_point():
        raise DataError(
            f"if-mixup interpolates `{name}`, which must be floating-point numbers; got "
            f"{value.dtype}: convert numbers with `.float()`; indices of categories have nothing "
            "between them"
        )
    return value


def _column(values: Tensor, like: Tensor) -> Tensor:
    """Values ``[rows]`` as a column that multiplies the rows of a tensor, in its type."""
    return values.to(like.dtype).view(-1, *([1] * (like.dim() - 1)))


class IfMixup(Augmentation):
    r"""Interpolate pairs of graphs: node features, edges and labels (Guo and Mao, AAAI 2023).

    Every graph of a batch is the destination of one mixed graph and has a source. Nodes are matched
    in the order in which they stand, which is arbitrary; the smaller graph is filled up with dummy
    nodes that have zero features and no edges. Then

    .. math::
        x' = λ x + (1 - λ) x_π, \qquad e' = λ e + (1 - λ) e_π, \qquad y' = λ y + (1 - λ) y_π

    with λ drawn for each pair. The edges of the mixed graph are those of either graph; how much of
    an edge is there stands in ``edge_weight``, so that the model must take edge weights. Weights
    that the graphs have themselves are interpolated; those of repeated edges add up.

    An edge's attributes are the mean, weighted by λ and 1 - λ, of those it has in the two graphs:
    an edge of one graph alone keeps its own. Its weight already says how much of it is there; with
    zeros for the absent edge, it would fade twice. Node fields other than ``x`` are left out: they
    may be numbers of things, which cannot be interpolated.

    Deviation: if-mixup-degrees. The publication interpolates node features. Graphs without any are
    mixed here by their edges only, and the model reads the (weighted, rounded) degrees of the mixed
    graph: by the rule it reads those of any graph, instead of interpolating degrees as features.

    Args:
        alpha: λ, the weight of the destination, is drawn from Beta(alpha, beta). Of the five
            distributions that the publication tried Beta(20, 1) did best; all did well.
        beta: Second parameter of the distribution.
        pairing: How the source of every graph is chosen.

    Example:
        >>> import graph_transplant as gt
        >>> store = gt.load("motifs").subset(range(8))
        >>> model, batch = gt.GraphClassifier.for_data(store, hidden=8), store.batch(range(8))
        >>> clean = gt.CleanPass(batch, torch.eye(8), model(batch))
        >>> virtual = IfMixup()(clean, model=model, generator=torch.Generator())
        >>> virtual.batch.num_graphs, bool((virtual.batch.edge_weight <= 1).all())
        (8, True)
    """

    def __init__(
        self, alpha: float = 20.0, beta: float = 1.0, *, pairing: str | Pairing = "random"
    ) -> None:
        super().__init__()
        for name, value in (("alpha", alpha), ("beta", beta)):
            if not (value > 0 and math.isfinite(value)):
                raise GraphTransplantError(f"`{name}` must be positive and finite, got {value}")
        self.alpha = alpha
        self.beta = beta
        self.pairing = as_pairing(pairing)

    def forward(
        self, clean: CleanPass, *, model: Predictor, generator: torch.Generator | None
    ) -> InterpolatedGraphs:
        """Interpolate the graphs of a batch; see :meth:`Augmentation.forward`."""
        self._check_model(model, "")
        targets = clean.targets
        source_of = self.pairing.sources(targets, clean.task, generator)
        drawn = draw_beta(targets.shape[0], self.alpha, self.beta, generator, targets.device)
        return interpolate(clean.batch, targets, source_of, 1 - drawn)

    def check(self, model: Predictor, data: GraphStore) -> None:
        """Refuse models without edge weights; see :meth:`Augmentation.check`."""
        self._check_model(model, f" (data set {data.name})")
        self.pairing.check(data.task)

    def _check_model(self, model: Predictor, where: str) -> None:
        if not model.takes_edge_weight:
            raise GraphTransplantError(
                f"if-mixup{where} needs a model that takes edge weights, since mixed edges are "
                "there only in part: give its `forward` a parameter `edge_weight`, or use another "
                "method"
            )
