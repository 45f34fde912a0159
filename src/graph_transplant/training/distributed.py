"""Distributed training."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, distributed, nn

from graph_transplant.errors import GraphTransplantError


class PeerFailedError(GraphTransplantError):
    """Another process of the group has failed; the reason is in its output."""


@dataclass(frozen=True)
class Ranks:
    """The processes of ``torch.distributed``; only this one if it is not initialised."""

    rank: int
    size: int

    @classmethod
    def current(cls) -> Ranks:
        """Return the group of this process."""
        if distributed.is_available() and distributed.is_initialized():
            return cls(distributed.get_rank(), distributed.get_world_size())
        return cls(0, 1)

    def total(self, values: Tensor) -> Tensor:
        """Sum values over all processes, in place."""
        if self.size > 1:
            distributed.all_reduce(values)
        return values

    def add_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Sum gradients over all processes; missing gradients count as zero."""
        if self.size == 1:
            return
        every = list(parameters)
        for parameter in every:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        gradients = [p.grad for p in every if p.grad is not None]
        flat = self.total(torch.cat([gradient.flatten() for gradient in gradients]))
        sizes = [gradient.numel() for gradient in gradients]
        for gradient, part in zip(gradients, torch.split(flat, sizes), strict=True):
            gradient.copy_(part.view_as(gradient))

    def average_after(self, loss: Tensor, parameters: Sequence[nn.Parameter]) -> None:
        """Average gradients over all processes at the end of each backward pass from a loss."""
        if self.size == 1 or not (parameters and loss.requires_grad):
            return

        def average() -> None:
            self.add_gradients(parameters)
            for parameter in parameters:
                if parameter.grad is not None:
                    parameter.grad /= self.size

        # At the end, as DDP reduces in the midst of it: the order is that of all processes.
        engine = torch.autograd.Variable._execution_engine
        loss.register_hook(lambda gradient: engine.queue_callback(average))  # type: ignore[no-untyped-call]

    def share_state(self, modules: Sequence[nn.Module]) -> None:
        """Broadcast weights and buffers from the first process."""
        if self.size > 1:
            for module in modules:
                for tensor in (*module.parameters(), *module.buffers()):
                    distributed.broadcast(tensor.data, 0)

    @contextmanager
    def ending_together(self) -> Iterator[None]:
        """Raise in all processes if the body raises in one."""
        failed = True
        try:
            yield
            failed = False
        finally:
            if self.size > 1:
                device = "cuda" if distributed.get_backend() == "nccl" else "cpu"
                failures = int(self.total(torch.tensor([int(failed)], device=device)))
                if failures and not failed:
                    raise PeerFailedError("another process of the group ended the training")
