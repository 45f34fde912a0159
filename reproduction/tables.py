"""Tables of measured and published results."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from graph_transplant.methods import REFERENCE, method_key
from graph_transplant.metrics import METRICS
from graph_transplant.report.tables import latex_table, markdown_table
from graph_transplant.report.typography import latex_text, markdown_text, slug
from graph_transplant.results.record import Record, metric_of
from graph_transplant.results.results import Results
from graph_transplant.results.statistics import Paired, holm
from graph_transplant.results.verdict import SIGNIFICANT
from graph_transplant.utils.files import write_atomically
from graph_transplant.utils.text import NOTHING, capital, count, number, p_value, points
from reproduction.experiments import (
    ATTACK,
    BUDGETS,
    EXPERIMENTS,
    STEPS,
    Experiment,
    Request,
    Run,
    plan,
)
from reproduction.published import published

COLUMNS = (
    *("experiment", "budget", "protocol", "data", "model", "readout", "method", "metric"),
    *("published_mean", "published_std", "published_status", "source"),
    *("mean", "std", "trials", "finished", "planned", "difference"),
    *("gain", "published_gain", "p_value", "p_holm", "reproduced", "chosen", "reason"),
)
"""Columns of ``PaperTable.frame`` and of the CSV file."""

_OUTCOMES = {
    "yes": "reproduced with significance",
    "sign only": "in sign only",
    "no": "not reproduced",
    "opposite": "significantly the other way",
}
_WORDS = {
    "robust_accuracy": "accuracy under attack",
    "edge_predictor_accuracy": "accuracy of ψ",
} | {name: metric.word for name, metric in METRICS.items()}


@dataclass(frozen=True, eq=False)
class PaperTable:
    """Results of an experiment as a table and in words.

    ``frame`` has one row per data set, model, readout and method, see :data:`COLUMNS`. ``gain`` is
    the mean difference to the baseline over shared folds, with the sign flipped for errors.
    ``reproduced`` says whether the published gain was reproduced; it is empty for the quick budget.
    """

    experiment: str
    budget: str
    frame: pd.DataFrame = field(repr=False)
    verdict: str
    remarks: list[str]
    commands: list[str]
    directories: list[Path]

    @property
    def title(self) -> str:
        """Title of the experiment; marks a quick run as a smoke run."""
        title = EXPERIMENTS[self.experiment].title
        return title if self.budget == "full" else f"{title} ({BUDGETS[self.budget]})"

    def to_markdown(self) -> str:
        """Format the table as a Markdown page."""
        heads, rows = self._cells()
        cells = [[markdown_text(cell) for cell in row] for row in rows]
        sources = [text for text in self.frame["source"].unique() if text]
        remarks = [*self.remarks, *(f"Published: {text}." for text in sources)]
        # One line per command, so that no name can end the code block.
        commands = [f"$ {' '.join(command.splitlines())}" for command in self.commands]
        lines = [
            *(f"# {markdown_text(self.title)}", "", markdown_text(self.verdict), ""),
            markdown_table(heads, cells, heads.index("ours")),
            *(f"- {markdown_text(remark)}" for remark in remarks),
            *("", "Made from the records by", "", "```console", *commands, "```"),
        ]
        return "\n".join(lines) + "\n"

    def to_latex(self) -> str:
        """Format the table in LaTeX, which needs ``booktabs``."""
        heads, rows = self._cells()
        cells = [[latex_text(cell) for cell in row] for row in rows]
        label = slug(self.experiment, self.budget)
        caption = f"{self.title}. {' '.join(self.remarks)}"
        return latex_table(caption, label, heads, cells, heads.index("ours"))

    def to_csv(self) -> str:
        """Format the frame as CSV; undefined numbers are empty cells."""
        text: str = self.frame.to_csv(index=False, float_format="%.6g", lineterminator="\n")
        return text

    def write(self, out: str | Path) -> list[Path]:
        """Write ``EXPERIMENT-BUDGET.md``, ``.csv`` and ``.tex``."""
        Path(out).mkdir(parents=True, exist_ok=True)
        texts = {"md": self.to_markdown(), "csv": self.to_csv(), "tex": self.to_latex()}
        paths = [Path(out, f"{self.experiment}-{self.budget}.{ending}") for ending in texts]
        for path, text in zip(paths, texts.values(), strict=True):
            write_atomically(path, text)
        return paths

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        experiment = EXPERIMENTS[self.experiment]
        several = len(experiment.readouts) > 1
        frame = self.frame
        columns: dict[str, Any] = {"data": frame["data"], "model": frame["model"]}
        columns |= {"readout": frame["readout"]} if several else {}
        columns["method"] = frame["method"]
        if frame["metric"].nunique() > 1:
            columns["measure"] = frame["metric"].map(_WORDS)
        rows = frame.to_dict("records")
        columns["ours"] = [_ours(row) for row in rows]
        columns["published"] = [_theirs(row) for row in rows]
        columns["difference"] = [number(row["difference"], sign=True) for row in rows]
        if experiment.baseline is not None:
            columns["gain (published)"] = [
                _gain(experiment, row["gain"], row["published_gain"]) for row in rows
            ]
            columns["p (Holm)"] = [p_value(row["p_holm"]) for row in rows]
            if self.budget == "full":
                columns["reproduced"] = frame["reproduced"]
        if frame["chosen"].any():
            columns["chosen"] = frame["chosen"]
        cells = zip(*columns.values(), strict=True)
        return list(columns), [[str(cell) or NOTHING for cell in row] for row in cells]


def _higher(experiment: Experiment) -> bool:
    return experiment.measure not in METRICS or METRICS[experiment.measure].higher


def _gain(experiment: Experiment, gain: float, theirs: float = math.nan) -> str:
    """Format a gain, with the published one in parentheses: in points, or as plain numbers."""
    ours, other = (
        points(value) if _higher(experiment) else number(value, sign=True)
        for value in (gain, theirs)
    )
    return ours if other == NOTHING else f"{ours} ({other})"


def _ours(row: Mapping[str, Any]) -> str:
    if math.isnan(row["mean"]):
        return NOTHING if row["reason"] or _dash(row) else "missing"
    part = f" ({row['finished']} of {row['planned']} trials)"
    return _spelled(row["mean"], row["std"]) + (part if row["finished"] < row["planned"] else "")


def _theirs(row: Mapping[str, Any]) -> str:
    chart = row["published_status"] == "chart"
    return "chart" if chart else _spelled(row["published_mean"], row["published_std"])


def _spelled(mean: float, std: float) -> str:
    return number(mean) + ("" if math.isnan(std) else f" ± {number(std)}")


def _dash(row: Mapping[str, Any]) -> bool:
    """Whether the paper has a dash and no trial is finished."""
    return bool(row["published_status"] == "empty" and not row["finished"])


# -------------------------------------------------------------------- from records


def paper_table(request: Request) -> PaperTable:
    """Make the table of an experiment from its records, without running anything."""
    experiment = EXPERIMENTS[request.experiment]
    rows: list[dict[str, Any]] = []
    runs: list[Run] = []
    for data in dict.fromkeys((*experiment.data, *request.models)):
        asked = tuple(request.models.get(data, ()))
        possible = tuple(dict.fromkeys((*experiment.models_for(data), *asked)))
        given: dict[str, Any] = {"budget": request.budget, "sizes": request.sizes}
        planned = plan(request.experiment, data=[data], models=possible, **given)
        found = [one.records(request.out) for one in planned]
        records = [record for own in found for record in own]
        models = tuple(m for m in possible if m in asked or _begun(experiment, records, m))
        for one, own in zip(planned, found, strict=True):
            runs += [replace(one, models=models)] if models else []
            for model in models:
                measured = [
                    {**record, "test": {**record["test"], "measured": _value(record, experiment)}}
                    for record in own
                    if record["model"] == model
                ]
                rows += _rows(request, one, model, Results(measured, one.select))
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    notes = [*request.notes, *([experiment.note] if experiment.note else [])]
    program = ("python", "-m", "reproduction")
    start = [*program, request.experiment, "--budget", request.budget]
    shown = {one.data: ",".join(one.models) for one in runs}
    return PaperTable(
        request.experiment,
        request.budget,
        frame,
        _verdict(request, frame),
        [*_remarks(request, runs, frame), *notes],
        [shlex.join([*start, "--data", data, "--models", names]) for data, names in shown.items()],
        list(dict.fromkeys(request.out / one.directory for one in runs)),
    )


def _begun(experiment: Experiment, records: Sequence[Record], model: str) -> bool:
    """Whether an experiment has been started with a model.

    A single method other than plain training may belong to another experiment.
    """
    there = {method_key(r["method"]) for r in records if r["model"] == model}
    own = there & set(experiment.methods)
    plain = experiment.baseline == REFERENCE and REFERENCE in own
    return plain or len(own) >= min(2, len(experiment.methods))


def _value(record: Record, experiment: Experiment) -> float:
    """The experiment's measure for one trial; NaN if missing.

    Deviation: psi-on-validation. The paper measures ψ on node pairs of test graphs during training.
    Here validation graphs are used: test graphs are evaluated only once, at the end.
    """
    measure = experiment.measure
    if measure == "robust_accuracy":
        rows = [r for r in record.get("attacked", ()) if math.isclose(r["budget"], ATTACK)]
        found = [row.get("as_stated") for row in rows]
    elif measure == "edge_predictor_accuracy":
        curve = [point.get("measurements", {}) for point in record.get("curve", ())]
        found = [point[measure] for point in curve if measure in point]
    else:
        found = [record["test"].get(metric_of(record) if measure == "score" else measure)]
    return float(found[-1]) if found and isinstance(found[-1], int | float) else math.nan


def _rows(request: Request, one: Run, model: str, results: Results) -> Iterator[dict[str, Any]]:
    experiment = EXPERIMENTS[request.experiment]
    baseline, frame = experiment.baseline, results.frame
    sign = 1 if _higher(experiment) else -1
    names = [method_key(name) for name in one.methods]
    metric = experiment.measure
    if metric == "score":
        metric = results.metric if results.records else one.metric or "accuracy"
    planned = Counter(method_key(trial.method) for trial in one.trials() if trial.model == model)
    measured = [r for r in results.records if not math.isnan(r["test"]["measured"])]
    finished = Counter(method_key(record["method"]) for record in measured)
    choices = results.summary().set_index("method")["chosen"]
    part = next(iter(results.groups.values()), None)  # one model with its layers, if any trial
    tests = [
        part.paired(name, baseline, "measured")
        if part and baseline not in (None, name)
        else Paired()
        for name in names
    ]
    for name, test, p_holm in zip(names, tests, holm([t.p_value for t in tests]), strict=True):
        values = frame.loc[frame["method"] == name, "measured"].dropna() if len(frame) else []
        values = pd.Series(values, dtype=float)
        figure = published(request.experiment, one.data, model, name)
        theirs = _number(figure.mean if figure else None)
        row = {
            "experiment": request.experiment,
            "budget": request.budget,
            "protocol": BUDGETS[request.budget],
            "data": one.data,
            "model": model,
            "readout": one.readout,
            "method": name,
            "metric": metric,
            "published_mean": theirs,
            "published_std": _number(figure.std if figure else None),
            "published_status": figure.status if figure else "",
            "source": str(figure.source) if figure else "",
            "mean": values.mean(),
            "std": values.std(),
            "trials": len(values),
            "finished": finished[name],
            "planned": planned[name],
            "difference": values.mean() - theirs,
            "gain": sign * _number(test.difference),
            "published_gain": sign * _published_gain(request.experiment, one.data, model, name),
            "p_value": _number(test.p_value),
            "p_holm": _number(p_holm),
            "reproduced": "",
            "chosen": choices.get(name, ""),
            "reason": request.reasons.get((one.data, name), ""),
        }
        if request.budget == "full" and name != baseline:
            complete = all(finished[own] == planned[own] for own in (name, baseline or name))
            row["reproduced"] = _reproduced(row, complete)
        yield row


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _published_gain(experiment: str, data: str, model: str, method: str) -> float:
    baseline = EXPERIMENTS[experiment].baseline
    if baseline is None or method == baseline:
        return math.nan
    own, other = (published(experiment, data, model, name) for name in (method, baseline))
    if own is None or other is None or own.mean is None or other.mean is None:
        return math.nan
    # Published numbers have three decimals.
    return round(own.mean - other.mean, 3)


def _reproduced(row: Mapping[str, Any], complete: bool) -> str:
    """Whether the published gain was reproduced, for full runs only."""
    gain, theirs = row["gain"], row["published_gain"]
    if row["published_status"] == "chart":
        return "chart"
    if math.isnan(theirs):
        return ""
    if math.isnan(gain):
        return "missing"
    if not complete:
        return "unfinished"
    if theirs == 0:
        return "none published"
    significant = row["p_holm"] < SIGNIFICANT
    # Differences that cancel out may leave a rounding error.
    if abs(gain) > 1e-12 and gain * theirs > 0:
        return "yes" if significant else "sign only"
    return "opposite" if significant else "no"


# -------------------------------------------------------------------- in words


def _remarks(request: Request, runs: Sequence[Run], frame: pd.DataFrame) -> list[str]:
    experiment = EXPERIMENTS[request.experiment]
    protocol = "The paper's protocol; nothing is cut."
    if request.budget != "full":
        epochs = ", ".join(dict.fromkeys(f"{one.epochs} epochs on {one.data}" for one in runs))
        protocol = (
            f"{capital(BUDGETS[request.budget])}: one repeat, 3 layers, default parameters and "
            f"about {STEPS:,} optimiser steps a trial {f'({epochs}) ' if epochs else ''}in place "
            "of the paper's protocol."
        )
    remarks = [protocol]
    if experiment.baseline is not None:
        turned = "with the sign turned, so that less error is +"
        unit = "in points" if _higher(experiment) else turned
        remarks.append(f"Gain: difference to {experiment.baseline} on the same folds, {unit}.")
    return [*remarks, *(f"{reason}." for reason in dict.fromkeys(frame["reason"]) if reason)]


def _verdict(request: Request, frame: pd.DataFrame) -> str:
    wanted = frame[(frame["reason"] == "") & ~frame.apply(_dash, axis=1).astype(bool)]
    planned, finished = int(wanted["planned"].sum()), int(frame["finished"].sum())
    sentences = [f"{finished:,} of {count(planned, 'trial')} are finished."]
    if request.budget == "full":
        sentences += _judged(request, frame)
    return " ".join(sentences)


def _judged(request: Request, frame: pd.DataFrame) -> Iterator[str]:
    both = frame[frame["difference"].notna() & frame["published_std"].notna()]
    if len(both):
        # Inclusive, with a tolerance for rounding.
        within = (both["difference"].abs() <= both["published_std"] + 1e-12).sum()
        yield f"{within} of {len(both)} means lie within the published standard deviation."
    outcomes = Counter(frame["reproduced"])
    if gains := sum(outcomes[kind] for kind in _OUTCOMES):
        parts = [f"{outcomes[kind]} {words}" for kind, words in _OUTCOMES.items() if outcomes[kind]]
        baseline = EXPERIMENTS[request.experiment].baseline
        yield f"Of {gains} published differences to {baseline}: {', '.join(parts)}."
