"""Graph Transplant (Park, Shim and Yang, AAAI 2022): plan every choice, then apply the plan."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graph_transplant.augment.assemble import assemble, edge_fields, edge_order, nodes_like
from graph_transplant.augment.base import Augmentation, CleanPass, VirtualGraphs
from graph_transplant.augment.connect import (
    Connection,
    DegreePreservation,
    Disconnected,
    EdgePredictor,
    Pairs,
    Side,
)
from graph_transplant.augment.importance import (
    Importance,
    SaliencyImportance,
    SizeImportance,
    label_weights,
)
from graph_transplant.augment.pairing import Pairing, as_pairing, mix_rows
from graph_transplant.augment.sampling import uniform
from graph_transplant.augment.subgraphs import (
    Anchors,
    Cutter,
    PartialKHop,
    RandomAnchors,
    SalientAnchors,
    ScatteredNodes,
    View,
)
from graph_transplant.errors import DataError, GraphTransplantError, check_choice
from graph_transplant.graphs import GraphStore, layout_of, task_of
from graph_transplant.nn import evaluating
from graph_transplant.saliency import (
    NodeSaliency,
    Predictor,
    as_predictor,
    module_of,
    varies_within_graphs,
)
from graph_transplant.segments import count_per_segment, offsets
from graph_transplant.targets import as_targets, batch_targets

CONNECTIONS = ("degree", "predict", "none")
EDGE_ATTRIBUTES = ("drawn", "mean", "zero")

KEPT_SOURCE, KEPT_DESTINATION, NEW = 0, 1, 2


@dataclass(frozen=True)
class TransplantPlan:
    r"""Every structural choice of one mixing; applying it involves no chance.

    Attributes:
        source_of: π: the source graph of every mixed graph, int64 ``[graphs]``. Graph ``i`` itself
            is the destination of mixed graph ``i``.
        source: The source graphs and the nodes transplanted from them (V̄_π).
        destination: The destination graphs and the nodes that remain (V \ V̄).
        pairs: New edges between the two, as nodes of the two views.
        keys: Random numbers for the attributes and directions of new edges, float64 ``[pairs, 3]``.

    Example:
        >>> import graph_transplant as gt
        >>> batch = gt.load("motifs").batch(range(4))
        >>> plan = GraphTransplant().plan(batch, torch.ones(batch.num_nodes), generator=None)
        >>> sorted(plan.source_of.tolist()), plan.removed.shape == (batch.num_nodes,)
        ([0, 1, 2, 3], True)
    """

    source_of: Tensor
    source: Side
    destination: Side
    pairs: Pairs
    keys: Tensor

    @property
    def transplanted(self) -> Tensor:
        """V̄_π as node numbers of the batch, int64; grouped by mixed graph."""
        return self.source.view.node[self.source.keep]

    @property
    def removed(self) -> Tensor:
        """V̄, bool ``[nodes]`` of the batch."""
        return ~self.destination.keep


@dataclass(frozen=True, kw_only=True)
class MixedGraphs(VirtualGraphs):
    r"""Mixed graphs, and where every node and edge of them comes from.

    In each mixed graph the transplanted nodes come first, then the remaining ones.

    Attributes:
        label_weight: λ, the weight of the source's label, float ``[graphs]``.
        source_share: I(S_π, V̄_π), float ``[graphs]``.
        destination_share: I(S, V \ V̄), float ``[graphs]``.
        source_of: The source graph of every mixed graph, int64 ``[graphs]``.
        node_origin: Number in the original batch of every node, int64 ``[nodes]``.
        node_from_source: Whether a node was transplanted, bool ``[nodes]``.
        edge_origin: Number in the original batch of every edge, int64 ``[edges]``; -1 for new ones.
        edge_kind: 0 for edges kept from the source, 1 from the destination, 2 for new ones, int64
            ``[edges]``.
        plan: The choices that led here.

    Example:
        >>> import graph_transplant as gt
        >>> batch = gt.load("motifs").batch(range(4))
        >>> mixed = GraphTransplant().mix(batch, torch.ones(batch.num_nodes))
        >>> source, destination = mixed.node_from_source, ~mixed.node_from_source
        >>> bool((batch.batch[mixed.node_origin[destination]] ==
        ...       mixed.batch.batch[destination]).all())
        True
    """

    label_weight: Tensor
    source_share: Tensor
    destination_share: Tensor
    source_of: Tensor
    node_origin: Tensor
    node_from_source: Tensor
    edge_origin: Tensor
    edge_kind: Tensor
    plan: TransplantPlan


class GraphTransplant(Augmentation):
    """Mix graphs by transplanting salient subgraphs.

    Every graph of a batch is the destination of one mixed graph and, by a random permutation unless
    ``pairing`` says otherwise, the source of another. Around salient anchors a subgraph is cut out
    of the source and put in the place of a subgraph removed from the destination; labels are mixed
    by the saliency each part carried.

    The four parts are objects and can be replaced; the paper's ablations are other choices of them:
    ``connect="none"``, ``importance="size"``, ``cut="scattered"`` and ``anchors="random"``.

    Args:
        connect: How the parts are joined: ``"degree"`` (DP), ``"predict"`` (EP), ``"none"``, or a
            :class:`~graph_transplant.augment.connect.Connection`.
        anchor_ratio: R as a share, in (0, 0.5].
        hops: The values K is drawn from.
        alpha: p is drawn from Beta(alpha, alpha).
        anchors: Source anchors: ``"salient"``, ``"random"``, or an
            :class:`~graph_transplant.augment.subgraphs.Anchors`.
        cut: The mixing unit: ``"subgraph"``, ``"scattered"``, or a
            :class:`~graph_transplant.augment.subgraphs.Cutter`, which then holds ``anchor_ratio``,
            ``hops`` and ``alpha`` itself.
        importance: Label weights by ``"saliency"`` or ``"size"``, or an
            :class:`~graph_transplant.augment.importance.Importance`.
        saliency: How node saliency is read during training.
        pairing: Which graph each one receives a part of; a policy of
            :class:`~graph_transplant.augment.pairing.Pairing`.
        embedding_size: Width of the node embeddings, for ``connect="predict"``.
        new_edge_attr: Attributes of new edges: ``"drawn"`` from the edges that one of their ends
            lost, the ``"mean"`` of what both ends lost, or ``"zero"``.

    Example:
        >>> from torch_geometric.data import Batch
        >>> ring = torch.tensor([[0, 1, 2, 3, 1, 2, 3, 0], [1, 2, 3, 0, 0, 1, 2, 3]])
        >>> graphs = [Data(x=torch.eye(4), edge_index=ring, y=torch.tensor([k])) for k in (0, 1)]
        >>> transplant = GraphTransplant(connect="degree", hops=(1,))
        >>> virtual = transplant.mix(
        ...     Batch.from_data_list(graphs), torch.ones(8), generator=torch.Generator()
        ... )
        >>> virtual.targets.sum(1)
        tensor([1., 1.])
    """

    def __init__(
        self,
        connect: str | Connection = "degree",
        *,
        anchor_ratio: float = 0.1,
        hops: int | Sequence[int] = (1, 2, 3),
        alpha: float = 2.0,
        anchors: str | Anchors = "salient",
        cut: str | Cutter = "subgraph",
        importance: str | Importance = "saliency",
        saliency: NodeSaliency | None = None,
        pairing: str | Pairing = "random",
        embedding_size: int = 128,
        new_edge_attr: str = "drawn",
    ) -> None:
        super().__init__()
        subgraph = PartialKHop(anchor_ratio, hops, alpha)
        if isinstance(connect, str):
            check_choice("connect", connect, CONNECTIONS)
            if connect == "predict":
                connect = EdgePredictor(embedding_size)
            else:
                connect = DegreePreservation() if connect == "degree" else Disconnected()
        if isinstance(anchors, str):
            check_choice("anchors", anchors, ("salient", "random"))
            anchors = SalientAnchors() if anchors == "salient" else RandomAnchors()
        if isinstance(cut, str):
            check_choice("cut", cut, ("subgraph", "scattered"))
            cut = subgraph if cut == "subgraph" else ScatteredNodes(subgraph)
        if isinstance(importance, str):
            check_choice("importance", importance, ("saliency", "size"))
            importance = SaliencyImportance() if importance == "saliency" else SizeImportance()
        self.connect = connect
        self.anchors = anchors
        self.cut = cut
        self.importance = importance
        self.saliency = saliency or NodeSaliency()
        self.pairing = as_pairing(pairing)
        self.new_edge_attr = check_choice("new_edge_attr", new_edge_attr, EDGE_ATTRIBUTES)
        self._looked_at_saliency = False
        self._said_hard_edges = False

    # ---------------------------------------------------------------- plan

    def plan(
        self,
        batch: Data,
        saliency: Tensor,
        *,
        generator: torch.Generator | None,
        nodes: Tensor | None = None,
        source_of: Tensor | None = None,
    ) -> TransplantPlan:
        """Make every random choice of one mixing.

        Args:
            batch: The original graphs.
            saliency: float ``[nodes]``, not negative.
            generator: Source of all randomness; ``None`` is torch's own.
            nodes: Node embeddings, float ``[nodes, width]``, for ``connect="predict"``.
            source_of: π, int64 ``[graphs]``; a random permutation by default.
        """
        layout = layout_of(batch)
        if saliency.shape != (layout.num_nodes,):
            raise DataError(
                f"`saliency` must have shape [{layout.num_nodes}], one number per node; got "
                f"{list(saliency.shape)}"
            )
        if nodes is not None and nodes.shape[0] != layout.num_nodes:
            raise DataError(
                f"`nodes` must have {layout.num_nodes} rows, one per node; got {nodes.shape[0]}"
            )
        destination = View.of(batch)
        if source_of is None:
            keys = uniform((layout.num_graphs,), generator, destination.row.device)
            source_of = torch.argsort(keys)
        source = destination.take(source_of)
        transplanted, removed = self.cut.cut(
            source, destination, saliency.index_select(0, source.node), self.anchors, generator
        )
        giving, taking = Side.of(source, transplanted), Side.of(destination, ~removed)
        pairs = self.connect(giving, taking, nodes, generator)
        keys = uniform((pairs.source.numel(), 3), generator, destination.row.device)
        return TransplantPlan(source_of, giving, taking, pairs, keys)

    # ---------------------------------------------------------------- apply

    def apply_plan(
        self,
        plan: TransplantPlan,
        batch: Data,
        targets: Tensor,
        saliency: Tensor,
        *,
        soft_edges: bool = False,
        auxiliary_loss: Tensor | None = None,
    ) -> MixedGraphs:
        """Carry out a plan; the same plan gives the same graphs.

        Args:
            plan: The choices.
            batch: The original graphs the plan was made for.
            targets: float ``[graphs, outputs]``.
            saliency: float ``[nodes]``.
            soft_edges: Keep the pairs that ψ did not join as edges of weight zero, so that its
                gradient reaches them too. The batch then has an ``edge_weight``.
            auxiliary_loss: Handed through to the result.
        """
        source, destination = plan.source, plan.destination
        source_layout, layout = source.view.layout, destination.view.layout
        pairs = plan.pairs if soft_edges else plan.pairs.drawn()
        keys = plan.keys
        if plan.pairs.weight is not None and not soft_edges:
            keys = keys[plan.pairs.weight.detach() > 0.5]

        taken = count_per_segment(source.keep, source_layout.ptr)
        left = count_per_segment(destination.keep, layout.ptr)
        ptr = offsets(taken + left)
        source_place = _new_numbers(source, taken, ptr[:-1])
        destination_place = _new_numbers(destination, left, ptr[:-1] + taken)
        kept_source = source.keep.nonzero().flatten()
        kept_destination = destination.keep.nonzero().flatten()
        origin = source.view.node.new_empty(kept_source.numel() + kept_destination.numel())
        first = source_place.index_select(0, kept_source)
        second = destination_place.index_select(0, kept_destination)
        origin.scatter_(0, first, source.view.node.index_select(0, kept_source))
        origin.scatter_(0, second, kept_destination)
        from_source = torch.zeros_like(origin, dtype=torch.bool).scatter_(0, first, True)

        edges = _Edges.join(source, destination, source_place, destination_place, pairs, keys)
        edges = edges.take(edge_order(edges.sender, edges.receiver, origin.numel()))

        share = self.importance.share
        source_share = share(source.keep, saliency.index_select(0, source.view.node), source_layout)
        destination_share = share(destination.keep, saliency, layout)
        weight = label_weights(source_share, destination_share)
        mixed = mix_rows(targets, plan.source_of, weight)

        virtual = assemble(
            node_counts=taken + left,
            nodes=nodes_like(batch, origin),
            sender=edges.sender,
            receiver=edges.receiver,
            edges=self._edge_fields(batch, plan, edges, pairs, keys, soft_edges),
            targets=mixed,
            symmetric=destination.view.symmetric,
        )
        return MixedGraphs(
            batch=virtual,
            targets=mixed,
            auxiliary_loss=auxiliary_loss,
            label_weight=weight,
            source_share=source_share,
            destination_share=destination_share,
            source_of=plan.source_of,
            node_origin=origin,
            node_from_source=from_source,
            edge_origin=edges.origin,
            edge_kind=edges.kind,
            plan=plan,
        )

    def _edge_fields(
        self,
        batch: Data,
        plan: TransplantPlan,
        edges: _Edges,
        pairs: Pairs,
        keys: Tensor,
        soft_edges: bool,
    ) -> dict[str, Tensor | None]:
        """Weights and attributes of the mixed graphs' edges."""
        kept = edges.origin.clamp(min=0)
        is_new = edges.kind.eq(NEW)
        weight: Tensor | None = batch.edge_weight if "edge_weight" in batch else None
        new_weight = pairs.weight if soft_edges else None
        mixed_weight: Tensor | None = None
        if weight is not None or new_weight is not None:
            if weight is None:
                mixed_weight = torch.ones(kept.numel(), device=kept.device)
            else:
                mixed_weight = torch.where(is_new, 1.0, weight.index_select(0, kept))
            if new_weight is not None:
                drawn = new_weight.to(mixed_weight.dtype).index_select(0, edges.pair[is_new])
                mixed_weight = mixed_weight.masked_scatter(is_new, drawn)
        fields: dict[str, Tensor | None] = {"edge_weight": mixed_weight}
        place = is_new.nonzero().flatten()
        for name, value in edge_fields(batch).items():
            if name == "edge_weight":
                continue
            mixed = (
                value.index_select(0, kept)
                if value.shape[0]
                else value.new_empty((kept.numel(), *value.shape[1:]))
            )
            # Other fields, such as types, may be numbers of things, which have no mean.
            policy = self.new_edge_attr if name == "edge_attr" else "drawn"
            fresh = _new_attributes(value, plan, pairs, keys, policy)
            fresh = fresh.index_select(0, edges.pair[is_new])
            fields[name] = mixed.index_copy(0, place, fresh)
        return fields

    # ---------------------------------------------------------------- the two doors

    def mix(
        self,
        batch: Data,
        saliency: Tensor,
        *,
        generator: torch.Generator | None = None,
        targets: Tensor | None = None,
        num_outputs: int | None = None,
        nodes: Tensor | None = None,
    ) -> MixedGraphs:
        """Mix the graphs of a batch, for people who want only the data.

        Args:
            batch: A PyG batch with ``y``.
            saliency: float ``[nodes]``, not negative; ones treat all nodes alike.
            generator: Source of all randomness; ``None`` is torch's own.
            targets: float ``[graphs, outputs]`` or class numbers, integer ``[graphs]``; ``batch.y``
                by default.
            num_outputs: Number of classes; otherwise what the batch's store or labels say.
            nodes: Node embeddings, float ``[nodes, width]``, for ``connect="predict"``.

        Returns:
            The mixed graphs: ``.batch``, ``.targets``, ``.label_weight`` and where every node and
            edge comes from.
        """
        self._check_batch(batch, saliency)
        if targets is None:
            targets = batch_targets(batch, num_outputs)
        elif not targets.is_floating_point():
            targets = as_targets(targets, num_outputs or int(targets.max()) + 1)
        graphs = layout_of(batch).num_graphs
        if targets.shape[0] != graphs:
            raise DataError(
                f"`targets` must have {graphs} rows, one per graph; got {targets.shape[0]}"
            )
        saliency = saliency.detach()
        if not saliency.is_floating_point():
            saliency = saliency.to(torch.get_default_dtype())
        # Rows that add up to one are classes, mixed ones too.
        shares = bool((targets >= 0).all()) and bool((targets.sum(1) - 1).abs().lt(1e-4).all())
        task = "multiclass" if shares else task_of(targets)
        with torch.no_grad():
            source_of = self.pairing.sources(targets, task, generator)
            plan = self.plan(batch, saliency, generator=generator, nodes=nodes, source_of=source_of)
            return self.apply_plan(plan, batch, targets.detach(), saliency)

    def forward(
        self, clean: CleanPass, *, model: Predictor, generator: torch.Generator | None
    ) -> MixedGraphs:
        """Mix the graphs of a training batch; see :meth:`Augmentation.forward`."""
        saliency = clean.saliency(self.saliency)
        self._look_at(saliency, clean.batch)
        soft_edges = self.connect.needs_embeddings and model.takes_edge_weight
        if self.connect.needs_embeddings and not soft_edges and not self._said_hard_edges:
            self._said_hard_edges = True
            warnings.warn(
                "the model takes no `edge_weight`: predicted edges are drawn hard, and the edge "
                "predictor learns from original edges only",
                stacklevel=2,
            )
        plan = self.plan(
            clean.batch,
            saliency,
            generator=generator,
            nodes=clean.prediction.nodes,
            source_of=self.pairing.sources(clean.targets, clean.task, generator),
        )
        auxiliary = self.connect.supervise(clean, generator)
        return self.apply_plan(
            plan,
            clean.batch,
            clean.targets,
            saliency,
            soft_edges=soft_edges,
            auxiliary_loss=auxiliary,
        )

    def check(self, model: Predictor, data: GraphStore) -> None:
        """Refuse pairing by class where there are none; see :meth:`Augmentation.check`."""
        self.pairing.check(data.task)

    def after_epoch(self, model: Predictor | nn.Module, validation: GraphStore) -> dict[str, float]:
        """Measure ψ on validation graphs; see :meth:`Augmentation.after_epoch`."""
        if not isinstance(self.connect, EdgePredictor):
            return {}
        batch = validation.batch(torch.arange(min(len(validation), 64)))
        batch = batch.to(self.connect.first.weight.device)
        predictor = as_predictor(model)
        with evaluating(module_of(predictor)):
            nodes = predictor(batch).nodes
        generator = torch.Generator().manual_seed(0)  # the same pairs every epoch
        return {"edge_predictor_accuracy": self.connect.accuracy(nodes, batch, generator)}

    def _check_batch(self, batch: Data, saliency: Tensor) -> None:
        if not isinstance(batch, Data):
            raise GraphTransplantError(f"`batch` must be a PyG Batch, got {type(batch).__name__}")
        if not (bool((saliency >= 0).all()) and bool(torch.isfinite(saliency).all())):
            raise DataError("`saliency` must be finite numbers that are not negative")

    def _look_at(self, saliency: Tensor, batch: Data) -> None:
        """Say once when saliency ranks nothing."""
        if self._looked_at_saliency:
            return
        self._looked_at_saliency = True
        finite = bool(torch.isfinite(saliency).all())
        if finite and not varies_within_graphs(saliency, batch):
            warnings.warn(
                "node saliency is the same for all nodes of every graph: anchors are then random "
                "and labels size-based; with mean or sum readout read it before the activation or "
                "at an earlier layer",
                stacklevel=3,
            )


