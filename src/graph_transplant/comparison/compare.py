"""Comparisons of methods: run the missing trials and return the results of all."""

from __future__ import annotations

import inspect
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

from torch import nn

from graph_transplant import __version__
from graph_transplant.augment import Augmentation, unsupported_reason
from graph_transplant.augment.base import as_augmentations
from graph_transplant.comparison.checks import check_protocol, check_training
from graph_transplant.comparison.engines import (
    CHECKPOINTS,
    Execution,
    check_engine,
    run_trials,
)
from graph_transplant.comparison.progress import Reporter
from graph_transplant.comparison.run_trial import (
    CustomParts,
    Finished,
    TrialContext,
    remove_checkpoint,
)
from graph_transplant.config.compare import FOLD_SPLITS, Settings
from graph_transplant.config.recipes import READOUTS, SCALES, scale_of
from graph_transplant.data import GraphStore
from graph_transplant.data.tensors import repeats as repeats_of
from graph_transplant.datasets import load
from graph_transplant.datasets.splits import prepare
from graph_transplant.errors import (
    GraphTransplantError,
    check_at_least,
    check_callbacks,
    check_choice,
    check_spelling,
)
from graph_transplant.methods import (
    DEFAULT_METHODS,
    GROUPS,
    METHODS,
    MOLECULE_BASELINES,
    expand_methods,
    group_name,
    method_of,
    parse_method,
)
from graph_transplant.nn import CONVOLUTIONS, GraphClassifier
from graph_transplant.results.calls import (
    CALLS,
    Asked,
    Call,
    read_calls,
    remember_call,
    split_plain,
)
from graph_transplant.results.predictions import predictions_of
from graph_transplant.results.record import Condition, Record, Trial, all_trials, check_conditions
from graph_transplant.results.record_file import RecordStore
from graph_transplant.results.results import Results
from graph_transplant.results.selection import SELECTIONS
from graph_transplant.results.verdict import EQUAL_WITHIN
from graph_transplant.training.defaults import automatic_model, metric_for, unused_edge_features
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


