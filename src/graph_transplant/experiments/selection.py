"""Which candidate stands for a method: number of layers and parameters, by validation alone.

A *family* is one method with one model on one data set, in one condition of training; its
*candidates* are the numbers of layers and the parameters that were tried. Test scores are never
read here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Any

from graph_transplant.errors import GraphTransplantError, check_choice
from graph_transplant.experiments.protocol import Condition, Record, one_split, score
from graph_transplant.format import count, listed

SELECTIONS = ("none", "validation", "nested")
"""How one candidate per method is chosen: not at all, once for all folds, or fold by fold."""

Setup = tuple[int | None, str]
"""One candidate: its number of layers and the method with its parameters."""

Place = tuple[int, int]
"""Where a trial is tested: repeat and fold."""

Trials = Mapping[Setup, Mapping[tuple[int, int, int], Record]]
"""The trials of each candidate, by repeat, fold and inner split."""


@dataclass(frozen=True)
class Candidate:
    """One candidate of a family; ``validation`` is the mean score that the choice looks at, if any.

    ``folds`` is the number of folds it was chosen for.
    """

    data: str
    model: str | None
    method: str
    layers: int | None
    name: str
    validation: float | None
    trials: int
    folds: int
    label_noise: float = 0.0
    train_fraction: float = 1.0

    @property
    def chosen(self) -> bool:
        """Whether it was chosen for any fold."""
        return self.folds > 0


def method_key(name: str) -> str:
    """The method without its parameters."""
    return name.partition(":")[0]


def select(records: Iterable[Record], how: str) -> list[Record]:
    """Keep the trials of one candidate per method, chosen by validation scores.

    ``"none"``: every candidate is a method of its own; inner trials are left out.

    ``"validation"``, the paper's rule: one candidate for all folds, the one with the highest mean
    validation score. This is slightly optimistic: every graph is a validation graph in one fold and
    a test graph in another. On an official split it is not.

    ``"nested"``: one candidate for each fold, the one with the highest mean validation score when
    the *other* folds are validated on in turn. The test graphs of the fold take no part, so that
    the test score is that of the whole procedure; it costs ``folds - 1`` trainings instead of one.

    A candidate takes part if none of its family has finished more folds (for ``"nested"``: with all
    their inner trials); :func:`left_out` names the others. Only folds that all of them have
    finished with a score have a say. Ties go to fewer layers, then to the shorter name.

    Returns:
        For ``"none"`` the records as they are, else copies of the chosen ones in which ``method``
        has no parameters and ``chosen`` tells ``layers`` and ``method`` of the candidate.
    """
    check_choice("select", how, SELECTIONS)
    if how == "none":
        return [record for record in records if record.get("inner", 0) == 0]
    selected = []
    for family in _families(records, how):
        for place, setup in sorted(family.choices.items()):
            chosen = dict(zip(("layers", "method"), setup, strict=True))
            record = family.trials[setup][*place, 0]
            selected.append(record | {"method": family.method, "chosen": chosen})
    return selected


def selection_table(records: Iterable[Record], how: str) -> list[Candidate]:
    """Every candidate, from the fewest layers up; none for ``"none"``."""
    table = []
    for family in _families(records, how):
        choices = [*family.choices.values()]
        for setup in family.trials:
            scores = [value for votes in family.votes.values() for value in votes.get(setup, [])]
            table.append(
                Candidate(
                    family.data, family.model, family.method, *setup,
                    fmean(scores) if scores else None, len(scores), choices.count(setup),
                    *family.condition,
                )
            )  # fmt: skip
    return table


def left_out(records: Iterable[Record], how: str) -> list[str]:
    """Say which families, candidates or folds selection passes over as yet, in sentences."""
    return [
        family.condition.sentence(text)
        for family in _families(records, how)
        for text in family.left_out()
    ]


def _families(records: Iterable[Record], how: str) -> list[_Family]:
    """Sort records by family and candidate, candidates in the order in which ties are broken."""
    check_choice("select", how, SELECTIONS)
    found: dict[Any, dict[Setup, dict[tuple[int, int, int], Record]]] = {}
    for record in records if how != "none" else ():
        key = (record["data"], record.get("model"), Condition.of(record))
        setup = (record.get("layers"), record["method"])
        split = (record["repeat"], record["fold"], record.get("inner", 0))
        family = found.setdefault((*key, method_key(record["method"])), {})
        family.setdefault(setup, {})[split] = record
    families = [
        _Family(data, model, condition, method, how, dict(sorted(own.items(), key=_simplest)))
        for (data, model, condition, method), own in found.items()
    ]
    return sorted(families, key=lambda f: (f.data, f.model or "", f.condition.order, f.method))


def _simplest(item: tuple[Setup, object]) -> tuple[int, int, str]:
    layers, name = item[0]
    return layers or 0, len(name), name


@dataclass(frozen=True)
class _Family:
    data: str
    model: str | None
    condition: Condition
    method: str
    how: str
    trials: Trials

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Those of all its records."""
        settings: dict[str, Any] = next(
            record["settings"] for own in self.trials.values() for record in own.values()
        )
        return settings

    @cached_property
    def inner(self) -> range:
        """The inner splits that the choice looks at."""
        if self.how == "validation":
            return range(1)
        if one_split(self.settings):
            raise GraphTransplantError(
                f"`select` is 'nested', which needs folds, but these are trials of one "
                f"{self.settings['split']} split: its validation graphs are nobody's test graphs, "
                "choose 'validation'"
            )
        return range(self.settings["folds"] - 1)

    @cached_property
    def covered(self) -> dict[Setup, set[Place]]:
        """Of each candidate, the repeats and folds in which it has all that the choice needs."""
        return {
            setup: {
                (repeat, fold)
                for repeat, fold, _ in own
                if all((repeat, fold, number) in own for number in self.inner)
            }
            for setup, own in self.trials.items()
        }

    @cached_property
    def entrants(self) -> list[Setup]:
        """The candidates that have finished as many folds as any."""
        most = max(map(len, self.covered.values()))
        return [setup for setup in self.trials if len(self.covered[setup]) == most]

    @cached_property
    def votes(self) -> dict[Place, dict[Setup, list[float]]]:
        """The validation scores of all that take part, of each fold that has a say."""
        found = {}
        for place in sorted(set.intersection(*(self.covered[setup] for setup in self.entrants))):
            values = [
                [score(self.trials[setup][*place, number], "validation") for setup in self.entrants]
                for number in self.inner
            ]
            # A split in which one has no score has no say.
            whole = [[v for v in row if v is not None] for row in values if None not in row]
            if whole:
                columns = map(list, zip(*whole, strict=True))
                found[place] = dict(zip(self.entrants, columns, strict=True))
        return found

    @cached_property
    def choices(self) -> dict[Place, Setup]:
        """The candidate of every repeat and fold that one can be chosen for."""
        if self.how == "nested":
            return {place: _best(votes) for place, votes in self.votes.items()}
        if not self.votes:
            return {}
        every = self.votes.values()
        best = _best({s: [value for votes in every for value in votes[s]] for s in self.entrants})
        return {(repeat, fold): best for repeat, fold, inner in self.trials[best] if inner == 0}

    def left_out(self) -> Iterator[str]:
        """What the choice passes over as yet."""
        places = {split[:2] for own in self.trials.values() for split in own}
        repeats = len({repeat for repeat, _ in places})
        official = one_split(self.settings)
        unit = "run" if official else "fold"
        expected = repeats if official else repeats * self.settings["folds"]
        who = f"{self.method} with {self.model}" if self.model else self.method
        short = [
            name if layers is None else f"{name} with {count(layers, 'layer')}"
            for layers, name in self.trials
            if (layers, name) not in self.entrants
        ]
        if short:
            yield (
                f"{self.model + ': ' if self.model else ''}{listed(short)} "
                f"{'takes' if len(short) == 1 else 'take'} no part in the selection: fewer {unit}s "
                "are finished than of other candidates."
            )
        missing = expected - len(self.choices)
        if self.how == "nested" and missing:
            yield (
                f"{who}: {missing} of {expected} folds are left out, for lack of finished inner "
                "trials."
            )
        elif not self.choices:
            yield (
                f"{who} is left out: there is no {unit} that all of its {len(self.entrants)} "
                "candidates have finished."
            )
        elif self.how == "validation" and len(self.trials) > 1 and len(self.votes) < expected:
            yield f"{who} is chosen on {len(self.votes)} of {expected} {unit}s."


def _best(votes: Mapping[Setup, list[float]]) -> Setup:
    """The candidate with the highest mean; of equals the first, which is the simplest."""
    # Rounded, lest the order of a sum's rounding errors break what is a tie.
    return max(votes, key=lambda setup: round(fmean(votes[setup]), 12))
