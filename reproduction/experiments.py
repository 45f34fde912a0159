"""Definitions of the paper's experiments, and functions to run them.

An experiment is a list of comparisons (:func:`plan`). Experiments that train the same models on the
same data share their records, so that no trial runs twice: accuracy, calibration, ablations and the
accuracy of the edge predictor come from one set of records.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from graph_transplant.augment import unsupported_reason
from graph_transplant.comparison.compare import compare
from graph_transplant.comparison.engines import check_engine
from graph_transplant.comparison.progress import Reporter, Tally
from graph_transplant.config.compare import CompareConfig
from graph_transplant.config.options import Engine
from graph_transplant.config.recipes import SCALES, scale_of
from graph_transplant.data import GraphStore
from graph_transplant.datasets import load
from graph_transplant.errors import DataError, GraphTransplantError, check_choice
from graph_transplant.methods import REFERENCE, expand_methods, method_key
from graph_transplant.nn import CONVOLUTIONS, GraphClassifier
from graph_transplant.results.record import Record, Trial, all_trials
from graph_transplant.results.record_file import RecordStore
from graph_transplant.utils.files import folder_name
from graph_transplant.utils.text import count, duration
from reproduction.published import data_sizes

BUDGETS = {"quick": "smoke run, not a reproduction", "full": "the paper's protocol"}
"""Budgets with their descriptions."""

STEPS = 1200
"""Optimiser steps per trial with the quick budget, rounded up to whole epochs."""

ATTACK = 0.2
"""Budget of the paper's attack, as a share of the mean number of edges."""

ATTACKS = (0.05, 0.1, ATTACK, 0.3)
"""Attack budgets that are measured."""

SMALL = ("COLLAB", "NCI1", "ENZYMES", "Mutagenicity", "COIL-DEL")
MEDIUM = ("NCI-H23", "MOLT-4", "P388")
ATTACKED = ("ENZYMES", "Mutagenicity", "NCI1")

_TUNED = ("m-evolve", "drop-nodes", "perturb-edges", "mask-nodes", "subgraph")
_BASELINES = (REFERENCE, "manifold-mixup", *_TUNED)
_OURS = ("transplant-dp", "transplant-ep")
_ABLATIONS = (
    "transplant-disconnected",
    "transplant-size-label",
    "transplant-scattered",
    "transplant-random",
)

_STEP_SECONDS = 0.1  # rough time per step including validation, on one core

# Number of training graphs in official splits, by name and number of graphs.
_OFFICIAL_TRAINING = {("ogbg-ppa", 158_100): 78_200, ("ogbg-molhiv", 41_127): 32_901}


@dataclass(frozen=True)
class Experiment:
    """One experiment of the paper.

    ``measure`` is what is reported: ``"score"`` (accuracy, or AUROC on medium-size data),
    ``"ece"``, ``"robust_accuracy"`` or ``"edge_predictor_accuracy"``. Gains are relative to
    ``baseline``. The quick budget trains the convolutions in ``quick`` by default.
    """

    title: str
    data: tuple[str, ...]
    models: tuple[str, ...]
    methods: tuple[str, ...]
    measure: str = "score"
    baseline: str | None = REFERENCE
    repeats: int = 3
    readouts: tuple[str, ...] = ("mean",)
    quick: tuple[str, ...] = ("gcs",)
    note: str = ""

    def models_for(self, data: str, budget: str = "full") -> tuple[str, ...]:
        """Convolutions to train on a data set; the paper has no GAT on medium-size ones."""
        models = self.quick if budget == "quick" else self.models
        return tuple(name for name in models if data not in MEDIUM or name != "gat")


EXPERIMENTS = {
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
        (REFERENCE, "manifold-mixup", *_TUNED[1:], "transplant-ep"),
    ),
    "table3-robustness": Experiment(
        "Table 3 and appendix: test accuracy under the GradArgmax attack, as the paper states it",
        ATTACKED,
        ("gcs", "gin"),
        (*_BASELINES, "transplant-ep"),
        measure="robust_accuracy",
        repeats=1,
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
        note="The paper's chart does not name its models: all four of the paper are run.",
    ),
    "readout": Experiment(
        "Appendix: test accuracy with other readouts",
        ("ENZYMES", "NCI1"),
        ("gcs",),
        (*_BASELINES, *_OURS),
        readouts=("mean", "sum", "max"),
        note="The paper's chart does not name its two data sets: ENZYMES and NCI1 are our choice.",
    ),
    "edge-predictor": Experiment(
        "Appendix: accuracy of the edge predictor ψ at the end of training, on validation graphs",
        ATTACKED,
        ("gcn", "gcs"),
        ("transplant-ep",),
        measure="edge_predictor_accuracy",
        baseline=None,
        quick=("gcn", "gcs"),
        note=(
            "The paper's chart does not name its three data sets: those of Table 3 are our choice. "
            "The paper measures on test graphs."
        ),
    ),
}
"""Experiments of the paper by name."""


