"""Comparisons of methods: run the missing trials and return the results of all."""

from __future__ import annotations

import inspect
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import fields, replace
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

from torch import nn

from graph_transplant import __version__
from graph_transplant.augment import Augmentation
from graph_transplant.baselines.features import add_descriptors
from graph_transplant.comparison.engines import CHECKPOINTS, Execution, check_engine, run_trials
from graph_transplant.comparison.plan import Plan, resolve
from graph_transplant.comparison.progress import Reporter
from graph_transplant.comparison.run_trial import Finished, TrialContext, remove_checkpoint
from graph_transplant.config.compare import CompareConfig
from graph_transplant.config.options import (
    ComparisonSplit,
    Engine,
    Readout,
    RecipeName,
    ScaleName,
    Selection,
    Ties,
)
from graph_transplant.data import GraphStore
from graph_transplant.data.tensors import repeats as repeats_of
from graph_transplant.datasets import load
from graph_transplant.datasets.load import Loadable
from graph_transplant.errors import check_callbacks, check_spelling
from graph_transplant.methods import method_of
from graph_transplant.results.calls import CALLS, Call, read_calls, remember_call, split_plain
from graph_transplant.results.caveats import check_codes
from graph_transplant.results.predictions import predictions_of
from graph_transplant.results.record import TrialRecord
from graph_transplant.results.record_file import RecordStore
from graph_transplant.results.results import Results
from graph_transplant.training.state import EpochLog
from graph_transplant.utils.files import (
    COMMANDS,
    SKIPPED,
    refuse_overwrite,
    write_atomically,
    write_skipped,
)

Names = str | Sequence[str]
Shares = float | Sequence[float]
OwnMethods = Mapping[str, Augmentation | Sequence[Augmentation] | str]
Methods = Names | OwnMethods | Sequence[str | Augmentation]
OwnModels = Mapping[str, Callable[[GraphStore], nn.Module]]


WRITTEN = (SKIPPED, "summary.csv", COMMANDS, CALLS, "report.html")
"""Files that a comparison replaces in its directory."""


def compare(  # noqa: D417 - `CompareConfig` describes the options
    data: Loadable,
    *,
    methods: Methods | None = None,
    model: Names | OwnModels = "auto",
    layers: int | Sequence[int] = 3,
    folds: int = 5,
    repeats: int = 1,
    select: Selection = "none",
    metric: str | None = None,
    split: ComparisonSplit = "folds",
    scale: Literal["auto", ScaleName] = "auto",
    recipe: RecipeName = "paper",
    epochs: int | None = None,
    batch_size: int | None = None,
    learning_rate: float | None = None,
    readout: Readout | None = None,
    balance: bool = False,
    attack: Shares = (),
    label_noise: Shares = 0.0,
    train_fraction: Shares = 1.0,
    group_duplicates: bool | None = None,
    ties: Ties | None = None,
    equal_within: float = 0.01,
    ignore: Sequence[str] = (),
    seed: int = 0,
    workers: int = 1,
    engine: Engine = "local",
    address: str | None = None,
    out: str | Path | None = None,
    fresh: bool = False,
    source: str | None = None,
    reporter: Reporter | None = None,
    callbacks: Sequence[Callable[[EpochLog], None]] = (),
    **reading: Any,
) -> Results:
    """Compare methods by stratified cross-validation on the same folds.

    After an interruption, the same call continues where it stopped: trials recorded in ``out`` are
    not run again. Methods, models, layers, repeats and conditions may be added to a directory; any
    other difference is an error.

    The options from ``methods`` to ``address`` are described in
    :class:`~graph_transplant.config.CompareConfig`.

    Args:
        data: Anything that :func:`~graph_transplant.load` accepts.
        out: Directory for records, table, report and commands. (default: a temporary directory)
        fresh: Start over; existing records are kept under another name.
        source: Name or path of the data, for records and commands. (default: that given as ``data``
            or to :func:`~graph_transplant.load`, or the name of the graphs)
        reporter: Receives progress events.
        callbacks: Called after every epoch of a trial that runs in this process.
        **reading: How the data are read, such as ``target``; see :func:`~graph_transplant.load`.

    Example:
        >>> import graph_transplant as gt
        >>> results = gt.compare("motifs", methods=["vanilla", "drop-nodes"], epochs=1, folds=3,
        ...                      train_fraction=0.1)
        >>> len(results.frame)
        6
    """
    given = dict(locals())
    config = CompareConfig(**{one.name: given[one.name] for one in fields(CompareConfig)})
    check_codes(config.ignore)
    callbacks = check_callbacks(callbacks)
    check_spelling(reading, inspect.signature(compare).parameters)
    directory = None if out is None else Path(out)
    written = [] if directory is None else [directory / name for name in WRITTEN]
    refuse_overwrite([data, source], written)
    store = load(data, **reading)
    origin = store.origin
    if origin is not None:
        refuse_overwrite([origin.data], written)
        source, reading = source or origin.data, dict(origin.reading)
    check_engine(config.engine, config.address)
    plan = resolve(store, config)
    call = _call_of(config, plan, source, reading, out)
    place = tempfile.TemporaryDirectory() if directory is None else nullcontext(str(directory))
    with place as folder:

        def begin() -> None:
            # Only after the first trial: a rejected comparison must not change files.
            if directory is not None:
                write_skipped(store.skipped, directory / SKIPPED)
                remember_call(directory, call, fresh=fresh)

        run = Execution(
            plan.store,
            plan.trials,
            TrialContext(
                plan.settings, plan.store.fingerprint(), call.data or store.name, own=plan.own
            ),
            reporter=reporter or Reporter(),
            workers=config.workers,
            scratch=Path(folder),
            address=config.address,
            callbacks=callbacks,
        )
        for note in plan.notes:
            run.reporter.note(note)
        if plan.store.has_structures and any(method_of(t.method).needs_smiles for t in plan.trials):
            add_descriptors(plan.store, workers=config.workers, tell=run.reporter.note)
        results = Results(
            execute(run, config.engine, fresh, begin),
            config.select,
            directory=directory,
            equal_within=config.equal_within,
            ignore=config.ignore,
            contradictory=call.contradictory,
            calls=(call,) if directory is None else read_calls(directory),
        )
        if directory is None:  # the files are about to go
            kept = {trial: predictions_of(Path(folder), trial) for trial in plan.trials}
            results = replace(results, outputs=kept.get)
    if directory is not None:
        write_atomically(directory / "summary.csv", results.to_csv())
        if results.groups:  # selection may leave nothing to report
            results.report()
    return results


