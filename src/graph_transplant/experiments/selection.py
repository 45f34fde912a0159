"""Which candidate stands for a method: number of layers and parameters, by validation alone.

A *family* is one method with one model on one data set, in one condition of training; its
*candidates* are the numbers of layers and the parameters that were tried. The methods are then
compared family by family, each with the candidate that did best on validation graphs. Test scores
are never read here.
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
    """One candidate of a family; ``validation`` is the mean score that the choice looks at.

    It is ``None`` where that is nothing: the candidate takes no part, or those that do share no
    finished fold. ``folds`` is the number of folds it was chosen for.
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
    """The method without its parameters.

    Example:
        >>> method_key("drop-nodes:ratio=0.4"), method_key("vanilla")
        ('drop-nodes', 'vanilla')
    """
    return name.partition(":")[0]


def select(records: Iterable[Record], how: str) -> list[Record]:
    """Keep the trials of one candidate per method, chosen by validation scores.

    ``"none"``: nothing is chosen, every candidate is a method of its own. Inner trials, which only
    nested selection asks for, are left out.

    ``"validation"``, the paper's rule: one candidate for all folds, the one with the highest mean
    validation score over the folds that all candidates which take part have finished. This is
    slightly optimistic: every graph is a validation graph in one fold and a test graph in another,
    so that the graphs a candidate is tested on have had a say in its choice. On an official split
    they have not.

    ``"nested"``: one candidate for each fold, the one with the highest mean validation score when
    the *other* folds are validated on in turn. The test graphs of the fold take no part, neither in
    training nor in choosing, so that the test score is that of the whole procedure, its choice
    included. It costs ``folds - 1`` trainings in place of one. A fold in which an inner trial of
    a candidate that takes part is missing is left out.

    A candidate takes part if none of its family has finished more folds (for ``"nested"``: folds
    with all their inner trials); :func:`left_out` names the others. Ties go to fewer layers, then
    to the shorter name, then to the alphabet. A fold in which a candidate has no validation score
    (an AUROC without both classes) has no say.

    Returns:
        For ``"none"`` the records as they are. Otherwise copies of the chosen candidates' records
        in which ``method`` is the method without its parameters and ``chosen`` tells ``layers`` and
        ``method`` of the candidate, ordered by family, repeat and fold.
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
    """Every candidate, from the fewest layers up; none for ``"none"``.

    For ``"nested"`` the mean is over all inner trials of the folds that are complete.
    """
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
        yield from self._without_part(f"{expected} {unit}s")
        missing = expected - len(self.choices)
        if self.how == "nested" and missing:
            verb, whose = ("is", "its") if missing == 1 else ("are", "their")
            yield (
                f"{who}: {missing} of {expected} folds {verb} left out, {whose} inner trials are "
                "not all finished."
            )
        elif not self.choices:
            part = " that take part" if len(self.entrants) < len(self.trials) else ""
            yield (
                f"{who} is left out: there is no {unit} that all of its {len(self.entrants)} "
                f"candidates{part} have finished."
            )
        elif self.how == "validation" and len(self.trials) > 1 and len(self.votes) < expected:
            yield f"{who} is chosen on {len(self.votes)} of {expected} {unit}s."

    def _without_part(self, expected: str) -> Iterator[str]:
        """Name the candidates that take no part, those with the same number of folds together."""
        names: dict[int, list[str]] = {}
        for setup in self.trials:
            if setup not in self.entrants:
                layers, name = setup
                depth = "" if layers is None else f" with {count(layers, 'layer')}"
                names.setdefault(len(self.covered[setup]), []).append(name + depth)
        what = "all inner trials of " if self.how == "nested" else ""
        where = f"{self.model}: " if self.model else ""
        for number, those in sorted(names.items()):
            have, take = ("have", "take") if len(those) > 1 else ("has", "takes")
            yield (
                f"{where}{listed(those)} {have} {what}{number} of {expected} and {take} no part in "
                "the selection."
            )


def _best(votes: Mapping[Setup, list[float]]) -> Setup:
    """The candidate with the highest mean; of equals the first, which is the simplest."""
    # Rounded, lest the order of a sum's rounding errors break what is a tie.
    return max(votes, key=lambda setup: round(fmean(votes[setup]), 12))
