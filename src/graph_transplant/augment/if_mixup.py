"""ifMixup (Guo and Mao, AAAI 2023): interpolation of two graphs, node by node."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from graph_transplant.augment.base import Augmentation, CleanPass, Mixed, VirtualGraphs
from graph_transplant.augment.pairing import Pairing, mix_rows
from graph_transplant.config.options import PairingPolicy
from graph_transplant.data import GraphBatch, GraphStore
from graph_transplant.errors import DataError, GraphTransplantError, check_in
from graph_transplant.kernels import mixing as kernel
from graph_transplant.kernels.arrays import Doubles, Ints
from graph_transplant.nn.adapter import Predictor, first_graph


@dataclass(frozen=True)
class IfMixupPlan:
    """All random choices of one mixing."""

    source_of: Ints  # the source of every mixed graph
    label_weight: Doubles  # 1 - λ, the weight of the source's features, edges and label


@dataclass(frozen=True, kw_only=True)
class InterpolatedGraphs(Mixed, VirtualGraphs):
    """Graphs interpolated between pairs of graphs."""


class IfMixup(Augmentation):
    r"""Interpolate pairs of graphs: node features, edges and labels (Guo and Mao, AAAI 2023).

    Nodes are matched in their given order, which is arbitrary; the smaller graph is padded with
    dummy nodes that have zero features and no edges. Then, with λ drawn per pair,

    .. math::
        x' = λ x + (1 - λ) x_π, \qquad e' = λ e + (1 - λ) e_π, \qquad y' = λ y + (1 - λ) y_π.

    The interpolated edges are stored in ``edge_weight``, so the model must accept edge weights.
    Existing edge weights are interpolated; those of repeated edges add up. Edge attributes are the
    weighted mean over the two graphs: an edge of only one graph keeps its own, since its weight
    already reflects its share. Node fields other than ``x`` are dropped, since they may be indices.

    Deviation: if-mixup-degrees. The publication interpolates node features. For graphs without any,
    only edges are mixed, and the model uses the (weighted, rounded) degrees of the mixed graph, as
    for any other graph, instead of interpolated degrees.

    Args:
        alpha: λ, the weight of the destination, is drawn from Beta(alpha, beta). Of the five
            distributions tried in the publication, Beta(20, 1) did best; all did well.
        beta: Second parameter of the distribution.
        pairing: How the source of every graph is chosen.
    """

    def __init__(
        self, alpha: float = 20.0, beta: float = 1.0, *, pairing: PairingPolicy | Pairing = "random"
    ) -> None:
        super().__init__()
        check_in("(0, inf)", alpha=alpha, beta=beta)
        self.alpha = alpha
        self.beta = beta
        self.pairing = Pairing.of(pairing)

    def plan(
        self, clean: CleanPass, model: Predictor | None, rng: np.random.Generator
    ) -> IfMixupPlan:
        """Draw sources and weights."""
        if model is not None:
            _check_model(model, clean.batch, "")
        source_of = self.pairing.sources(clean.targets, clean.task, rng)
        # 1 - λ, drawn directly because it is mostly small.
        return IfMixupPlan(source_of, rng.beta(self.beta, self.alpha, len(source_of)))

    def transform(self, plan: IfMixupPlan, clean: CleanPass) -> InterpolatedGraphs:
        """Interpolate every graph with its source, of weight 1 - λ (Algorithm 1)."""
        batch, targets = clean.batch.dense(), clean.targets
        x, attributes = batch.nodes.get("x"), batch.edge_attr
        for name, value in (("x", x), ("edge_attr", attributes)):
            if value is not None and not value.is_floating_point():
                raise DataError(
                    f"if-mixup interpolates `{name}`, which must be floating-point numbers; got "
                    f"{value.dtype}: convert numbers with `.float()`; category indices cannot "
                    "be interpolated, one-hot encode them"
                )
        overlay = kernel.overlay(plan.source_of, plan.label_weight, batch.csr)
        size, edges = len(overlay.graphs.column), {}
        node, onto, node_share, edge, entry, edge_share = map(
            batch.on_device, (*overlay.nodes, *overlay.edges)
        )
        nodes = {}
        if x is not None:
            onto_x = int(overlay.graphs.ptr[-1])
            nodes["x"] = _added(x.index_select(0, node), node_share, onto, onto_x)
        total = batch.on_device(overlay.weight)
        if batch.edge_weight is None:
            edges["edge_weight"] = total.to(torch.get_default_dtype())
        else:
            # In double precision, so that rounding hides the order in which repeated edges are
            # added.
            weight = batch.edge_weight.index_select(0, edge).to(torch.double)
            edges["edge_weight"] = _added(weight, edge_share, entry, size).to(
                batch.edge_weight.dtype
            )
        if attributes is not None:
            share = edge_share / total.index_select(0, entry)
            edges["edge_attr"] = _added(attributes.index_select(0, edge), share, entry, size)

        label = batch.on_device(plan.label_weight).to(targets.dtype)
        mixed = mix_rows(targets, batch.on_device(plan.source_of), label)
        return InterpolatedGraphs(
            batch=batch.derive(overlay.graphs, nodes=nodes, edges=edges, y=mixed),
            targets=mixed,
            label_weight=label,
            source_of=plan.source_of,
        )

    def check(self, model: Predictor, data: GraphStore) -> None:
        """Raise for models without edge weights, or pairing by class without classes."""
        _check_model(model, first_graph(model, data), f" (data set {data.name})")
        self.pairing.check(data.task)


def _added(rows: Tensor, share: Tensor, place: Tensor, size: int) -> Tensor:
    """Sum the rows, weighted by ``share``, that go to each of ``size`` places."""
    parts = rows * share.to(rows.dtype).view(-1, *([1] * (rows.dim() - 1)))
    return parts.new_zeros((size, *rows.shape[1:])).index_add(0, place, parts)


def _check_model(model: Predictor, batch: GraphBatch, where: str) -> None:
    if not model.reads_edge_weight(batch):
        raise GraphTransplantError(
            f"if-mixup{where} needs a model that takes edge weights, since mixed edges have "
            "fractional weights: give its `forward` a parameter `edge_weight`, or use another "
            "method"
        )