def compare(
    data: Any,
    *,
    methods: Methods | None = None,
    model: Names | OwnModels = "auto",
    layers: int | Sequence[int] = 3,
    folds: int = 5,
    repeats: int = 1,
    recipe: str = "paper",
    epochs: int | None = None,
    batch_size: int | None = None,
    learning_rate: float | None = None,
    seed: int = 0,
    select: str = "none",
    metric: str | None = None,
    scale: str = "auto",
    split: str = "folds",
    readout: str | None = None,
    balance: bool = False,
    attack: Shares = (),
    label_noise: Shares = 0.0,
    train_fraction: Shares = 1.0,
    group_duplicates: bool | None = None,
    ties: str | None = None,
    equal_within: float = EQUAL_WITHIN,
    workers: int = 1,
    engine: str = "local",
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
    other difference is an error. Your own methods and models are identified by their names.

    Args:
        data: Anything that :func:`~graph_transplant.load` accepts.
        methods: Names of methods, with or without parameters, and augmentations, which are called
            by their class; or a mapping of names to augmentations (a list for several, an empty
            list for none) or to names. All methods are compared with ``vanilla``. ``all`` and
            ``paper`` select those that support the data; ``baselines`` selects all without a
            network. (default: ``vanilla``, ``transplant-dp`` and ``transplant-ep``; for molecules
            read from SMILES also ``forest`` and ``majority``)
        model: Names of convolutions, or a mapping of names to functions that create a model for a
            store; ``"auto"`` is ``"gine"`` for molecules with bond features, otherwise ``"gcs"``.
        layers: Numbers of layers; models of your own have theirs.
        folds: Number of folds, at least 3: one is the test set, the next one the validation set.
        repeats: Number of times the cross-validation is repeated, each with a new shuffle.
        recipe: ``"paper"``, or ``"strong"``: normalisation, residual connections, AdamW with
            warm-up and cosine (:mod:`graph_transplant.config.recipes`).
        epochs: Maximum number of epochs. (default: 1000; 200 with the strong recipe)
        batch_size: Graphs per training batch. (default: that of the recipe and the scale)
        learning_rate: Highest learning rate. (default: that of the recipe)
        seed: Seed for all randomness.
        select: ``"validation"`` expands each method named without parameters to its search space
            (on small data sets, not for Graph Transplant) and reports the candidate (layers and
            parameters) with the best mean validation metric; ``"none"`` reports all as given.
        metric: ``"accuracy"``; ``"auroc"`` or ``"average_precision"`` for two classes or several
            labels; ``"r2"`` for numbers. (default: depends on the data)
        scale: The paper's patience and batch size for ``"small"``, ``"medium"`` or ``"large"`` data
            sets; ``"auto"`` goes by the number of graphs.
        split: ``"folds"``; ``"scaffold-folds"``, which keep molecules of one Bemis-Murcko scaffold
            together; or a single split, on which repeats differ only in their seed: ``"official"``
            or ``"scaffold"``.
        readout: Mean, sum, max or mean-max. (default: that of the recipe)
        balance: Draw training graphs so that all classes are equally likely.
        attack: Also measure the accuracy on test graphs attacked with these budgets, as shares of
            the mean number of edges.
        label_noise: Shares of the training labels to make wrong, in [0, 1).
        train_fraction: Shares of the training graphs to use, in (0, 1]; each is combined with each
            share of wrong labels.
        group_duplicates: Keep identical graphs in the same fold. (default: for molecules read from
            a table)
        ties: Which of several epochs with the same validation metric is the best: the ``"first"``,
            the one with the lowest validation ``"loss"``, or the last (``"reset"``). (default: that
            of the recipe)
        equal_within: Methods are practically equal if the 95 % interval of their difference lies
            within this distance of zero; 0.01 is one point.
        workers: Number of trials to run in parallel on this machine.
        engine: ``"local"`` processes or a ``"ray"`` cluster.
        address: Address of the Ray cluster. (default: one is started on this machine)
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
    arguments = dict(locals())
    # Created first, so that invalid arguments raise before anything runs.
    results = Results(
        [], select, directory=None if out is None else Path(out), equal_within=equal_within
    )
    callbacks = check_callbacks(callbacks)
    check_spelling(reading, inspect.signature(compare).parameters)
    if results.directory is not None:
        refuse_overwrite([data, source], [results.directory / name for name in WRITTEN])
    store = load(data, **reading)
    origin = store.origin
    if results.directory is not None and origin is not None:
        refuse_overwrite([origin.data], [results.directory / name for name in WRITTEN])
    if methods is None:
        methods = (*(MOLECULE_BASELINES if store.has_structures else ()), *DEFAULT_METHODS)
    own = CustomParts(_own_methods(methods), _own_models(model))
    names = _listed(methods)
    models = _listed(model)
    if not own.models:
        automatic = automatic_model(store)
        models = list(dict.fromkeys(automatic if name == "auto" else name for name in models))
    built_in = [] if own.models else models
    depths = list(dict.fromkeys(layers if isinstance(layers, Iterable) else [layers]))
    for argument, given, choices in (("methods", names, METHODS), ("model", models, CONVOLUTIONS)):
        if not given:
            raise GraphTransplantError(
                f"`{argument}` must name at least one of {', '.join(choices)}; got none"
            )
    for name in built_in:
        check_choice("model", name, CONVOLUTIONS)
    if readout is not None:
        check_choice("readout", readout, READOUTS)
    check_choice("select", select, SELECTIONS)
    check_engine(engine, address)
    if not depths:
        raise GraphTransplantError("`layers` must be at least one number, got none")
    for depth in depths:
        check_at_least(1, layers=depth)
    depths = [int(depth) for depth in depths]  # records hold no numbers of NumPy
    if own.models and len(depths) > 1:
        raise GraphTransplantError(
            "`layers` must be a single number for models of your own, whose functions do not take "
            f"it; got {', '.join(map(str, depths))}"
        )
    check_at_least(1, repeats=repeats, workers=workers)
    noises, fractions = check_conditions(_shares(label_noise), _shares(train_fraction))
    check_choice("scale", scale, ["auto", *SCALES])
    scale = scale_of(len(store)) if scale == "auto" else scale
    settings = Settings.of(
        recipe,
        scale,
        folds=folds,
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        seed=seed,
        readout=readout,
        metric=metric or metric_for(store),
        split=split,
        attack=tuple(sorted(set(_shares(attack)))),
        balance=balance,
        ties=ties,
        group_duplicates=store.has_structures if group_duplicates is None else group_duplicates,
    )
    store = prepare(store, settings.split, group_duplicates=settings.group_duplicates)
    check_protocol(store, settings, built_in, repeats)
    conditions = [Condition(*values) for values in product(noises, fractions)]
    check_training(store, settings, conditions, repeats=repeats)
    reporter = reporter or Reporter()
    unused = unused_edge_features(store, built_in)
    if unused:
        reporter.note(unused)
    named = [name for name in names if name not in own.methods]
    wished = candidates(named, search=select != "none", scale=scale)
    wished = dict.fromkeys(own.methods, True) | wished
    chosen = supported_methods(wished, models, own, store, reporter)
    baselines = [name for name in chosen if not method_of(name).network]
    chosen = [name for name in chosen if method_of(name).network]
    listing = partial(
        all_trials,
        repeats=repeats,
        folds=settings.folds if settings.split in FOLD_SPLITS else 1,
        label_noise=noises,
        train_fraction=fractions,
    )
    wanted = sorted(
        [
            *listing(methods=baselines, models=[""], layers=[0]),
            *listing(methods=chosen, models=models, layers=depths),
        ],
        # Fold by fold; the sort is stable.
        key=lambda trial: (trial.repeat, trial.fold),
    )
    call = _call_of(
        arguments,
        origin.data if source is None and origin is not None else source,
        reading if origin is None else origin.reading,
        Asked((*baselines, *chosen), tuple(models), tuple(depths), noises, fractions),
        _contradictory(store),
    )
    results = replace(results, calls=(call,))

    def begin() -> None:
        # Only after the first trial: a rejected comparison must not change files.
        if results.directory is not None:
            write_skipped(store.skipped, results.directory / SKIPPED)
            remember_call(results.directory, call, fresh=fresh)

    place = tempfile.TemporaryDirectory() if out is None else nullcontext(str(out))
    with place as folder:
        records = _run(
            Execution(
                store,
                wanted,
                TrialContext(settings, store.fingerprint(), call.data or store.name, own=own),
                reporter=reporter,
                workers=workers,
                scratch=Path(folder),
                address=address,
                callbacks=callbacks,
            ),
            engine,
            fresh,
            begin,
        )
        if out is None:  # the files are about to go
            kept = {trial: predictions_of(Path(folder), trial) for trial in wanted}
            results = replace(results, outputs=kept.get)
    results = replace(results, records=records, contradictory=call.contradictory)
    if results.directory is not None:
        results = replace(results, calls=read_calls(Path(folder)))
        write_atomically(Path(folder) / "summary.csv", results.to_csv())
        if results.groups:  # selection may leave nothing to report
            results.report()
    return results


def _call_of(
    arguments: Mapping[str, Any],
    data: str | None,
    reading: Mapping[str, Any],
    asked: Asked,
    contradictory: int,
) -> Call:
    """Describe a call by its arguments that differ from their defaults."""
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(compare).parameters.items()
        if name not in ("data", "out", "fresh", "source", "reporter", "callbacks", "reading")
    }
    given = {name: arguments[name] for name in defaults}
    plain, own = split_plain(given)
    changed = {
        name: value for name, value in plain.items() if _several(value) != _several(defaults[name])
    }
    read, objects = split_plain({k: v for k, v in reading.items() if v not in (None, False)})
    out = None if arguments["out"] is None else str(arguments["out"])
    objects = (*own, *objects)
    return Call(data, read, changed, objects, asked, out, contradictory)


