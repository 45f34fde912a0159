"""Trials as tables, and the groups of trials within which methods are compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pandas as pd

from graph_transplant.config.options import MODELS
from graph_transplant.errors import check_choice
from graph_transplant.methods import MAJORITY, METHODS, REFERENCE, method_of
from graph_transplant.metrics import METRICS, RESERVED
from graph_transplant.results.predictions import TrialPredictions
from graph_transplant.results.record import Condition, Record, Trial, metric_of, one_split, score
from graph_transplant.results.record_file import LISTS, MACHINE, OBJECTS
from graph_transplant.results.statistics import Paired, holm, paired_test
from graph_transplant.results.verdict import EQUAL_WITHIN, Row, Verdict, finding, judge
from graph_transplant.utils.text import count

if TYPE_CHECKING:
    from graph_transplant.figures import Plots


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
            network = f"{network.upper()}, {layers}"
        return f"{network}, {self.condition.words}" if self.condition.words else network


# -------------------------------------------------------------------- one row per trial


class TrialRow(NamedTuple):
    """A record and its row of a table of trials."""

    record: Record
    row: Row


def trial_row(record: Record) -> TrialRow:
    """Make the row of a record: its identity, test metrics, and ``score``."""
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
        row["chosen_method"] = whole(record["chosen"]["method"])
    return TrialRow(record, row)


def whole(name: str) -> str:
    """Replace lone surrogates, which text columns cannot hold."""
    return name.encode("utf-8", "replace").decode()


def group_of(record: Record) -> Group:
    """Return the group of a record; ``layers`` is ``None`` after selection."""
    layers = None if "chosen" in record else record.get("layers")
    return Group(record["data"], record.get("model"), layers, *Condition.of(record))


def _identity(record: Record) -> Row:
    keys = {name: record[name] for name in ("method", "repeat", "fold")}
    return {**group_of(record)._asdict(), **keys}


def _table(rows: Iterable[Row]) -> pd.DataFrame:
    found = list(rows)
    columns = [*Group._fields, "method", "repeat", "fold"]
    return pd.DataFrame(found, columns=None if found else columns)


class Trials:
    """Finished trials as tables with one row per trial."""

    reference: str
    equal_within: float
    outputs: Callable[[Trial], TrialPredictions | None] | None

    if TYPE_CHECKING:

        @property
        def trials(self) -> Sequence[TrialRow]:
            """The trials that remain after selection."""

        @property
        def rows(self) -> Sequence[Row]:
            """The rows of :meth:`summary`, as data."""

        @property
        def pair_rows(self) -> Sequence[Row]:
            """The rows of :attr:`pairs`, as data."""

    @property
    def chosen(self) -> list[Record]:
        """The records of the trials that remain after selection."""
        return [trial.record for trial in self.trials]

    @cached_property
    def frame(self) -> pd.DataFrame:
        """One row per trial: its identity, test metrics, and ``score`` by the deciding metric."""
        return _table(trial.row for trial in self.trials)

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
            trial = Trial.of_record(record | record.get("chosen", {}))
            kept = self.outputs(trial) if self.outputs else None
            if kept is not None:
                parts.append(kept.table().assign(**_identity(record)))
        if not parts:
            return _table([])
        table = pd.concat(parts, ignore_index=True)
        first = [*_identity(self.chosen[0]), "part"]
        return table[[*first, *table.columns.drop(first)]]

    @property
    def methods(self) -> list[str]:
        """All methods, the reference first."""
        found = {record["method"] for record in self.chosen}
        return sorted(found, key=lambda name: (name != self.reference, name))

    @property
    def metric(self) -> str:
        """The metric that ranks the methods."""
        return metric_of(self.trials[0].record) if self.trials else "accuracy"

    def summary(self) -> pd.DataFrame:
        """One row per method and group, best first within each group; see ``docs/statistics``."""
        return summary_table(self.rows)

    @property
    def pairs(self) -> pd.DataFrame:
        """Tests of all pairs of methods, with Holm's correction over all pairs of a group."""
        return pairs_table(self.pair_rows)

    @property
    def plot(self) -> Plots:
        """Charts on matplotlib axes: ``results.plot.forest(ax=None)`` and others."""
        from graph_transplant.figures import Plots

        return Plots(self)


# -------------------------------------------------------------------- one row per method

ALWAYS = ("accuracy", "ece", "nll", "auroc")
"""Metrics that have a column in ``summary.csv`` even if no row has a value."""

_SCORES = ("trials", "score_mean", "score_std", "score_low", "score_high")
_COMPARED = (
    *("difference", "ci_low", "ci_high", "p_value", "p_holm", "effect", "seconds_mean", "pairs"),
    *("seconds_median", "folds", "repeats", "chosen", "split", "label_noise", "train_fraction"),
    *("detectable", "pairs_needed", "finding"),
)
_PAIRED = ("difference", "p_value", "p_holm", "effect", "finding")
_NO_NUMBERS = ("data", "model", "layers", "method", "metric", "chosen", "split", "finding",
               "first", "second")  # fmt: skip
_UNTESTED: Final[Mapping[str, Any]] = {**Paired()._asdict(), "p_holm": None, "finding": ""}


def summary_table(rows: Sequence[Row]) -> pd.DataFrame:
    """The table of rows of methods, with a column for each metric that has a value."""
    there = {key for row in rows for key in row}
    means = [f"{name}_mean" for name in METRICS if name in ALWAYS or f"{name}_mean" in there]
    leading = (*Group._fields[:3], "method", "metric", *_SCORES)
    return _with_numbers(rows, (*leading, *means, *_COMPARED)).astype({"layers": "Int64"})


def pairs_table(rows: Sequence[Row]) -> pd.DataFrame:
    """The table of tested pairs of methods."""
    return _with_numbers(rows, (*Group._fields, "first", "second", *_PAIRED))


