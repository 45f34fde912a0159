"""Training steps of this package's methods, and what every augmentation costs by itself.

Used by bench.py, which says how to run it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from rich import box
from rich.table import Table
from torch import Tensor
from torch_geometric.data import Batch

import graph_transplant as gt
from graph_transplant.augment import METHODS, build_method
from graph_transplant.nn import evaluating
from graph_transplant.targets import as_targets
from graph_transplant.training import take_step

LAYERS, HIDDEN, DROPOUT = 3, 128, 0.5
LEARNING_RATE, CLIP_NORM = 5e-4, 2.0
WARM_UP = 3

BATCH_SIZE = 128
METHOD_ROUNDS, QUICK_METHOD_ROUNDS = 50, 8
WANTED = 0.5  # an augmentation by itself, as a ratio to our vanilla step


# -------------------------------------------------------------------- timing


def random_batches(
    store: gt.GraphStore, batch_size: int, count: int, seed: int = 0
) -> list[Tensor]:
    """Draw batches of graph numbers, every graph at most once in a batch."""
    size = min(batch_size, len(store))
    generator = torch.Generator().manual_seed(seed)
    return [torch.randperm(len(store), generator=generator)[:size] for _ in range(count)]


def interleave(
    runs: Mapping[str, Callable[[], object]],
    rounds: int,
    before: Mapping[str, Callable[[], object]] | None = None,
) -> dict[str, list[float]]:
    """Call everything in turn, round by round, so that a busy moment hits all alike.

    Args:
        runs: What to time, by name.
        rounds: How many times, after a few rounds that do not count.
        before: What some of them need done before each call; this is not timed.

    Returns:
        The milliseconds of every call that counts, by name.
    """
    names = list(runs)
    before = before or {}
    times: dict[str, list[float]] = {name: [] for name in names}
    for number in range(-WARM_UP, rounds):
        # Each round begins with another one, so that none always pays for the first place.
        start = number % len(names)
        for name in names[start:] + names[:start]:
            run = runs[name]
            if name in before:
                before[name]()
            # One thread and no workers: this is the time on the wall, less what other programs
            # took of the processor meanwhile.
            begin = time.process_time()
            run()
            taken = time.process_time() - begin
            if number >= 0:
                times[name].append(1e3 * taken)
    return times


# -------------------------------------------------------------------- steps


def make_model(store: gt.GraphStore) -> gt.GraphClassifier:
    """Make our model for a data set."""
    return gt.GraphClassifier.for_data(
        store, conv="gcn", layers=LAYERS, hidden=HIDDEN, dropout=DROPOUT, seed=0
    )


@dataclass(frozen=True)
class Ready:
    """A model and a method's augmentations, as they are after the first epoch of a training."""

    model: gt.GraphClassifier
    augmentations: tuple[gt.Augmentation, ...]
    generator: torch.Generator
    prepare_seconds: float

    @classmethod
    def of(cls, method: str, store: gt.GraphStore) -> Ready:
        """Build a method for a data set; one that cannot serve the data raises its own error."""
        model = make_model(store).train()
        augmentations = build_method(method, model, seed=0)
        for augmentation in augmentations:
            augmentation.check(model, store)
        generator = torch.Generator().manual_seed(0)
        begin = time.process_time()
        for augmentation in augmentations:
            augmentation.prepare(store, generator)
        seconds = time.process_time() - begin
        # What a method does only once it has seen validation graphs is part of its cost.
        validation = store.subset(random_batches(store, BATCH_SIZE, 1)[0])
        with evaluating(model):
            for augmentation in augmentations:
                augmentation.after_epoch(model, validation)
        return cls(model, augmentations, generator, seconds)


def take_steps(ready: Ready, store: gt.GraphStore, batches: Sequence[Tensor]) -> Iterator[Tensor]:
    """Train, one step per batch, as :func:`graph_transplant.fit` does."""
    parameters = [p for module in (ready.model, *ready.augmentations) for p in module.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=LEARNING_RATE, fused=True)
    for batch in store.batches(torch.cat(list(batches)), len(batches[0])):
        losses = take_step(
            ready.model,
            batch,
            ready.augmentations,
            optimizer,
            task=store.task,
            clip_norm=CLIP_NORM,
            generator=ready.generator,
        )
        yield losses.total.detach()


def ours(method: str, store: gt.GraphStore, batches: Sequence[Tensor]) -> Iterator[Tensor]:
    """Train with a method of this package, one step per batch."""
    yield from take_steps(Ready.of(method, store), store, batches)


