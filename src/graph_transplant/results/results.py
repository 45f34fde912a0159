"""Results of a comparison: its trials, divided into groups, and the findings of all groups."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

from graph_transplant.errors import GraphTransplantError, check_in
from graph_transplant.methods import REFERENCE, method_of
from graph_transplant.results.calls import Call, read_calls
from graph_transplant.results.caveats import Caveat, check_codes, find_caveats
from graph_transplant.results.groups import (
    Group,
    GroupResults,
    TrialRow,
    Trials,
    group_of,
    trial_row,
    whole,
)
from graph_transplant.results.predictions import TrialPredictions, predictions_of
from graph_transplant.results.record import Condition, Record, Trial
from graph_transplant.results.record_file import RecordStore
from graph_transplant.results.selection import select
from graph_transplant.results.sentences import join_verdicts
from graph_transplant.results.verdict import EQUAL_WITHIN, Row, Verdict
from graph_transplant.utils.files import COMPARISON_FILES, refuse_links
from graph_transplant.utils.text import count

_NAMES = ("data", "model", "method")


@dataclass(frozen=True, eq=False, repr=False)
class Results(Trials):
    """The finished trials of a comparison, and its findings.

    Args:
        records: The trials, as stored in ``records.jsonl``.
        selection: How one candidate per method is chosen: ``"none"`` or ``"validation"``; see
            :func:`~graph_transplant.results.selection.select`.
        reference: The method that the others are compared with.
        equal_within: Two methods are practically equal if the 95 % interval of their difference
            lies within this distance of zero; 0.01 is one point.
        asked: The methods that were asked for last, before selection; all by default. Others are
            judged only if they are finished.
        contradictory: Number of graphs with identical copies whose targets differ.
        outputs: Returns the predictions of a trial, if they were kept. (default: reads those in
            the directory)
        calls: The calls that made the records, the latest last; none if they are not known.
        ignore: Codes of caveats to leave out, such as ``("GT007",)``; see :doc:`/warnings`.

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
    asked: frozenset[str] | None = None
    contradictory: int = 0
    outputs: Callable[[Trial], TrialPredictions | None] | None = None
    calls: Sequence[Call] = ()
    ignore: Collection[str] = ()

    def __post_init__(self) -> None:
        check_in("[0, 1)", equal_within=self.equal_within)
        object.__setattr__(self, "ignore", check_codes(self.ignore))
        if self.outputs is None and self.directory is not None:
            # Parts of these results have no directory.
            object.__setattr__(self, "outputs", partial(predictions_of, self.directory))

    def __repr__(self) -> str:
        finding = f": {self.verdict}" if self.records else ""
        return f"Results({count(len(self.records), 'trial')}{finding})"

    @cached_property
    def groups(self) -> dict[Group, GroupResults]:
        """Results of each data set, model, number of layers and condition.

        Baselines, which have no network, are in the groups of all networks.
        """
        parts: dict[Group, list[TrialRow]] = {}
        for record in select(self.records, self.selection):
            names = {key: whole(record[key]) for key in _NAMES if record.get(key)}
            trial = trial_row({**record, **names})
            parts.setdefault(group_of(trial.record), []).append(trial)
        for group in [g for g, own in parts.items() if not _has_networks(own)]:
            place = group._replace(model=None, layers=None)
            beside = [g for g in parts if g.model and g._replace(model=None, layers=None) == place]
            for other in beside:
                parts[other] = parts[other] + parts[group]
            if beside:
                del parts[group]
        order = sorted(
            parts, key=lambda g: (g.data, g.model or "", g.layers or 0, g.condition.order)
        )
        return {group: self._group(group, parts[group]) for group in order}

    def _group(self, group: Group, trials: Iterable[TrialRow]) -> GroupResults:
        call = self.call_of(group)
        return GroupResults(
            group,
            _in_order(trials),
            self.reference,
            self.equal_within,
            frozenset(call.asked.methods) if call else self.asked,
            self.outputs,
        )

    @cached_property
    def trials(self) -> list[TrialRow]:
        """The trials that remain after selection."""
        # Baselines are in several groups.
        found = {id(trial): trial for part in self.groups.values() for trial in part.trials}
        return _in_order(found.values())

    def part(self, groups: Iterable[Group]) -> Results:
        """Results of some of the groups, with what is computed of them."""
        own = {group: self.groups[group] for group in groups}
        records = {id(r): r for one in own.values() for r in one.chosen}
        part = replace(self, records=[*records.values()], selection="none", directory=None)
        vars(part)["groups"] = own
        return part

    @property
    def rows(self) -> list[Row]:
        """The rows of :meth:`summary`, as data."""
        return [row for part in self.groups.values() for row in part.rows]

    @property
    def pair_rows(self) -> list[Row]:
        """The rows of :attr:`pairs`, as data."""
        return [row for part in self.groups.values() for row in part.pair_rows]

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

    @property
    def verdicts(self) -> dict[Group, Verdict]:
        """The verdict of each group."""
        return {group: part.verdict for group, part in self.groups.items()}

    @property
    def verdict(self) -> str:
        """The finding in one line."""
        return join_verdicts(self.verdicts)

    @cached_property
    def _caveats(self) -> list[Caveat]:
        return list(find_caveats(self))

    @property
    def caveats(self) -> list[Caveat]:
        """What a reader should know before trusting the numbers; ``code`` names each kind."""
        return [caveat for caveat in self._caveats if caveat.code not in self.ignore]

    @property
    def ignored(self) -> int:
        """Number of caveats that are left out."""
        return len(self._caveats) - len(self.caveats)

    @property
    def notes(self) -> list[str]:
        """The caveats in words, each with its code."""
        return [caveat.text for caveat in self.caveats]

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


def _has_networks(trials: Iterable[TrialRow]) -> bool:
    return any(method_of(trial.record["method"]).network for trial in trials)


def _in_order(trials: Iterable[TrialRow]) -> list[TrialRow]:
    def key(trial: TrialRow) -> tuple[str, int, int]:
        return trial.row["method"], trial.row["repeat"], trial.row["fold"]

    return sorted(trials, key=key)


def read_results(
    path: str | Path,
    *,
    selection: str = "none",
    equal_within: float = EQUAL_WITHIN,
    ignore: Collection[str] = (),
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
        ignore=ignore,
    )
