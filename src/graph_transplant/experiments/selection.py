"""Which candidate stands for a method: number of layers and parameters, by validation alone.

A *family* is one method with one model on one data set; its *candidates* are the numbers of layers
and the parameters that were tried. The methods are then compared family by family, each with the
candidate that did best on validation graphs. Test scores are never read here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from graph_transplant.errors import GraphTransplantError, check_choice
from graph_transplant.experiments.protocol import Record, score
from graph_transplant.experiments.statistics import mean

SELECTIONS = ("none", "validation", "nested")
"""How one candidate per method is chosen: not at all, once for all folds, or fold by fold."""

Family = tuple[str, str, str]
"""Data, model, and the method without its parameters."""

Setup = tuple[int, str]
"""One candidate of a family: its number of layers and the method with its parameters."""

Place = tuple[int, int]
"""Where a trial is tested: repeat and fold."""


@dataclass(frozen=True)
class Candidate:
    """One candidate of a family and how it did on validation graphs.

    Args:
        data: Name of the data set.
        model: Name of the convolution.
        method: The method without its parameters.
        layers: Number of layers.
        name: The method with its parameters.
        validation: Mean validation score over what the choice looks at, or ``None`` where there is
            nothing that all candidates have finished.
        trials: Number of trials that mean is taken over.
        folds: Number of folds it was chosen for.
        chosen: Whether that is any.
    """

    data: str
    model: str
    method: str
    layers: int
    name: str
    validation: float | None
    trials: int
    folds: int
    chosen: bool


def method_key(name: str) -> str:
    """Give the method without its parameters.

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
    validation score over the folds that all candidates of its family have finished. This is
    slightly optimistic: every graph is a validation graph in one fold and a test graph in another,
    so that the graphs a candidate is tested on have had a say in its choice. On an official split
    they have not.

    ``"nested"``: one candidate for each fold, the one with the highest mean validation score when
    the *other* folds are validated on in turn. The test graphs of the fold take no part, neither in
    training nor in choosing, so that the test score is that of the whole procedure, its choice
    included. It costs ``folds - 1`` trainings in place of one. A fold in which an inner trial of
    the family is missing is left out.

    Ties go to fewer layers, then to the shorter name, then to the alphabet. A fold in which a
    candidate has no validation score (an AUROC without both classes) has no say.

    Args:
        records: Finished trials.
        how: One of :data:`SELECTIONS`.

    Returns:
        For ``"none"`` the records as they are. Otherwise copies of the chosen candidates' records
        in which ``method`` is the method without its parameters and ``chosen`` tells ``layers`` and
        ``method`` of the candidate, ordered by family, repeat and fold.

    Raises:
        GraphTransplantError: If there is no such way, or nested selection is asked of an official
            split.

    Example:
        >>> record = {"data": "motifs", "model": "gcs", "layers": 3, "method": "drop-nodes",
        ...           "repeat": 0, "fold": 0, "settings": {"folds": 5},
        ...           "validation": {"accuracy": 0.5}}
        >>> other = record | {"layers": 4, "method": "drop-nodes:ratio=0.4",
        ...                   "validation": {"accuracy": 0.75}}
        >>> (best,) = select([record, other], "validation")
        >>> best["method"], best["chosen"]
        ('drop-nodes', {'layers': 4, 'method': 'drop-nodes:ratio=0.4'})
    """
    check_choice("select", how, SELECTIONS)
    if how == "none":
        return [record for record in records if record.get("inner", 0) == 0]
    selected = []
    for (_, _, method), trials in _families(records).items():
        for place, setup in sorted(_choices(trials, how).items()):
            layers, name = setup
            chosen = {"layers": layers, "method": name}
            selected.append(trials[setup][(*place, 0)] | {"method": method, "chosen": chosen})
    return selected


def selection_table(records: Iterable[Record], how: str) -> list[Candidate]:
    """List every candidate with its mean validation score, and say which were chosen.

    For ``"nested"`` the mean is over all inner trials of the folds that are complete.

    Args:
        records: Finished trials.
        how: One of :data:`SELECTIONS`.

    Returns:
        The candidates by family, within it from the fewest layers up; none for ``"none"``.

    Example:
        >>> record = {"data": "motifs", "model": "gcs", "layers": 3, "method": "vanilla",
        ...           "repeat": 0, "fold": 0, "settings": {"folds": 5},
        ...           "validation": {"accuracy": 0.5}}
        >>> other = record | {"layers": 4, "validation": {"accuracy": 0.75}}
        >>> for candidate in selection_table([record, other], "validation"):
        ...     print(candidate.layers, candidate.validation, candidate.chosen)
        3 0.5 False
        4 0.75 True
    """
    check_choice("select", how, SELECTIONS)
    table = []
    families = _families(records) if how != "none" else {}
    for (data, model, method), trials in families.items():
        places = [*_voting(trials, how).values()]
        choices = [*_choices(trials, how).values()]
        for setup in trials:
            scores = [value for votes in places for value in votes[setup]]
            folds = choices.count(setup)
            layers, name = setup
            table.append(
                Candidate(
                    data,
                    model,
                    method,
                    layers,
                    name,
                    validation=mean(scores),
                    trials=len(scores),
                    folds=folds,
                    chosen=folds > 0,
                )
            )
    return table


def left_out(records: Iterable[Record], how: str) -> list[str]:
    """Say which families or folds cannot be selected in yet, in sentences.

    Args:
        records: Finished trials.
        how: One of :data:`SELECTIONS`.

    Example:
        >>> record = {"data": "motifs", "model": "gcs", "layers": 3, "method": "vanilla",
        ...           "repeat": 0, "fold": 0, "settings": {"folds": 3},
        ...           "validation": {"accuracy": 0.5}}
        >>> left_out([record], "nested")
        ['vanilla with gcs: 1 of 1 folds is left out, its inner trials are not all finished.']
    """
    check_choice("select", how, SELECTIONS)
    sentences = []
    families = _families(records) if how != "none" else {}
    for (_, model, method), trials in families.items():
        chosen = len(_choices(trials, how))
        if how == "nested":
            folds = len(_places(trials))
            missing = folds - chosen
            if missing:
                verb, whose = ("is", "its") if missing == 1 else ("are", "their")
                sentences.append(
                    f"{method} with {model}: {missing} of {folds} folds {verb} left out, {whose} "
                    "inner trials are not all finished."
                )
        elif not chosen:
            sentences.append(
                f"{method} with {model} is left out: there is no fold that all of its "
                f"{len(trials)} candidates have finished."
            )
    return sentences


Trials = dict[Setup, dict[tuple[int, int, int], Record]]
"""The trials of one family: of each candidate, by repeat, fold and inner split."""


def _families(records: Iterable[Record]) -> dict[Family, Trials]:
    """Sort records by family and candidate, candidates in the order in which ties are broken."""
    families: dict[Family, Trials] = {}
    for record in records:
        family = (record["data"], record["model"], method_key(record["method"]))
        setup = (record["layers"], record["method"])
        place = (record["repeat"], record["fold"], record.get("inner", 0))
        families.setdefault(family, {}).setdefault(setup, {})[place] = record
    return {
        family: dict(sorted(trials.items(), key=lambda item: _simplest(item[0])))
        for family, trials in sorted(families.items())
    }


def _simplest(setup: Setup) -> tuple[int, int, str]:
    layers, name = setup
    return layers, len(name), name


def _places(trials: Trials) -> list[Place]:
    """List every repeat and fold in which some candidate of the family has been tested."""
    return sorted({place[:2] for finished in trials.values() for place in finished})


def _voting(trials: Trials, how: str) -> dict[Place, dict[Setup, list[float]]]:
    """Collect the validation scores of all candidates, fold by fold.

    Returns:
        For each fold that has a say, the scores of every candidate, the same number of each.
    """
    found = {}
    for repeat, fold in _places(trials):
        splits = [(repeat, fold, inner) for inner in _inner_splits(trials, how)]
        if not all(split in finished for finished in trials.values() for split in splits):
            continue
        scored = [
            votes
            for split in splits
            if (votes := _scores([finished[split] for finished in trials.values()])) is not None
        ]
        if scored:
            columns = zip(*scored, strict=True)
            found[repeat, fold] = {
                setup: list(column) for setup, column in zip(trials, columns, strict=True)
            }
    return found


def _inner_splits(trials: Trials, how: str) -> range:
    if how == "validation":
        return range(1)
    settings = next(record["settings"] for record in _all(trials))
    if settings.get("split", "folds") == "official":
        raise GraphTransplantError(
            "`select` is 'nested', which needs folds, but the trials are of an official split: its "
            "validation graphs are nobody's test graphs, choose 'validation'"
        )
    return range(settings["folds"] - 1)


def _all(trials: Trials) -> Iterator[Record]:
    for finished in trials.values():
        yield from finished.values()


def _scores(records: Sequence[Record]) -> list[float] | None:
    """Give the validation score of every record, or nothing unless all have one."""
    values = [score(record, "validation") for record in records]
    found = [value for value in values if value is not None]
    return found if len(found) == len(values) else None


def _choices(trials: Trials, how: str) -> dict[Place, Setup]:
    """Choose a candidate for every repeat and fold that one can be chosen for."""
    voting = _voting(trials, how)
    if how == "nested":
        return {place: _best(votes) for place, votes in voting.items()}
    if not voting:
        return {}
    best = _best(
        {setup: [value for votes in voting.values() for value in votes[setup]] for setup in trials}
    )
    return {(repeat, fold): best for repeat, fold, inner in trials[best] if inner == 0}


def _best(votes: Mapping[Setup, Sequence[float]]) -> Setup:
    """Give the candidate with the highest mean; of equals the first, which is the simplest."""
    # Rounded, lest the order of a sum's rounding errors break what is a tie.
    means = {setup: round(mean(values) or 0.0, 12) for setup, values in votes.items()}
    return max(means, key=lambda setup: means[setup])
