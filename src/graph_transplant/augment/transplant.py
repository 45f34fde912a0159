"""Graph Transplant (Park, Shim and Yang, AAAI 2022): plan every choice, then carry out the plan."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from graph_transplant.augment.base import Augmentation, CleanPass, EditedGraphs, Mixed
from graph_transplant.augment.edge_predictor import EdgePredictor
from graph_transplant.augment.pairing import Pairing, mix_rows
from graph_transplant.data import GraphBatch, GraphStore, as_batch, check_stores, task_of
from graph_transplant.data.pyg import Data
from graph_transplant.data.targets import Loss, batch_targets
from graph_transplant.errors import (
    DataError,
    GraphTransplantError,
    check_at_least,
    check_choice,
    check_in,
)
from graph_transplant.kernels import csr
from graph_transplant.kernels import transplant as kernel
from graph_transplant.kernels.arrays import Bools, Doubles, Floats, Ints, Pairs, Segments
from graph_transplant.kernels.sampling import shuffle_within
from graph_transplant.nn import Prediction, evaluating
from graph_transplant.nn.adapter import (  # fmt: skip
    Predictor,
    as_predictor,
    module_of,
    node_width,
    varies_within_graphs,
)
from graph_transplant.nn.saliency import SALIENCIES, NodeSaliency

CONNECTIONS = ("dp", "ep", "none")
RENAMED_CONNECTIONS = {"degree": "dp", "predict": "ep"}

# Validation graphs on which ψ is measured after every epoch.
_MEASURED = 64


@dataclass(frozen=True)
class TransplantPlan:
    """All choices of one mixing; carrying them out is deterministic.

    Nodes are numbered as in the batch; segment ``g`` belongs to mixed graph ``g``, whose
    destination is graph ``g``.
    """

    source_of: Ints  # π, the source of every mixed graph
    hops: int  # K
    share: float  # p
    saliency: Floats  # of every node, as it was used
    part: Segments  # V̄_π, the nodes transplanted from the source
    rest: Segments  # V \ V̄, the nodes of the destination that remain
    pairs: Pairs  # of U_π × U, to be connected
    template: Ints  # the edge whose attributes and weight a new edge takes; -1 for zeros and one
    weight: Tensor | None = None  # of every pair if drawn by ψ, with its gradient
    soft_edges: bool = False  # keep pairs of weight zero as edges, for ψ's gradient
    auxiliary_loss: Tensor | None = None  # of ψ on the original graphs
    cuts: tuple[kernel.Cut, ...] = ()  # of source and destination, hop by hop; not if scattered

    def only(self, chosen: Bools) -> TransplantPlan:
        """Restrict the plan to some of the pairs."""
        counts = np.concatenate(([0], np.cumsum(chosen)))
        index = np.flatnonzero(chosen)
        weight = self.weight
        if weight is not None:
            weight = weight.index_select(0, torch.from_numpy(index).to(weight.device))
        pairs = Pairs(
            counts[self.pairs.ptr],
            self.pairs.source[index],
            self.pairs.destination[index],
            self.pairs.into_source[index],
            self.pairs.into_destination[index],
        )
        return replace(self, pairs=pairs, template=self.template[index], weight=weight)


@dataclass(frozen=True, kw_only=True)
class MixedGraphs(Mixed, EditedGraphs):
    """Mixed graphs, and the origin of every node and edge.

    In each mixed graph the transplanted nodes come first, then the remaining ones.
    """

    source_share: Doubles  # I(S_π, V̄_π), [graphs]
    destination_share: Doubles  # I(S, V \ V̄), [graphs]
    plan: TransplantPlan

    @property
    def node_from_source(self) -> Bools:
        """Whether a node was transplanted, bool ``[nodes]``."""
        rest = np.diff(self.plan.rest.ptr)
        transplanted = np.diff(self.batch.ptr) - rest
        from_source = np.tile([True, False], len(rest))
        return np.repeat(from_source, np.stack((transplanted, rest), axis=1).ravel())


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
        connect: How to connect the parts. ``"dp"``, degree preservation:
            :math:`\lfloor (D + D_\pi)/2 \rfloor` random pairs of nodes that lost edges. ``"ep"``,
            edge prediction: pairs drawn by a learned :class:`EdgePredictor`, which can also be
            passed itself. ``"none"``: not at all.
        anchor_ratio: R as a share, in (0, 0.5].
        max_hops: K is drawn from 1 to this, once per mixing.
        hops: Values from which K is drawn instead.
        alpha: p is drawn from Beta(alpha, alpha), once per mixing.
        anchors: Source anchors: ``"salient"`` or ``"random"``.
        cut: The mixing unit: a partial K-hop ``"subgraph"``, or as many ``"scattered"`` nodes.
        importance: Label weights by ``"saliency"`` or ``"size"``.
        saliency: How node saliency is computed during training, or its name: ``"gradient"``,
            ``"gradient-x-activation"`` or ``"gradient-after-activation"``.
        pairing: A policy of :class:`~graph_transplant.augment.pairing.Pairing`.
        embedding_size: Width of the node embeddings, for ``connect="ep"``; -1 for that of the first
            batch.
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
        >>> mixed = GraphTransplant(connect="dp", hops=(1,)).mix(batch)
        >>> bool(torch.allclose(mixed.targets.sum(1), torch.ones(8)))
        True
    """

    def __init__(
        self,
        connect: str | EdgePredictor = "dp",
        *,
        anchor_ratio: float = 0.1,
        max_hops: int = 3,
        hops: int | Sequence[int] | None = None,
        alpha: float = 2.0,
        anchors: str = "salient",
        cut: str = "subgraph",
        importance: str = "saliency",
        saliency: str | NodeSaliency = "gradient",
        pairing: str | Pairing = "random",
        embedding_size: int = -1,
        new_edge_attr: str = "drawn",
        shuffle_saliency: bool = False,
        insert: bool = True,
    ) -> None:
        super().__init__()
        check_at_least(1, max_hops=max_hops)
        if hops is None:
            hops = range(1, max_hops + 1)
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
            connect = "ep"
        elif connect in RENAMED_CONNECTIONS:
            present = RENAMED_CONNECTIONS[connect]
            warnings.warn(
                f"connect={connect!r} is now called {present!r}, as in the names of methods; the "
                "old name goes in version 0.4",
                DeprecationWarning,
                stacklevel=2,
            )
            connect = present
        if self.edge_predictor is None and check_choice("connect", connect, CONNECTIONS) == "ep":
            self.edge_predictor = EdgePredictor(embedding_size)
        self.connect = connect
        self.anchor_ratio = anchor_ratio
        self.hops = hops
        self.alpha = alpha
        self.anchors = check_choice("anchors", anchors, ("salient", "random"))
        self.cut = check_choice("cut", cut, ("subgraph", "scattered"))
        self.importance = check_choice("importance", importance, ("saliency", "size"))
        if isinstance(saliency, str):
            saliency = SALIENCIES[check_choice("saliency", saliency, SALIENCIES)]
        if not isinstance(saliency, NodeSaliency):
            raise GraphTransplantError(
                "`saliency` must be a NodeSaliency, such as "
                f"NodeSaliency(kind='gradient-x-activation'); got {saliency!r}"
            )
        self.saliency = saliency
        self.pairing = Pairing.of(pairing)
        self.new_edge_attr = check_choice("new_edge_attr", new_edge_attr, ("drawn", "zero"))
        self.shuffle_saliency = shuffle_saliency
        if not insert and self.connect != "none":
            raise GraphTransplantError(
                "`insert=False` leaves nothing to connect: pass connect='none' with it, got "
                f"connect={self.connect!r}"
            )
        self.insert = insert
        self._warned_about_saliency = False
        self._warned_about_edges = False

    def extra_repr(self) -> str:
        """Show the main settings."""
        return f"{self.connect!r}, anchor_ratio={self.anchor_ratio}, hops={self.hops}"

    def plan(
        self, clean: CleanPass, model: Predictor | None, rng: np.random.Generator
    ) -> TransplantPlan:
        """Draw what is cut and what is connected (Algorithm 3, lines 4-9; Algorithm 2)."""
        batch = clean.batch
        saliency = self._saliency_of(clean)
        source_of = self.pairing.sources(clean.targets, clean.task, rng)
        if self.shuffle_saliency:
            saliency = shuffle_within(saliency, batch.ptr, rng)
        auxiliary = None
        if self.edge_predictor is not None and model is not None:
            auxiliary = self.edge_predictor.supervise(clean.prediction.nodes, batch, rng)
        hops, share = int(rng.choice(self.hops)), float(rng.beta(self.alpha, self.alpha))

        def cut_out(graphs: Ints, saliency: Floats) -> tuple[Segments, tuple[kernel.Cut, ...]]:
            """A part of each of some graphs, and how it was reached."""
            khop = kernel.cut(
                graphs, batch.ptr, batch.neighbours, saliency, self.anchor_ratio, hops, share, rng
            )
            if self.cut == "subgraph":
                return khop.nodes, (khop,)
            # As many scattered nodes as the subgraphs of the batch have on average.
            count = max(1, round(len(khop.nodes.item) / batch.num_graphs))
            return kernel.scattered(graphs, batch.ptr, saliency, count, rng), ()

        salient = saliency if self.anchors == "salient" else kernel.NO_SALIENCY
        part, source_cut = cut_out(source_of, salient)
        removed, destination_cut = cut_out(np.arange(batch.num_graphs), kernel.NO_SALIENCY)
        rest = kernel.complement(removed, batch.ptr)
        if not self.insert:
            rest = _keep_one(rest, batch.ptr, rng)

        pairs, weight, carrying = self._connect(part, rest, clean, rng)
        if not batch.symmetric:  # one directed edge per pair, in a random direction
            into_source = rng.random(len(pairs.source)) < 0.5
            pairs = pairs._replace(into_source=into_source, into_destination=~into_source)
        template = np.full(len(pairs.source), -1)
        if batch.edges and self.new_edge_attr == "drawn":
            template = kernel.lost_edges(part, rest, pairs, batch.neighbours, rng)
        plan = TransplantPlan(
            source_of, hops, share, saliency, part, rest, pairs, template, weight,
            soft_edges=model is not None and self._soft(model, batch),
            auxiliary_loss=auxiliary,
            cuts=source_cut + destination_cut,
        )  # fmt: skip
        if carrying is not None and weight is not None and len(carrying) < len(weight):
            # Drop pairs that are neither edges nor carry ψ's gradient.
            needed = (weight.detach() > 0.5).cpu().numpy()
            needed[carrying] = True
            plan = plan.only(needed)
        return plan

    @property
    def reads_saliency(self) -> bool:
        """Whether anchors or labels depend on saliency; otherwise it is not computed."""
        return self.anchors == "salient" or self.importance == "saliency"

    def _saliency_of(self, clean: CleanPass) -> Floats:
        """Node saliency on the host, float32 ``[nodes]``; zeros if it is not read."""
        if not self.reads_saliency:
            return np.zeros(clean.batch.num_nodes, np.float32)
        saliency = clean.saliency(self.saliency)
        if clean.saliency_of is None:
            self._look_at(saliency, clean.batch)
        return saliency.cpu().to(torch.float32).numpy()

    def _connect(
        self, part: Segments, rest: Segments, clean: CleanPass, rng: np.random.Generator
    ) -> tuple[Pairs, Tensor | None, Ints | None]:
        """Choose the pairs to connect; with ψ also their weights, and which carry its gradient."""
        if self.connect == "none":
            nothing = np.empty(0, np.int64)
            return kernel.undirected_pairs(np.zeros_like(part.ptr), nothing, nothing), None, None
        source = kernel.boundary_nodes(part, clean.batch.neighbours)
        destination = kernel.boundary_nodes(rest, clean.batch.neighbours)
        if self.edge_predictor is None:
            return kernel.degree_preserving_pairs(source, destination, rng), None, None
        pairs = kernel.all_pairs(source.nodes, destination.nodes)
        nodes = clean.prediction.nodes
        return pairs, *self.edge_predictor.draw(nodes, pairs.source, pairs.destination, rng)

    def transform(self, plan: TransplantPlan, clean: CleanPass) -> MixedGraphs:
        """Build the mixed graphs and their targets (Algorithm 3, lines 10-11)."""
        batch, targets = clean.batch, clean.targets
        if plan.weight is not None and not plan.soft_edges:
            plan = plan.only((plan.weight.detach() > 0.5).cpu().numpy())
        part = plan.part
        if not self.insert:
            part = Segments(np.zeros_like(part.ptr), part.item[:0])
        mixed = kernel.assemble(batch.csr, part, plan.rest, plan.pairs)

        saliency = plan.saliency
        if self.importance == "size":
            saliency = np.zeros_like(saliency)
        every = np.arange(batch.num_graphs)
        source_share = kernel.importance(plan.source_of, batch.ptr, plan.part, saliency)
        destination_share = kernel.importance(every, batch.ptr, plan.rest, saliency)
        label_weight = batch.on_device(label_weights(source_share, destination_share))
        y = mix_rows(targets, batch.on_device(plan.source_of), label_weight)

        nodes = batch.nodes_like(mixed.node_origin)
        edges = batch.edges_like(_templates(plan, batch, mixed))
        if plan.weight is not None:
            edges = _weighted(edges, plan, batch, mixed)
        return MixedGraphs(
            batch=batch.derive(mixed.graphs, nodes=nodes, edges=edges, y=y),
            targets=y,
            auxiliary_loss=plan.auxiliary_loss,
            source_of=plan.source_of,
            label_weight=label_weight.to(targets.dtype),
            source_share=source_share,
            destination_share=destination_share,
            node_origin=mixed.node_origin,
            edge_origin=mixed.edge_origin,
            plan=plan,
        )

    def _soft(self, model: Predictor, batch: GraphBatch) -> bool:
        """Whether to pass predicted edges as weights; warn once if the model takes none."""
        if self.edge_predictor is None or model.reads_edge_weight(batch):
            return self.edge_predictor is not None
        if not self._warned_about_edges:
            self._warned_about_edges = True
            warnings.warn(
                "the model takes no `edge_weight`: predicted edges are added without weights, and "
                "the edge predictor is trained on original edges only",
                stacklevel=4,
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
            nodes: Node embeddings, float ``[nodes, width]``, for ``connect="ep"``.
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
        targets = batch_targets(graphs, num_outputs).detach()
        # Rows that sum to one are class probabilities, possibly mixed.
        shares = bool((targets >= 0).all()) and bool((targets.sum(1) - 1).abs().lt(1e-4).all())
        loss_of = Loss("multiclass" if shares else task_of(targets))
        known = _checked(saliency, graphs)
        clean = CleanPass(
            graphs, targets, lambda: _embedded(nodes), loss_of, saliency=lambda _: known
        )
        with torch.no_grad():
            mixed: MixedGraphs = self(clean, model=None, generator=generator)
        if graphs.edge_id is None:
            return mixed
        kept = mixed.edge_origin >= 0
        origin = np.where(kept, graphs.edge_id[mixed.edge_origin] if kept.any() else -1, -1)
        return replace(mixed, edge_origin=origin)

    def check(self, model: Predictor, data: GraphStore) -> None:
        """Raise for pairing by class without classes; settle the width of ψ."""
        self.pairing.check(data.task)
        if self.edge_predictor is not None and self.edge_predictor.embedding_size == -1:
            with torch.random.fork_rng(devices=[]):
                self.edge_predictor.settle(node_width(model, data))

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
        if self._warned_about_saliency:
            return
        self._warned_about_saliency = True
        finite = bool(torch.isfinite(saliency).all())
        if finite and not varies_within_graphs(saliency, batch):
            warnings.warn(
                "node saliency is the same for all nodes of every graph: anchors are random and "
                "labels are mixed by size; with mean or sum readout, compute saliency before the "
                "activation or at an earlier layer, with `saliency=gt.NodeSaliency(layer=-2)` or "
                "`saliency_module`",
                stacklevel=3,
            )


def label_weights(source_share: Doubles, destination_share: Doubles) -> Doubles:
    r"""Return :math:`\lambda = I_\pi / (I_\pi + I)`; one half where both shares are zero."""
    total = source_share + destination_share
    return np.where(total > 0, source_share / np.where(total > 0, total, 1.0), 0.5)


def _keep_one(rest: Segments, ptr: Ints, rng: np.random.Generator) -> Segments:
    """Keep a random node of every graph of which nothing is left."""
    none_left = np.diff(rest.ptr) == 0
    drawn = rng.integers(ptr[:-1][none_left], ptr[1:][none_left])
    kept = np.insert(rest.item, rest.ptr[:-1][none_left], drawn)
    return Segments(rest.ptr + np.concatenate(([0], np.cumsum(none_left))), kept)


def _templates(plan: TransplantPlan, batch: GraphBatch, mixed: kernel.Assembled) -> Ints:
    """The edge of the batch whose attributes every edge has: its origin, or its template."""
    copied, new = mixed.edge_origin, mixed.pair >= 0
    if not batch.edges or not new.any():
        return copied
    template = np.where(new, plan.template[mixed.pair], copied)
    if batch.symmetric:
        # A lost edge leads to the end that lost it; the other direction takes its reverse.
        receiver = mixed.node_origin[csr.rows_of(mixed.graphs.row_ptr)]
        drawn = new & (template >= 0)
        turned = drawn & (csr.rows_of(batch.row_ptr)[template] != receiver)
        template[turned] = batch.reverse[template[turned]]
    return template


def _weighted(
    edges: dict[str, Tensor], plan: TransplantPlan, batch: GraphBatch, mixed: kernel.Assembled
) -> dict[str, Tensor]:
    """Multiply the weights of new edges by ψ's 0 or 1, which carries its gradient."""
    if "edge_weight" not in edges:
        if not plan.soft_edges:
            return edges
        x = batch.nodes.get("x")
        dtype = x.dtype if x is not None and x.is_floating_point() else None
        ones = torch.ones(len(mixed.pair), dtype=dtype, device=batch.device)
        edges = {**edges, "edge_weight": ones}
    assert plan.weight is not None
    weight, new = edges["edge_weight"], np.flatnonzero(mixed.pair >= 0)
    index = batch.on_device(new)
    drawn = plan.weight.index_select(0, batch.on_device(mixed.pair[new])).to(weight.dtype)
    return {**edges, "edge_weight": weight.index_copy(0, index, weight[index] * drawn)}


def _embedded(nodes: Tensor | None) -> Prediction:
    """Stand in for a model's prediction, of which only node embeddings are given."""
    if nodes is None:
        raise GraphTransplantError(
            "connect='ep' needs the node embeddings: pass `nodes`, [nodes, width]"
        )
    return Prediction(nodes, None, nodes.new_empty(0, 0), ())


def equal_saliency(batch: GraphBatch) -> Tensor:
    """Saliency that does not distinguish nodes, float ``[nodes]``."""
    return torch.ones(batch.num_nodes, device=batch.device)


def _checked(saliency: Tensor | None, batch: GraphBatch) -> Tensor:
    if saliency is None:
        return equal_saliency(batch)
    nodes = batch.num_nodes
    saliency = torch.as_tensor(saliency)
    if saliency.shape != (nodes,):
        raise DataError(
            f"`saliency` must have shape [{nodes}], one number per node; got {list(saliency.shape)}"
        )
    saliency = saliency.detach()
    if not bool((saliency.isfinite() & (saliency >= 0)).all()):
        raise DataError("`saliency` must be finite and non-negative")
    return saliency
