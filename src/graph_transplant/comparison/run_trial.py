"""One trial: a method, with a model unless it is a baseline, on one fold with one seed."""

from __future__ import annotations

import copy
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn

from graph_transplant import __version__
from graph_transplant.analysis import robustness, saliency_quality, sample_quality
from graph_transplant.analysis.drawing import examples
from graph_transplant.augment import Augmentation, build_method
from graph_transplant.baselines import fit as fit_baseline
from graph_transplant.baselines.features import add_descriptors
from graph_transplant.comparison.training_sets import split_of, training_labels, trial_seed
from graph_transplant.config.compare import Settings
from graph_transplant.data import GraphStore, InputRows
from graph_transplant.data.targets import TargetScale, as_targets, graph_id
from graph_transplant.datasets.molecules import atoms_of
from graph_transplant.datasets.splits import Split
from graph_transplant.errors import GraphTransplantError
from graph_transplant.methods import Method, method_key, method_of
from graph_transplant.metrics import Metric, measure
from graph_transplant.metrics.calibration import calibration
from graph_transplant.nn import GraphClassifier
from graph_transplant.nn.adapter import as_predictor
from graph_transplant.nn.saliency import has_saliency
from graph_transplant.results.predictions import Predictions, TrialPredictions
from graph_transplant.results.record import Machine, Sizes, Trial, TrialRecord
from graph_transplant.training.checkpoint import CheckpointError
from graph_transplant.training.defaults import sampled_curve
from graph_transplant.training.loop import FitResult, evaluate, fit_with
from graph_transplant.training.state import EpochLog


@dataclass(frozen=True)
class CustomParts:
    """The user's own methods and models by name.

    ``methods`` are augmentations, or the names of built-in methods; ``models`` are functions that
    create a model for some graphs.
    """

    methods: Mapping[str, tuple[Augmentation, ...] | str] = field(default_factory=dict)
    models: Mapping[str, Callable[[GraphStore], nn.Module]] = field(default_factory=dict)

    def model(self, name: str, data: GraphStore, seed: int) -> nn.Module:
        """Create a model for some graphs."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = self.models[name](data)
        if not isinstance(model, nn.Module):
            raise GraphTransplantError(
                f"`model`: the function for {name!r} must return an nn.Module; got "
                f"{type(model).__name__}"
            )
        return model

    def augmentations(
        self, name: str, model: nn.Module, data: GraphStore, seed: int
    ) -> tuple[Augmentation, ...]:
        """Create the augmentations of a method."""
        given = self.methods.get(name, name)
        if isinstance(given, str):
            return build_method(given, model, data=data, seed=seed)
        return copy.deepcopy(given)


def checkpoint_of(folder: Path, trial: Trial) -> Path:
    """Return the path of a trial's checkpoint."""
    return folder / f"{trial.file_name}.pt"


def remove_checkpoint(folder: Path, trial: Trial) -> None:
    """Remove the checkpoint of a finished trial, and partial files of killed processes."""
    path = checkpoint_of(folder, trial)
    for file in (path, *folder.glob(f"{path.name}.*.part")):
        file.unlink(missing_ok=True)


@dataclass(frozen=True)
class TrialContext:
    """What all trials of a comparison share, in any process."""

    settings: Settings
    fingerprint: str
    source: str  # how the user specified the data
    checkpoints: Path | None = None  # unless this is a directory, none are written
    own: CustomParts = field(default_factory=CustomParts)
    rows: InputRows | None = None  # input rows, which the files that workers read do not contain
    metrics: Mapping[str, Metric] = field(default_factory=dict)  # the user's own
    methods: Mapping[str, Method] = field(default_factory=dict)  # the user's own


class Finished(NamedTuple):
    """A finished trial: its record, and its outputs on validation and test graphs."""

    record: TrialRecord
    predictions: TrialPredictions

    @property
    def trial(self) -> Trial:
        """The trial that is finished."""
        return self.record.trial


