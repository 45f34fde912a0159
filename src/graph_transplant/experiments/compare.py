"""A whole comparison: the trials that are missing, and the tables made of the records."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

from graph_transplant import __version__
from graph_transplant.augment import METHODS, expand_methods, refusal
from graph_transplant.augment.methods import GROUPS
from graph_transplant.errors import GraphTransplantError, check_choice
from graph_transplant.experiments.distributed import group_size
from graph_transplant.experiments.engine import CHECKPOINTS, check_engine, run_trials
from graph_transplant.experiments.progress import Reporter, Silent
from graph_transplant.experiments.protocol import (
    SCALES,
    TASK_METRICS,
    Condition,
    Record,
    Settings,
    Trial,
    all_trials,
    check_conditions,
    default_metric,
    scale_of,
)
from graph_transplant.experiments.records import RecordStore
from graph_transplant.experiments.selection import SELECTIONS
from graph_transplant.experiments.splits import (
    by_scaffold,
    fold_parts,
    official_split,
    strata,
)
from graph_transplant.experiments.summary import (
    SummaryRow,
    Verdict,
    listed,
    summarise,
    summary_csv,
    verdicts,
)
from graph_transplant.experiments.trial import split_of, training_labels
from graph_transplant.files import write_atomically
from graph_transplant.graphs import GraphStore
from graph_transplant.metrics import mean_area_under_roc, mean_average_precision, mean_r2
from graph_transplant.nn import CONVOLUTIONS, READOUTS, GraphClassifier
from graph_transplant.targets import as_targets

Item = TypeVar("Item")


@dataclass(frozen=True)
class Comparison:
    """A finished comparison.

    Args:
        directory: Where its files lie.
        records: All finished trials in that directory, in a fixed order.
        selection: How rows were chosen among candidates, see
            :func:`~graph_transplant.experiments.selection.select`.
        rows: The summary, ranked within each model.
        verdicts: The findings in words, one per model, number of layers and condition.
    """

    directory: Path
    records: list[Record]
    selection: str
    rows: list[SummaryRow]
    verdicts: list[Verdict]


def compare(
    store: GraphStore,
    *,
    out: str | Path,
    methods: Sequence[str] = ("vanilla", "transplant-dp", "transplant-ep"),
    models: Sequence[str] = ("gcs",),
    layers: Sequence[int] = (3,),
    folds: int = 5,
    repeats: int = 1,
    epochs: int = 1000,
    batch_size: int | None = None,
    seed: int = 0,
    select: str = "none",
    metric: str | None = None,
    scale: str = "auto",
    split: str = "folds",
    readout: str = "mean",
    balance: bool = False,
    attack: Sequence[float] = (),
    label_noise: Sequence[float] = (0.0,),
    train_fraction: Sequence[float] = (1.0,),
    ties: str = "first",
    workers: int = 1,
    engine: str = "local",
    address: str | None = None,
    fresh: bool = False,
    source: str | None = None,
    reporter: Reporter | None = None,
) -> Comparison:
    """Compare methods by stratified cross-validation on the same folds.

    Numbers to predict are standardised by the training graphs of each fold, and measured in the
    units of the data.

    Trials whose record lies in ``out`` already are not run again, and those that were running keep
    their state in ``out/checkpoints``, so that the same call after an interruption goes on where it
    stopped. More methods, models, layers, repeats, shares of wrong
    labels or of training graphs may be added to a directory; anything else that differs is refused.

    Args:
        store: The data set; each graph has one class, several labels, or numbers to predict.
        out: Directory for ``records.jsonl`` and ``summary.csv``, made when it is not there.
        methods: Names of methods, with parameters or without
            (:func:`~graph_transplant.augment.methods.expand_methods`); differences are taken to
            ``vanilla``. A named method that cannot serve the data is an error; of ``all`` and
            ``paper`` it is left out, and the reporter is told why.
        models: Names of convolutions; ``"auto"`` is ``"gine"`` for molecules with edge features and
            ``"gcs"`` otherwise. The reporter is told of those that do not look at edge features
            which the data have.
        layers: Numbers of layers.
        folds: Number of folds, at least 3.
        repeats: How often to repeat with another shuffle.
        epochs: Most epochs a trial trains.
        batch_size: Graphs per training batch. (default: that of the scale)
        seed: The one number that all randomness derives from.
        select: ``"validation"`` or ``"nested"`` runs each method named without parameters with
            every value of its search space and reports, for each method and model, the candidate
            (number of layers, values) with the best validation metric; see
            :func:`~graph_transplant.experiments.selection.select`. ``"none"`` reports every one.
        metric: ``"accuracy"``; ``"auroc"`` or ``"average_precision"`` for two classes or several
            labels; ``"r2"`` for numbers. (default: what suits the data set, see
            :func:`~graph_transplant.experiments.protocol.default_metric`)
        scale: The paper's patience and batch size for ``"small"``, ``"medium"`` or ``"large"`` data
            sets; ``"auto"`` goes by the number of graphs.
        split: ``"folds"``, or one split, where repeats differ in their seed alone: ``"official"``
            for the one that comes with the data set, ``"scaffold"`` for molecules, which keeps
            those of one Bemis-Murcko scaffold together.
        readout: How node embeddings become a graph embedding: mean, sum or max.
        balance: Draw training graphs so that all classes are equally likely, see
            :func:`~graph_transplant.fit`.
        attack: Also measure the accuracy on test graphs attacked with these budgets, as shares of
            the mean number of edges.
        label_noise: Shares of the training labels to make wrong, in [0, 1): another class, each
            equally likely, or labels turned round. Validation and test graphs keep their true
            labels, so that early stopping and selection see no wrong one. The same labels are wrong
            for all methods of a fold, and what is wrong at 0.1 is wrong in the same way at 0.2.
        train_fraction: Shares of the training graphs to use, in (0, 1], stratified; validation and
            test graphs are all there. The graphs of 0.1 are among those of 0.5. Every share is
            combined with every share of wrong labels, and methods are compared within one of these
            conditions only.
        ties: Which of several epochs with the same validation metric is the best: the ``"first"``,
            that with the lowest validation ``"loss"``, or the last (``"reset"``), see
            :func:`~graph_transplant.fit`.
        workers: How many trials run at once on this machine.
        engine: What runs the trials: ``"local"`` processes, a ``"ray"`` cluster, or ``"torchrun"``,
            which gives all processes to one trial at a time.
        address: Address of the Ray cluster. (default: one is started on this machine)
        fresh: Start anew; the records that are there are kept under another name.
        source: How the data set was named, for the command that repeats the comparison. (default:
            its name)
        reporter: Told how the comparison goes on. (default: nobody is told)

    Returns:
        The comparison, with all records of the directory.

    Raises:
        GraphTransplantError: If an argument cannot be used or the directory holds other records.
        TrialError: If a trial fails; finished trials are kept.
    """
    models = _unique([automatic_model(store) if name == "auto" else name for name in models])
    layers = _unique(layers)
    for argument, names, choices in (
        ("methods", methods, METHODS),
        ("models", models, CONVOLUTIONS),
    ):
        if not names:
            raise GraphTransplantError(
                f"`{argument}` must name at least one of {', '.join(choices)}; got none"
            )
    for name in models:
        check_choice("models", name, CONVOLUTIONS)
    check_choice("readout", readout, READOUTS)
    check_choice("select", select, SELECTIONS)
    check_engine(engine, address)
    check_choice("scale", scale, ["auto", *SCALES])
    for argument, numbers in (("layers", layers), ("repeats", (repeats,)), ("workers", (workers,))):
        if not numbers or min(numbers) < 1:
            given = ", ".join(str(number) for number in numbers) or "nothing"
            raise GraphTransplantError(f"`{argument}` must be at least 1, got {given}")
    label_noise, train_fraction = check_conditions(label_noise, train_fraction)
    scale = scale_of(len(store)) if scale == "auto" else scale
    settings = SCALES[scale].apply(
        Settings(
            folds=folds,
            epochs=epochs,
            seed=seed,
            readout=readout,
            metric=metric or metric_for(store),
            split=split,
            shards=group_size() if engine == "torchrun" else 1,
            attack=tuple(sorted(set(attack))),
            balance=balance,
            ties=ties,
        ),
        batch_size,
    )
    if settings.split == "scaffold":
        store = by_scaffold(store)
    check_protocol(store, settings, select, models, repeats)
    conditions = [Condition(*values) for values in product(label_noise, train_fraction)]
    check_training(store, settings, conditions, repeats=repeats, nested=select == "nested")
    reporter = reporter or Silent()
    unused = unused_edge_features(store, models)
    if unused:
        reporter.note(unused)
    wished = candidates(methods, search=select != "none", scale=scale)
    chosen = _that_serve(wished, models, store, reporter)
    fingerprint = store.fingerprint()
    directory = Path(out)
    identity = {"data": store.name, "fingerprint": fingerprint}
    with RecordStore(directory).writing(
        identity, settings.as_record(__version__), fresh=fresh
    ) as writer:
        if fresh:
            shutil.rmtree(directory / CHECKPOINTS, ignore_errors=True)
        if writer.notice:
            reporter.note(writer.notice)
        wanted = list(
            all_trials(
                methods=chosen,
                models=models,
                layers=layers,
                repeats=repeats,
                folds=folds if split == "folds" else 1,
                nested=select == "nested",
                label_noise=label_noise,
                train_fraction=train_fraction,
            )
        )
        there = {Trial.of_record(record) for record in writer.records}
        missing = [trial for trial in wanted if trial not in there]
        if len(missing) < len(wanted):
            reporter.note(
                f"{len(wanted) - len(missing)} of {len(wanted)} trials are in {directory} already"
            )
        if missing:

            def finish(record: Record) -> None:
                writer.append(record)
                reporter.trial_finished(record)

            reporter.start(trials=missing, finished=writer.records, workers=workers)
            try:
                run_trials(
                    store,
                    missing,
                    settings,
                    fingerprint=fingerprint,
                    source=source or store.name,
                    workers=min(workers, len(missing)),
                    scratch=directory,
                    finish=finish,
                    reporter=reporter,
                    engine=engine,
                    address=address,
                )
            finally:
                reporter.stop()
        # A comparison that was killed may have left some of finished trials.
        shutil.rmtree(directory / CHECKPOINTS, ignore_errors=True)
        # Read back: the tables are made of what a later reader of the file will find.
        records = sorted(RecordStore(directory).read(), key=Trial.of_record)
        rows = summarise(records, select)
        write_atomically(directory / "summary.csv", summary_csv(rows))
    return Comparison(directory, records, select, rows, verdicts(rows))


def metric_for(store: GraphStore) -> str:
    """Choose the metric that suits a data set.

    Args:
        store: The data set.

    Example:
        >>> from graph_transplant import load
        >>> metric_for(load("motifs", graphs=12))
        'accuracy'
    """
    classes = store.task == "multiclass"
    counts = torch.bincount(store.labels, minlength=store.num_outputs).tolist() if classes else []
    return default_metric(store.task, counts)


def automatic_model(store: GraphStore) -> str:
    """Choose the convolution that suits a data set.

    Args:
        store: The data set.

    Returns:
        ``"gine"`` for molecules with edge features, else ``"gcs"``.

    Example:
        >>> from graph_transplant import load
        >>> automatic_model(load("motifs", graphs=12))
        'gcs'
    """
    molecules = store.reading is not None and store.reading.get("kind") == "molecules"
    return "gine" if molecules and store.num_edge_features else "gcs"


def unused_edge_features(store: GraphStore, models: Sequence[str]) -> str:
    """Say which models do not look at the edge features that a data set has.

    Args:
        store: The data set.
        models: Names of convolutions.

    Returns:
        A sentence without full stop; empty when nothing is passed over.

    Example:
        >>> from graph_transplant import load
        >>> unused_edge_features(load("motifs", graphs=12), ["gcs"])
        ''
    """
    blind = [name for name in models if not CONVOLUTIONS[name].takes_edge_attr]
    count = store.num_edge_features
    if not blind or not count:
        return ""
    able = [name for name, kind in CONVOLUTIONS.items() if kind.takes_edge_attr]
    features = f"the {count} edge features" if count > 1 else "the edge feature"
    return (
        f"{listed(blind)} do{'es' if len(blind) == 1 else ''} not use {features} of {store.name}; "
        f"{listed(able)} do"
    )


def check_protocol(
    store: GraphStore,
    settings: Settings,
    select: str,
    models: Sequence[str] = (),
    repeats: int = 1,
) -> None:
    """Check that a data set can be compared on in this way, before anything runs.

    Args:
        store: The data set.
        settings: The protocol.
        select: How candidates are chosen.
        models: Names of convolutions.
        repeats: How often there are folds.

    Raises:
        GraphTransplantError: If it cannot, saying why.
    """
    if settings.split != "folds":
        official_split(store)
        if select == "nested":
            raise GraphTransplantError(
                f"nested selection needs folds, but `split` is {settings.split!r}: choose one of "
                "the two"
            )
    else:
        strata(store, settings.folds)
    choices = TASK_METRICS[store.task]
    if settings.metric not in choices:
        kinds = {
            "multiclass": "graphs have one class each",
            "multilabel": "graphs have several labels",
            "regression": "targets are numbers",
        }
        *first, last = choices
        named = f"{', '.join(first)} or {last}" if first else last
        raise GraphTransplantError(
            f"`metric` must be {named} for {store.name}, whose {kinds[store.task]}; got "
            f"{settings.metric!r}"
        )
    if settings.metric != "accuracy" and store.task == "multiclass" and store.num_outputs != 2:
        raise GraphTransplantError(
            f"`metric` {settings.metric} needs two classes, but {store.name} has "
            f"{store.num_outputs}"
        )
    _check_defined(store, settings, repeats)
    if settings.balance and store.task == "regression":
        raise GraphTransplantError(
            f"`balance` needs classes or labels, but the targets of {store.name} are numbers"
        )
    edge_models = [name for name in models if CONVOLUTIONS[name].takes_edge_attr]
    if edge_models and not store.num_edge_features:
        raise GraphTransplantError(
            f"`models`: {edge_models[0]} needs edge features, but {store.name} has none"
        )
    if settings.attack and store.task != "multiclass":
        raise GraphTransplantError(
            f"`attack` needs one class per graph, but the task of {store.name} is {store.task}"
        )
    if settings.attack and edge_models:
        raise GraphTransplantError(
            "`attack` adds edges, and edges that are not there have no features: "
            f"{edge_models[0]} of `models` reads them; choose others"
        )


def check_training(
    store: GraphStore,
    settings: Settings,
    conditions: Sequence[Condition],
    *,
    repeats: int = 1,
    nested: bool = False,
) -> None:
    """Check that every fold can be trained on in all conditions, before anything runs.

    Args:
        store: The data set; for a split by scaffold, with that split.
        settings: The protocol.
        conditions: Label noise and training fractions.
        repeats: How often there are folds.
        nested: Whether each of the other folds is validated on in turn.

    Raises:
        GraphTransplantError: If it cannot, naming the fold and what it lacks.

    Example:
        >>> from graph_transplant import load
        >>> check_training(load("motifs", graphs=60), Settings(folds=3), [Condition(0.0, 0.1)])
        Traceback (most recent call last):
        graph_transplant.errors.GraphTransplantError: `train_fraction` 0.1 leaves 2 of 20 training \
