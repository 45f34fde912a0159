"""Networks that are not ours: what training and saliency ask of a model."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.optim.swa_utils import AveragedModel

from graph_transplant.data import GraphBatch, as_batch
from graph_transplant.data.pyg import Data
from graph_transplant.errors import GraphTransplantError
from graph_transplant.nn.classifier import GraphClassifier, LayerOutput, Prediction
from graph_transplant.nn.convolutions import Convolution
from graph_transplant.nn.segment import segment_sum


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; restores the previous mode of every module."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in modes:
            module.training = training


@contextmanager
def keeping_statistics(model: nn.Module) -> Iterator[None]:
    """Keep the running statistics of normalisation layers unchanged in training mode."""
    kept = [
        (module, name, buffer)
        for module in model.modules()
        if module.training and "running_mean" in module._buffers
        for name, buffer in module.named_buffers(recurse=False)
    ]
    # Use copies: PyG's InstanceNorm updates its statistics even without `track_running_stats`.
    for module, name, buffer in kept:
        setattr(module, name, buffer.clone())
    try:
        yield
    finally:
        for module, name, buffer in kept:
            setattr(module, name, buffer)


def varies_within_graphs(saliency: Tensor, batch: GraphBatch) -> bool:
    """Whether saliency differs within at least one graph; true if none has several nodes."""
    counts = batch.offsets.diff()
    mean = segment_sum(saliency, batch.batch, batch.offsets) / counts.clamp(min=1)
    mean = mean.index_select(0, batch.batch)
    several = counts.gt(1).index_select(0, batch.batch)
    if not bool(several.any()):
        return True
    return bool((several & ((saliency - mean).abs() > 1e-4 * mean)).any())


def _uncompiled(model: nn.Module) -> nn.Module:
    compiler = sys.modules.get("torch._dynamo.eval_frame")  # imported if any model was compiled
    while compiler is not None and isinstance(model, compiler.OptimizedModule):
        model = model._orig_mod
    return model


def unwrapped(model: nn.Module) -> nn.Module:
    """Unwrap ``torch.compile``, ``AveragedModel`` and (distributed) data parallelism."""
    model = _uncompiled(model)
    while isinstance(model, DataParallel | DistributedDataParallel | AveragedModel):
        model = _uncompiled(model.module)
    return model


def _is_pooling(module: nn.Module) -> bool:
    places = (kind.__module__ for kind in type(module).__mro__)
    return any(place.startswith("torch_geometric.nn.pool") for place in places)


class ModuleAdapter:
    """Adapts any ``nn.Module`` for PyG batches to return a :class:`Prediction`.

    Fields of the batch are passed to ``forward`` by parameter name. If its only required parameter
    is ``batch``, or not a field, it receives the batch itself. Layers are all message-passing
    modules that return one row per node before any pooling, or ``layer_module``, a submodule or its
    name. ``output`` extracts the logits ``[graphs, outputs]`` from what the model returns.

    ``DistributedDataParallel`` is called through its wrapper, which averages gradients;
    ``DataParallel`` is bypassed. Compiled models run eagerly when layer outputs are recorded.
    """

    FIELDS = ("x", "edge_index", "edge_weight", "edge_attr", "batch", "batch_size", "num_graphs")

    def __init__(
        self,
        module: nn.Module,
        layer_module: nn.Module | str | None = None,
        output: Callable[[Any], Tensor] | None = None,
    ) -> None:
        outer = _uncompiled(module)
        if isinstance(outer, DistributedDataParallel) and outer.static_graph:
            raise GraphTransplantError(
                "DistributedDataParallel(static_graph=True) does not average gradients once "
                "saliency was read: leave out static_graph"
            )
        self.module = unwrapped(module)
        self.eager = outer if isinstance(outer, DistributedDataParallel) else self.module
        self.called = self.module if isinstance(outer, DataParallel) else module
        self.output = output
        self.parameters = {
            name: parameter
            for name, parameter in inspect.signature(self.module.forward).parameters.items()
            if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        }
        if not self.parameters:
            raise GraphTransplantError(
                f"{type(self.module).__name__}.forward must name its parameters, such as `x` and "
                "`edge_index`: fields of a batch are passed by name"
            )
        required = [
            name
            for name, parameter in self.parameters.items()
            if parameter.default is parameter.empty
        ]
        named = required if len(required) == 1 else list(self.parameters)
        self.single = named[0] if len(named) == 1 else None
        # A `forward` that receives the batch gets no optional parameters.
        by_name = self.single is None or self.single in self.FIELDS[:4]
        self.takes_edge_weight = by_name and "edge_weight" in self.parameters
        self.takes_edge_attr = "edge_attr" in self.parameters
        # A built-in network tells its layers itself.
        self.ours: GraphClassifier | None = None
        if isinstance(self.module, GraphClassifier) and layer_module is None:
            self.ours = self.module
        self.layer_modules = self._find_layers(layer_module)
        # After pooling, rows are no longer the original nodes, even if their number is the same.
        every = self.module.modules() if layer_module is None else ()
        self.pooling = [module for module in every if _is_pooling(module)]
        self.given: set[str] = set()  # optional fields of the original graphs
        self.logits_checked = False  # by the first step of training

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
        if self.ours is not None:
            return []
        pyg = sys.modules.get("torch_geometric.nn")  # if not imported, no module is PyG's
        kinds = (Convolution, getattr(pyg, "MessagePassing", ()))
        every = list(self.module.modules())
        scoring = {part for module in every if _is_pooling(module) for part in module.modules()}
        return [module for module in every if isinstance(module, kinds) and module not in scoring]

    def _arguments(self, data: Data, batch: GraphBatch) -> dict[str, Any]:
        arguments: dict[str, Any] = {}
        for name, parameter in self.parameters.items():
            if name in ("batch_size", "num_graphs"):
                arguments[name] = batch.num_graphs
            elif name == "batch":
                arguments[name] = batch.batch
            elif name in data:
                arguments[name] = data[name]
            elif name == "edge_weight":
                arguments[name] = self._ones(data)
            elif name == "x" and isinstance(self.module, GraphClassifier):
                arguments[name] = None  # it uses degrees
            elif parameter.default is parameter.empty or name in self.given:
                lacking = "virtual graphs do" if name in self.given else "the batch does"
                raise GraphTransplantError(
                    f"{type(self.module).__name__}.forward needs `{name}`, which {lacking} not "
                    f"have; there are {', '.join(data.keys())}"
                )
        self.given.update(arguments)
        return arguments

    def _ones(self, data: Data) -> Tensor:
        """Edge weights of one, in the precision of the features or else of the model."""
        tensors = (data.x, *self.module.parameters())
        dtypes = (t.dtype for t in tensors if isinstance(t, Tensor) and t.is_floating_point())
        edge_index = data.edge_index
        return torch.ones(edge_index.shape[1], dtype=next(dtypes, None), device=edge_index.device)

    def _whole(self, data: Data) -> bool:
        """Whether ``forward`` receives the batch itself."""
        name = self.single
        return name == "batch" or not (name is None or name in self.FIELDS[:4] or name in data)

    def run(self, batch: GraphBatch | Data, *, layers: bool = True) -> Prediction:
        """Run the model on a batch; with ``layers``, record the outputs of its layers."""
        batch = as_batch(batch)
        data = batch.pyg()
        outputs: list[LayerOutput] = []
        pooled: list[nn.Module] = []

        def record(module: nn.Module, inputs: Any, output: Any) -> Any:
            several = isinstance(output, tuple)
            first = output[0] if several else output
            if not isinstance(first, Tensor) or first.shape[:1] != (batch.num_nodes,) or pooled:
                return None
            if not first.requires_grad and first.is_floating_point():  # earlier layers are frozen
                first = first.detach().requires_grad_()
            outputs.append(LayerOutput(first, rectified=False))
            copied = first.clone()  # the next module may work in place
            if not several:
                return copied
            kind = getattr(output, "_make", tuple)  # named tuples
            return kind((copied, *output[1:]))

        if layers and self.ours is not None:
            embed = self.ours.embed_nodes

            def embed_nodes(graphs: GraphBatch) -> tuple[LayerOutput, ...]:
                embedded = embed(graphs)
                outputs.extend(embedded)
                return embedded

            vars(self.ours)["embed_nodes"] = embed_nodes
        hooked = self.layer_modules if layers else []
        handles = [module.register_forward_hook(record) for module in hooked]
        handles += [
            module.register_forward_hook(lambda module, *_: pooled.append(module))
            for module in self.pooling
        ]
        model = self.eager if layers else self.called
        try:
            returned = model(data) if self._whole(data) else model(**self._arguments(data, batch))
        finally:
            for handle in handles:
                handle.remove()
            vars(self.module).pop("embed_nodes", None)
        logits = returned if self.output is None else self.output(returned)
        if not isinstance(logits, Tensor) or logits.shape[:1] != (batch.num_graphs,):
            given = list(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            raise GraphTransplantError(
                f"the model must return a row of logits per graph, [{batch.num_graphs}, outputs]; "
                f"got {given}; `output` can pick them out of what it returns"
            )
        if logits.dim() == 1:
            logits = logits.unsqueeze(1)
        last = outputs[-1].nodes if outputs else logits.new_empty(batch.num_nodes, 0)
        return Prediction(last, None, logits, tuple(outputs))


Predictor = GraphClassifier | ModuleAdapter


def as_predictor(
    model: Predictor | nn.Module,
    layer_module: nn.Module | str | None = None,
    output: Callable[[Any], Tensor] | None = None,
) -> Predictor:
    """Wrap a model in a :class:`ModuleAdapter`, if necessary."""
    if isinstance(model, ModuleAdapter):
        return model
    if not isinstance(model, nn.Module):
        raise GraphTransplantError(f"`model` must be an nn.Module; got {model!r}")
    inner = unwrapped(model)
    averaged = isinstance(_uncompiled(model), DistributedDataParallel)
    if (
        isinstance(inner, GraphClassifier)
        and type(inner).forward is GraphClassifier.forward  # not overridden
        and not averaged
        and layer_module is output is None
    ):
        return inner
    return ModuleAdapter(model, layer_module, output)


def module_of(model: Predictor) -> nn.Module:
    """Return the ``nn.Module`` of a predictor."""
    return model.module if isinstance(model, ModuleAdapter) else model