def run_trial(
    store: GraphStore,
    trial: Trial,
    job: TrialContext,
    callbacks: Sequence[Callable[[EpochLog], None]] = (),
) -> Finished:
    """Train and evaluate one trial.

    Selection uses the validation graphs only; the test graphs are evaluated once, at the selected
    checkpoint. Features are standardised by training and validation graphs, regression targets by
    training graphs alone; metrics are in the units of the data. Label noise and training fraction
    affect only the training graphs. Apart from the times, ``seconds`` and ``cost``, the record
    depends only on the arguments.
    """
    settings, own, checkpoint = job.settings, job.own, None
    if job.checkpoints is not None and job.checkpoints.is_dir():
        checkpoint = checkpoint_of(job.checkpoints, trial)
    if store.rows is None and job.rows is not None:
        store = copy.copy(store)
        store.rows = job.rows
    if method_of(trial.method).needs_smiles and store.has_structures:
        add_descriptors(store)  # of all graphs, as they are kept together
    split = split_of(store, trial, settings)
    seed = trial_seed(trial, settings.seed)
    train, validation, test = map(store.subset, (split.train, split.validation, split.test))
    if trial.label_noise:
        labels = training_labels(store, split, trial, settings)
        train = train.with_targets(labels, num_outputs=store.num_outputs)
    sizes = Sizes(train=len(train), validation=len(validation), test=len(test))
    if trial.train_fraction != 1:
        sizes = replace(sizes, left_out=len(store) - sizes.graphs)
    record = TrialRecord(
        data=store.name,
        source=job.source,
        fingerprint=job.fingerprint,
        task=store.task,
        method=trial.method,
        model=trial.model or None,
        layers=trial.layers or None,
        repeat=trial.repeat,
        fold=trial.fold,
        seed=seed,
        validation={},
        test={},
        epochs=None,
        best_epoch=None,
        seconds=0.0,
        machine=machine(),
        sizes=sizes,
        settings=settings.as_record(__version__, method_of(trial.method).numerics),
        **trial.condition._asdict(),
    )
    if store.task == "multiclass":
        # Accuracy of always predicting the largest class of the training graphs.
        largest = torch.bincount(store.labels[split.train]).argmax()
        record = replace(record, majority=float(test.labels.eq(largest).double().mean()))
    if trial.label_noise:
        true = store.y[split.train]
        # Missing labels are not wrong, although NaN != NaN.
        wrong = (train.y != true) & ~true.isnan()
        record = replace(record, wrong_labels=int(wrong.sum()))
    if not method_of(trial.method).network:
        options: dict[str, Any] = {"metric": settings.metric, "balance": settings.balance}

        def run(*parts: GraphStore) -> tuple[dict[str, Any], Sequence[Tensor]]:
            return _baseline(trial.method, *parts, **options, seed=seed)

        warm_up((trial.method, store.task), run, train, validation, test)
        found, outputs = run(train, validation, test)
        return Finished(replace(record, **found), _kept(store, split, outputs))
    scale = TargetScale.of(train) if store.task == "regression" else None

    def scaled(part: GraphStore) -> GraphStore:
        return part if scale is None else scale.apply(part)

    def trained(
        train: GraphStore,
        validation: GraphStore,
        callbacks: Sequence[Callable[[EpochLog], None]] = (),
        checkpoint: Path | None = None,
        **changes: Any,
    ) -> tuple[FitResult, Sequence[Augmentation]]:
        seen = store.subset(torch.cat([split.train, split.validation]))
        if trial.model in own.models:
            model = own.model(trial.model, seen, seed)
        else:
            model = GraphClassifier.for_data(
                seen, conv=trial.model, layers=trial.layers, **settings.network(), seed=seed
            )
        augmentations = own.augmentations(trial.method, model, seen, seed + 1)
        result = fit_with(
            settings.fitting(seed, **changes),
            model,
            scaled(train),
            scaled(validation),
            augmentations,
            progress=False,
            callbacks=callbacks,
            checkpoint=checkpoint,
        )
        return result, augmentations

    # Few graphs may lack classes that a metric or balancing needs.
    briefly = partial(trained, epochs=1, metric="accuracy", balance=False)
    kind = (trial.model, method_key(trial.method), settings.recipe, store.task)
    warm_up(kind, briefly, train, validation)
    whole = partial(trained, train, validation, callbacks=callbacks, checkpoint=checkpoint)
    start = time.perf_counter()
    begin, processor = time.perf_counter(), time.process_time()
    try:
        result, augmentations = whole()
    except CheckpointError:
        if checkpoint is not None:
            checkpoint.unlink(missing_ok=True)
        result, augmentations = whole()
    processor = time.process_time() - processor
    # Later measurements are the same work for all methods, and not part of training.
    now = time.perf_counter()
    # Epochs from before an interruption count by wall-clock time.
    earlier = max(0.0, result.seconds - (now - begin))
    found = {
        "epochs": result.epochs,
        "best_epoch": result.best_epoch,
        "seconds": round(now - start + earlier, 3),
        "stopped_early": result.stopped_early,
        "curve": sampled_curve(result.history),
    }
    # Processor time, which parallel trials do not affect.
    spent = processor + earlier
    each = spent / result.epochs
    times = {"fit_seconds": spent, "epoch_seconds": each, "best_seconds": each * result.best_epoch}
    found["cost"] = {name: round(value, 4) for name, value in times.items()}
    outputs = [evaluate(result.model, part).logits for part in (validation, test)]
    found |= _measured(outputs, validation, test, scale)
    if settings.attack:
        found["attacked"] = robustness(
            result.model, test, settings.attack, data=store, seed=settings.seed
        )
    if has_saliency(as_predictor(result.model)):
        found |= saliency_quality(result.model, test, seed=seed)
    found["samples"] = sample_quality(
        result.model,
        augmentations,
        scaled(train),
        seed=seed,
        atoms=lambda batch: atoms_of(batch, store),
    )
    if trial.repeat == trial.fold == 0:
        found["examples"] = examples(
            result.model,
            augmentations,
            train,
            test,
            # Not the trial's seed: all methods, models and layers show the same graphs.
            seed=settings.seed,
            scale=scale,
            name=lambda part, number: graph_id(store, int(getattr(split, part)[number])),
        )
    return Finished(replace(record, **found), _kept(store, split, outputs, scale))


