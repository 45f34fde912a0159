"""Which candidate stands for a method: number of layers and parameters, by validation alone.

A *family* is one method with one model on one data set, in one condition of training; its
*candidates* are the numbers of layers and the parameters that were tried. The methods are then
compared family by family, each with the candidate that did best on validation graphs. Test scores
are never read here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graph_transplant.errors import GraphTransplantError, check_choice
from graph_transplant.experiments.protocol import Condition, Record, one_split, score
from graph_transplant.experiments.statistics import mean

SELECTIONS = ("none", "validation", "nested")
"""How one candidate per method is chosen: not at all, once for all folds, or fold by fold."""

Family = tuple[str, str | None, Condition, str]
"""Data, model, the condition of training, and the method without its parameters."""

Setup = tuple[int | None, str]
"""One candidate of a family: its number of layers and the method with its parameters."""

Place = tuple[int, int]
"""Where a trial is tested: repeat and fold."""

Split = tuple[int, int, int]
"""Where a trial is tested and validated: repeat, fold and inner split."""

Trials = dict[Setup, dict[Split, Record]]
"""The trials of one family: of each candidate, by repeat, fold and inner split."""


@dataclass(frozen=True)
class Candidate:
    """One candidate of a family and how it did on validation graphs.

    Args:
        data: Name of the data set.
        model: Name of the convolution.
        method: The method without its parameters.
        layers: Number of layers.
        name: The method with its parameters.
        validation: Mean validation score over what the choice looks at, or ``None`` where that is
            nothing: the candidate takes no part, or those that do share no finished fold.
        trials: Number of trials that mean is taken over.
        folds: Number of folds it was chosen for.
        chosen: Whether that is any.
        label_noise: Share of the training labels that are wrong.
        train_fraction: Share of the training graphs that are used.
    """

    data: str
    model: str | None
    method: str
    layers: int | None
    name: str
    validation: float | None
    trials: int
    folds: int
    chosen: bool
    label_noise: float = 0.0
    train_fraction: float = 1.0


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
    with all their inner trials). So a few trials of an unfinished candidate do not cut down the
    folds that the others are judged on; :func:`left_out` names it.

    Each condition of training (label noise, training fraction) has its own choice, made by the
    trials of that condition.

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
    for (_, _, _, method), trials in _families(records).items():
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
    for (data, model, condition, method), trials in families.items():
        places = [*_voting(trials, how).values()]
        choices = [*_choices(trials, how).values()]
        for setup in trials:
            scores = [value for votes in places for value in votes.get(setup, [])]
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
                    **condition._asdict(),
                )
            )
    return table


def left_out(records: Iterable[Record], how: str) -> list[str]:
    """Say which families, candidates or folds selection passes over as yet, in sentences.

    Args:
        records: Finished trials.
        how: One of :data:`SELECTIONS`.

    Example:
        >>> record = {"data": "motifs", "model": "gcs", "layers": 3, "method": "vanilla",
        ...           "repeat": 0, "fold": 0, "settings": {"folds": 3},
        ...           "validation": {"accuracy": 0.5}}
        >>> deeper = record | {"layers": 5}
        >>> for sentence in left_out([record, record | {"fold": 1}, deeper], "validation"):
        ...     print(sentence)
        gcs: vanilla with 5 layers has 1 of 3 folds and takes no part in the selection.
        vanilla with gcs is chosen on 2 of 3 folds.
    """
    check_choice("select", how, SELECTIONS)
    sentences: list[str] = []
    families = _families(records) if how != "none" else {}
    for (_, model, condition, method), trials in families.items():
        settings = _settings(trials)
        official = one_split(settings)
        who = f"{method} with {model}" if model else method
        repeats = len({repeat for repeat, _ in _places(trials)})
        expected = repeats if official else repeats * settings["folds"]
        unit = "runs" if official else "folds"
        entrants = _entrants(trials, how)
        said = list(_without_part(model, trials, entrants, how, f"{expected} {unit}"))
        voting, chosen = len(_voting(trials, how)), len(_choices(trials, how))
        if how == "nested":
            missing = expected - chosen
            if missing:
                verb, whose = ("is", "its") if missing == 1 else ("are", "their")
                said.append(
                    f"{who}: {missing} of {expected} folds {verb} left out, "
                    f"{whose} inner trials are not all finished."
                )
        elif not chosen:
            part = " that take part" if len(entrants) < len(trials) else ""
            said.append(
                f"{who} is left out: there is no {unit[:-1]} that all of its "
                f"{len(entrants)} candidates{part} have finished."
            )
        elif len(trials) > 1 and voting < expected:
            said.append(f"{who} is chosen on {voting} of {expected} {unit}.")
        sentences += [condition.sentence(text) for text in said]
    return sentences


def _without_part(
    model: str | None, trials: Trials, entrants: Trials, how: str, expected: str
) -> Iterator[str]:
    """Name the candidates that take no part, those with the same number of folds together."""
    names: dict[int, list[str]] = {}
    for setup, finished in trials.items():
        if setup not in entrants:
            layers, name = setup
            if layers is not None:
                name += f" with {layers} layer{'s' if layers != 1 else ''}"
            names.setdefault(len(_covered(finished, trials, how)), []).append(name)
    what = "all inner trials of " if how == "nested" else ""
    for count, (*first, last) in sorted(names.items()):
        who = f"{', '.join(first)} and {last} have" if first else f"{last} has"
        verb = "take" if first else "takes"
        where = f"{model}: " if model else ""
        yield f"{where}{who} {what}{count} of {expected} and {verb} no part in the selection."


def _families(records: Iterable[Record]) -> dict[Family, Trials]:
    """Sort records by family and candidate, candidates in the order in which ties are broken."""
    families: dict[Family, Trials] = {}
    for record in records:
        method = method_key(record["method"])
        family = (record["data"], record.get("model"), Condition.of(record), method)
        setup = (record.get("layers"), record["method"])
        place = (record["repeat"], record["fold"], record.get("inner", 0))
        families.setdefault(family, {}).setdefault(setup, {})[place] = record
    return {
        family: dict(sorted(trials.items(), key=lambda item: _simplest(item[0])))
        for family, trials in sorted(families.items(), key=lambda item: _order(item[0]))
    }


def _order(family: Family) -> tuple[str, str, tuple[float, float], str]:
    data, model, condition, method = family
    return data, model or "", condition.order, method


def _simplest(setup: Setup) -> tuple[int, int, str]:
    layers, name = setup
    return layers or 0, len(name), name


def _places(trials: Trials) -> list[Place]:
    """List every repeat and fold in which some candidate of the family has been tested."""
    return sorted({place[:2] for finished in trials.values() for place in finished})


def _covered(finished: Mapping[Split, Record], trials: Trials, how: str) -> set[Place]:
    """Find the repeats and folds in which a candidate has all that selection looks at."""
    inner = _inner_splits(trials, how)
    return {
        (repeat, fold)
        for repeat, fold, _ in finished
        if all((repeat, fold, number) in finished for number in inner)
    }


def _entrants(trials: Trials, how: str) -> Trials:
    """Keep the candidates that have finished as many folds as any of their family."""
    counts = {setup: len(_covered(finished, trials, how)) for setup, finished in trials.items()}
    most = max(counts.values())
    return {setup: trials[setup] for setup in trials if counts[setup] == most}


def _voting(trials: Trials, how: str) -> dict[Place, dict[Setup, list[float]]]:
    """Collect the validation scores of all candidates that take part, fold by fold.

    Returns:
        For each fold that has a say, the scores of each of them, the same number of each.
    """
    found = {}
    trials = _entrants(trials, how)
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
    settings = _settings(trials)
    if one_split(settings):
        kind = f"a{'n' if settings['split'] == 'official' else ''} {settings['split']} split"
        raise GraphTransplantError(
            f"`select` is 'nested', which needs folds, but the trials are of {kind}: its "
            "validation graphs are nobody's test graphs, choose 'validation'"
        )
    return range(settings["folds"] - 1)


def _settings(trials: Trials) -> dict[str, Any]:
    """Give the settings of a family, which all of its records share."""
    settings: dict[str, Any] = next(
        record["settings"] for finished in trials.values() for record in finished.values()
    )
    return settings


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
        {
            setup: [value for votes in voting.values() for value in votes[setup]]
            for setup in _entrants(trials, how)
        }
    )
    return {(repeat, fold): best for repeat, fold, inner in trials[best] if inner == 0}


def _best(votes: Mapping[Setup, Sequence[float]]) -> Setup:
    """Give the candidate with the highest mean; of equals the first, which is the simplest."""
    # Rounded, lest the order of a sum's rounding errors break what is a tie.
    means = {setup: round(mean(values) or 0.0, 12) for setup, values in votes.items()}
    return max(means, key=lambda setup: means[setup])