@dataclass(frozen=True)
class _Edges:
    """Edges of the mixed graphs, before and after they are sorted."""

    sender: Tensor
    receiver: Tensor
    origin: Tensor
    kind: Tensor
    pair: Tensor

    @classmethod
    def join(
        cls,
        source: Side,
        destination: Side,
        source_place: Tensor,
        destination_place: Tensor,
        pairs: Pairs,
        keys: Tensor,
    ) -> _Edges:
        """Gather kept and new edges, with the nodes' new numbers."""
        symmetric = destination.view.symmetric
        parts: list[tuple[Tensor, Tensor, Tensor, int]] = []
        for side, place, kind in (
            (source, source_place, KEPT_SOURCE),
            (destination, destination_place, KEPT_DESTINATION),
        ):
            kept = side.kept_edge.nonzero().flatten()
            row = place.index_select(0, side.view.row.index_select(0, kept))
            column = place.index_select(0, side.view.column.index_select(0, kept))
            sender, receiver = (row, column) if side.view.rows_send else (column, row)
            parts.append((sender, receiver, side.view.edge.index_select(0, kept), kind))
        one = source_place.index_select(0, pairs.source)
        two = destination_place.index_select(0, pairs.destination)
        number = torch.arange(one.numel(), device=one.device)
        if symmetric:
            one, two = torch.cat((one, two)), torch.cat((two, one))
            number = number.repeat(2)
        else:  # one directed edge per pair, its direction drawn
            swap = keys[:, 0] < 0.5
            one, two = torch.where(swap, two, one), torch.where(swap, one, two)
        parts.append((one, two, torch.full_like(one, -1), NEW))
        return cls(
            sender=torch.cat([part[0] for part in parts]),
            receiver=torch.cat([part[1] for part in parts]),
            origin=torch.cat([part[2] for part in parts]),
            kind=torch.cat([torch.full_like(part[0], part[3]) for part in parts]),
            pair=torch.cat([torch.full_like(part[0], -1) for part in parts[:2]] + [number]),
        )

    def take(self, order: Tensor) -> _Edges:
        """Put the edges in another order."""
        return _Edges(
            *(
                value.index_select(0, order)
                for value in (self.sender, self.receiver, self.origin, self.kind, self.pair)
            )
        )


