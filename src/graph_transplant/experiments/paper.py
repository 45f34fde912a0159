"""The paper's experiments: which comparisons they are.

Each experiment is a list of comparisons (:func:`plan`). Experiments that train the same models on
the same data share the directory of their records, so that no trial runs twice: the main table, the
calibration errors, the ablations and the accuracy of the edge predictor are different columns of
one set of records.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from graph_transplant.errors import GraphTransplantError, check_choice
from graph_transplant.experiments.protocol import (
    BASELINE,
    SCALES,
    Record,
    Settings,
    scale_of,
    score,
)
from graph_transplant.experiments.published import data_sizes

BUDGETS = ("quick", "full")
"""How much of the paper's protocol to run: some of it, or all."""

STEPS = 1200
"""Optimiser steps of a trial of the quick budget, which trains the whole epochs that make them."""

ATTACK = 0.2
"""Budget of the paper's attack, as a share of the mean number of edges."""

ATTACKS = (0.05, 0.1, ATTACK, 0.3)
"""Budgets that are measured, for a curve."""

SMALL = ("COLLAB", "NCI1", "ENZYMES", "Mutagenicity", "COIL-DEL")
MEDIUM = ("NCI-H23", "MOLT-4", "P388")

# Training graphs of the official splits, of data sets with this many graphs.
_OFFICIAL_TRAINING = {("ogbg-ppa", 158_100): 78_200, ("ogbg-molhiv", 41_127): 32_901}

_TUNED = ("m-evolve", "drop-nodes", "perturb-edges", "mask-nodes", "subgraph")
_BASELINES = (BASELINE, "manifold-mixup", *_TUNED)
_ABLATIONS = (
    "transplant-disconnected",
    "transplant-size-label",
    "transplant-scattered",
    "transplant-random",
)


@dataclass(frozen=True)
class Measure:
    """What a table shows of a trial.

    Args:
        name: Its name in words, or nothing where it is the metric of the comparison.
        value: Reads it from a record; ``None`` where the record does not have it.
        higher: Whether more is better.
        points: Whether differences are given in points, hundredths.
    """

    name: str
    value: Callable[[Record], float | None]
    higher: bool = True
    points: bool = True

    def worded(self, value: float | None) -> str:
        """Write a difference, in points where they are meant; zero has no sign."""
        if value is None:
            return "-"
        text = f"{100 * value:+.1f}" if self.points else f"{value:+.3f}"
        return (text.lstrip("+-") if float(text) == 0 else text).replace("-", "−")


def _calibration(record: Record) -> float | None:
    return _number(record["test"].get("ece"))


def _under_attack(record: Record) -> float | None:
    """Read the accuracy under the attack as the paper states it."""
    return attacked(record, "as_stated")


def attacked(record: Record, how: str, budget: float = ATTACK) -> float | None:
    """Read an accuracy under attack from a record.

    Args:
        record: A finished trial.
        how: ``"as_stated"`` for the attack to the paper's letter, ``"accuracy"`` for the stronger
            one that spends its whole budget on changes, ``"random"`` for random changes.
        budget: Share of the mean number of edges.

    Returns:
        The accuracy, or ``None`` where the record does not have it.

    Example:
        >>> attacked({"attacked": [{"budget": 0.2, "edges": 6, "accuracy": 0.5}]}, "accuracy")
        0.5
    """
    for row in record.get("attacked", ()):
        if math.isclose(row["budget"], budget):
            return _number(row.get(how))
    return None


def _edge_predictor(record: Record) -> float | None:
    """Read the accuracy of ψ at the end of training.

    Deviation: psi-on-validation. The paper measures ψ on pairs of nodes of test graphs while it
    trains. Here it is measured on validation graphs: test graphs are looked at once, at the end.
    """
    found = [
        point["measurements"]["edge_predictor_accuracy"]
        for point in record.get("curve", ())
        if "edge_predictor_accuracy" in point.get("measurements", {})
    ]
    return _number(found[-1]) if found else None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


