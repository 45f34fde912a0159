"""Networks that are not ours: what training and saliency ask of a model."""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.optim.swa_utils import AveragedModel

from graph_transplant.data import GraphBatch, GraphStore, as_batch
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


def _is_wrapped(model: nn.Module) -> bool:
    compiler = sys.modules.get("torch._dynamo.eval_frame")  # imported if any model was compiled
    return compiler is not None and isinstance(model, compiler.OptimizedModule)


def _uncompiled(model: nn.Module) -> nn.Module:
    while _is_wrapped(model):
        model = model._orig_mod  # type: ignore[assignment]
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


@dataclass
class _Memory:
    """What is known of a module; adapters come and go with every step of a loop of one's own."""

    logits_checked: bool = False
    reads_edge_weight: dict[Any, bool] = field(default_factory=dict)  # by the code of `call`
    told_of_compilation: bool = False


_MEMORIES: WeakKeyDictionary[nn.Module, _Memory] = WeakKeyDictionary()

_POSITIONAL = "call=lambda model, data: model(data.x, data.edge_index, data.batch)"


class ModuleAdapter:
    """Adapts any ``nn.Module`` for PyG batches to return a :class:`Prediction`.

    Fields of the batch are passed to ``forward`` by parameter name. If its only required parameter
    is ``batch``, or not a field, it receives the batch itself; ``call`` replaces these rules.
    Layers are all message-passing modules that return one row per node before any pooling, or
    ``layer_module``, a submodule or its name. ``output`` extracts the logits ``[graphs, outputs]``
    from what the model returns, or the logits and a loss of the model's own.

    ``DistributedDataParallel`` is called through its wrapper, which averages gradients;
    ``DataParallel`` is bypassed. Compiled models run eagerly when layer outputs are recorded.
    """

    FIELDS = ("x", "edge_index", "edge_weight", "edge_attr", "batch", "batch_size", "num_graphs")

    def __init__(
        self,
        module: nn.Module,
        layer_module: nn.Module | str | None = None,
        output: Callable[[Any], Any] | None = None,
        call: Callable[[nn.Module, Any], Any] | None = None,
    ) -> None:
        for name, function in (("output", output), ("call", call)):
            if function is not None and not callable(function):
                raise GraphTransplantError(f"`{name}` must be a function; got {function!r}")
        outer = _uncompiled(module)
        if isinstance(outer, DistributedDataParallel) and outer.static_graph:
            raise GraphTransplantError(
                "DistributedDataParallel(static_graph=True) does not average gradients once "
                "saliency was read: leave out static_graph"
            )
        self.module = unwrapped(module)
        self.called = self.module if isinstance(outer, DataParallel) else module
        self.output = output
        self.call = call
        self.memory = _MEMORIES.setdefault(self.module, _Memory())
        self.parameters = {
            name: parameter
            for name, parameter in inspect.signature(self.module.forward).parameters.items()
            if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        }
        if not (self.parameters or call):
            raise GraphTransplantError(
                f"{type(self.module).__name__}.forward must name its parameters, such as `x` and "
                f"`edge_index`: fields of a batch are passed by name; or pass {_POSITIONAL}"
            )
        required = [
            name
            for name, parameter in self.parameters.items()
            if parameter.default is parameter.empty
        ]
        named = required if len(required) == 1 else list(self.parameters)
        self.single = named[0] if len(named) == 1 else None
        # A `forward` that receives the batch gets no optional parameters.
        self.by_name = call is None and (self.single is None or self.single in self.FIELDS[:4])
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
            elif name == "y" and parameter.default is not parameter.empty:
                continue  # labels are none of the model's business unless it insists
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
                    f"have; there are {', '.join(data.keys())}. To call it in another way, pass "
                    f"{_POSITIONAL}"
                )
        self.given.update(arguments)
        return arguments

    def _ones(self, data: Data) -> Tensor:
        """Edge weights of one, in the precision of the features or else of the model."""
        tensors = (data.x, *self.module.parameters())
        dtypes = (t.dtype for t in tensors if isinstance(t, Tensor) and t.is_floating_point())
        edge_index = data.edge_index
        return torch.ones(edge_index.shape[1], dtype=next(dtypes, None), device=edge_index.device)

    def _run(self, module: nn.Module, data: Data, batch: GraphBatch) -> Any:
        if self.call is not None:
            return self.call(module, data)
        name = self.single
        if name == "batch" or not (name is None or name in self.FIELDS[:4] or name in data):
            return module(data)
        return module(**self._arguments(data, batch))

    def reads_edge_weight(self, batch: GraphBatch) -> bool:
        """Whether the outputs depend on the weights of edges.

        A parameter says so; of a model that receives the batch, the gradient, once per model.
        """
        if self.by_name:
            return "edge_weight" in self.parameters
        known = self.memory.reads_edge_weight
        code = getattr(self.call, "__code__", self.call)  # a lambda is a new one in every step
        if code not in known:
            data = batch.to_pyg()
            data.edge_weight = weight = self._ones(data).requires_grad_()
            devices = {each.device for each in self.module.parameters()} - {torch.device("cpu")}
            with (
                torch.random.fork_rng(devices=devices),
                evaluating(self.module),
                torch.enable_grad(),
                self._eagerly(),
            ):
                logits, _ = self._outputs(self._run(self.module, data, batch), batch)
                slope = None
                if logits.requires_grad:
                    (slope,) = torch.autograd.grad(logits.sum(), weight, allow_unused=True)
            known[code] = slope is not None
        return known[code]

    def _eagerly(self) -> AbstractContextManager[None]:
        """A context in which nothing runs compiled, in whatever way it was."""
        if "torch._dynamo.eval_frame" not in sys.modules:
            return nullcontext()
        compiled = any(
            _is_wrapped(each) or each._compiled_call_impl is not None
            for each in self.called.modules()
        )
        if compiled and not self.memory.told_of_compilation:
            self.memory.told_of_compilation = True
            warnings.warn(
                "the model is compiled: it runs eagerly on original graphs where its layers are "
                "looked at, as for saliency, and compiled on virtual graphs and in evaluation",
                stacklevel=2,
            )
        context: AbstractContextManager[None] = torch.compiler.set_stance("force_eager")
        return context

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
        handles = []
        if layers:
            handles = [module.register_forward_hook(record) for module in self.layer_modules]
            handles += [
                module.register_forward_hook(lambda module, *_: pooled.append(module))
                for module in self.pooling
            ]
        try:
            with self._eagerly() if layers else nullcontext():
                returned = self._run(self.called, data, batch)
        finally:
            for handle in handles:
                handle.remove()
            vars(self.module).pop("embed_nodes", None)
        logits, extra = self._outputs(returned, batch)
        last = outputs[-1].nodes if outputs else logits.new_empty(batch.num_nodes, 0)
        return Prediction(last, None, logits, tuple(outputs), extra)

    def _outputs(self, returned: Any, batch: GraphBatch) -> tuple[Tensor, Tensor | None]:
        """The logits ``[graphs, outputs]``, and the model's own loss, if there is one."""
        logits, extra = returned if self.output is None else self.output(returned), None
        if self.output is not None and isinstance(logits, tuple) and len(logits) == 2:
            logits, extra = logits
        if not isinstance(logits, Tensor) or logits.shape[:1] != (batch.num_graphs,):
            given = list(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            raise GraphTransplantError(
                f"the model must return a row of logits per graph, [{batch.num_graphs}, outputs]; "
                f"got {given}; `output` can pick them out of what it returns{_picked(logits)}"
            )
        if logits.dim() == 1:
            logits = logits.unsqueeze(1)
        if extra is not None:
            extra = torch.as_tensor(extra, device=logits.device)
            if extra.numel() != 1:
                raise GraphTransplantError(
                    "`output` must return the logits, or the logits and a scalar loss of the "
                    f"model's own; got a loss of shape {list(extra.shape)}: use its mean"
                )
            extra = extra.reshape(())
        return logits, extra


def _picked(returned: Any) -> str:
    """Say how to pick the logits out of a tuple, and how to keep the losses beside them."""
    if not isinstance(returned, tuple):
        return ""
    own = [
        f"out[{place}]"
        for place, value in enumerate(returned)
        if isinstance(value, Tensor) and value.numel() == 1
    ]
    losses = " + ".join(own) or "out[1]"
    return (
        f": output=lambda out: (out[0], {losses}) adds the model's own losses to the total, "
        "output=lambda out: out[0] leaves them out"
    )


Predictor = GraphClassifier | ModuleAdapter


def as_predictor(
    model: Predictor | nn.Module,
    layer_module: nn.Module | str | None = None,
    output: Callable[[Any], Any] | None = None,
    call: Callable[[nn.Module, Any], Any] | None = None,
) -> Predictor:
    """Wrap a model in a :class:`ModuleAdapter`, if necessary."""
    if isinstance(model, ModuleAdapter):
        return model
    if not isinstance(model, nn.Module):
        raise GraphTransplantError(
            f"`model` must be an nn.Module; got {model!r}; `call` says how it is called"
        )
    inner = unwrapped(model)
    averaged = isinstance(_uncompiled(model), DistributedDataParallel)
    if (
        isinstance(inner, GraphClassifier)
        and type(inner).forward is GraphClassifier.forward  # not overridden
        and not averaged
        and (layer_module, output, call) == (None, None, None)
    ):
        return inner
    return ModuleAdapter(model, layer_module, output, call)


def first_graph(model: Predictor, data: GraphStore) -> GraphBatch:
    """The first graph of a data set on the device of a model, to try the model on."""
    device = next((each.device for each in module_of(model).parameters()), "cpu")
    return data.batch([0]).to(device)


def node_width(model: Predictor, data: GraphStore | None) -> int:
    """Width of the node embeddings at the last layer; -1 if it is unknown."""
    module = module_of(model)
    if isinstance(module, GraphClassifier):
        return module.hidden
    if data is None:
        return -1
    with evaluating(module):
        return model.run(first_graph(model, data)).nodes.shape[1] or -1


def module_of(model: Predictor) -> nn.Module:
    """Return the ``nn.Module`` of a predictor."""
    return model.module if isinstance(model, ModuleAdapter) else model