def _baseline(
    name: str, train: GraphStore, validation: GraphStore, test: GraphStore, **options: Any
) -> tuple[dict[str, Any], Sequence[Tensor]]:
    start, processor = time.perf_counter(), time.process_time()
    fitted = fit_baseline(name, train, validation, **options)
    outputs = [fitted.logits(part) for part in (validation, test)]
    spent = {"fit_seconds": round(time.process_time() - processor, 4)}
    seconds = round(time.perf_counter() - start, 3)
    found = {"seconds": seconds, "cost": spent, "parameters": dict(fitted.chosen)}
    return found | _measured(outputs, validation, test), outputs


def _kept(
    store: GraphStore, split: Split, outputs: Sequence[Tensor], scale: TargetScale | None = None
) -> TrialPredictions:
    validation, test = (
        Predictions.of(store, graphs, said if scale is None else scale.undo(said))
        for graphs, said in zip((split.validation, split.test), outputs, strict=True)
    )
    return TrialPredictions(tuple(store.output_names), validation, test)


def _measured(
    outputs: Sequence[Tensor],
    validation: GraphStore,
    test: GraphStore,
    scale: TargetScale | None = None,
) -> dict[str, Any]:
    pairs = zip(outputs, (validation, test), strict=True)
    targets = [as_targets(part.y, said.shape[1]) for said, part in pairs]
    said = outputs if scale is None else [scale.undo(part) for part in outputs]
    found = {
        name: measure(part, wanted, test.task)
        for name, part, wanted in zip(("validation", "test"), said, targets, strict=True)
    }
    return found | calibration(outputs[0], targets[0], outputs[1], targets[1], test.task)


GRAPHS: Final = 16
"""Number of graphs of each part to warm up with."""

_warm: set[Any] = set()


def warm_up(key: Any, work: Callable[[GraphStore, GraphStore], Any], *parts: GraphStore) -> None:
    """Do the work of a trial on a few graphs of its parts, once per process and ``key``.

    The work must depend on its own seeds alone, so that results do not depend on the warm-up.
    """
    if key in _warm:
        return
    _warm.add(key)
    numbers = [min(GRAPHS, len(part)) for part in parts]
    # Spread over all graphs, which may be sorted by class.
    few = [
        part.subset(torch.arange(number) * len(part) // number)
        for part, number in zip(parts, numbers, strict=True)
    ]
    # Work that fails on so few graphs may succeed on all; otherwise the trial fails and says why.
    with suppress(Exception), torch.random.fork_rng(devices=[]):
        work(*few)


def machine() -> Machine:
    """The processor and the number of threads, which times depend on."""
    return Machine(processor=_processor(), threads=torch.get_num_threads())


@cache
def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text("utf-8", "replace").splitlines() if cpuinfo.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return next(iter(names), "") or platform.processor() or platform.machine()