MEASURES = {
    "score": Measure("", score),
    "ece": Measure("ECE", _calibration, higher=False, points=False),
    "robust_accuracy": Measure("accuracy under attack", _under_attack),
    "edge_predictor_accuracy": Measure("accuracy of ψ", _edge_predictor),
}
"""What the experiments measure."""


@dataclass(frozen=True)
class Experiment:
    """One experiment of the paper.

    Args:
        title: What it is, in words.
        data: The paper's data sets, or our choice where the text does not name them.
        models: The paper's convolutions.
        methods: The methods, without parameters.
        measure: A key of :data:`MEASURES`.
        baseline: The method that gains are taken to, or ``None`` where there is none.
        repeats: Repeats of the cross-validation on small data sets.
        readouts: How node embeddings become a graph embedding.
        attack: Budgets of the attack on the test graphs.
        quick: Convolutions that the quick budget trains unless others are named.
        note: What one should know of it, or nothing.

    Example:
        >>> EXPERIMENTS["table3-robustness"].data
        ('ENZYMES', 'Mutagenicity', 'NCI1')
    """

    title: str
    data: tuple[str, ...]
    models: tuple[str, ...]
    methods: tuple[str, ...]
    measure: str = "score"
    baseline: str | None = BASELINE
    repeats: int = 3
    readouts: tuple[str, ...] = ("mean",)
    attack: tuple[float, ...] = ()
    quick: tuple[str, ...] = ("gcs",)
    note: str = ""

    def models_for(self, data: str, budget: str = "full") -> tuple[str, ...]:
        """Give the convolutions that the paper trains on a data set, or fewer if it must be quick.

        Args:
            data: Name of the data set.
            budget: One of :data:`BUDGETS`.
        """
        models = self.quick if budget == "quick" else self.models
        return tuple(name for name in models if data not in MEDIUM or name != "gat")


_OURS = ("transplant-dp", "transplant-ep")

ATTACKED = ("ENZYMES", "Mutagenicity", "NCI1")
"""Data sets of the paper's experiments on robustness."""

EXPERIMENTS: dict[str, Experiment] = {
    "table1": Experiment(
        "Table 1: test accuracy, on medium-size data AUROC",
        (*SMALL, *MEDIUM),
        ("gcs", "gin", "gat"),
        (*_BASELINES, *_OURS),
    ),
    "table2": Experiment(
        "Table 2: test accuracy on ogbg-ppa",
        ("ogbg-ppa",),
        ("gcs",),
        (BASELINE, "manifold-mixup", *_TUNED[1:], "transplant-ep"),
    ),
    "table3-robustness": Experiment(
        "Table 3 and appendix: test accuracy under the GradArgmax attack, as the paper states it",
        ATTACKED,
        ("gcs", "gin"),
        (*_BASELINES, "transplant-ep"),
        measure="robust_accuracy",
        repeats=1,
        attack=ATTACKS,
    ),
    "table4-calibration": Experiment(
        "Table 4: expected calibration error, lower is better",
        ("ENZYMES", "Mutagenicity", "COIL-DEL"),
        ("gcs", "gin"),
        (*_BASELINES, "transplant-ep"),
        measure="ece",
    ),
    "gcn": Experiment(
        "Appendix: test accuracy with GCN",
        SMALL,
        ("gcn",),
        (*_BASELINES, *_OURS),
        quick=("gcn",),
    ),
    "ablation": Experiment(
        "Ablation study: test accuracy, gains over the complete method",
        SMALL,
        ("gcn", "gcs", "gin", "gat"),
        (*_ABLATIONS, "transplant-ep"),
        baseline="transplant-ep",
        quick=("gcs", "gin"),
        note="The chart's text does not name its models: all four are the paper's.",
    ),
    "readout": Experiment(
        "Appendix: test accuracy with other readouts",
        ("ENZYMES", "NCI1"),
        ("gcs",),
        (*_BASELINES, *_OURS),
        readouts=("mean", "sum", "max"),
        note="The chart's text does not name its two data sets: ENZYMES and NCI1 are a choice.",
    ),
    "edge-predictor": Experiment(
        "Appendix: accuracy of the edge predictor ψ at the end of training, on validation graphs",
        ("ENZYMES", "Mutagenicity", "NCI1"),
        ("gcn", "gcs"),
        ("transplant-ep",),
        measure="edge_predictor_accuracy",
        baseline=None,
        quick=("gcn", "gcs"),
        note=(
            "The chart's text does not name its three data sets: those of Table 3 are a choice. "
            "The paper measures on test graphs."
        ),
    ),
}
"""The experiments of the paper by name."""


