"""Selection of one candidate per method by validation scores; test scores are never read.

A *family* is one method with one model on one data set, in one training condition. Its *candidates*
are the numbers of layers and the parameters that were tried.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Any, get_args

from graph_transplant.config.options import Selection
from graph_transplant.errors import check_choice
from graph_transplant.methods import method_key
from graph_transplant.results.record import Condition, Record, one_split, score

Setup = tuple[int | None, str]
"""A candidate: its number of layers, and the method with its parameters."""

Place = tuple[int, int]
"""Repeat and fold of a trial."""


def select(records: Iterable[Record], how: str) -> list[Record]:
    """Keep the trials of one candidate per method, chosen by validation scores.

    ``"none"``: every candidate is a method of its own.

    ``"validation"``, the paper's rule: one candidate for all folds, the one with the highest mean
    validation score. This is slightly optimistic: every graph is a validation graph in one fold and
    a test graph in another. On a single split it is not.

    Only candidates with the most finished folds of their family take part; :func:`left_out` names
    the others. Only folds in which all of them have a score count. Ties go to fewer layers, then to
    the shorter name.

    Returns:
        For ``"none"`` the records unchanged, otherwise copies of the chosen ones in which
        ``method`` has no parameters and ``chosen`` holds the candidate's ``layers`` and ``method``.
    """
    check_choice("select", how, get_args(Selection))
    if how == "none":
        return list(records)
    return [
        record
        | {
            "method": family.method,
            "chosen": {"layers": record.get("layers"), "method": record["method"]},
        }
        for family in _families(records, how)
        if family.choice is not None
        for _, record in sorted(family.trials[family.choice].items())
    ]


def left_out(records: Iterable[Record], how: str) -> list[str]:
    """Describe the families and candidates that selection ignores so far, in sentences."""
    return [
        family.condition.sentence(text)
        for family in _families(records, how)
        for text in family.left_out()
    ]


def _families(records: Iterable[Record], how: str) -> list[_Family]:
    """Group records by family and candidate, with candidates in tie-breaking order."""
    found: dict[Any, dict[Setup, dict[Place, Record]]] = {}
    for record in records if how != "none" else ():
        key = (record["data"], record.get("model"), Condition.of(record))
        setup = (record.get("layers"), record["method"])
        family = found.setdefault((*key, method_key(record["method"])), {})
        family.setdefault(setup, {})[record["repeat"], record["fold"]] = record
    families = [
        _Family(data, model, condition, method, dict(sorted(own.items(), key=_simplest)))
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
    trials: Mapping[Setup, Mapping[Place, Record]]

    @cached_property
    def entrants(self) -> list[Setup]:
        """The candidates with the most finished folds."""
        most = max(map(len, self.trials.values()))
        return [setup for setup, own in self.trials.items() if len(own) == most]

    @cached_property
    def votes(self) -> dict[Setup, list[float]]:
        """Validation scores of the entrants, in the folds where all have one."""
        scores = {
            setup: {
                place: value
                for place, record in self.trials[setup].items()
                if (value := score(record, "validation")) is not None
            }
            for setup in self.entrants
        }
        shared = sorted(set.intersection(*(set(own) for own in scores.values())))
        return {setup: [own[place] for place in shared] for setup, own in scores.items()}

    @cached_property
    def choice(self) -> Setup | None:
        """The candidate with the highest mean; ties go to the first, which is the simplest."""
        if not any(self.votes.values()):
            return None
        # Rounded, so that rounding errors do not break ties.
        return max(self.votes, key=lambda setup: round(fmean(self.votes[setup]), 12))

    def left_out(self) -> Iterator[str]:
        places = {place for own in self.trials.values() for place in own}
        repeats = len({repeat for repeat, _ in places})
        settings = next(iter(self.trials[self.entrants[0]].values()))["settings"]
        expected = repeats * (1 if one_split(settings) else settings["folds"])
        voted = len(self.votes[self.entrants[0]])
        who = f"{self.method} with {self.model}" if self.model else self.method
        if not voted:
            yield f"{who} is left out: its candidates have no fold in common."
        elif len(self.trials) > 1 and (len(self.entrants), voted) != (len(self.trials), expected):
            yield (
                f"{who} is chosen on {voted} of {expected} folds among {len(self.entrants)} of "
                f"{len(self.trials)} candidates; the rest is not finished."
            )