def _several(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _run(run: Execution, engine: str, fresh: bool, begin: Callable[[], None]) -> list[Record]:
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
        there = {Trial.of_record(record) for record in writer.records}
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
        records = sorted(RecordStore(directory).read(), key=Trial.of_record)
        for record in records:  # a killed comparison may have left their checkpoints
            remove_checkpoint(directory / CHECKPOINTS, Trial.of_record(record))
        with suppress(OSError):  # not there, or with checkpoints of other trials
            (directory / CHECKPOINTS).rmdir()
        return records


def _contradictory(store: GraphStore) -> int:
    """Number of graphs with identical copies whose targets differ, where copies were looked for."""
    return 0 if store.duplicates is None else repeats_of(store.duplicates, store.y)[1]


def _own_models(model: Names | OwnModels) -> OwnModels:
    if callable(model):
        raise GraphTransplantError(
            "`model` must be a name, a list of names or a dict of functions, such as "
            "{'mine': function}; "
            f"got {model!r}"
        )
    if not isinstance(model, Mapping):
        return {}
    for name, make in model.items():
        if isinstance(make, nn.Module) or not callable(make):
            raise GraphTransplantError(
                f"`model`: {name!r} must be a function that makes a model for a store; got {make!r}"
            )
    return dict(model)


def _own_methods(methods: Methods) -> dict[str, tuple[Augmentation, ...] | str]:
    if isinstance(methods, str):
        return {}
    if not isinstance(methods, Mapping):
        augmentations = [one for one in methods if isinstance(one, Augmentation)]
        methods = {type(one).__name__: one for one in augmentations}
        if len(methods) < len(augmentations):
            raise GraphTransplantError(
                "`methods`: augmentations in a list are called by their class, of which there is "
                "more than one; name them in a dict, as in {'more': DropNodes(0.4)}"
            )
    found: dict[str, tuple[Augmentation, ...] | str] = {}
    for name, given in methods.items():
        if not all(method_of(text).network for text in (name, given) if isinstance(text, str)):
            if given != name:
                raise GraphTransplantError(
                    f"`methods`: baselines ({', '.join(expand_methods(['baselines']))}) keep their "
                    f"names; got {given!r} as {name!r}"
                )
        elif isinstance(given, str):
            parse_method(given)
            found[str(name)] = given
        else:
            must = f"`methods`: {name!r} must be an Augmentation, a list of them or a name"
            found[str(name)] = as_augmentations(given, must)
    return found


def _listed(names: Methods | Mapping[str, Any]) -> list[str]:
    if isinstance(names, str):
        return [names]
    return [type(one).__name__ if isinstance(one, Augmentation) else str(one) for one in names]


def _shares(values: Any) -> tuple[float, ...]:
    if isinstance(values, Iterable) and not isinstance(values, str):
        return tuple(values)
    return (values,)


def candidates(methods: Sequence[str], *, search: bool, scale: str) -> dict[str, bool]:
    """Expand methods; map each to whether it was named itself and not only through a group."""
    found: dict[str, bool] = {}
    for text in map(group_name, methods):
        group = text in GROUPS
        for name in expand_methods([text]) if group else [text]:
            method = METHODS.get(name) if search else None
            if method is not None and not (scale == "small" and "anchor_ratio" in method.search):
                name += ":paper"
            for candidate in expand_methods([name]):
                found[candidate] = found.get(candidate, False) or not group
    return found


def supported_methods(
    methods: Mapping[str, bool],
    models: Sequence[str],
    own: CustomParts,
    store: GraphStore,
    reporter: Reporter,
) -> list[str]:
    """Keep the methods that support the data; raise if one named by the user does not."""
    built = [
        own.model(name, store, seed=0)
        if name in own.models
        else GraphClassifier.for_data(store, conv=name, layers=1, hidden=8, seed=0)
        for name in models
    ]
    chosen = []
    for name, named in methods.items():
        given = own.methods.get(name, name)
        problems = (unsupported_reason(given, model, store) for model in built)
        problem = next((each for each in problems if each is not None), None)
        if problem is None:
            chosen.append(name)
        elif named:
            raise GraphTransplantError(problem)
        else:
            reporter.note(f"{name} is left out: {problem}")
    return chosen