@dataclass(frozen=True)
class Run:
    """One comparison of an experiment: its records and the arguments that make them.

    Args:
        data: How the data set is named.
        directory: Where the records lie, below the directory of all experiments.
        methods: As :func:`~graph_transplant.experiments.compare.compare` takes them.
        models: Names of convolutions.
        layers: Numbers of layers.
        folds: Number of folds.
        repeats: Number of repeats.
        epochs: Most epochs of a trial.
        batch_size: Graphs per training batch.
        select: How one candidate per method is chosen.
        metric: What trials are judged by, or ``None`` for what suits the data.
        scale: Preset of patiences.
        split: ``"folds"`` or ``"official"``.
        readout: How node embeddings become a graph embedding.
        attack: Budgets of the attack.
        seed: The one number that all randomness derives from.

    Example:
        >>> (run,) = plan("table1", data=["ENZYMES"], models=["gcs"])
        >>> run.directory, run.epochs, run.arguments()["layers"]
        ('quick/ENZYMES', 400, (3,))
    """

    data: str
    directory: str
    methods: tuple[str, ...]
    models: tuple[str, ...]
    layers: tuple[int, ...]
    folds: int
    repeats: int
    epochs: int
    batch_size: int
    select: str
    metric: str | None
    scale: str
    split: str
    readout: str
    attack: tuple[float, ...]
    seed: int = 0

    def arguments(self) -> dict[str, Any]:
        """Give the keyword arguments of ``compare``."""
        names = (
            *("methods", "models", "layers", "folds", "repeats", "epochs", "batch_size"),
            *("seed", "select", "metric", "scale", "split", "readout", "attack"),
        )
        return {name: getattr(self, name) for name in names}

    def settings(self) -> dict[str, Any]:
        """Give the settings that its records have, but for those that may differ.

        These are the budgets of the attack, the number of processes, and the metric where the data
        decide it.
        """
        made = SCALES[self.scale].apply(
            Settings(
                folds=self.folds,
                epochs=self.epochs,
                seed=self.seed,
                readout=self.readout,
                metric=self.metric or "accuracy",
                split=self.split,
            ),
            self.batch_size,
        )
        free = {"attack", "shards"} if self.metric else {"attack", "shards", "metric"}
        return {name: value for name, value in asdict(made).items() if name not in free}

    @property
    def trials(self) -> int:
        """Trials of one candidate: repeats times folds."""
        return self.repeats * (1 if self.split == "official" else self.folds)


