"""A whole comparison: the trials that are missing, and the tables made of the records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from graph_transplant import __version__
from graph_transplant.augment import METHODS, expand_methods, refusal
from graph_transplant.augment.methods import GROUPS
from graph_transplant.errors import GraphTransplantError, check_choice
from graph_transplant.experiments.engine import run_trials
from graph_transplant.experiments.files import write_atomically
from graph_transplant.experiments.progress import Reporter, Silent
from graph_transplant.experiments.protocol import Record, Settings, Trial, all_trials
from graph_transplant.experiments.records import RecordStore
from graph_transplant.experiments.splits import check_folds
from graph_transplant.experiments.summary import (
    SummaryRow,
    Verdict,
    summarise,
    summary_csv,
    verdicts,
)
from graph_transplant.graphs import GraphStore
from graph_transplant.nn import CONVOLUTIONS, GraphClassifier

Item = TypeVar("Item")


@dataclass(frozen=True)
class Comparison:
    """A finished comparison.

    Args:
        directory: Where its files lie.
        records: All finished trials in that directory, in a fixed order.
        rows: The summary, ranked within each model.
        verdicts: The findings in words, one per model and number of layers.
    """

    directory: Path
    records: list[Record]
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
    batch_size: int = 128,
    seed: int = 0,
    workers: int = 1,
    source: str | None = None,
    reporter: Reporter | None = None,
) -> Comparison:
    """Compare methods by stratified cross-validation on the same folds.

    Trials whose record lies in ``out`` already are not run again, so that the same call after an
    interruption goes on where it stopped. More methods, models, layers or repeats may be added to a
    directory; anything else that differs is refused.

    Args:
        store: The data set; each graph has one class.
        out: Directory for ``records.jsonl`` and ``summary.csv``, made when it is not there.
        methods: Names of methods, with parameters or without
            (:func:`~graph_transplant.augment.methods.expand_methods`); differences are taken to
            ``vanilla``. A named method that cannot serve the data is an error; of ``all`` and
            ``paper`` it is left out, and the reporter is told why.
        models: Names of convolutions.
        layers: Numbers of layers.
        folds: Number of folds, at least 3.
        repeats: How often to repeat with another shuffle.
        epochs: Most epochs a trial trains.
        batch_size: Graphs per training batch.
        seed: The one number that all randomness derives from.
        workers: How many trials run at once.
        source: How the data set was named, for the command that repeats the comparison. (default:
            its name)
        reporter: Told how the comparison goes on. (default: nobody is told)

    Returns:
        The comparison, with all records of the directory.

    Raises:
        GraphTransplantError: If an argument cannot be used or the directory holds other records.
        TrialError: If a trial fails; finished trials are kept.
    """
    models, layers = _unique(models), _unique(layers)
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
    wanted_methods = expand_methods(methods)
    for argument, numbers in (("layers", layers), ("repeats", (repeats,)), ("workers", (workers,))):
        if not numbers or min(numbers) < 1:
            given = ", ".join(str(number) for number in numbers) or "nothing"
            raise GraphTransplantError(f"`{argument}` must be at least 1, got {given}")
    if store.task != "multiclass":
        raise GraphTransplantError(
            f"a comparison needs one class per graph, but the task of {store.name} is {store.task}"
        )
    settings = Settings(folds=folds, epochs=epochs, batch_size=batch_size, seed=seed)
    check_folds(store.labels, folds)

    reporter = reporter or Silent()
    chosen = _that_serve(wanted_methods, methods, store, reporter)
    fingerprint = store.fingerprint()
    directory = Path(out)
    identity = {"data": store.name, "fingerprint": fingerprint}
    with RecordStore(directory).writing(identity, settings.as_record(__version__)) as writer:
        if writer.notice:
            reporter.note(writer.notice)
        wanted = list(
            all_trials(methods=chosen, models=models, layers=layers, repeats=repeats, folds=folds)
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
                )
            finally:
                reporter.stop()
        # Read back: the tables are made of what a later reader of the file will find.
        records = sorted(RecordStore(directory).read(), key=Trial.of_record)
        rows = summarise(records)
        write_atomically(directory / "summary.csv", summary_csv(rows))
    return Comparison(directory, records, rows, verdicts(rows))


def _that_serve(
    wanted: Sequence[str], given: Sequence[str], store: GraphStore, reporter: Reporter
) -> list[str]:
    """Keep the methods that can train on the data; one that was asked for by name must be able to.

    Args:
        wanted: Every method, written out.
        given: The methods as the user named them.
        store: The data set.
        reporter: Told what is left out.
    """
    named = expand_methods([name for name in given if name not in GROUPS])
    model = GraphClassifier.for_data(store, layers=1, hidden=8, seed=0)
    chosen = []
    for name in wanted:
        problem = refusal(name, model, store)
        if problem is None:
            chosen.append(name)
        elif name in named:
            raise GraphTransplantError(problem)
        else:
            reporter.note(f"{name} is left out: {problem}")
    return chosen


def _unique(items: Sequence[Item]) -> list[Item]:
    return list(dict.fromkeys(items))
