"""Graph Transplant (Park, Shim and Yang, AAAI 2022): plan every choice, then carry out the plan."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from graph_transplant.augment.base import Augmentation, CleanPass, VirtualGraphs, random_numbers
from graph_transplant.augment.edge_predictor import EdgePredictor
from graph_transplant.augment.pairing import Pairing, mix_rows
from graph_transplant.errors import (
    DataError,
    GraphTransplantError,
    check_at_least,
    check_choice,
    check_in,
)
from graph_transplant.graphs import GraphBatch, GraphStore, as_batch, check_stores, task_of
from graph_transplant.graphs.pyg import Data
from graph_transplant.kernels import structure
from graph_transplant.kernels import transplant as kernel
from graph_transplant.kernels.choice import shuffle_within
from graph_transplant.kernels.compiling import Bools, Floats, Ints
from graph_transplant.nn import evaluating
from graph_transplant.saliency import (
    NodeSaliency,
    Predictor,
    as_predictor,
    module_of,
    varies_within_graphs,
)  # fmt: skip
from graph_transplant.targets import batch_targets

CONNECTIONS = ("degree", "predict", "none")

# Validation graphs on which ψ is measured after every epoch.
_MEASURED = 64


@dataclass(frozen=True)
class TransplantPlan:
    """All structural choices of one mixing; carrying it out is deterministic.

    Nodes are numbered as in the batch. Mixed graph ``g`` has entries ``taken_ptr[g]`` to
    ``taken_ptr[g + 1] - 1`` of ``taken``, and likewise for the other lists.
    """

    source_of: Ints  # π, the source of every mixed graph; its destination is the graph itself
    hops: int  # K
    share: float  # p
    taken: Ints  # V̄_π, the nodes transplanted from the source
    taken_ptr: Ints
    rest: Ints  # V \ V̄, the nodes of the destination that remain
    rest_ptr: Ints
    pair_source: Ints  # source node of every new edge
    pair_destination: Ints  # destination node of every new edge
    pair_ptr: Ints
    into_source: Bools  # whether a pair becomes an edge to its source node,
    into_destination: Bools  # and to its destination node; both if undirected
    like: Ints  # the edge whose attributes and weight a new edge takes; -1 for zeros and one
    weight: Tensor | None = None  # of every pair if drawn by ψ, with its gradient
    # For source and destination: the nodes H of step 0 (anchors) and of each of the K hops, and the
    # offsets of these lists, K + 1 per graph; empty for scattered cuts.
    steps: tuple[tuple[Ints, Ints], ...] = ()

    def only(self, pairs: Bools) -> TransplantPlan:
        """Restrict the plan to some of the pairs."""
        counts = np.concatenate(([0], np.cumsum(pairs)))
        index = np.flatnonzero(pairs)
        weight = self.weight
        if weight is not None:
            weight = weight.index_select(0, torch.from_numpy(index).to(weight.device))
        return replace(
            self,
            pair_source=self.pair_source[index],
            pair_destination=self.pair_destination[index],
            pair_ptr=counts[self.pair_ptr],
            into_source=self.into_source[index],
            into_destination=self.into_destination[index],
            like=self.like[index],
            weight=weight,
        )


@dataclass(frozen=True, kw_only=True)
class MixedGraphs(VirtualGraphs):
    """Mixed graphs, and the origin of every node and edge.

    In each mixed graph the transplanted nodes come first, then the remaining ones.
    """

    label_weight: Tensor  # λ, the weight of the source's label, [graphs]
    source_share: Floats  # I(S_π, V̄_π), [graphs]
    destination_share: Floats  # I(S, V \ V̄), [graphs]
    node_origin: Ints  # index of every node in the original batch
    edge_origin: Ints  # index of every edge in the original batch, -1 for new ones
    plan: TransplantPlan

    @property
    def source_of(self) -> Ints:
        """The source graph of every mixed graph, int64 ``[graphs]``."""
        return self.plan.source_of

    @property
    def node_from_source(self) -> Bools:
        """Whether a node was transplanted, bool ``[nodes]``."""
        rest = np.diff(self.plan.rest_ptr)
        taken = np.diff(self.batch.ptr) - rest
        from_source = np.tile([True, False], len(taken))
        return np.repeat(from_source, np.stack((taken, rest), axis=1).ravel())


class GraphTransplant(Augmentation):
    r"""Mix graphs by transplanting salient subgraphs.

    Every graph of a batch is the destination of one mixed graph and, by a random permutation unless
    ``pairing`` says otherwise, the source of another. A subgraph around salient anchors is cut out
    of the source and replaces a subgraph of the destination; labels are mixed in proportion to the
    saliency of each part.

    The paper's ablations are ``connect="none"``, ``importance="size"``, ``cut="scattered"`` and
    ``anchors="random"``.

    Deviation: per-graph-share. At each hop p % of N(H) are taken **in every graph**, at least one
    while N(H) is not empty; the released code draws over the whole batch.

    Deviation: distinct-pairs. Degree preservation connects distinct pairs, so at most
    :math:`|U_\pi| |U|` of them; the released code draws with replacement and counts repeats.

    Args:
        connect: How to connect the parts. ``"degree"`` (DP): :math:`\lfloor (D + D_\pi)/2 \rfloor`
            random pairs of nodes that lost edges. ``"predict"`` (EP): pairs drawn by a learned
            :class:`EdgePredictor`, which can also be passed itself. ``"none"``: not at all.
        anchor_ratio: R as a share, in (0, 0.5].
        hops: Values from which K is drawn, once per mixing.
        alpha: p is drawn from Beta(alpha, alpha), once per mixing.
        anchors: Source anchors: ``"salient"`` or ``"random"``.
        cut: The mixing unit: a partial K-hop ``"subgraph"``, or as many ``"scattered"`` nodes.
        importance: Label weights by ``"saliency"`` or ``"size"``.
        saliency: How node saliency is computed during training.
        pairing: A policy of :class:`~graph_transplant.augment.pairing.Pairing`.
        embedding_size: Width of the node embeddings, for ``connect="predict"``.
        new_edge_attr: Attributes and weights of new edges: ``"drawn"`` from the edges that one of
            their ends lost, or ``"zero"`` with weight one.
        shuffle_saliency: Permute the saliency within each graph during training. A control:
            everything else is unchanged, but saliency carries no information about the nodes.
        insert: Whether the part of the source fills the hole. A control: without it, with
            ``connect="none"``, both graphs are cut and labels mixed as before, but the mixed graph
            is the rest of the destination alone (a random node of it if nothing would be left).

    Example:
        >>> import graph_transplant as gt
        >>> batch = gt.load("motifs").batch(range(8))
        >>> mixed = GraphTransplant(connect="degree", hops=(1,)).mix(batch)
        >>> bool(torch.allclose(mixed.targets.sum(1), torch.ones(8)))
        True
    """

    def __init__(
        self,
        connect: str | EdgePredictor = "degree",
        *,
        anchor_ratio: float = 0.1,
        hops: int | Sequence[int] = (1, 2, 3),
        alpha: float = 2.0,
        anchors: str = "salient",
        cut: str = "subgraph",
        importance: str = "saliency",
        saliency: NodeSaliency | None = None,
        pairing: str | Pairing = "random",
        embedding_size: int = 128,
        new_edge_attr: str = "drawn",
        shuffle_saliency: bool = False,
        insert: bool = True,
    ) -> None:
        super().__init__()
        hops = tuple(hops) if isinstance(hops, Iterable) else (hops,)
        check_in("(0, 0.5]", anchor_ratio=anchor_ratio)
        check_in("(0, inf)", alpha=alpha)
        if not hops:
            raise GraphTransplantError("`hops` must be one or more numbers, got none")
        for hop in hops:
            check_at_least(0, hops=hop)
        hops = tuple(int(hop) for hop in hops)
        self.edge_predictor: EdgePredictor | None = None
        if isinstance(connect, EdgePredictor):
            self.edge_predictor = connect
        elif check_choice("connect", connect, CONNECTIONS) == "predict":
            self.edge_predictor = EdgePredictor(embedding_size)
        self.connect = "predict" if isinstance(connect, EdgePredictor) else connect
        self.anchor_ratio = anchor_ratio
        self.hops = hops
        self.alpha = alpha
        self.anchors = check_choice("anchors", anchors, ("salient", "random"))
        self.cut = check_choice("cut", cut, ("subgraph", "scattered"))
        self.importance = check_choice("importance", importance, ("saliency", "size"))
        self.saliency = saliency or NodeSaliency()
        if not isinstance(self.saliency, NodeSaliency):
            raise GraphTransplantError(
                "`saliency` must be a NodeSaliency, such as "
                f"NodeSaliency(kind='gradient-x-activation'); got {saliency!r}"
            )
        self.pairing = Pairing.of(pairing)
        self.new_edge_attr = check_choice("new_edge_attr", new_edge_attr, ("drawn", "zero"))
        self.shuffle_saliency = shuffle_saliency
        if not insert and self.connect != "none":
            raise GraphTransplantError(
                "`insert=False` leaves nothing to connect: pass connect='none' with it, got "
                f"connect={self.connect!r}"
            )
        self.insert = insert
        self._looked_at_saliency = False
        self._said_hard_edges = False

    @property
    def reads_saliency(self) -> bool:
        """Whether anchors or labels depend on saliency; otherwise it is not computed."""
        return self.anchors == "salient" or self.importance == "saliency"

    def extra_repr(self) -> str:
        """Show the main settings."""
        return f"{self.connect!r}, anchor_ratio={self.anchor_ratio}, hops={self.hops}"

    def forward(
        self, clean: CleanPass, *, model: Predictor, generator: torch.Generator | None
    ) -> MixedGraphs:
        """Mix the graphs of a training batch (Algorithm 3, lines 3-12)."""
        batch, rng = clean.batch, random_numbers(generator)
        on_host = np.zeros(batch.num_nodes, np.float32)
        if self.reads_saliency:
            saliency = clean.saliency(self.saliency)
            self._look_at(saliency, batch)
            on_host = saliency.cpu().to(torch.float32).numpy()
        source_of = self.pairing.sources(clean.targets, clean.task, rng)
        if self.shuffle_saliency:
            on_host = shuffle_within(on_host, batch.ptr, rng)
        nodes, auxiliary = None, None
        if self.edge_predictor is not None:
            nodes = clean.prediction.nodes
            auxiliary = self.edge_predictor.supervise(nodes, batch, rng)
        plan = self.plan(batch, on_host, source_of, rng, nodes=nodes)
        mixed = self.carry_out(plan, batch, clean.targets, on_host, self._soft(model))
        return replace(mixed, auxiliary_loss=auxiliary)

    def plan(
        self,
        batch: GraphBatch,
        saliency: Floats,
        source_of: Ints,
        rng: np.random.Generator,
        nodes: Tensor | None = None,
    ) -> TransplantPlan:
        """Make all random choices of one mixing.

        ``saliency`` is float32 ``[nodes]``, ``source_of`` is π; ``connect="predict"`` needs the
        embeddings ``nodes``, float ``[nodes, width]``.
        """
        near_ptr, near, near_edge = batch.near
        hops, share = int(rng.choice(self.hops)), float(rng.beta(self.alpha, self.alpha))
        sides = (
            (source_of, self.anchors == "salient", False),
            (np.arange(batch.num_graphs), False, True),
        )
        kept, steps = [], []
        for graphs, salient, remove in sides:
            nodes_kept, ptr, chosen, step_ptr = kernel.cut(
                graphs, batch.ptr, near_ptr, near, saliency, salient, remove,
                self.anchor_ratio, hops, share, rng,
            )  # fmt: skip
            if self.cut == "scattered":
                # As many nodes as the subgraphs of the batch have on average.
                cut = batch.num_nodes - len(nodes_kept) if remove else len(nodes_kept)
                count = max(1, round(cut / batch.num_graphs))
                nodes_kept, ptr = kernel.scattered(
                    graphs, batch.ptr, saliency, salient, remove, count, rng
                )
            else:
                steps.append((chosen, step_ptr))
            kept.append((nodes_kept, ptr))
        (taken, taken_ptr), (rest, rest_ptr) = kept
        if not self.insert:
            rest, rest_ptr = _keep_one(rest, rest_ptr, batch.ptr, rng)

        u, u_ptr, u_lost = kernel.open_nodes(taken, taken_ptr, near_ptr, near)
        v, v_ptr, v_lost = kernel.open_nodes(rest, rest_ptr, near_ptr, near)
        weight, carrying = None, None
        if self.connect == "degree":
            first, second, pair_ptr = kernel.degree_preserving_pairs(
                u, u_ptr, u_lost, v, v_ptr, v_lost, rng
            )
        elif self.edge_predictor is not None:
            first, second, pair_ptr = kernel.all_pairs(u, u_ptr, v, v_ptr)
            weight, carrying = self.edge_predictor.draw(nodes, first, second, rng)
        else:
            first = second = np.empty(0, np.int64)
            pair_ptr = np.zeros_like(taken_ptr)

        into_source = np.ones(len(first), np.bool_)
        into_destination = into_source
        if not batch.symmetric:  # one directed edge per pair, in a random direction
            into_source = rng.random(len(first)) < 0.5
            into_destination = ~into_source
        if batch.edges and self.new_edge_attr == "drawn":
            like = kernel.lost_edges(
                taken, taken_ptr, rest, rest_ptr, first, second, pair_ptr,
                near_ptr, near, near_edge, rng,
            )  # fmt: skip
        else:
            like = np.full(len(first), -1)
        plan = TransplantPlan(
            source_of, hops, share, taken, taken_ptr, rest, rest_ptr, first, second, pair_ptr,
            into_source, into_destination, like, weight, tuple(steps),
        )  # fmt: skip
        if weight is not None and carrying is not None and len(carrying) < len(first):
            # Drop pairs that are neither edges nor carry ψ's gradient.
            needed = (weight.detach() > 0.5).cpu().numpy()
            needed[carrying] = True
            plan = plan.only(needed)
        return plan

    def carry_out(
        self,
        plan: TransplantPlan,
        batch: GraphBatch,
        targets: Tensor,
        saliency: Floats,
        soft_edges: bool = False,
    ) -> MixedGraphs:
        """Carry out a plan; deterministic.

        With ``soft_edges``, pairs that ψ did not connect are kept as edges of weight zero, so that
        its gradient reaches them too.
        """
        if plan.weight is not None and not soft_edges:
            plan = plan.only((plan.weight.detach() > 0.5).cpu().numpy())
        put, put_ptr = plan.taken, plan.taken_ptr
        if not self.insert:
            put, put_ptr = put[:0], np.zeros_like(put_ptr)
        ptr, row_ptr, column, node_origin, edge_origin, pair = kernel.assemble(
            batch.row_ptr, batch.column, put, put_ptr, plan.rest, plan.rest_ptr,
            plan.pair_source, plan.pair_destination, plan.pair_ptr,
            plan.into_source, plan.into_destination,
        )  # fmt: skip
        by_size = np.zeros_like(saliency) if self.importance == "size" else saliency
        source_share = kernel.importance(
            plan.source_of, batch.ptr, plan.taken, plan.taken_ptr, by_size
        )
        destination_share = kernel.importance(
            np.arange(batch.num_graphs), batch.ptr, plan.rest, plan.rest_ptr, by_size
        )
        label_weight = batch.on_device(label_weights(source_share, destination_share))
        mixed = mix_rows(targets, batch.on_device(plan.source_of), label_weight)

        like = edge_origin
        if batch.edges:
            like = np.where(pair >= 0, plan.like[pair] if len(plan.like) else -1, edge_origin)
            if batch.symmetric:
                # A lost edge leads to the end that lost it; the other direction uses its reverse.
                to = node_origin[structure.rows_of(row_ptr)]
                lost = (pair >= 0) & (like >= 0)
                back = lost & (structure.rows_of(batch.row_ptr)[like] != to)
                like[back] = batch.reverse[like[back]]
        edges = batch.edges_like(like)
        if soft_edges and "edge_weight" not in edges:
            x = batch.nodes.get("x")
            dtype = x.dtype if x is not None and x.is_floating_point() else None
            edges["edge_weight"] = torch.ones(len(pair), dtype=dtype, device=batch.device)
        if plan.weight is not None and "edge_weight" in edges:
            # The weights of new edges are multiplied by ψ's 0 or 1, which carries its gradient.
            weight, new = edges["edge_weight"], np.flatnonzero(pair >= 0)
            drawn = plan.weight.index_select(0, batch.on_device(pair[new])).to(weight.dtype)
            index = batch.on_device(new)
            edges["edge_weight"] = weight.index_copy(0, index, weight[index] * drawn)
        return MixedGraphs(
            batch=batch.derive(
                ptr, row_ptr, column, nodes=batch.nodes_like(node_origin), edges=edges, y=mixed
            ),
            targets=mixed,
            label_weight=label_weight.to(targets.dtype),
            source_share=source_share,
            destination_share=destination_share,
            node_origin=node_origin,
            edge_origin=edge_origin,
            plan=plan,
        )

    def _soft(self, model: Predictor) -> bool:
        """Whether to pass predicted edges as weights; warn once if the model takes none."""
        if self.edge_predictor is None or model.takes_edge_weight:
            return self.edge_predictor is not None
        if not self._said_hard_edges:
            self._said_hard_edges = True
            warnings.warn(
                "the model takes no `edge_weight`: predicted edges are added without weights, and "
                "the edge predictor is trained on original edges only",
                stacklevel=3,
            )
        return False

    def mix(
        self,
        batch: GraphBatch | Data,
        saliency: Tensor | None = None,
        *,
        generator: torch.Generator | None = None,
        targets: Tensor | None = None,
        num_outputs: int | None = None,
        nodes: Tensor | None = None,
    ) -> MixedGraphs:
        """Mix the graphs of a batch, without training.

        Args:
            batch: Graphs with ``y``, as a PyG batch or from a store.
            saliency: float ``[nodes]``, not negative; equal for all nodes by default.
            generator: Source of all randomness; ``None`` uses torch's global generator.
            targets: float ``[graphs, outputs]`` or class numbers, integer ``[graphs]``; ``y`` of
                the batch by default.
            num_outputs: Number of classes; by default taken from the batch's store or labels.
            nodes: Node embeddings, float ``[nodes, width]``, for ``connect="predict"``.
        """
        graphs = as_batch(batch)
        graphs.check_nodes()
        for name, value, rows, item in (
            ("targets", targets, graphs.num_graphs, "graph"),
            ("nodes", nodes, graphs.num_nodes, "node"),
        ):
            if value is not None and len(value) != rows:
                raise DataError(f"`{name}` must have {rows} rows, one per {item}; got {len(value)}")
        if targets is not None:
            graphs = replace(graphs, y=targets, num_outputs=None)
        targets = batch_targets(graphs, num_outputs)
        on_host = _checked(saliency, graphs.num_nodes)
        rng = random_numbers(generator)
        # Rows that sum to one are class probabilities, possibly mixed.
        shares = bool((targets >= 0).all()) and bool((targets.sum(1) - 1).abs().lt(1e-4).all())
        with torch.no_grad():
            task = "multiclass" if shares else task_of(targets)
            source_of = self.pairing.sources(targets, task, rng)
            plan = self.plan(graphs, on_host, source_of, rng, nodes=nodes)
            mixed = self.carry_out(plan, graphs, targets.detach(), on_host)
        if graphs.edge_id is None:
            return mixed
        known = mixed.edge_origin >= 0
        origin = np.where(known, graphs.edge_id[mixed.edge_origin] if known.any() else -1, -1)
        return replace(mixed, edge_origin=origin)

    def check(self, model: Predictor, data: GraphStore) -> None:
        """Raise for pairing by class without classes."""
        self.pairing.check(data.task)

    def after_epoch(self, model: Predictor | nn.Module, validation: GraphStore) -> dict[str, float]:
        """Measure the accuracy of ψ on evenly spaced validation graphs."""
        check_stores(validation=validation)
        if self.edge_predictor is None:
            return {}
        # Data sets are often sorted by class, so the first graphs may all be of one class.
        spread = torch.linspace(0, len(validation) - 1, min(len(validation), _MEASURED)).long()
        batch = validation.batch(spread).to(self.edge_predictor.first.weight.device)
        predictor = as_predictor(model)
        with evaluating(module_of(predictor)):
            nodes = predictor.run(batch).nodes
        rng = np.random.default_rng(0)  # the same pairs every epoch
        return {"edge_predictor_accuracy": self.edge_predictor.accuracy(nodes, batch, rng)}

    def _look_at(self, saliency: Tensor, batch: GraphBatch) -> None:
        """Warn once if saliency does not distinguish nodes."""
        if self._looked_at_saliency:
            return
        self._looked_at_saliency = True
        finite = bool(torch.isfinite(saliency).all())
        if finite and not varies_within_graphs(saliency, batch):
            warnings.warn(
                "node saliency is the same for all nodes of every graph: anchors are random and "
                "labels are mixed by size; with mean or sum readout, compute saliency before the "
                "activation or at an earlier layer, with `saliency=gt.NodeSaliency(layer=-2)` or "
                "`saliency_module`",
                stacklevel=3,
            )


def label_weights(source_share: Floats, destination_share: Floats) -> Floats:
    r"""Return :math:`\lambda = I_\pi / (I_\pi + I)`; one half where both shares are zero."""
    total = source_share + destination_share
    return np.where(total > 0, source_share / np.where(total > 0, total, 1.0), 0.5)


def _keep_one(rest: Ints, rest_ptr: Ints, ptr: Ints, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Keep a random node of every graph of which nothing is left."""
    none_left = np.diff(rest_ptr) == 0
    drawn = rng.integers(ptr[:-1][none_left], ptr[1:][none_left])
    kept = np.insert(rest, rest_ptr[:-1][none_left], drawn)
    return kept, rest_ptr + np.concatenate(([0], np.cumsum(none_left)))


def _checked(saliency: Tensor | None, nodes: int) -> Floats:
    if saliency is None:
        return np.ones(nodes, np.float32)
    saliency = torch.as_tensor(saliency)
    if saliency.shape != (nodes,):
        raise DataError(
            f"`saliency` must have shape [{nodes}], one number per node; got {list(saliency.shape)}"
        )
    on_host = saliency.detach().cpu().to(torch.float32).numpy()
    if not (np.isfinite(on_host).all() and (on_host >= 0).all()):
        raise DataError("`saliency` must be finite and non-negative")
    return on_host