def plan(
    experiment: str,
    *,
    data: Sequence[str] | None = None,
    models: Sequence[str] | None = None,
    budget: str = "quick",
    sizes: Mapping[str, int] | None = None,
) -> list[Run]:
    """List the comparisons of an experiment.

    ``full`` is the paper's protocol: three repeats of five folds on small data sets, one on
    medium-size ones; 3 to 5 layers and every parameter that the paper tries, chosen by mean
    validation score; at most 1,000 epochs. ``quick`` is one repeat of five folds with 3 layers, GCS
    where an experiment is not about other convolutions, each method at its default parameters and
    about 1,200 optimiser steps, in whole epochs.

    On the data sets that the paper attacks, all trials are attacked: it takes a second, and one set
    of records serves all experiments.

    Args:
        experiment: A key of :data:`EXPERIMENTS`.
        data: Data sets. (default: the paper's)
        models: Convolutions. (default: the paper's, or fewer where the budget is quick)
        budget: One of :data:`BUDGETS`.
        sizes: Number of graphs of data sets that the paper does not have, or has otherwise.

    Returns:
        One comparison per data set and readout.

    Raises:
        GraphTransplantError: If a name is unknown, or the size of a data set is.

    Example:
        >>> [(run.directory, run.epochs) for run in plan("gcn", data=["NCI1", "COLLAB"])]
        [('quick/NCI1', 60), ('quick/COLLAB', 26)]
        >>> (run,) = plan("gcn", data=["NCI1"], budget="full")
        >>> run.repeats, run.layers, run.select, run.methods[:3]
        (3, (3, 4, 5), 'validation', ('vanilla', 'manifold-mixup', 'm-evolve:paper'))
    """
    check_choice("experiment", experiment, EXPERIMENTS)
    check_choice("budget", budget, BUDGETS)
    chosen = EXPERIMENTS[experiment]
    known = {**data_sizes(), **(sizes or {})}
    for argument, names in (("data", data), ("models", models)):
        if names is not None and not names:
            listed = chosen.data if argument == "data" else chosen.models
            raise GraphTransplantError(
                f"`{argument}` must name at least one of {', '.join(listed)}; got none"
            )
    runs = []
    for name in dict.fromkeys(data or chosen.data):
        if name not in known:
            raise GraphTransplantError(
                f"`data` of {experiment}: the paper has {', '.join(chosen.data)}; the number of "
                f"graphs of {name!r} is not known, give it in `sizes`"
            )
        wanted = tuple(dict.fromkeys(models or chosen.models_for(name, budget)))
        runs += [
            _run(chosen, name, wanted, budget, known[name], readout) for readout in chosen.readouts
        ]
    return runs


def _run(
    experiment: Experiment,
    data: str,
    models: tuple[str, ...],
    budget: str,
    graphs: int,
    readout: str,
) -> Run:
    scale = scale_of(graphs)
    full = budget == "full"
    batch_size = 64 if data == "COLLAB" else SCALES[scale].batch_size
    official = data.startswith("ogbg-")
    repeats = 3 if official else experiment.repeats if scale == "small" else 1
    searched = _TUNED if scale == "small" else (*_TUNED, *_OURS, *_ABLATIONS)
    methods = experiment.methods
    if full:
        methods = tuple(f"{name}:paper" if name in searched else name for name in methods)
    training = _OFFICIAL_TRAINING.get((data, graphs), 3 * graphs // 5)
    steps = math.ceil(training / batch_size)
    place = data if data in data_sizes() else slug(data)
    place += "" if readout == "mean" else f"-{readout}"
    attack = ATTACKS if data in ATTACKED else experiment.attack
    place += "-attacked" if attack and data not in ATTACKED else ""
    return Run(
        data=data,
        directory=f"{budget}/{place}",
        methods=methods,
        models=models,
        layers=(3, 4, 5) if full else (3,),
        folds=5,
        repeats=repeats if full else 1,
        epochs=1000 if full else math.ceil(STEPS / max(1, steps)),
        batch_size=batch_size,
        select="validation" if full else "none",
        metric=None if data not in data_sizes() else "auroc" if data in MEDIUM else "accuracy",
        scale=scale,
        split="official" if official else "folds",
        readout=readout,
        attack=attack,
    )


def slug(name: str) -> str:
    """Make a directory name of a data set's name.

    Args:
        name: Any text.

    Returns:
        The name with letters, digits and ``._-`` alone, and never empty.

    Example:
        >>> slug("my data/v2")
        'my-data-v2'
        >>> slug("../")
        'data'
    """
    return re.sub(r"[^\w.-]+", "-", name).strip("-.") or "data"
