"""What is measured of a trained model, on graphs that training did not see."""

from __future__ import annotations

from collections.abc import Sequence

from graph_transplant.analysis import calibration, robustness, saliency_quality, sample_quality
from graph_transplant.augment import Augmentation
from graph_transplant.classical import Outcome
from graph_transplant.experiments.examples import examples
from graph_transplant.experiments.protocol import Record, Settings, Trial
from graph_transplant.experiments.structures import atoms_of
from graph_transplant.graphs import GraphStore
from graph_transplant.metrics import measure
from graph_transplant.splits import Split
from graph_transplant.targets import TargetScale, as_targets
from graph_transplant.training import FitResult, evaluate


def measurements(
    result: FitResult,
    augmentations: Sequence[Augmentation],
    *,
    processor: float,
    store: GraphStore,
    split: Split,
    train: GraphStore,
    trial: Trial,
    settings: Settings,
    scale: TargetScale | None,
    seed: int,
) -> Record:
    """Fields of the trial's record, ``validation`` and ``test`` among them.

    Args:
        result: The finished training.
        augmentations: What it was trained with, as training left it.
        processor: Processor seconds that it took.
        store: The whole data set.
        split: Which graphs were trained, validated and are tested on.
        train: The training graphs as they were trained on, in the units of the data.
        trial: Which trial it is.
        settings: The protocol.
        scale: How numbers to predict were standardised, if they were.
        seed: The trial's seed.
    """
    validation, test = store.subset(split.validation), store.subset(split.test)
    record: Record = {}
    evaluations = [evaluate(result.model, part) for part in (validation, test)]
    for name, evaluation in zip(("validation", "test"), evaluations, strict=True):
        outputs = evaluation.logits if scale is None else scale.undo(evaluation.logits)
        record[name] = measure(outputs, evaluation.targets, store.task)
    held_out, tested = evaluations
    record |= calibration(
        held_out.logits, held_out.targets, tested.logits, tested.targets, store.task
    )
    record["cost"] = cost(processor, result.epochs, result.best_epoch)
    if settings.attack:
        record["attacked"] = robustness(
            result.model, test, settings.attack, data=store, seed=settings.seed
        )
    record |= saliency_quality(result.model, test, seed=seed)
    samples = sample_quality(
        result.model,
        augmentations,
        train if scale is None else scale.apply(train),
        seed=seed,
        atoms=lambda batch: atoms_of(batch, store),
    )
    if samples:
        record["samples"] = samples
    if (trial.repeat, trial.fold, trial.inner) == (0, 0, 0):
        record["examples"] = examples(
            result.model,
            augmentations,
            train,
            test,
            # Not the trial's: all methods, models and layers show the same graphs.
            seed=settings.seed,
            scale=scale,
        )
    return record


def rival_measurements(
    outcome: Outcome, validation: GraphStore, test: GraphStore, processor: float
) -> Record:
    """Measure what a method without a network says: what there is of :func:`measurements`.

    Args:
        outcome: What it says.
        validation: The validation graphs.
        test: The test graphs.
        processor: Processor seconds that it took.
    """
    wanted = [as_targets(part.y, part.num_outputs) for part in (validation, test)]
    said = (outcome.validation, outcome.test)
    record: Record = {
        name: measure(outputs, targets, test.task)
        for name, outputs, targets in zip(("validation", "test"), said, wanted, strict=True)
    }
    record |= calibration(said[0], wanted[0], said[1], wanted[1], test.task)
    record["cost"] = {"fit_seconds": round(processor, 4)}
    return record | ({"parameters": outcome.parameters} if outcome.parameters else {})


def cost(processor: float, epochs: int, best_epoch: int) -> dict[str, float]:
    """What a training took, in processor time, which trials beside it do not change.

    ``best_seconds`` is that of a mean epoch times the epochs until the best one. Under torchrun it
    is the time of the first process.
    """
    each = processor / epochs
    spent = {"fit_seconds": processor, "epoch_seconds": each, "best_seconds": each * best_epoch}
    return {name: round(value, 4) for name, value in spent.items()}
