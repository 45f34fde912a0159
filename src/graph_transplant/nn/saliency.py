"""Node saliency: how much each node contributes to the loss of its graph (section "Node Saliency").

It reuses the forward pass of training and needs one ``torch.autograd.grad`` that stops at the
chosen layer. For models that are not built in, forward hooks record the outputs of message-passing
modules; they are removed after the pass.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, get_args

import torch
from torch import Tensor

from graph_transplant.config.options import SaliencyKind, SaliencyName
from graph_transplant.data import GraphBatch
from graph_transplant.errors import GraphTransplantError, check_choice
from graph_transplant.nn.adapter import evaluating, module_of, varies_within_graphs
from graph_transplant.nn.classifier import GraphClassifier, Prediction
from graph_transplant.nn.segment import segment_max, segment_sum

if TYPE_CHECKING:
    from graph_transplant.nn.adapter import Predictor


KINDS: tuple[SaliencyKind, ...] = get_args(SaliencyKind)
Side = Literal["before", "after"]


@dataclass(frozen=True)
class NodeSaliency:
    """How node saliency is computed.

    Deviation: saliency-layer. The paper takes the gradient at the layer's output. With mean or sum
    readout, the gradient at the *last* output, after the activation, is the same for all nodes of a
    graph and ranks nothing. It is available as ``activation="after"``.

    Args:
        kind: ``"gradient"`` is the norm of the gradient, as in the paper.
            ``"gradient-x-activation"`` is the magnitude of its dot product with the node's
            embedding, the first-order change of the loss if the embedding were zero.
        layer: Index of the message-passing layer; -1 is the last. ``"auto"`` is the last one that
            tells nodes apart: without an activation behind it, the last layer's gradient is the
            same for all nodes of a graph. If no layer's does, it is gradient x activation.
        activation: ``"before"`` the layer's activation (after normalisation, without the residual
            connection), or ``"after"`` it (the output of the layer). With a residual connection,
            ``"gradient-x-activation"`` always uses the output.

    Example:
        >>> NodeSaliency(layer=-2, activation="after").kind
        'gradient'
    """

    kind: SaliencyKind = "gradient"
    layer: int | Literal["auto"] = "auto"
    activation: Side = "before"

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, KINDS)
        check_choice("activation", self.activation, get_args(Side))
        if self.layer != "auto" and not isinstance(self.layer, int):
            raise GraphTransplantError(f"`layer` must be an integer or 'auto'; got {self.layer!r}")

    def __str__(self) -> str:
        side = " after its activation" if self.activation == "after" else ""
        return f"{self.kind} at layer {self.layer}{side}"

    def nearest(
        self, loss: Tensor, prediction: Prediction, batch: GraphBatch, *, signed: bool = False
    ) -> tuple[NodeSaliency, Tensor]:
        """Find what ``layer="auto"`` stands for, and read it; see :meth:`read`."""
        if self.layer != "auto":
            return self, self.read(loss, prediction, signed=signed)
        last = replace(self, layer=-1)
        first = last.read(loss, prediction, signed=signed)
        # Our own layers end with a ReLU, which masks the gradient node by node.
        if prediction.layers[-1].rectified or varies_within_graphs(first.abs(), batch):
            return last, first
        for other in self._others(len(prediction.layers)):
            with suppress(GraphTransplantError):  # the loss may not depend on every layer
                saliency = other.read(loss, prediction, signed=signed)
                if varies_within_graphs(saliency.abs(), batch):
                    return other, saliency
        return last, first

    def _others(self, layers: int) -> Iterator[NodeSaliency]:
        """Readings to use in place of the last layer's, the nearest first."""
        for layer in range(-2, -layers - 1, -1):
            yield replace(self, layer=layer)
        yield replace(self, layer=-1, kind="gradient-x-activation")

    def read(self, loss: Tensor, prediction: Prediction, *, signed: bool = False) -> Tensor:
        """Return the saliency of every node, float ``[nodes]``, detached.

        ``loss`` is a scalar computed from the prediction; its autograd graph is retained. With
        ``signed``, ``"gradient-x-activation"`` is negative for nodes that lower the loss.
        """
        if not prediction.layers:
            raise GraphTransplantError(
                "no module to read saliency at: the model needs a MessagePassing module that gives "
                "one row per node, or name a module that does with `saliency_module`"
            )
        layer = -1 if self.layer == "auto" else self.layer
        if not -len(prediction.layers) <= layer < len(prediction.layers):
            raise GraphTransplantError(
                f"`layer` of the saliency is {layer}, but the model has "
                f"{len(prediction.layers)} message-passing layers"
            )
        output = prediction.layers[layer]
        if self.activation == "after" and not output.rectified:
            raise GraphTransplantError(
                "cannot locate the activations of this model: keep `activation` at 'before', and "
                "name the activation's module with `saliency_module`"
            )
        embedding, rectified = output.nodes, output.rectified
        if output.added is not None:
            # With a residual connection only `added` is rectified.
            rectified = self.kind == "gradient" and self.activation == "before"
            embedding = output.added if rectified else output.nodes
        if not (loss.requires_grad and embedding.requires_grad):
            raise GraphTransplantError(
                "node saliency needs gradients: run the model with gradients enabled and with "
                "parameters that require them"
            )
        (gradient,) = torch.autograd.grad(loss, embedding, retain_graph=True, allow_unused=True)
        if gradient is None:
            raise GraphTransplantError(
                "the loss does not depend on the layer whose saliency is read: name another with "
                "`saliency_module`, and run layers with gradients enabled"
            )
        if rectified and self.activation == "before":
            # The backward pass of ReLU, as a single kernel.
            gradient = torch.ops.aten.threshold_backward(gradient, embedding.detach(), 0.0)
        # Squares underflow in half precision. Outputs may be 1-D, or have a head dimension.
        wide = torch.promote_types(gradient.dtype, torch.float32)
        gradient = gradient.reshape(len(gradient), -1).to(wide)
        if self.kind == "gradient":
            return gradient.square().sum(1).sqrt()
        product = (gradient * embedding.detach().reshape(gradient.shape)).sum(1)
        return product if signed else product.abs()


