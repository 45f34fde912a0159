"""What is measured of a trained model, on graphs that training did not see."""

from __future__ import annotations

from collections.abc import Sequence

from graph_transplant.analysis import robustness
from graph_transplant.augment import Augmentation
from graph_transplant.experiments.protocol import Record, Settings, Trial
from graph_transplant.experiments.splits import Split
from graph_transplant.graphs import GraphStore
from graph_transplant.metrics import measure
from graph_transplant.targets import TargetScale
from graph_transplant.training import FitResult, evaluate


def measurements(
    result: FitResult,
    augmentations: Sequence[Augmentation],
    *,
    store: GraphStore,
    split: Split,
    trial: Trial,
    settings: Settings,
    scale: TargetScale | None,
    seed: int,
) -> Record:
    """Measure a finished training.

    Args:
        result: The training.
        augmentations: What it was trained with, as training left it.
        store: The whole data set.
        split: Which graphs were trained, validated and are tested on.
        trial: Which trial it is.
        settings: The protocol.
        scale: How numbers to predict were standardised, if they were.
        seed: The trial's seed.

    Returns:
        Fields of the trial's record, ``validation`` and ``test`` among them.
    """
    validation, test = store.subset(split.validation), store.subset(split.test)
    record: Record = {}
    for name, part in (("validation", validation), ("test", test)):
        evaluation = evaluate(result.model, part)
        outputs = evaluation.logits if scale is None else scale.undo(evaluation.logits)
        record[name] = measure(outputs, evaluation.targets, store.task)
    if settings.attack:
        record["attacked"] = robustness(result.model, test, settings.attack, data=store)
    return record