@dataclass(frozen=True)
class Run:
    """One comparison of an experiment, with the arguments of ``compare``.

    ``directory`` is relative to the output directory; ``metric`` is ``None`` if it depends on the
    data; ``steps`` is the number of steps per epoch.
    """

    data: str
    directory: str
    methods: tuple[str, ...]
    models: tuple[str, ...]
    layers: tuple[int, ...]
    repeats: int
    epochs: int
    batch_size: int
    select: str
    metric: str | None
    scale: str
    split: str
    readout: str
    attack: tuple[float, ...]
    steps: int
    folds: int = 5

    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of ``compare``."""
        given = {**self.__dict__, "model": self.models}
        return {k: v for k, v in given.items() if k not in ("data", "directory", "models", "steps")}

    def trials(self) -> list[Trial]:
        """All trials of all candidates."""
        folds = 1 if self.split == "official" else self.folds
        methods = expand_methods(self.methods)
        given: dict[str, Any] = {"models": self.models, "layers": self.layers}
        return list(all_trials(methods=methods, repeats=self.repeats, folds=folds, **given))

    def records(self, out: Path) -> list[Record]:
        """Read the records of its trials from ``out``."""
        wanted = set(self.trials())
        found = RecordStore(out / self.directory).read()
        return [record for record in found if Trial.of_record(record) in wanted]


def plan(
    experiment: str,
    *,
    data: Sequence[str] | None = None,
    models: Sequence[str] | None = None,
    budget: str = "quick",
    sizes: Mapping[str, int] | None = None,
) -> list[Run]:
    """List the comparisons of an experiment, one per data set and readout.

    ``full`` is the paper's protocol: five folds with three repeats on small data sets (one in
    ``table3-robustness``) and one on others; three runs of official splits; 3 to 5 layers and all
    parameters the paper tries, selected by mean validation score; at most 1,000 epochs. ``quick``
    is one repeat with 3 layers, default parameters, about 1,200 optimiser steps, and GCS unless
    the experiment is about other convolutions. Trials on the data sets that the paper attacks
    always include the attack, so that one set of records serves all experiments.

    ``data`` and ``models`` default to the paper's; ``sizes`` are the numbers of graphs of other
    data sets.
    """
    chosen = EXPERIMENTS[check_choice("experiment", experiment, EXPERIMENTS)]
    check_choice("budget", budget, BUDGETS)
    graphs = {**data_sizes(), **(sizes or {})}
    runs = []
    for name in dict.fromkeys(chosen.data if data is None else data):
        if name not in graphs:
            raise GraphTransplantError(
                f"`data`: {name!r} is not a data set of the paper ({experiment} has "
                f"{', '.join(chosen.data)}); pass its number of graphs in `sizes`"
            )
        wanted = tuple(dict.fromkeys(models or chosen.models_for(name, budget)))
        runs += [_run(chosen, name, wanted, budget, graphs[name], one) for one in chosen.readouts]
    return runs


def _run(
    experiment: Experiment, data: str, models: tuple[str, ...], budget: str, graphs: int,
    readout: str,
) -> Run:  # fmt: skip
    full = budget == "full"
    own = data in data_sizes()
    scale = scale_of(graphs)
    official = data.startswith("ogbg-")
    batch_size = 64 if data == "COLLAB" else SCALES[scale].batch_size
    training = _OFFICIAL_TRAINING.get((data, graphs), 3 * graphs // 5)
    steps = max(1, math.ceil(training / batch_size))
    # The paper tunes the anchor ratio on medium and large data only.
    searched = _TUNED if scale == "small" else (*_TUNED, *_OURS, *_ABLATIONS)
    repeats = 3 if official else experiment.repeats if scale == "small" else 1
    place = data if own else folder_name(data)
    place += "" if readout == "mean" else f"-{readout}"
    attack = ATTACKS if data in ATTACKED or experiment.measure == "robust_accuracy" else ()
    place += "-attacked" if attack and data not in ATTACKED else ""
    return Run(
        data=data,
        directory=f"{budget}/{place}",
        methods=tuple(
            f"{name}:paper" if full and name in searched else name for name in experiment.methods
        ),
        models=models,
        layers=(3, 4, 5) if full else (3,),
        repeats=repeats if full else 1,
        epochs=1000 if full else math.ceil(STEPS / steps),
        batch_size=batch_size,
        select="validation" if full else "none",
        metric=None if not own else "auroc" if data in MEDIUM else "accuracy",
        scale=scale,
        split="official" if official else "folds",
        readout=readout,
        attack=attack,
        steps=steps,
    )


@dataclass(frozen=True)
class Request:
    """Contents of a table; other measurements of the experiment are shown as well.

    ``models`` are the convolutions to show per data set, even without measurements; ``reasons`` say
    why a method does not support a data set, by data and method.
    """

    experiment: str
    budget: str
    out: Path
    models: Mapping[str, Sequence[str]] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    reasons: Mapping[tuple[str, str], str] = field(default_factory=dict)
    notes: Sequence[str] = ()


def run(
    experiment: str,
    *,
    data: Sequence[str] | None = None,
    models: Sequence[str] | None = None,
    budget: str = "quick",
    out: str | Path = "paper",
    root: str | Path | None = None,
    workers: int = 1,
    engine: Engine = "local",
    address: str | None = None,
    fresh: bool = False,
    reporter: Reporter | None = None,
) -> Request:
    """Run or resume an experiment; records go to ``out/BUDGET/DATA``.

    All data sets are loaded before the first trial. ``data`` defaults to those of the paper that
    are available; ``root`` is the folder to search. Other arguments are those of :func:`plan` and
    ``compare``. Returns the input of :func:`~reproduction.tables.paper_table`.
    """
    plan(experiment, models=models, budget=budget)
    for name in models or ():
        check_choice("models", name, CONVOLUTIONS)
    CompareConfig(workers=workers, engine=engine, address=address)  # checks them
    check_engine(engine, address)
    out, reporter = Path(out), reporter or Reporter()
    stores, notes = _load(experiment, data, root, reporter)
    sizes = {name: len(store) for name, store in stores.items()}
    notes += [
        f"{name} has {size:,} graphs here, {data_sizes()[name]:,} in the paper."
        for name, size in sizes.items()
        if data_sizes().get(name, size) != size
    ]
    reasons: dict[tuple[str, str], str] = {}
    runs = []
    for one in plan(experiment, data=list(stores), models=models, budget=budget, sizes=sizes):
        store = stores[one.data]
        model = GraphClassifier.for_data(store, layers=1, hidden=8, seed=0)
        found = {name: unsupported_reason(method_key(name), model, store) for name in one.methods}
        reasons |= {(one.data, method_key(name)): why for name, why in found.items() if why}
        runs.append(replace(one, methods=tuple(m for m in one.methods if not found[m])))
    reporter.note(f"{experiment}, {BUDGETS[budget]}: {_missing(runs, out, workers, fresh)}")
    given: dict[str, Any] = {"workers": workers, "engine": engine, "address": address}
    given |= {"fresh": fresh, "reporter": reporter}
    for one in runs:
        directory = out / one.directory
        reporter.note(f"{experiment}: {one.data} in {directory}")
        compare(stores[one.data], **one.arguments(), **given, out=directory, source=one.data)
    asked = {one.data: one.models for one in runs}
    return Request(experiment, budget, out, asked, sizes, reasons, notes)


def _load(
    experiment: str, data: Sequence[str] | None, root: str | Path | None, reporter: Reporter
) -> tuple[dict[str, GraphStore], list[str]]:
    """Load the data sets; skip those that fail, unless ``data`` names them."""
    known = EXPERIMENTS[experiment].data
    names = list(dict.fromkeys(known if data is None else data))
    reporter.note(f"{experiment}: reading {', '.join(names)}")
    stores: dict[str, GraphStore] = {}
    notes = []
    for name in names:
        try:
            stores[name] = load(name, root)
        except DataError as problem:
            if data is not None:
                raise DataError(
                    f"{problem} (the paper's data for {experiment}: {', '.join(known)})"
                ) from problem
            notes.append(f"{name} is left out: {problem}")
    if not stores:
        raise DataError(f"no data set of {experiment} could be loaded: {' '.join(notes)}")
    for note in notes:
        reporter.note(note)
    return stores, notes


def _missing(runs: Sequence[Run], out: Path, workers: int, fresh: bool) -> str:
    """Number of missing trials and roughly how long they take, in words."""
    seconds, planned, missing = 0.0, 0, 0
    for one in runs:
        records, trials = one.records(out), one.trials()
        there = set() if fresh else {Trial.of_record(record) for record in records}
        left = [trial for trial in trials if trial not in there]
        planned, missing = planned + len(trials), missing + len(left)
        scale = SCALES[one.scale]
        patience = scale.stop_patience * (one.steps if scale.patience_unit == "epochs" else 1)
        # Assume that training stops after twice its patience.
        steps = min(one.epochs * one.steps, 2 * patience)
        rough = len(left) * steps * _STEP_SECONDS / max(1, min(workers, len(left)))
        seconds += Tally(left, records, workers).seconds_left() or rough
    if not missing:
        return f"all {count(planned, 'trial')} are finished"
    return (
        f"{missing:,} of {count(planned, 'trial')} are missing; they will take about "
        f"{duration(seconds)} with {count(workers, 'worker')} (a rough estimate)"
    )