SALIENCIES: dict[SaliencyName, NodeSaliency] = {
    "gradient": NodeSaliency(),
    "gradient-x-activation": NodeSaliency("gradient-x-activation"),
    "gradient-after-activation": NodeSaliency(activation="after"),
}
"""Saliencies by name: the default; the gradient times the embedding; and the paper's literal
definition, at the last layer's output, which ranks nothing with a mean or sum readout."""


def has_saliency(model: Predictor) -> bool:
    """Whether saliency can be computed, which needs a message-passing module."""
    return isinstance(module_of(model), GraphClassifier) or bool(model.layer_modules)


EXPLANATION_SALIENCY = NodeSaliency(kind="gradient-x-activation")
"""Saliency for explanations.

It finds known relevant nodes far better than the gradient norm; see ``docs/results-details.md``.
"""


def read_saliency(
    model: Predictor,
    batch: GraphBatch,
    task: str,
    reading: NodeSaliency = EXPLANATION_SALIENCY,
    output: int | None = None,
    *,
    signed: bool = False,
) -> tuple[Prediction, Tensor, Tensor]:
    """Run a model in evaluation mode and compute the saliency of one output of every graph.

    The output is by default the predicted class, the label with the highest probability or the
    first value. Returns the prediction, the output of every graph and the saliency of its margin.
    """
    with evaluating(module_of(model)), torch.enable_grad():
        prediction = model.run(batch)
        chosen = prediction.logits.detach().argmax(1)
        if output is not None or task == "regression":
            chosen = torch.full_like(chosen, output or 0)
        # Graphs are independent in evaluation mode: the sum yields all their gradients.
        margin = margins(prediction.logits, chosen, task).sum()
        _, saliency = reading.nearest(margin, prediction, batch, signed=signed)
        return prediction, chosen, saliency


def margins(logits: Tensor, chosen: Tensor, task: str) -> Tensor:
    """Return the log-odds of one class of every graph, ``[graphs]``; its logit for other tasks."""
    column = chosen.unsqueeze(1)
    own = logits.gather(1, column).squeeze(1)
    if task != "multiclass" or logits.shape[1] < 2:
        return own
    return own - logits.scatter(1, column, -math.inf).logsumexp(1)


def within_graphs(saliency: Tensor, batch: GraphBatch) -> tuple[Tensor, Tensor]:
    """Divide saliency by the largest and by the total magnitude of each graph, as float64."""
    segment, ptr = batch.batch.cpu(), batch.offsets.cpu()
    exact = saliency.to(torch.double)
    size = exact.abs()
    wholes = segment_max(size.unsqueeze(1), ptr).squeeze(1), segment_sum(size, segment, ptr)
    # Avoid division by zero.
    largest, share = (
        exact / torch.where(whole > 0, whole, 1.0).index_select(0, segment) for whole in wholes
    )
    return largest, share