def _with_numbers(rows: Sequence[Row], columns: Sequence[str]) -> pd.DataFrame:
    table = pd.DataFrame(rows, columns=list(columns))
    numbers = [name for name in columns if name not in _NO_NUMBERS]
    table[numbers] = table[numbers].apply(pd.to_numeric)
    return table


@dataclass(frozen=True, eq=False, repr=False)
class GroupResults(Trials):
    """The trials of one group, and its findings, each computed once.

    Attributes:
        asked: The methods that were asked for last, before selection; all by default. Others are
            judged only if they are finished.
    """

    group: Group
    trials: Sequence[TrialRow]
    reference: str = REFERENCE
    equal_within: float = EQUAL_WITHIN
    asked: frozenset[str] | None = None
    outputs: Callable[[Trial], TrialPredictions | None] | None = None
    _tests: dict[tuple[str, str, str, int], Paired] = field(default_factory=dict, init=False)

    def __repr__(self) -> str:
        return f"GroupResults({self.group.title}, {count(len(self.trials), 'trial')})"

    @cached_property
    def rows(self) -> list[Row]:
        """A row for each method, ranked by mean score, with tests against the reference.

        Baselines are a separate family of tests; ``majority`` is a floor and not tested.
        """
        tests: dict[str, Row] = {}
        for network in (True, False):
            names = [name for name in self.methods if method_of(name).network == network]
            names = [name for name in names if name not in (self.reference, MAJORITY)]
            found = self.tested([(name, self.reference) for name in names])
            tests |= dict(zip(names, found, strict=True))
        # Processor time hardly depends on the machine's load; used only if all networks have it.
        trained = self.frame[self.frame["epochs"].notna()]
        timed = bool(trained["processor_seconds"].notna().all())
        rows = [
            _summarised(own, tests.get(str(name), _UNTESTED), timed)
            for name, own in self.frame.groupby("method")
        ]
        for row in rows:
            row |= self.group._asdict()
        return sorted(
            rows, key=lambda r: (r["score_mean"] is None, -(r["score_mean"] or 0), r["method"])
        )

    @cached_property
    def pair_rows(self) -> list[Row]:
        """Tests of all pairs of methods, best first, with Holm's correction over all of them."""
        names = [row["method"] for row in self.rows if row["method"] != MAJORITY]
        both = list(combinations(names, 2))
        return [
            {**self.group._asdict(), "first": first, "second": second, **test}
            for (first, second), test in zip(both, self.tested(both), strict=True)
        ]

    @cached_property
    def verdict(self) -> Verdict:
        """The finding, as data and in words."""
        return judge(self)

    @cached_property
    def judged(self) -> list[str]:
        """The methods that the verdict is about.

        Methods that were not asked for are left out unless they are finished.
        """
        if self.asked is None:
            return self.methods
        asked = {whole(name) for name in self.asked}
        trials = Counter(record["method"] for record in self.chosen)
        named = {
            record["method"]
            for record in self.chosen
            if whole(record.get("chosen", record)["method"]) in asked
        }
        judged = [
            name
            for name in self.methods
            if name in named or name == self.reference or trials[name] >= self.planned
        ]
        return judged or self.methods

    @property
    def planned(self) -> int:
        """Number of trials of a finished method."""
        repeats = 1 + self.frame["repeat"].max()
        return int(repeats * self.frame["folds"].iloc[0])

    def tested(self, pairs: Sequence[tuple[str, str]]) -> list[Row]:
        """Test pairs of methods, with Holm's correction over all of them."""
        tests = [self.paired(one, two, tests=len(pairs)) for one, two in pairs]
        corrected = holm([test.p_value for test in tests])
        return [
            {**test._asdict(), "p_holm": p, "finding": finding(test, p, self.equal_within)}
            for test, p in zip(tests, corrected, strict=True)
        ]

    def paired(self, method: str, other: str, column: str = "score", tests: int = 1) -> Paired:
        """Test one method against another on their common folds, by any column of the frame."""
        key = method, other, column, tests
        if key not in self._tests:
            self._tests[key] = self._against(method, self._by_fold(other), column, tests)
        return self._tests[key]

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
        """Name and scores of a constant prediction on the folds, if known."""
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


def _summarised(trials: pd.DataFrame, test: Mapping[str, Any], timed: bool) -> Row:
    """The row of one method from its trials and its test against the reference."""
    first = trials.iloc[0]
    least, most = METRICS[first["metric"]].bounds
    scores = trials["score"].tolist() if trials["score"].notna().all() else []
    mean = paired_test(scores, test_to_train=_overlap(trials))
    took = trials["processor_seconds"] if timed else trials["seconds"]
    took = took.fillna(trials["seconds"])
    row = {
        "method": first["method"],
        "metric": first["metric"],
        "trials": len(trials),
        "score_mean": mean.difference,
        "score_std": pd.Series(scores).std() if len(scores) > 1 else None,
        "score_low": None if mean.ci_low is None else max(mean.ci_low, least),
        "score_high": None if mean.ci_high is None else min(mean.ci_high, most),
        **test,
        "seconds_mean": took.mean(),
        "seconds_median": took.median(),
        "folds": int(first["folds"]),
        "repeats": trials["repeat"].nunique(),
        "chosen": _choice(trials),
        "split": first["split"],
    }
    if row["score_mean"] is None and row["finding"] == "better":
        row["finding"] = "unclear"  # it failed on some folds
    means = {name: trials[name].mean() for name in METRICS if _complete(trials, name)}
    return row | {f"{name}_mean": value for name, value in means.items()}


def _complete(trials: pd.DataFrame, column: str) -> bool:
    return column in trials and bool(trials[column].notna().all())


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
