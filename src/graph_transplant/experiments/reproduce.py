"""Running the paper's experiments and setting the published figures beside the measured ones."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from graph_transplant.errors import DataError, GraphTransplantError, check_choice
from graph_transplant.experiments.paper import (
    EXPERIMENTS,
    MEASURES,
    STEPS,
    Experiment,
    Run,
    attacked,
    plan,
)
from graph_transplant.experiments.progress import Reporter, Silent
from graph_transplant.experiments.protocol import (
    BASELINE,
    Record,
    Settings,
    Trial,
    all_trials,
    metric_of,
)
from graph_transplant.experiments.published import Published, data_sizes, published
from graph_transplant.experiments.records import RecordStore
from graph_transplant.experiments.selection import method_key, select
from graph_transplant.experiments.statistics import holm, mean, standard_deviation
from graph_transplant.experiments.summary import (
    SIGNIFICANT,
    PairedScores,
    chosen_in_words,
    format_p,
    listed,
    paired_scores,
)

if TYPE_CHECKING:
    from graph_transplant.graphs import GraphStore


@dataclass(frozen=True)
class PaperRow:
    """One cell of a table of the paper, with ours beside it.

    Args:
        data: Name of the data set.
        model: Name of the convolution.
        readout: How node embeddings become a graph embedding.
        method: Name of the method, without parameters.
        metric: What was measured.
        trials: Trials that ours is a mean over.
        finished: Finished trials of all candidates.
        planned: Trials that the budget asks for, of all candidates.
        mean: Our mean, or ``None`` where there is nothing.
        std: Our sample standard deviation over trials.
        published: The paper's figure, or ``None`` where it has none.
        difference: Our mean less the published one.
        spread: ``"within"`` when that is at most the published standard deviation, else
            ``"above"`` or ``"below"``; empty where the paper gives none.
        gain: Mean difference to the baseline over the folds that both have; for an error, which
            is better when lower, the sign is turned, so that a gain is always positive.
        published_gain: The same of the published means.
        p_value: Corrected paired t-test of our gain.
        p_holm: The same after Holm's correction over the methods.
        reproduced: Whether the published gain is reproduced: ``"yes"``, with significance;
            ``"sign only"``; ``"no"``; ``"opposite"``, significantly so; ``"none published"`` when
            the published gain is zero; ``"chart"``; ``"missing"``; empty where there is nothing to
            reproduce.
        chosen: The candidate chosen by validation, in words.
        reason: Why the method cannot serve the data, or nothing.
        lacking: Finished trials that do not have the figure.
    """

    data: str
    model: str
    readout: str
    method: str
    metric: str
    trials: int
    finished: int
    planned: int
    mean: float | None
    std: float | None
    published: Published | None
    difference: float | None
    spread: str
    gain: float | None
    published_gain: float | None
    p_value: float | None
    p_holm: float | None
    reproduced: str
    chosen: str
    reason: str = ""
    lacking: int = 0

    @property
    def status(self) -> str:
        """What kind of figure the paper has, see :class:`Published`; nothing without one."""
        return "" if self.published is None else self.published.status

    @property
    def dash(self) -> bool:
        """Whether the paper has a dash here and we have nothing."""
        return self.status == "empty" and not self.finished


@dataclass(frozen=True)
class PaperTable:
    """An experiment's table: ours and the published figures.

    Args:
        experiment: Name of the experiment.
        budget: How much of the protocol was run.
        rows: The cells.
        cuts: What the budget cuts, in sentences; none for the whole protocol.
        notes: What one should know before trusting the numbers.
        verdict: What the table says, in words.
        commands: The commands that make it.
        directories: Where the records lie.
    """

    experiment: str
    budget: str
    rows: list[PaperRow]
    cuts: list[str]
    notes: list[str]
    verdict: str
    commands: list[str]
    directories: tuple[Path, ...]


def run(
    experiment: str,
    *,
    data: Sequence[str] | None = None,
    models: Sequence[str] | None = None,
    budget: str = "quick",
    out: str | Path = "paper",
    root: str | Path | None = None,
    workers: int = 1,
    engine: str = "local",
    address: str | None = None,
    fresh: bool = False,
    reporter: Reporter | None = None,
) -> PaperTable:
    """Run or resume an experiment of the paper and set the published figures beside ours.

    Arguments are checked before the first data set is loaded, and all data sets are loaded before
    the first trial, so that what is wrong or missing is known at once.

    Args:
        experiment: A key of :data:`EXPERIMENTS`.
        data: Data sets, the paper's or others; nothing is published beside the others. (default:
            the paper's, as far as they can be had)
        models: Convolutions. (default: the paper's)
        budget: One of :data:`BUDGETS`; see :func:`plan`.
        out: Directory of all experiments; records lie in ``BUDGET/DATA``.
        root: Folder where data sets are looked for and kept.
        workers: Trials that run at the same time.
        engine: What runs the trials: ``"local"`` processes or a ``"ray"`` cluster.
        address: Address of the Ray cluster.
        fresh: Start over; the records that are there are kept under another name.
        reporter: Told how the comparisons go on. (default: nobody is told)

    Returns:
        The table of what was asked for and of whatever else of this experiment lies in ``out``.

    Raises:
        GraphTransplantError: If an argument cannot be used or a directory holds other records.
        TrialError: If a trial fails; finished trials are kept.
    """
    from graph_transplant.experiments.compare import compare

    _check(experiment, models, budget, workers, engine, address)
    reporter = reporter or Silent()
    stores, notes = _load(experiment, data, root, reporter)
    sizes = {name: len(store) for name, store in stores.items()}
    notes += [
        f"{name} has {graphs:,} graphs here, {data_sizes()[name]:,} in the paper."
        for name, graphs in sizes.items()
        if data_sizes().get(name, graphs) != graphs
    ]
    runs = plan(experiment, data=list(stores), models=models, budget=budget, sizes=sizes)
    reasons: dict[tuple[str, str], str] = {}
    for number, planned in enumerate(runs):
        store = stores[planned.data]
        refused = _refused(planned, store)
        reasons |= {(planned.data, method_key(name)): why for name, why in refused.items()}
        runs[number] = replace(
            planned, methods=tuple(name for name in planned.methods if name not in refused)
        )
    for planned in runs:
        reporter.note(f"{experiment}: {planned.data} in {Path(out) / planned.directory}")
        compare(
            stores[planned.data],
            out=Path(out) / planned.directory,
            **planned.arguments(),
            workers=workers,
            engine=engine,
            address=address,
            fresh=fresh,
            source=planned.data,
            reporter=reporter,
        )
    asked = {planned.data: planned.models for planned in runs}
    return paper_table(
        experiment, asked, budget=budget, out=out, sizes=sizes, reasons=reasons, notes=notes
    )


def _check(
    experiment: str,
    models: Sequence[str] | None,
    budget: str,
    workers: int,
    engine: str,
    address: str | None,
) -> None:
    """Refuse what cannot be run, before anything is loaded or downloaded."""
    from graph_transplant.experiments.engine import check_engine
    from graph_transplant.nn import CONVOLUTIONS

    plan(experiment, models=models, budget=budget)
    for name in models or ():
        check_choice("models", name, CONVOLUTIONS)
    if workers < 1:
        raise GraphTransplantError(f"`workers` must be at least 1, got {workers}")
    # The number of processes is a setting, and the records here are made by one.
    check_choice("engine", engine, ("local", "ray"))
    check_engine(engine, address)


def _load(
    experiment: str,
    data: Sequence[str] | None,
    root: str | Path | None,
    reporter: Reporter,
) -> tuple[dict[str, GraphStore], list[str]]:
    """Load the data sets; one that was not asked for by name may be missing."""
    from graph_transplant.datasets import load

    known = EXPERIMENTS[experiment].data
    stores: dict[str, GraphStore] = {}
    notes = []
    for name in dict.fromkeys(known if data is None else data):
        try:
            stores[name] = load(name, root)
        except DataError as problem:
            if data is not None:
                raise DataError(
                    f"{problem} (the paper's data for {experiment}: {', '.join(known)})"
                ) from problem
            notes.append(f"{name} is left out: {problem}")
    if not stores:
        raise DataError(
            f"none of the data sets of {experiment} can be had: {' '.join(notes)}"
            if notes
            else f"`data` must name at least one of {', '.join(known)}; got none"
        )
    # Told only when the rest is run: of nothing at all the error tells the same.
    for note in notes:
        reporter.note(note)
    return stores, notes


def _refused(planned: Run, store: GraphStore) -> dict[str, str]:
    """Find the methods that cannot serve the data, with the reasons."""
    from graph_transplant.augment import refusal
    from graph_transplant.nn import GraphClassifier

    model = GraphClassifier.for_data(store, layers=1, hidden=8, seed=0)
    found = {name: refusal(method_key(name), model, store) for name in planned.methods}
    return {name: reason for name, reason in found.items() if reason is not None}


def paper_table(
    experiment: str,
    asked: Mapping[str, Sequence[str]],
    *,
    budget: str,
    out: str | Path,
    sizes: Mapping[str, int] | None = None,
    reasons: Mapping[tuple[str, str], str] | None = None,
    notes: Sequence[str] = (),
) -> PaperTable:
    """Make the table of an experiment from records alone; nothing is run.

    Args:
        experiment: A key of :data:`EXPERIMENTS`.
        asked: Convolutions of each data set to show even where nothing is measured; others of the
            experiment are shown where there are records.
        budget: One of :data:`BUDGETS`.
        out: Directory of all experiments.
        sizes: Number of graphs of data sets that the paper does not have.
        reasons: Why a method cannot serve a data set, by data and method.
        notes: Notes to start with.

    Returns:
        The table.

    Example:
        >>> import tempfile
        >>> table = paper_table("table2", {"ogbg-ppa": ["gcs"]}, budget="quick",
        ...                     out=tempfile.mkdtemp())
        >>> row = table.rows[0]
        >>> row.method, row.mean, row.published.mean, row.reproduced, row.planned
        ('vanilla', None, 0.638, '', 1)
        >>> table.verdict
        'Nothing is measured yet: 7 of 7 trials are missing.'
    """
    chosen = EXPERIMENTS[experiment]
    found = list(notes)
    rows: list[PaperRow] = []
    runs: list[Run] = []
    shown: dict[str, tuple[str, ...]] = {}
    attacked_records: dict[tuple[str, str], list[Record]] = {}
    for name in dict.fromkeys((*chosen.data, *asked)):
        wanted = tuple(asked.get(name, ()))
        possible = tuple(dict.fromkeys((*chosen.models_for(name), *wanted)))
        planned = plan(experiment, data=[name], models=possible, budget=budget, sizes=sizes)
        measured = []
        for single in planned:
            records, note = _records(single, Path(out))
            found += [note] if note else []
            measured.append(records)
        there: dict[str, set[str]] = {}
        for record in chain.from_iterable(measured):
            there.setdefault(record["model"], set()).add(method_key(record["method"]))
        models = tuple(
            model
            for model in possible
            if model in wanted or _begun(chosen, there.get(model, set()))
        )
        if not models:
            continue
        shown[name] = models
        for single, records in zip(planned, measured, strict=True):
            runs.append(replace(single, models=models))
            for model in models:
                own = [record for record in records if record["model"] == model]
                if chosen.attack:
                    attacked_records[name, model] = select(own, single.select)
                rows += _rows(experiment, single, model, own, reasons or {})
    if chosen.note:
        found.append(chosen.note)
    found += _stronger(chosen, attacked_records)
    return PaperTable(
        experiment,
        budget,
        rows,
        _cuts(experiment, runs, sizes) if budget != "full" else [],
        found,
        _verdict(chosen, rows),
        _commands(experiment, budget, shown),
        tuple(dict.fromkeys(Path(out) / single.directory for single in runs)),
    )


def _begun(experiment: Experiment, methods: Set[str]) -> bool:
    """Tell whether trials of these methods are a beginning of an experiment.

    One method alone may have been trained for another experiment, unless it is plain training,
    which all others are compared with.
    """
    own = methods & {method_key(name) for name in experiment.methods}
    if experiment.baseline == BASELINE and BASELINE in own:
        return True
    return len(own) >= min(2, len(experiment.methods))


def _stronger(
    experiment: Experiment, records: Mapping[tuple[str, str], Sequence[Record]]
) -> list[str]:
    """Say what random changes and the stronger attack leave of the accuracy, beside the table."""
    notes = []
    for (data, model), own in records.items():
        for how, words in _ATTACKS.items():
            parts = []
            for method in experiment.methods:
                trials = [record for record in own if method_key(record["method"]) == method]
                found = mean([value for one in trials if (value := attacked(one, how)) is not None])
                parts += [f"{method} {found:.3f}"] if found is not None else []
            if parts:
                notes.append(f"{data}, {model}: {words}: {', '.join(parts)}.")
    return notes


_ATTACKS = {
    "random": "accuracy when as many pairs are changed at random",
    "accuracy": "accuracy under the stronger attack, which spends its whole budget on changes",
}


def _records(planned: Run, out: Path) -> tuple[list[Record], str]:
    """Read the records that a run asks for, and say why others are not used."""
    directory = out / planned.directory
    records = RecordStore(directory).read()
    if not records:
        return [], ""
    settings = Settings.complete(records[0]["settings"])
    for name, value in planned.settings().items():
        if settings[name] != value:
            return [], (
                f"The records in {planned.directory} are not shown: their `{name}` is "
                f"{settings[name]}, not {value}."
            )
    wanted = set(
        all_trials(
            methods=_candidates_of(planned, planned.methods),
            models=planned.models,
            layers=planned.layers,
            repeats=planned.repeats,
            folds=1 if planned.split == "official" else planned.folds,
        )
    )
    return [record for record in records if Trial.of_record(record) in wanted], ""


def _candidates_of(planned: Run, methods: Sequence[str]) -> list[str]:
    """Write out methods as the comparison does."""
    from graph_transplant.experiments.compare import candidates

    return list(candidates(methods, search=planned.select != "none", scale=planned.scale))


def _rows(
    experiment: str,
    planned: Run,
    model: str,
    records: Sequence[Record],
    reasons: Mapping[tuple[str, str], str],
) -> list[PaperRow]:
    """Make the rows of one data set, readout and model."""
    chosen = EXPERIMENTS[experiment]
    value = MEASURES[chosen.measure].value
    selected: dict[str, dict[tuple[int, int], Record]] = {}
    for record in select(records, planned.select):
        if value(record) is not None:
            place = record["repeat"], record["fold"]
            selected.setdefault(method_key(record["method"]), {})[place] = record
    names = [method_key(name) for name in planned.methods]
    trials = {name: list(selected.get(name, {}).values()) for name in names}
    tests = _tests(chosen, trials)
    corrected = holm([tests[name].p_value for name in names])
    if chosen.measure != "score":
        metric = chosen.measure
    else:
        metric = metric_of(records[0]) if records else planned.metric or "accuracy"
    rows = []
    for name, method, p_holm in zip(names, planned.methods, corrected, strict=True):
        own = [record for record in records if method_key(record["method"]) == name]
        values = [number for record in trials[name] if (number := value(record)) is not None]
        figure = published(experiment, planned.data, model, name)
        ours = mean(values)
        theirs = None if figure is None else figure.mean
        difference = None if ours is None or theirs is None else ours - theirs
        gain = tests[name].difference
        theirs_gain = _published_gain(experiment, planned.data, model, name)
        candidates = len(_candidates_of(planned, [method])) * len(planned.layers)
        rows.append(
            PaperRow(
                data=planned.data,
                model=model,
                readout=planned.readout,
                method=name,
                metric=metric,
                trials=len(values),
                finished=len(own),
                planned=planned.trials * candidates,
                mean=ours,
                std=standard_deviation(values),
                published=figure,
                difference=difference,
                spread=_spread(difference, None if figure is None else figure.std),
                gain=gain,
                published_gain=theirs_gain,
                p_value=tests[name].p_value,
                p_holm=p_holm,
                reproduced=_reproduced(gain, p_holm, theirs_gain, figure, name == chosen.baseline),
                chosen=chosen_in_words(trials[name]),
                reason=reasons.get((planned.data, name), ""),
                lacking=sum(value(record) is None for record in own),
            )
        )
    return rows


def _tests(
    experiment: Experiment, trials: Mapping[str, Sequence[Record]]
) -> dict[str, PairedScores]:
    """Test the gain of each method over the baseline, as the summary of a comparison does."""
    measure = MEASURES[experiment.measure]

    def worth(record: Record) -> float | None:
        value = measure.value(record)
        return value if value is None or measure.higher else -value

    baseline = trials.get(experiment.baseline or "", ())
    return {
        name: paired_scores(own, () if name == experiment.baseline else baseline, worth)
        for name, own in trials.items()
    }


def _published_gain(experiment: str, data: str, model: str, method: str) -> float | None:
    chosen = EXPERIMENTS[experiment]
    if chosen.baseline is None or method == chosen.baseline:
        return None
    own = published(experiment, data, model, method)
    other = published(experiment, data, model, chosen.baseline)
    if own is None or other is None or own.mean is None or other.mean is None:
        return None
    # Published with three digits: their difference has no more.
    gain = round(own.mean - other.mean, 3)
    return gain if MEASURES[chosen.measure].higher else -gain


def _spread(difference: float | None, std: float | None) -> str:
    if difference is None or std is None:
        return ""
    if abs(difference) <= std + 1e-12:
        return "within"
    return "above" if difference > 0 else "below"


def _reproduced(
    gain: float | None,
    p_holm: float | None,
    published_gain: float | None,
    figure: Published | None,
    is_baseline: bool,
) -> str:
    if figure is None or is_baseline or figure.status == "empty":
        return ""
    if figure.status == "chart":
        return "chart"
    if published_gain is None:
        return ""
    if gain is None:
        return "missing"
    if published_gain == 0:
        return "none published"
    significant = p_holm is not None and p_holm < SIGNIFICANT
    # A mean of differences that cancel out is a rounding error, not a gain.
    if abs(gain) > 1e-12 and gain * published_gain > 0:
        return "yes" if significant else "sign only"
    return "opposite" if significant else "no"


def _cuts(experiment: str, runs: Sequence[Run], sizes: Mapping[str, int] | None) -> list[str]:
    """Say in which points the runs do less than the paper's protocol."""
    cuts: dict[str, None] = {}
    epochs = []
    without: dict[str, dict[str, None]] = {}
    for quick in runs:
        full = next(
            candidate
            for candidate in plan(experiment, data=[quick.data], budget="full", sizes=sizes)
            if candidate.readout == quick.readout
        )
        if quick.repeats < full.repeats:
            what = "run" if quick.split == "official" else f"repeat of {quick.folds} folds"
            cuts[f"{quick.repeats} {what} instead of {full.repeats}."] = None
        if quick.layers != full.layers:
            cuts["3 layers instead of the best of 3, 4 and 5 by validation."] = None
        if any(name.endswith(":paper") for name in full.methods):
            cuts[
                "Each method at its default parameters instead of the best of those that the paper "
                "tries."
            ] = None
        missing = [name for name in full.models if name not in quick.models]
        if missing:
            sentence = f"{_names(quick.models)} without {_names(missing)}"
            without.setdefault(sentence, {})[quick.data] = None
        if quick.epochs < full.epochs:
            epochs.append(f"{quick.data} {quick.epochs} epochs")
    every = {quick.data for quick in runs}
    for sentence, data in without.items():
        cuts[f"{sentence}." if set(data) == every else f"{sentence} on {listed(list(data))}."] = (
            None
        )
    if epochs:
        cuts[
            f"About {STEPS:,} optimiser steps, in whole epochs "
            f"({', '.join(dict.fromkeys(epochs))}), instead of 1,000 epochs with early stopping."
        ] = None
    return list(cuts)


def _names(models: Sequence[str]) -> str:
    """List convolutions as one writes them."""
    return listed([name.upper() for name in models])


def _commands(experiment: str, budget: str, shown: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Give one command for each set of models that data sets share."""
    together: dict[tuple[str, ...], list[str]] = {}
    for data, models in shown.items():
        together.setdefault(models, []).append(data)
    return [
        shlex.join(
            [
                *("graph-transplant", "paper", experiment),
                *("--data", ",".join(data)),
                *("--models", ",".join(models)),
                *("--budget", budget),
            ]
        )
        for models, data in together.items()
    ]


def _verdict(experiment: Experiment, rows: Sequence[PaperRow]) -> str:
    """Say in words what the table shows."""
    planned = sum(row.planned for row in rows if not row.reason and not row.dash)
    finished = sum(row.finished for row in rows)
    if finished == 0:
        return f"Nothing is measured yet: {planned:,} of {planned:,} trials are missing."
    measure = MEASURES[experiment.measure]
    sentences = []
    judged = [row for row in rows if row.spread]
    if judged:
        counts = {kind: sum(row.spread == kind for row in judged) for kind in _SPREADS}
        apart = ", ".join(f"{counts[kind]} {kind}" for kind in _SPREADS[1:] if counts[kind])
        sentences.append(
            f"{counts['within']} of {len(judged)} figures lie within the published spread"
            + (f" ({apart})." if apart else ".")
        )
    gains = [row for row in rows if row.reproduced in _OUTCOMES]
    if gains:
        counts = {kind: sum(row.reproduced == kind for row in gains) for kind in _OUTCOMES}
        parts = [f"{number} {_OUTCOMES[kind]}" for kind, number in counts.items() if number]
        sentences.append(
            f"Of {len(gains)} published differences to {experiment.baseline}: {', '.join(parts)}."
        )
    for row in rows:
        if row.method != "transplant-ep" or row.gain is None or experiment.baseline != BASELINE:
            continue
        where = f"{row.data} with {row.model}" + (
            f" and {row.readout} readout" if len(experiment.readouts) > 1 else ""
        )
        unit = " points" if measure.points else ""
        theirs = (
            f"; published {measure.worded(row.published_gain)}"
            if row.published_gain is not None
            else ""
        )
        test = "not tested" if row.p_holm is None else f"{format_p(row.p_holm)} after Holm"
        sentences.append(
            f"transplant-ep on {where}: {measure.worded(row.gain)}{unit} over {BASELINE} "
            f"({test}{theirs})."
        )
    if not judged and not gains and any(row.status == "chart" for row in rows):
        sentences.append("Published as a chart only: there is no number to compare with.")
    lacking = sum(row.lacking for row in rows)
    if lacking:
        sentences.insert(0, f"{lacking:,} of {finished:,} finished trials lack this figure.")
    if finished < planned:
        sentences.insert(0, f"{planned - finished:,} of {planned:,} trials are missing.")
    return " ".join(sentences) or f"All {planned:,} trials are there; nothing is published beside."


_SPREADS = ("within", "above", "below")

_OUTCOMES = {
    "yes": "reproduced with significance",
    "sign only": "in sign only",
    "no": "not reproduced",
    "opposite": "significantly the other way",
}