graphs in fold 0 of repeat 0 of motifs, and none of the 3 of class 0: each class needs at least \
one; choose a larger fraction
    """
    harder = [condition for condition in conditions if condition != Condition()]
    if not harder:
        return
    places = all_trials(
        methods=[""],
        models=[""],
        layers=[0],
        repeats=repeats,
        folds=settings.folds if settings.split == "folds" else 1,
        nested=nested,
    )
    for trial in places:
        for condition in harder:
            tried = replace(trial, **condition._asdict())
            training_labels(store, split_of(store, tried, settings), tried, settings)


def _check_defined(store: GraphStore, settings: Settings, repeats: int) -> None:
    """Refuse a metric that is not defined on the graphs that will be validated or tested on."""
    if settings.metric == "accuracy":
        return
    if settings.split != "folds":
        split = official_split(store)
        place = f"of the {settings.split} split of {store.name}"
        _check_part(store, split.validation, settings.metric, f"validation graphs {place}")
        _check_part(store, split.test, settings.metric, f"test graphs {place}", decides=False)
        return
    classes = strata(store, settings.folds)
    for repeat in range(repeats):
        parts = fold_parts(classes, folds=settings.folds, repeat=repeat, seed=settings.seed)
        # Each part is tested on in its own fold and validated on in another.
        for fold, part in enumerate(parts):
            place = f"graphs of fold {fold} of repeat {repeat} of {store.name}"
            _check_part(store, part, settings.metric, place)


def _check_part(
    store: GraphStore, graphs: Tensor, metric: str, place: str, *, decides: bool = True
) -> None:
    """Refuse a metric that is not defined on some graphs.

    Args:
        store: The data set.
        graphs: Their numbers, int64 ``[graphs]``.
        metric: The metric.
        place: What they are, for the message.
        decides: Whether checkpoints are chosen on them. Average precision is 1 for every model
            where all is positive, and nothing can be chosen by that.
    """
    targets = as_targets(store.y[graphs], store.num_outputs)
    zeros = torch.zeros_like(targets)
    labels = store.task == "multilabel"
    if metric == "r2":
        found, reason = mean_r2(zeros, targets), "their targets do not differ"
    elif metric == "auroc" or decides:
        found = mean_area_under_roc(zeros, targets, store.task)
        reason = "no label has both values there" if labels else "they are all of one class"
    else:
        found = mean_average_precision(zeros, targets, store.task)
        reason = "no label is positive there" if labels else "none is of the second class"
    if math.isnan(found):
        raise GraphTransplantError(
            f"`metric` {metric} is not defined on the {len(graphs)} {place}: {reason}"
        )


def candidates(methods: Sequence[str], *, search: bool, scale: str) -> dict[str, bool]:
    """Write out the methods of a comparison.

    Args:
        methods: Names as :func:`~graph_transplant.augment.methods.expand_methods` takes them.
        search: Take the whole search space of every method that is named without parameters.
        scale: ``"small"``, ``"medium"`` or ``"large"``. As in the paper, the anchor ratio of Graph
            Transplant is searched for medium and large data sets only, unless it is asked for by
            ``transplant-ep:paper``.

    Returns:
        Every method, and whether it was asked for by its own name and not as one of a group.

    Example:
        >>> candidates(["paper", "subgraph"], search=False, scale="small")["subgraph"]
        True
        >>> list(candidates(["drop-nodes", "transplant-dp"], search=True, scale="small"))
        ['drop-nodes', 'drop-nodes:ratio=0.4', 'transplant-dp']
    """
    found: dict[str, bool] = {}
    for text in methods:
        group = text in GROUPS
        for name in expand_methods([text]) if group else [text]:
            method = METHODS.get(name) if search else None
            if method is not None and not (scale == "small" and "anchor_ratio" in method.search):
                name += ":paper"
            for candidate in expand_methods([name]):
                found[candidate] = found.get(candidate, False) or not group
    return found


def _that_serve(
    methods: Mapping[str, bool], models: Sequence[str], store: GraphStore, reporter: Reporter
) -> list[str]:
    """Keep the methods that can train on the data; one that was asked for by name must be able to.

    Args:
        methods: What :func:`candidates` gives.
        models: Names of convolutions; a method must be able to train all of them.
        store: The data set.
        reporter: Told what is left out.
    """
    built = [
        GraphClassifier.for_data(store, conv=name, layers=1, hidden=8, seed=0) for name in models
    ]
    chosen = []
    for name, named in methods.items():
        problems = (refusal(name, model, store) for model in built)
        problem = next((each for each in problems if each is not None), None)
        if problem is None:
            chosen.append(name)
        elif named:
            raise GraphTransplantError(problem)
        else:
            reporter.note(f"{name} is left out: {problem}")
    return chosen


def _unique(items: Sequence[Item]) -> list[Item]:
    return list(dict.fromkeys(items))