def _new_numbers(side: Side, counts: Tensor, starts: Tensor) -> Tensor:
    """Number of every kept node in the mixed batch, int64 ``[nodes]``."""
    running = offsets(side.keep.to(torch.long))[:-1]
    shift = starts - offsets(counts)[:-1]
    return running + shift.index_select(0, side.view.layout.segment)


def _new_attributes(
    attr: Tensor, plan: TransplantPlan, pairs: Pairs, keys: Tensor, policy: str
) -> Tensor:
    """Attributes of the new edges, ``[pairs, …]``."""
    if policy == "zero" or not pairs.source.numel():
        return attr.new_zeros((pairs.source.numel(), *attr.shape[1:]))
    sides = ((plan.source, pairs.source), (plan.destination, pairs.destination))
    found = [_lost_attributes(side, ends, attr, keys, policy) for side, ends in sides]
    if policy == "mean":
        return ((found[0] + found[1]) / 2).to(attr.dtype)
    from_source = (keys[:, 1] < 0.5).view(-1, *([1] * (attr.dim() - 1)))
    return torch.where(from_source, found[0], found[1])


def _lost_attributes(side: Side, ends: Tensor, attr: Tensor, keys: Tensor, policy: str) -> Tensor:
    """For every end of a new edge, one edge it lost (``"drawn"``) or the mean of all."""
    view = side.view
    first = side.keep.index_select(0, view.row)
    second = side.keep.index_select(0, view.column)
    lost = (first & ~second).nonzero().flatten()
    owner, edge = view.row.index_select(0, lost), view.edge.index_select(0, lost)
    if not view.symmetric:
        other = (second & ~first).nonzero().flatten()
        owner = torch.cat((owner, view.column.index_select(0, other)))
        edge = torch.cat((edge, view.edge.index_select(0, other)))
        order = torch.argsort(owner, stable=True)
        owner, edge = owner.index_select(0, order), edge.index_select(0, order)
    values = attr.index_select(0, edge)
    if policy == "mean":
        total = values.new_zeros((side.keep.numel(), *attr.shape[1:]), dtype=torch.double)
        total.index_add_(0, owner, values.to(torch.double))
        count = side.lost.clamp(min=1).view(-1, *([1] * (attr.dim() - 1)))
        return (total / count).index_select(0, ends)
    count = side.lost.index_select(0, ends)
    place = offsets(side.lost)[:-1].index_select(0, ends) + (keys[:, 2] * count).to(torch.long)
    return values.index_select(0, place)