class AugmentationOnly:
    """Calls a method's augmentations on finished clean passes, each pass used once.

    A clean pass is a batch, the model's prediction and its loss. Saliency is not part of it: who
    needs it reads it within the call, which is why a pass must not be used again.

    A filter embeds the virtual graphs within the call and hands the embeddings on, so that the step
    does not embed them again. That pass is the model's, not the augmentation's, as for every other
    method: how long it took in each call is kept in ``passes``.
    """

    def __init__(self, ready: Ready, store: gt.GraphStore, batches: Sequence[Tensor]) -> None:
        self.ready = ready
        self.task = store.task
        self.batches = iter(store.batches(torch.cat(list(batches)), len(batches[0])))
        self.clean: gt.CleanPass | None = None
        self.passes: list[float] = []

    def embed(self, batch: Batch) -> Tensor:
        """Embed virtual graphs as the model does, and keep the milliseconds."""
        begin = time.process_time()
        embedded = gt.GraphClassifier.embed_graphs(self.ready.model, batch)
        self.passes[-1] += 1e3 * (time.process_time() - begin)
        return embedded

    def predict(self) -> None:
        """Make the clean pass of the next batch."""
        batch = next(self.batches)
        prediction = self.ready.model(batch)
        targets = as_targets(batch.y, prediction.logits.shape[1])
        self.clean = gt.CleanPass(batch, targets, prediction, self.task)
        _ = self.clean.loss  # computed when first asked for

    def __call__(self) -> list[gt.Virtual]:
        """Make the virtual samples."""
        clean, self.clean = self.clean, None
        if clean is None:
            raise RuntimeError("call predict() before each call")
        self.passes.append(0.0)
        model = self.ready.model
        with mock.patch.object(model, "embed_graphs", self.embed):
            return [
                augmentation(clean, model=model, generator=self.ready.generator)
                for augmentation in self.ready.augmentations
            ]


# -------------------------------------------------------------------- the table of all methods


def measure_methods(store: gt.GraphStore, rounds: int) -> dict[str, Any]:
    """Time the augmentation and the whole step of every method on the same batches.

    Args:
        store: The data set; methods that refuse it are listed with their reason.
        rounds: How many calls of each count.

    Returns:
        ``ratios``: by method, the medians of ``augmentation``, of the model's ``pass`` on virtual
        graphs that was made within it and left out, and of the ``step``, divided by that of our
        vanilla step, and ``prepare_seconds``; ``refused``: reasons by method; ``wanted``: the ratio
        that an augmentation should not exceed; and what was measured: ``data``, ``batch_size``,
        ``rounds``, ``vanilla_milliseconds``.
    """
    batches = random_batches(store, BATCH_SIZE, WARM_UP + rounds)
    ready: dict[str, Ready] = {}
    refused: dict[str, str] = {}
    for name in METHODS:
        try:
            ready[name] = Ready.of(name, store)
        except gt.GraphTransplantError as error:
            refused[name] = str(error)
    runs: dict[str, Callable[[], object]] = {}
    before: dict[str, Callable[[], object]] = {}
    alone = {name: AugmentationOnly(one, store, batches) for name, one in ready.items()}
    for name, one in ready.items():
        runs[f"{name} augmentation"] = alone[name]
        before[f"{name} augmentation"] = alone[name].predict
        runs[f"{name} step"] = take_steps(one, store, batches).__next__
    times = interleave(runs, rounds, before)
    for name in ready:
        passes = alone[name].passes[WARM_UP:]
        whole = times[f"{name} augmentation"]
        times[f"{name} augmentation"] = [a - b for a, b in zip(whole, passes, strict=True)]
        times[f"{name} pass"] = passes
    medians = {name: statistics.median(values) for name, values in times.items()}
    vanilla = medians["vanilla step"]
    return {
        "data": store.name,
        "batch_size": len(batches[0]),
        "rounds": rounds,
        "vanilla_milliseconds": round(vanilla, 3),
        "wanted": WANTED,
        "ratios": {
            name: {
                "augmentation": round(medians[f"{name} augmentation"] / vanilla, 4),
                "pass": round(medians[f"{name} pass"] / vanilla, 4),
                "step": round(medians[f"{name} step"] / vanilla, 4),
                "prepare_seconds": round(one.prepare_seconds, 3),
            }
            for name, one in ready.items()
        },
        "refused": refused,
    }


def methods_table(measured: Mapping[str, Any]) -> Table:
    """Lay out what :func:`measure_methods` gave, with the wanted ratio."""
    table = Table(
        title=(
            f"Every method on {measured['data']}, {measured['batch_size']} graphs, as a ratio to "
            "our vanilla step"
        ),
        caption=(
            f"vanilla step: {measured['vanilla_milliseconds']:.1f} ms; an augmentation by itself "
            f"should stay at or below {WANTED:g}; prepare: once, on the whole data set"
            + "".join(
                f"; {name} also embeds the virtual graphs ({ratios['pass']:.2f}), which is not "
                "repeated in the step"
                for name, ratios in measured["ratios"].items()
                if ratios["pass"]
            )
        ),
        box=box.SIMPLE_HEAD,
    )
    table.add_column("method")
    for heading in ("augmentation", "whole step", "prepare"):
        table.add_column(heading, justify="right")
    vanilla = measured["vanilla_milliseconds"]
    for name, ratios in measured["ratios"].items():
        alone, seconds = ratios["augmentation"], ratios["prepare_seconds"]
        # A miss must show without colours too, in a file or a log.
        ratio = f"[red]{alone:.2f} > {WANTED:g}[/]" if alone > WANTED else f"[green]{alone:.2f}[/]"
        table.add_row(
            name,
            f"{ratio} [dim]{alone * vanilla:4.1f} ms[/]",
            f"{ratios['step']:.2f} [dim]{ratios['step'] * vanilla:5.1f} ms[/]",
            f"{seconds:.2f} s" if seconds >= 0.005 else "",
        )
    for name in measured["refused"]:
        table.add_row(name, "[yellow]refused[/]")
    return table
