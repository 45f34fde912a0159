"""Node saliency: how much each node matters to the loss of its graph (section "Node Saliency").

It is read from the pass that training makes anyway, by one ``torch.autograd.grad`` that stops at
the chosen layer. For the built-in models no hook is needed; for any other PyG model the outputs of
its message-passing modules are recorded by hooks that are removed as soon as the pass is over.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import MessagePassing

from graph_transplant.errors import GraphTransplantError, check_choice
from graph_transplant.graphs import layout_of
from graph_transplant.nn import GraphClassifier, LayerOutput, Prediction
from graph_transplant.segments import segment_sum

KINDS = ("gradient", "gradient-x-activation")
SIDES = ("before", "after")


@dataclass(frozen=True)
class NodeSaliency:
    """How node saliency is read.

    Deviation: saliency-layer. The paper takes the gradient at the layer's output. With mean or sum
    readout the gradient at the *last* output, after the activation, is the same vector for every
    node of a graph and ranks nothing; it stays selectable as ``activation="after"``.

    Args:
        kind: ``"gradient"``: the norm of the gradient, the paper's definition.
            ``"gradient-x-activation"``: the size of the gradient's product with the node's
            embedding, the first-order change of the loss were the embedding zero.
        layer: Which message-passing layer, counted as in a list: -1 is the last.
        activation: Read ``"before"`` or ``"after"`` the layer's activation.

    Example:
        >>> NodeSaliency(layer=-2, activation="after").kind
        'gradient'
    """

    kind: str = "gradient"
    layer: int = -1
    activation: str = "before"

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, KINDS)
        check_choice("activation", self.activation, SIDES)

    def read(self, loss: Tensor, prediction: Prediction) -> Tensor:
        """Read the saliency of every node.

        Args:
            loss: The classification loss of the batch, a scalar that depends on the prediction.
            prediction: Of the same pass. Its graph is kept for the training step.

        Returns:
            float ``[nodes]``, not negative, without gradient.
        """
        if not prediction.layers:
            raise GraphTransplantError(
                "no module to read saliency at: the model needs a MessagePassing module that gives "
                "one row per node, or name a module that does with `saliency_module`"
            )
        if not -len(prediction.layers) <= self.layer < len(prediction.layers):
            raise GraphTransplantError(
                f"`layer` of the saliency is {self.layer}, but the model has "
                f"{len(prediction.layers)} message-passing layers"
            )
        embedding, rectified = prediction.layers[self.layer]
        if not (loss.requires_grad and embedding.requires_grad):
            raise GraphTransplantError(
                "node saliency needs gradients: run the model with gradients enabled and with "
                "parameters that require them"
            )
        gradient: Tensor = torch.autograd.grad(loss, embedding, retain_graph=True)[0]
        if rectified and self.activation == "before":
            # The backward pass of a rectifier, one kernel where a mask and a product are three.
            gradient = torch.ops.aten.threshold_backward(gradient, embedding.detach(), 0.0)
        if self.kind == "gradient":
            return gradient.square().sum(1).sqrt()
        return (gradient * embedding.detach()).sum(1).abs()


def varies_within_graphs(saliency: Tensor, batch: Data) -> bool:
    """Whether saliency tells the nodes of at least one graph apart.

    Args:
        saliency: float ``[nodes]``.
        batch: The batch of the nodes.
    """
    layout = layout_of(batch)
    total = segment_sum(saliency, layout.segment, layout.ptr)
    mean = total / layout.counts.clamp(min=1)
    deviation = (saliency - mean.index_select(0, layout.segment)).abs()
    several = layout.counts.gt(1).index_select(0, layout.segment)
    if not bool(several.any()):
        return True
    return bool((several & (deviation > 1e-4 * mean.index_select(0, layout.segment))).any())


class ModuleAdapter:
    """Any ``nn.Module`` over a PyG batch, seen as a model that gives a :class:`Prediction`.

    The batch's fields are passed to ``forward`` by parameter name; a ``forward`` with one single
    parameter gets the batch. Every message-passing module that runs and gives one row per node of
    the batch counts as a layer, in the order they run; what follows it is not known, so that its
    output is taken for both sides of the activation.

    Args:
        module: The model. Its ``forward`` returns logits ``[graphs, outputs]``.
        layer_module: Where saliency and node embeddings are read instead: a submodule whose output
            is ``[nodes, width]``, or its name.
    """

    FIELDS = ("x", "edge_index", "edge_weight", "edge_attr", "batch", "batch_size")

    def __init__(self, module: nn.Module, layer_module: nn.Module | str | None = None) -> None:
        self.module = module
        parameters = inspect.signature(module.forward).parameters
        usable = {
            name: parameter
            for name, parameter in parameters.items()
            if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        }
        self.parameters = usable
        self.whole_batch = len(usable) == 1 and next(iter(usable)) not in self.FIELDS[:4]
        self.layer_modules = self._find_layers(layer_module)

    @property
    def takes_edge_weight(self) -> bool:
        """Whether ``forward`` has a parameter ``edge_weight``."""
        return "edge_weight" in self.parameters

    @property
    def takes_edge_attr(self) -> bool:
        """Whether ``forward`` has a parameter ``edge_attr``."""
        return "edge_attr" in self.parameters

    def _find_layers(self, named: nn.Module | str | None) -> list[nn.Module]:
        if isinstance(named, str):
            modules = dict(self.module.named_modules())
            if named not in modules:
                raise GraphTransplantError(
                    f"`saliency_module` is {named!r}, but the model has no such submodule; it has "
                    f"{', '.join(name for name in modules if name)}"
                )
            return [modules[named]]
        if named is not None:
            if all(named is not module for module in self.module.modules()):
                raise GraphTransplantError("`saliency_module` must be a submodule of the model")
            return [named]
        return [m for m in self.module.modules() if isinstance(m, MessagePassing)]

    def _arguments(self, batch: Data) -> dict[str, Any]:
        arguments: dict[str, Any] = {}
        for name, parameter in self.parameters.items():
            if name == "batch_size":
                arguments[name] = layout_of(batch).num_graphs
            elif name == "batch":
                arguments[name] = layout_of(batch).segment
            elif name in batch:
                arguments[name] = batch[name]
            elif parameter.default is parameter.empty:
                raise GraphTransplantError(
                    f"{type(self.module).__name__}.forward needs `{name}`, which the batch does "
                    f"not have; it has {', '.join(batch.keys())}"
                )
        return arguments

    def __call__(self, batch: Data) -> Prediction:
        """Run the model on a batch.

        Args:
            batch: A PyG batch.
        """
        outputs: list[LayerOutput] = []
        nodes = layout_of(batch).num_nodes

        def record(module: nn.Module, inputs: Any, output: Any) -> None:
            first = output[0] if isinstance(output, tuple) else output
            if isinstance(first, Tensor) and first.shape[:1] == (nodes,):
                outputs.append(LayerOutput(first, rectified=False))

        handles = [module.register_forward_hook(record) for module in self.layer_modules]
        try:
            if self.whole_batch:
                logits = self.module(batch)
            else:
                logits = self.module(**self._arguments(batch))
        finally:
            for handle in handles:
                handle.remove()
        graphs = layout_of(batch).num_graphs
        if not isinstance(logits, Tensor) or logits.shape[:1] != (graphs,):
            given = list(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            raise GraphTransplantError(
                f"the model must return a row of logits per graph, [{graphs}, outputs]; got {given}"
            )
        if logits.dim() == 1:
            logits = logits.unsqueeze(1)
        last = outputs[-1].nodes if outputs else logits.new_empty(nodes, 0)
        return Prediction(last, None, logits, tuple(outputs))


Predictor = GraphClassifier | ModuleAdapter


def as_predictor(
    model: Predictor | nn.Module, layer_module: nn.Module | str | None = None
) -> Predictor:
    """Return something that gives a :class:`Prediction` for a batch.

    Args:
        model: Any module over a PyG batch; what gives predictions already is returned as it is.
        layer_module: See :class:`ModuleAdapter`.
    """
    if isinstance(model, GraphClassifier | ModuleAdapter):
        return model
    return ModuleAdapter(model, layer_module)


def module_of(model: Predictor) -> nn.Module:
    """Return the module that has the parameters and the mode of a predictor.

    Args:
        model: The predictor.
    """
    return model.module if isinstance(model, ModuleAdapter) else model
