"""Graph Transplant (Park, Shim and Yang, AAAI 2022): plan every choice, then carry out the plan."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import get_args

import numpy as np
import torch
from torch import Tensor, nn

from graph_transplant.augment.base import Augmentation, CleanPass, EditedGraphs, Mixed
from graph_transplant.augment.edge_predictor import EdgePredictor
from graph_transplant.augment.new_edges import (
    Combination,
    as_combinations,
    combinations,
    continued,
    drawn_weights,
    geometric_field,
    recomputed,
    templates_of,
    types_for,
)
from graph_transplant.augment.pairing import Pairing, mix_rows
from graph_transplant.config.options import (
    RENAMED_CONNECTIONS,
    Anchors,
    Connect,
    Cut,
    Importance,
    NewEdgeAttr,
    PairingPolicy,
    SaliencyName,
)
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
from graph_transplant.kernels.arrays import CSR, Bools, Doubles, Floats, Ints, Pairs, Segments
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
    missing: Ints | None = None  # pairs that DP lacks, as too few are distinct and legal, [graphs]

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

    In each mixed graph the transplanted nodes come first, then the remaining ones; or the other way
    round, with ``destination_first``.
    """

    source_share: Doubles  # I(S_π, V̄_π), [graphs]
    destination_share: Doubles  # I(S, V \ V̄), [graphs]
    plan: TransplantPlan
    destination_first: bool = False

    @property
    def node_from_source(self) -> Bools:
        """Whether a node was transplanted, bool ``[nodes]``."""
        return _from_source(self.batch.ptr, self.plan.rest, self.destination_first)


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
        legal_edges: Combinations (source type, edge type, target type) that new edges of typed
            graphs (``node_type``, ``edge_type``) may have. By default those that occur in the
            batch or in the graphs that :meth:`prepare` was given.
        protect: Name of a node field (bool, or 0 and 1) that marks nodes, such as roots, which are
            never cut out of the destination. In mixed graphs, only these are marked.
        destination_first: Whether the nodes of the destination come first in mixed graphs, in their
            order, instead of the transplanted ones: for models that read nodes by position.
        edge_attributes: Computes edge attributes that follow from the nodes: takes a PyG batch of
            mixed graphs and returns it with new ones, as ``T.Distance(norm=False, cat=False)``.
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
        connect: Connect | EdgePredictor = "dp",
        *,
        anchor_ratio: float = 0.1,
        max_hops: int = 3,
        hops: int | Sequence[int] | None = None,
        alpha: float = 2.0,
        anchors: Anchors = "salient",
        cut: Cut = "subgraph",
        importance: Importance = "saliency",
        saliency: SaliencyName | NodeSaliency = "gradient",
        pairing: PairingPolicy | Pairing = "random",
        embedding_size: int = -1,
        new_edge_attr: NewEdgeAttr = "drawn",
        legal_edges: Iterable[Combination] | None = None,
        protect: str | None = None,
        destination_first: bool = False,
        edge_attributes: Callable[[Data], Data] | None = None,
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
        self.connect: Connect = check_choice("connect", connect, get_args(Connect))
        if self.connect == "ep" and self.edge_predictor is None:
            self.edge_predictor = EdgePredictor(embedding_size)
        self.anchor_ratio = anchor_ratio
        self.hops = hops
        self.alpha = alpha
        self.anchors: Anchors = check_choice("anchors", anchors, get_args(Anchors))
        self.cut: Cut = check_choice("cut", cut, get_args(Cut))
        self.importance: Importance = check_choice("importance", importance, get_args(Importance))
        if isinstance(saliency, str):
            saliency = SALIENCIES[check_choice("saliency", saliency, SALIENCIES)]
        if not isinstance(saliency, NodeSaliency):
            raise GraphTransplantError(
                "`saliency` must be a NodeSaliency, such as "
                f"NodeSaliency(kind='gradient-x-activation'); got {saliency!r}"
            )
        self.saliency = saliency
        self.pairing = Pairing.of(pairing)
        self.new_edge_attr: NewEdgeAttr = check_choice(
            "new_edge_attr", new_edge_attr, get_args(NewEdgeAttr)
        )
        self.legal_edges = None if legal_edges is None else as_combinations(legal_edges)
        self._known_edges: frozenset[Combination] = frozenset()  # of the training graphs
        self.protect = protect
        self.destination_first = destination_first
        self.edge_attributes = edge_attributes
        self.shuffle_saliency = shuffle_saliency
        if not insert and self.connect != "none":
            raise GraphTransplantError(
                "`insert=False` leaves nothing to connect: pass connect='none' with it, got "
                f"connect={self.connect!r}"
            )
        self.insert = insert
        self._moved_to: NodeSaliency | None = None  # what is read if not the last layer's gradient
        self._looked_at_saliency = self._warned_about_saliency = False
        self._warned_about_edges = False
        self._looked_at_attributes = edge_attributes is not None

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
        if self.protect is not None:
            removed = _without(removed, self._protected(batch))
        rest = kernel.complement(removed, batch.ptr)
        if not self.insert:
            rest = _keep_one(rest, batch.ptr, rng)

        self._look_at_attributes(batch)
        types = self._types(batch)
        pairs, weight, carrying, missing = self._connect(part, rest, clean, types, rng)
        template = np.full(len(pairs.source), -1)
        if types is not None:
            pairs, template = continued(part, rest, pairs, batch, types, rng)
        elif not batch.symmetric:  # one directed edge per pair, in a random direction
            into_source = rng.random(len(pairs.source)) < 0.5
            pairs = pairs._replace(into_source=into_source, into_destination=~into_source)
        if self.new_edge_attr == "zero":
            template = np.full(len(pairs.source), -1)
        elif batch.edges and types is None:
            template = kernel.lost_edges(part, rest, pairs, batch.neighbours, rng)
        plan = TransplantPlan(
            source_of, hops, share, saliency, part, rest, pairs, template, weight,
            soft_edges=model is not None and self._soft(model, batch),
            auxiliary_loss=auxiliary,
            cuts=source_cut + destination_cut,
            missing=missing,
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
            self._look_at(saliency, clean)
        return saliency.cpu().to(torch.float32).numpy()

    def prepare(self, train: GraphStore, generator: torch.Generator) -> None:
        """Find the combinations of types that occur in the training graphs, if they are typed."""
        self._known_edges = frozenset()
        if "node_type" in train.node_fields:
            found = (combinations(piece.batch(range(len(piece)))) for piece in train.pieces())
            self._known_edges = frozenset().union(*found)

    def _types(self, batch: GraphBatch) -> kernel.Types | None:
        """What the edges of typed graphs may join; ``None`` for untyped ones."""
        if self.legal_edges is None:
            types = types_for(batch, self._known_edges, occurring=True)
        else:
            types = types_for(batch, self.legal_edges, occurring=False)
        if types is not None and self.new_edge_attr == "zero" and "edge_type" in batch.edges:
            raise GraphTransplantError(
                "new_edge_attr='zero' gives new edges no `edge_type` of their own: use 'drawn'"
            )
        return types

    def _connect(
        self,
        part: Segments,
        rest: Segments,
        clean: CleanPass,
        types: kernel.Types | None,
        rng: np.random.Generator,
    ) -> tuple[Pairs, Tensor | None, Ints | None, Ints | None]:
        """Choose the pairs to connect.

        With ψ also their weights, and which carry its gradient; without, how many are missing.
        """
        if self.connect == "none":
            nothing = np.empty(0, np.int64)
            none = kernel.undirected_pairs(np.zeros_like(part.ptr), nothing, nothing)
            return none, None, None, None
        neighbours = clean.batch.neighbours
        source = kernel.boundary_nodes(part, neighbours)
        destination = kernel.boundary_nodes(rest, neighbours)
        legal = None
        if types is not None:
            legal = kernel.legal_pairs(
                source.nodes,
                destination.nodes,
                kernel.open_ends(part, source.nodes, neighbours, types),
                kernel.open_ends(rest, destination.nodes, neighbours, types),
                types.node,
            )
        if self.edge_predictor is None:
            lost = source.lost + destination.lost
            if legal is None:
                pairs = kernel.degree_preserving_pairs(source, destination, rng)
            else:
                pairs = kernel.degree_preserving_subset(legal, lost, rng)
            return pairs, None, None, lost // 2 - np.diff(pairs.ptr)
        pairs = kernel.all_pairs(source.nodes, destination.nodes) if legal is None else legal
        nodes = clean.prediction.nodes
        drawn = self.edge_predictor.draw(nodes, pairs.source, pairs.destination, rng)
        return pairs, *drawn, None

    def transform(self, plan: TransplantPlan, clean: CleanPass) -> MixedGraphs:
        """Build the mixed graphs and their targets (Algorithm 3, lines 10-11)."""
        batch, targets = clean.batch, clean.targets
        if plan.weight is not None and not plan.soft_edges:
            plan = plan.only((plan.weight.detach() > 0.5).cpu().numpy())
        part = plan.part
        if not self.insert:
            part = Segments(np.zeros_like(part.ptr), part.item[:0])
        assemble = _destination_first if self.destination_first else kernel.assemble
        mixed = assemble(batch.csr, part, plan.rest, plan.pairs)

        saliency = plan.saliency
        if self.importance == "size":
            saliency = np.zeros_like(saliency)
        every = np.arange(batch.num_graphs)
        source_share = kernel.importance(plan.source_of, batch.ptr, plan.part, saliency)
        destination_share = kernel.importance(every, batch.ptr, plan.rest, saliency)
        label_weight = batch.on_device(label_weights(source_share, destination_share))
        y = mix_rows(targets, batch.on_device(plan.source_of), label_weight)

        nodes = batch.nodes_like(mixed.node_origin)
        edges = batch.edges_like(templates_of(mixed, plan.template, batch))
        if plan.weight is not None and (plan.soft_edges or "edge_weight" in edges):
            edges["edge_weight"] = drawn_weights(edges, plan.weight, batch, mixed)
        if self.protect is not None:
            transplanted = _from_source(mixed.graphs.ptr, plan.rest, self.destination_first)
            nodes[self.protect] = nodes[self.protect].masked_fill(batch.on_device(transplanted), 0)
        virtual = batch.derive(mixed.graphs, nodes=nodes, edges=edges, y=y)
        if self.edge_attributes is not None:
            virtual = recomputed(virtual, self.edge_attributes)
        return MixedGraphs(
            batch=virtual,
            targets=y,
            auxiliary_loss=plan.auxiliary_loss,
            source_of=plan.source_of,
            label_weight=label_weight.to(targets.dtype),
            source_share=source_share,
            destination_share=destination_share,
            node_origin=mixed.node_origin,
            edge_origin=mixed.edge_origin,
            plan=plan,
            destination_first=self.destination_first,
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
        """Tell which layer saliency is read at, if not the last; and how good ψ is.

        The accuracy of ψ is that on evenly spaced validation graphs.
        """
        check_stores(validation=validation)
        measured: dict[str, float] = {}
        if self._moved_to is not None:  # -1: the last layer's gradient x activation
            measured["saliency_layer"] = float(self._moved_to.layer)
        if self.edge_predictor is None:
            return measured
        # Data sets are often sorted by class, so the first graphs may all be of one class.
        spread = torch.linspace(0, len(validation) - 1, min(len(validation), _MEASURED)).long()
        batch = validation.batch(spread).to(self.edge_predictor.first.weight.device)
        predictor = as_predictor(model)
        with evaluating(module_of(predictor)):
            nodes = predictor.run(batch).nodes
        rng = np.random.default_rng(0)  # the same pairs every epoch
        measured["edge_predictor_accuracy"] = self.edge_predictor.accuracy(nodes, batch, rng)
        return measured

    def _protected(self, batch: GraphBatch) -> Bools:
        """Nodes that are never removed."""
        mask = batch.nodes.get(self.protect or "")
        if mask is None or mask.dim() != 1:
            known = ", ".join(name for name, field in batch.nodes.items() if field.dim() == 1)
            raise DataError(
                f"`protect` must name a field of the batch with one entry per node; got "
                f"{self.protect!r}, and there {'are ' + known if known else 'is none'}"
            )
        return mask.bool().cpu().numpy()

    def _look_at_attributes(self, batch: GraphBatch) -> None:
        """Warn once if edge attributes follow from positions, which new edges do not inherit."""
        if self._looked_at_attributes:
            return
        self._looked_at_attributes = True
        name = geometric_field(batch)
        if name is not None:
            warnings.warn(
                f"`{name}` follows from `pos`, but new edges copy that of other edges: compute it "
                "in `forward`, or pass `edge_attributes=`, such as T.Distance(cat=False)",
                stacklevel=3,
            )

    def _look_at(self, saliency: Tensor, clean: CleanPass) -> None:
        """Warn once if saliency is not read at the last layer, or does not distinguish nodes."""
        used = clean.nearest.get(self.saliency, self.saliency)
        last = replace(self.saliency, layer=-1)
        self._moved_to = None if used in (self.saliency, last) else used
        first, self._looked_at_saliency = not self._looked_at_saliency, True
        if self._moved_to is not None and not self._warned_about_saliency:
            self._warned_about_saliency = True
            warnings.warn(
                "the gradient at the last message-passing layer is the same for all nodes of a "
                f"graph: saliency is the {used} instead; `saliency=gt.NodeSaliency(...)` "
                "or `saliency_module` choose another",
                stacklevel=3,
            )
        elif (
            first and saliency.isfinite().all() and not varies_within_graphs(saliency, clean.batch)
        ):
            other = "" if self.saliency == NodeSaliency() else "`saliency=gt.NodeSaliency()` or "
            warnings.warn(
                "node saliency is the same for all nodes of every graph: anchors are random and "
                f"labels are mixed by size; use {other}`saliency_module` to read it elsewhere",
                stacklevel=3,
            )


def label_weights(source_share: Doubles, destination_share: Doubles) -> Doubles:
    r"""Return :math:`\lambda = I_\pi / (I_\pi + I)`; one half where both shares are zero."""
    total = source_share + destination_share
    return np.where(total > 0, source_share / np.where(total > 0, total, 1.0), 0.5)


def _from_source(ptr: Ints, rest: Segments, destination_first: bool) -> Bools:
    """Whether a node of mixed graphs was transplanted."""
    remaining = np.diff(rest.ptr)
    counts = np.stack((np.diff(ptr) - remaining, remaining), axis=1)
    from_source = np.tile([True, False], len(remaining))
    if destination_first:
        return np.repeat(~from_source, counts[:, ::-1].ravel())
    return np.repeat(from_source, counts.ravel())


def _destination_first(
    graphs: CSR, part: Segments, rest: Segments, pairs: Pairs
) -> kernel.Assembled:
    """Assemble mixed graphs with the nodes of the destination first."""
    order = np.lexsort((pairs.source, pairs.destination, csr.rows_of(pairs.ptr)))
    _, source, destination, into_source, into_destination = pairs
    turned = Pairs(
        pairs.ptr, destination[order], source[order], into_destination[order], into_source[order]
    )
    mixed = kernel.assemble(graphs, rest, part, turned)
    new = mixed.pair >= 0
    mixed.pair[new] = order[mixed.pair[new]]
    return mixed


def _without(nodes: Segments, excluded: Bools) -> Segments:
    """The nodes that are not excluded."""
    kept = ~excluded[nodes.item]
    return Segments(np.concatenate(([0], np.cumsum(kept)))[nodes.ptr], nodes.item[kept])


def _keep_one(rest: Segments, ptr: Ints, rng: np.random.Generator) -> Segments:
    """Keep a random node of every graph of which nothing is left."""
    none_left = np.diff(rest.ptr) == 0
    drawn = rng.integers(ptr[:-1][none_left], ptr[1:][none_left])
    kept = np.insert(rest.item, rest.ptr[:-1][none_left], drawn)
    return Segments(rest.ptr + np.concatenate(([0], np.cumsum(none_left))), kept)


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
