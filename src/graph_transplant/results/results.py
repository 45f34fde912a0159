"""Results of a comparison: a table with one row per trial, and everything computed from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from graph_transplant.config.options import MODELS
from graph_transplant.errors import GraphTransplantError, check_choice, check_in
from graph_transplant.methods import MAJORITY, METHODS, REFERENCE, method_of
from graph_transplant.metrics import METRICS, RESERVED
from graph_transplant.results.calls import Call, read_calls
from graph_transplant.results.predictions import TrialPredictions, predictions_of
from graph_transplant.results.record import Condition, Record, Trial, metric_of, one_split, score
from graph_transplant.results.record_file import LISTS, MACHINE, OBJECTS, RecordStore
from graph_transplant.results.selection import select
from graph_transplant.results.sentences import join_verdicts
from graph_transplant.results.statistics import Paired, holm, paired_test
from graph_transplant.results.verdict import (
    EQUAL_WITHIN,
    Verdict,
    finding,
    judge,
)
from graph_transplant.utils.files import COMPARISON_FILES, refuse_links
from graph_transplant.utils.text import count

if TYPE_CHECKING:
    from graph_transplant.figures import Plots
    from graph_transplant.results.caveats import Caveat

GROUP = ("data", "model", "layers", "label_noise", "train_fraction")
"""Columns that define a group, within which methods are compared."""

_NAMES = ("data", "model", "method")

ALWAYS = ("accuracy", "ece", "nll", "auroc")
"""Metrics that have a column in ``summary.csv`` even if no row has a value."""


class Group(NamedTuple):
    """Group within which methods are compared; ``layers`` is ``None`` if it was selected."""

    data: str
    model: str | None
    layers: int | None
    label_noise: float = 0.0
    train_fraction: float = 1.0

    @property
    def condition(self) -> Condition:
        """Label noise and training fraction."""
        return Condition(self.label_noise, self.train_fraction)

    @property
    def network(self) -> str:
        """Model and layers, such as ``gcs-3``; empty for methods without a network."""
        own = self.model not in MODELS  # its layers are not known
        return self.model or "" if own or self.layers is None else f"{self.model}-{self.layers}"

    @property
    def title(self) -> str:
        """Model, layers and condition in words."""
        network = self.model or "without a network"
        if self.model in MODELS:
            layers = "chosen by validation" if self.layers is None else count(self.layers, "layer")
            network = f"{self.model.upper()}, {layers}"
        return f"{network}, {self.condition.words}" if self.condition.words else network


@dataclass(frozen=True, eq=False, repr=False)
class Results:
    """The finished trials of a comparison, and its findings.

    Args:
        records: The trials, as stored in ``records.jsonl``.
        selection: How one candidate per method is chosen: ``"none"`` or ``"validation"``; see
            :func:`~graph_transplant.results.selection.select`.
        reference: The method that the others are compared with.
        equal_within: Two methods are practically equal if the 95 % interval of their difference
            lies within this distance of zero; 0.01 is one point.
        group: Group of all trials; by default they are divided into groups.
        asked: The methods that were asked for last, before selection; all by default. Others are
            judged only if they are finished.
        contradictory: Number of graphs with identical copies whose targets differ.
        outputs: Returns the predictions of a trial, if they were kept. (default: reads those in
            the directory)
        calls: The calls that made the records, the latest last; none if they are not known.

    Example:
        >>> import graph_transplant as gt
        >>> results = gt.compare("motifs", methods=["vanilla", "drop-nodes"], epochs=1, folds=3,
        ...                      train_fraction=0.1)
        >>> results.frame[["method", "fold"]].shape
        (6, 2)
        >>> results.summary()["trials"].tolist()
        [3, 3]
    """

    records: Sequence[Record]
    selection: str = "none"
    reference: str = REFERENCE
    directory: Path | None = None
    equal_within: float = EQUAL_WITHIN
    group: Group | None = None
    asked: frozenset[str] | None = None
    contradictory: int = 0
    outputs: Callable[[Trial], TrialPredictions | None] | None = None
    calls: Sequence[Call] = ()

    def __post_init__(self) -> None:
        check_in("[0, 1)", equal_within=self.equal_within)
        if self.outputs is None and self.directory is not None:
            # Parts of these results have no directory.
            object.__setattr__(self, "outputs", partial(predictions_of, self.directory))

    def __repr__(self) -> str:
        finding = f": {self.verdict}" if self.records else ""
        return f"Results({count(len(self.records), 'trial')}{finding})"

    @cached_property
    def chosen(self) -> list[Record]:
        """The trials that remain after selection."""
        found = select(self.records, self.selection)
        found = [{**r, **{key: _whole(r[key]) for key in _NAMES if r.get(key)}} for r in found]
        return sorted(found, key=lambda r: (r["method"], r["repeat"], r["fold"]))

    @cached_property
    def frame(self) -> pd.DataFrame:
        """One row per trial: its identity, test metrics, and ``score`` by the deciding metric."""
        return _table([_row(record) for record in self.chosen])

    def long(self, name: str) -> pd.DataFrame:
        """A list that trials record, as a table with one row per entry.

        ``name`` is ``"curve"``, ``"attacked"``, ``"reliability"``, ``"reliability_calibrated"`` or
        ``"saliency_curve"``; the table is empty if it was not recorded.
        """
        check_choice("name", name, LISTS)
        table = _table(
            {**_identity(record), **entry, **entry.get("measurements", {})}
            for record in self.chosen
            for entry in record.get(name) or ()
        )
        return table.drop(columns="measurements", errors="ignore")

    def wide(self, name: str) -> pd.DataFrame:
        """Numbers that trials record, as a table with one row per trial.

        ``name`` is ``"calibrated"``, ``"cost"``, ``"saliency"``, ``"samples"``, ``"sizes"``,
        ``"test"`` or ``"validation"``; the table is empty if it was not recorded.
        """
        check_choice("name", name, OBJECTS)
        return _table(
            {**_identity(r), **r[name]} for r in self.chosen if isinstance(r.get(name), dict)
        )

    def predictions(self) -> pd.DataFrame:
        """Outputs for single graphs, one row per trial, part and graph.

        ``part`` is ``"validation"`` or ``"test"``, ``graph`` the number of the graph in the data
        set, counted from 0, and ``row`` its row in the file that was read, counted from 1.
        ``target`` is the number of the class; labels and values have one column each,
        ``target_NAME``. ``output_NAME`` are logits, or values in the units of the data. Trials of
        earlier versions, which kept no predictions, are not in the table.
        """
        parts = []
        for record in self.chosen:
            chosen = record.get("chosen", {})
            trial = Trial.of_record(record | chosen)
            kept = self.outputs(trial) if self.outputs else None
            if kept is not None:
                parts.append(kept.table().assign(**_identity(record)))
        if not parts:
            return _table([])
        table = pd.concat(parts, ignore_index=True)
        first = [*_identity(self.chosen[0]), "part"]
        return table[[*first, *table.columns.drop(first)]]

    @cached_property
    def groups(self) -> dict[Group, Results]:
        """Results of each data set, model, number of layers and condition.

        Baselines, which have no network, are in the groups of all networks.
        """
        if self.group is not None:
            return {self.group: self}
        parts: dict[Group, list[Record]] = {}
        for record in self.chosen:
            parts.setdefault(group_of(record), []).append(record)
        for group in [
            g for g in parts if not any(method_of(r["method"]).network for r in parts[g])
        ]:
            place = group._replace(model=None, layers=None)
            beside = [g for g in parts if g.model and g._replace(model=None, layers=None) == place]
            for other in beside:
                parts[other] = parts[other] + parts[group]
            if beside:
                del parts[group]
        order = sorted(
            parts, key=lambda g: (g.data, g.model or "", g.layers or 0, g.condition.order)
        )
        return {group: self.part(parts[group], group) for group in order}

    def part(self, records: Sequence[Record], group: Group | None = None) -> Results:
        """Results of some of the trials; ``group`` makes them a single group."""
        call = self.call_of(group) if group else None
        asked = frozenset(call.asked.methods) if call else self.asked
        return replace(
            self, records=records, selection="none", directory=None, group=group, asked=asked
        )

    @property
    def methods(self) -> list[str]:
        """All methods, the reference first."""
        found = {record["method"] for record in self.chosen}
        return sorted(found, key=lambda name: (name != self.reference, name))

    @cached_property
    def judged(self) -> list[str]:
        """The methods of a group that the verdict is about.

        Methods that were not asked for are left out unless they are finished.
        """
        if self.asked is None:
            return self.methods
        asked = {_whole(name) for name in self.asked}
        trials = Counter(record["method"] for record in self.chosen)
        named = {
            record["method"]
            for record in self.chosen
            if _whole(record.get("chosen", record)["method"]) in asked
        }
        judged = [
            name
            for name in self.methods
            if name in named or name == self.reference or trials[name] >= self.planned
        ]
        return judged or self.methods

    @property
    def planned(self) -> int:
        """Number of trials of a finished method of a group."""
        settings = self.chosen[0]["settings"]
        repeats = 1 + max(record["repeat"] for record in self.chosen)
        return int(repeats * (1 if one_split(settings) else settings["folds"]))

    @property
    def metric(self) -> str:
        """The metric that ranks the methods."""
        return metric_of(self.chosen[0]) if self.chosen else "accuracy"

    def summary(self) -> pd.DataFrame:
        """One row per method and group, best first within each group; see ``docs/statistics``."""
        return self._summary.copy()

    @cached_property
    def _summary(self) -> pd.DataFrame:
        rows = [row for group, part in self.groups.items() for row in _summarised(group, part)]
        there = {key for row in rows for key in row}
        names = [name for name in METRICS if name in ALWAYS or f"{name}_mean" in there]
        columns = [*_LEADING, *(f"{name}_mean" for name in names), *_COMPARED]
        table = pd.DataFrame(rows, columns=columns).astype({"layers": "Int64"})
        numbers = [name for name in columns if name not in (*_TEXT, "layers")]
        table[numbers] = table[numbers].apply(pd.to_numeric)
        return table

    @cached_property
    def pairs(self) -> pd.DataFrame:
        """Tests of all pairs of methods, with Holm's correction over all pairs of a group."""
        rows: list[dict[str, Any]] = []
        for group, part in self.groups.items():
            names = [name for name in part.summary()["method"] if name != MAJORITY]
            both = list(combinations(names, 2))
            rows += [
                {**group._asdict(), "first": a, "second": b, **test}
                for (a, b), test in zip(both, part.tested(both), strict=True)
            ]
        numbers = ["difference", "p_value", "p_holm", "effect"]
        table = pd.DataFrame(rows, columns=[*GROUP, "first", "second", *numbers, "finding"])
        table[numbers] = table[numbers].apply(pd.to_numeric)
        return table

    def tested(self, pairs: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
        """Test pairs of methods of a single group, with Holm's correction over all of them."""
        tests = [self.paired(one, two, tests=len(pairs)) for one, two in pairs]
        corrected = holm([test.p_value for test in tests])
        return [
            {**test._asdict(), "p_holm": p, "finding": finding(test, p, self.equal_within)}
            for test, p in zip(tests, corrected, strict=True)
        ]

    def paired(self, method: str, other: str, column: str = "score", tests: int = 1) -> Paired:
        """Test one method against another on their common folds, by any column of the frame."""
        return self._against(method, self._by_fold(other), column, tests)

    def above(self, method: str, scores: pd.Series[float]) -> Paired:
        """Test a method against given scores by repeat and fold."""
        return self._against(method, scores.to_frame("score"), "score", 1)

    def _by_fold(self, method: str) -> pd.DataFrame:
        return self.frame[self.frame["method"] == method].set_index(["repeat", "fold"])

    def _against(self, method: str, other: pd.DataFrame, column: str, tests: int) -> Paired:
        own = self._by_fold(method)
        gaps = (own[column] - other[column]).dropna() if column in own else pd.Series(dtype=float)
        if gaps.empty:
            return Paired()
        ratio = _overlap(own.loc[gaps.index])
        return paired_test(gaps.tolist(), test_to_train=ratio, tests=tests)

    @cached_property
    def constant(self) -> tuple[str, pd.Series[float]] | None:
        """Name and scores of a constant prediction on the folds of a single group, if known."""
        frame = self.frame.drop_duplicates(["repeat", "fold"]).set_index(["repeat", "fold"])
        guesses = {"auroc": ("guessing", 0.5), "r2": ("always predicting the mean", 0.0)}
        if self.metric in guesses:
            words, score = guesses[self.metric]
            return words, frame["score"].notna() * 0.0 + score
        words = METHODS[MAJORITY].words
        shares = {(r["repeat"], r["fold"]): r.get("majority") for r in self.chosen}
        if self.metric == "accuracy" and None not in shares.values():
            return words, pd.Series(shares).rename_axis(["repeat", "fold"])
        scores = self._by_fold(MAJORITY)["score"].dropna()
        return None if scores.empty else (words, scores)

    def call_of(self, group: Group) -> Call | None:
        """The latest call that asked for trials of a group; ``None`` if it is not known."""
        return next((call for call in reversed(self.calls) if call.asked.covers(group)), None)

    def check(self) -> None:
        """Raise if selection leaves nothing to report."""
        if not self.groups:
            raise GraphTransplantError(
                f"selection by {self.selection} found no method whose candidates share a scored "
                f"fold ({count(len(self.records), 'trial')})"
            )

    @cached_property
    def verdicts(self) -> dict[Group, Verdict]:
        """The verdict of each group."""
        return {
            group: judge(group, part, plain_rows(part.summary()), part.judged)
            for group, part in self.groups.items()
        }

    @property
    def verdict(self) -> str:
        """The finding in one line."""
        return join_verdicts(self.verdicts)

    @cached_property
    def caveats(self) -> list[Caveat]:
        """What a reader should know before trusting the numbers; ``code`` names each kind."""
        from graph_transplant.results.caveats import caveats

        return list(caveats(self))

    @cached_property
    def notes(self) -> list[str]:
        """The caveats in words, each with its code."""
        return [caveat.text for caveat in self.caveats]

    @property
    def plot(self) -> Plots:
        """Charts on matplotlib axes: ``results.plot.forest(ax=None)`` and others."""
        from graph_transplant.figures import Plots

        return Plots(self)

    def report(self, path: str | Path | None = None) -> Path:
        """Write the report; by default ``report.html`` next to the records."""
        from graph_transplant.report import write_report

        if path is None and self.directory is None:
            raise GraphTransplantError(
                "`path` must name the page to write: these results have no directory"
            )
        if path is None and self.directory is not None:
            refuse_links(self.directory, COMPARISON_FILES)
        return write_report(self, Path(path) if path else Path(self.directory or "", "report.html"))

    def to_latex(self) -> str:
        """The ranking as LaTeX tables (needs the package ``booktabs``)."""
        from graph_transplant.report.tables import latex

        return latex(self)

    def to_markdown(self) -> str:
        """The ranking as Markdown tables."""
        from graph_transplant.report.tables import markdown

        return markdown(self)

    def to_csv(self) -> str:
        """The text of ``summary.csv``; undefined numbers are empty cells."""
        table = self.summary()
        plain = Condition()
        if all(group.condition == plain for group in self.groups):
            table = table.drop(columns=["label_noise", "train_fraction"])
        text: str = table.to_csv(index=False, float_format="%.6g", lineterminator="\n")
        return text

    def _repr_html_(self) -> str:
        from graph_transplant.report import notebook_html

        return notebook_html(self)


def read_results(
    path: str | Path, *, selection: str = "none", equal_within: float = EQUAL_WITHIN
) -> Results:
    """Read the results of a comparison from its directory; see :class:`Results`.

    Example:
        >>> read_results("nowhere")
        Traceback (most recent call last):
        graph_transplant.errors.GraphTransplantError: there is no directory nowhere
    """
    directory = Path(path)
    if not directory.is_dir():
        raise GraphTransplantError(f"there is no directory {directory}")
    records = RecordStore(directory).read()
    if not records:
        raise GraphTransplantError(f"there are no records in {directory}")
    calls = read_calls(directory)
    return Results(
        records,
        selection,
        directory=directory,
        equal_within=equal_within,
        contradictory=calls[-1].contradictory if calls else 0,
        calls=calls,
    )


# -------------------------------------------------------------------- one row per trial


def group_of(record: Record) -> Group:
    """Return the group of a record; ``layers`` is ``None`` after selection."""
    layers = None if "chosen" in record else record.get("layers")
    return Group(record["data"], record.get("model"), layers, *Condition.of(record))


def _whole(name: str) -> str:
    """Replace lone surrogates, which text columns cannot hold."""
    return name.encode("utf-8", "replace").decode()


def _identity(record: Record) -> dict[str, Any]:
    keys = {name: record[name] for name in ("method", "repeat", "fold")}
    return {**group_of(record)._asdict(), **keys}


def _row(record: Record) -> dict[str, Any]:
    settings, sizes = record["settings"], record["sizes"]
    row = {
        **_identity(record),
        "metric": metric_of(record),
        "score": score(record),
        "validation_score": score(record, "validation"),
        **{name: value for name, value in record["test"].items() if name not in RESERVED},
        "epochs": record.get("epochs"),
        "best_epoch": record.get("best_epoch"),
        "seconds": record["seconds"],
        **{name: record.get("machine", {}).get(name) for name in MACHINE},
        "processor_seconds": (record.get("cost") or {}).get("fit_seconds"),
        "train_graphs": sizes["train"],
        "left_out_graphs": sizes.get("left_out", 0),
        "validation_graphs": sizes.get("validation"),
        "test_graphs": sizes["test"],
        "folds": 1 if one_split(settings) else settings["folds"],
        "split": settings.get("split", "folds"),
    }
    if "chosen" in record:
        row["chosen_layers"] = record["chosen"]["layers"]
        row["chosen_method"] = _whole(record["chosen"]["method"])
    return row


def _table(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    found = list(rows)
    return pd.DataFrame(found, columns=None if found else [*GROUP, "method", "repeat", "fold"])


# -------------------------------------------------------------------- one row per method

_LEADING = (
    *("data", "model", "layers", "method", "metric", "trials"),
    *("score_mean", "score_std", "score_low", "score_high"),
)
_TEXT = ("data", "model", "method", "metric", "chosen", "split", "finding")
_COMPARED = (
    *("difference", "ci_low", "ci_high", "p_value", "p_holm", "effect", "seconds_mean", "pairs"),
    "seconds_median",
    *("folds", "repeats", "chosen", "split", "label_noise", "train_fraction"),
    *("detectable", "pairs_needed", "finding"),
)


def _summarised(group: Group, part: Results) -> list[dict[str, Any]]:
    """Rows of one group, ranked by mean score, with tests against the reference.

    Baselines are a separate family of tests; ``majority`` is a floor and not tested.
    """
    frame = part.frame
    tests: dict[str, dict[str, Any]] = {}
    for network in (True, False):
        names = [name for name in part.methods if method_of(name).network == network]
        names = [name for name in names if name not in (part.reference, MAJORITY)]
        found = part.tested([(name, part.reference) for name in names])
        tests |= dict(zip(names, found, strict=True))
    # Processor time hardly depends on the machine's load; used only if all networks have it.
    least, most = METRICS[part.metric].bounds
    network = frame[frame["epochs"].notna()]
    timed = network["processor_seconds"].notna().all()
    rows = []
    for name in part.methods:
        own = frame[frame["method"] == name]
        first = own.iloc[0]
        scores = own["score"].tolist() if own["score"].notna().all() else []
        mean = paired_test(scores, test_to_train=_overlap(own))
        took = own["processor_seconds"] if timed else own["seconds"]
        row = {
            **group._asdict(),
            "method": name,
            "metric": first["metric"],
            "trials": len(own),
            "score_mean": mean.difference,
            "score_std": pd.Series(scores).std() if len(scores) > 1 else None,
            "score_low": None if mean.ci_low is None else max(mean.ci_low, least),
            "score_high": None if mean.ci_high is None else min(mean.ci_high, most),
            "pairs": 0,
            "finding": "",
            **tests.get(name, {}),
            "seconds_mean": took.fillna(own["seconds"]).mean(),
            "seconds_median": took.fillna(own["seconds"]).median(),
            "folds": first["folds"],
            "repeats": own["repeat"].nunique(),
            "chosen": _choice(own),
            "split": first["split"],
        }
        if row["score_mean"] is None and row["finding"] == "better":
            row["finding"] = "unclear"  # it failed on some folds
        for metric in METRICS:
            if metric in own and own[metric].notna().all():
                row[f"{metric}_mean"] = own[metric].mean()
        rows.append(row)
    return sorted(
        rows, key=lambda r: (r["score_mean"] is None, -(r["score_mean"] or 0), r["method"])
    )


def _overlap(trials: pd.DataFrame) -> float:
    """Test graphs per training graph, to correct for overlapping training sets.

    Zero for a single split, whose runs are independent. Left-out graphs count as training graphs:
    random subsets of training sets overlap less, not more.
    """
    if trials["folds"].iloc[0] == 1:
        return 0.0
    return float(
        trials["test_graphs"].sum() / (trials["train_graphs"] + trials["left_out_graphs"]).sum()
    )


def _choice(trials: pd.DataFrame) -> str:
    """Selected layers and parameters in words; empty without selection."""
    if "chosen_layers" not in trials:
        return ""
    first = trials.iloc[0]
    layers = count(int(first["chosen_layers"]), "layer") if first["model"] in MODELS else ""
    given = first["chosen_method"].partition(":")[2]
    return ", ".join(filter(None, [layers, *given.split(":")]))


def plain_rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Convert a table to dictionaries, with ``None`` for missing values."""
    rows: list[Any] = table.astype(object).where(table.notna(), None).to_dict("records")
    return rows