def _call_of(
    config: CompareConfig,
    plan: Plan,
    data: str | None,
    reading: Mapping[str, Any],
    out: str | Path | None,
) -> Call:
    """Describe a call by its options that differ from their defaults."""
    defaults = vars(CompareConfig())
    changed, own = split_plain({k: v for k, v in vars(config).items() if v != defaults[k]})
    read, objects = split_plain({k: v for k, v in reading.items() if v not in (None, False)})
    where = None if out is None else str(out)
    return Call(
        data, read, changed, (*own, *objects), plan.asked, where, _contradictory(plan.store)
    )


def execute(
    run: Execution, engine: Engine, fresh: bool, begin: Callable[[], None]
) -> list[TrialRecord]:
    """Run the trials that have no record yet; return all records of the directory.

    ``begin`` is called once, after the first trial, or if none is missing.
    """
    directory, reporter, job = run.scratch, run.reporter, run.job
    identity = {"data": run.store.name, "fingerprint": job.fingerprint}
    shared = job.settings.as_record(__version__)
    with RecordStore(directory).writing(identity, shared, fresh=fresh) as writer:
        if fresh:
            shutil.rmtree(directory / CHECKPOINTS, ignore_errors=True)
        if writer.notice:
            reporter.note(writer.notice)
        # Those of other numerics are run again.
        there = {record.trial for record in writer.records if record.current}
        missing = [trial for trial in run.trials if trial not in there]
        if len(missing) < len(run.trials):
            done = len(run.trials) - len(missing)
            reporter.note(f"{done} of {len(run.trials)} trials are in {directory} already")
        begin_once = cache(begin)
        if not missing:
            begin_once()
        else:

            def finish(finished: Finished) -> None:
                writer.append(*finished)
                begin_once()
                reporter.trial_finished(finished.record)

            reporter.start(trials=missing, finished=writer.records, workers=run.workers)
            workers = min(run.workers, len(missing))
            try:
                run_trials(replace(run, trials=missing, finish=finish, workers=workers), engine)
            finally:
                reporter.stop()
        # Read back, so that the results are those of a later reader of the file.
        records = sorted(RecordStore(directory).read(), key=attrgetter("trial"))
        for record in records:  # a killed comparison may have left their checkpoints
            remove_checkpoint(directory / CHECKPOINTS, record.trial)
        with suppress(OSError):  # not there, or with checkpoints of other trials
            (directory / CHECKPOINTS).rmdir()
        return records


def _contradictory(store: GraphStore) -> int:
    """Number of graphs with identical copies whose targets differ, where copies were looked for."""
    return 0 if store.duplicates is None else repeats_of(store.duplicates, store.y)[1]
