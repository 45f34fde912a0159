"""Text of a model card: figures, data and training in words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import cached_property

from graph_transplant.metrics import METRICS, TEMPERATURES, no_better_than_random
from graph_transplant.report.typography import class_word, shortened
from graph_transplant.results.caveats import Caveat, check_codes
from graph_transplant.results.model_json import DividedErrors, ModelDescription
from graph_transplant.results.verdict import NEAR_MAJORITY
from graph_transplant.utils.files import SKIPPED
from graph_transplant.utils.text import count, duration, listed, number, percent, units

SMALL_TEST = 200  # warn about fewer test graphs
SMALL_VALIDATION = 50  # or fewer validation graphs
LATE = 0.9  # warn if the best epoch comes after this share of the epochs allowed
QUICK_FOREST = 10_000  # up to so many training graphs times labels, a forest takes seconds
FAR_APART = 0.1  # warn if a test value or class share differs by more
FAR_BELOW = 0.05  # warn if the coverage of sets or intervals falls short by more
SURE = 0.05  # significance level for differences in errors
SAME_ECE = 0.01  # warn if calibration raises the calibration error by at least this


class CardData:
    """A model description with the words to describe it."""

    def __init__(self, description: ModelDescription) -> None:
        self.all, self.task = description, description.task
        self.data, self.training = description.data, description.training
        self.metrics, self.baseline = description.metrics, description.metrics.baseline
        self.featurizer = description.featurizer or {}
        self.names = description.label_names
        self.targets = [str(name) for name in self.featurizer.get("targets") or ()]
        self.one = "molecule" if self.featurizer.get("kind") == "molecules" else "graph"
        self.noun = f"{self.one}s"
        self.members = self.training.ensemble

    def named(self, label: str) -> str:
        """Name of a class, with its column if it is a number."""
        one = self.task == "multiclass" and len(self.targets) == 1
        return class_word(label, self.targets[0] if one else "")

    @cached_property
    def main(self) -> str | None:
        """The metric to describe in words, if it has a test value."""
        test = self.metrics.test
        plainly = ("auroc", "r2", "accuracy", "average_precision")
        wanted = [self.training.metric, *plainly]
        return next((n for n in wanted if n in plainly and test.get(n) is not None), None)

    @cached_property
    def value(self) -> float:
        """The test value of the main metric; NaN if there is none."""
        value = self.metrics.test.get(self.main or "")
        return math.nan if value is None else value

    @property
    def baseline_name(self) -> str:
        """The constant prediction of the baseline."""
        return {
            "multiclass": "the largest class",
            "multilabel": "the more common value of each label",
            "regression": "the mean",
        }[self.task]


def value_text(value: float | None, name: str) -> str:
    """Format a value of a metric."""
    return units(value) if METRICS[name].form is units else number(value)


def headline(m: CardData) -> str:
    """What the model predicts."""
    if m.task == "multiclass":
        what = shortened(m.targets[0], 40) if m.targets else "the class"
    elif len(m.names) == 1:
        what = shortened(m.names[0], 40)
    else:
        what = f"{len(m.names)} {'labels' if m.task == 'multilabel' else 'values'}"
    return f"Predicts {what} of a {m.one}, trained on {shortened(str(m.data.name), 40)}"


def summary(m: CardData) -> str:
    """Main test result in plain words."""
    if m.main is None:
        tested = m.training.sizes.test
        return (
            f"{'Too few' if tested else 'No'} {m.noun} were held out for testing: how good it is "
            "on new ones is not known beyond the validation figures below, which were used to "
            "choose its weights."
        )
    words = {
        "accuracy": f"{percent(m.value, 0, unit=True)} of its predictions are right",
        "auroc": (
            f"given one {m.one} {_ranked(m)}, it ranks them correctly {round(100 * m.value)} times "
            "in 100"
        ),
        "average_precision": f"its average precision is {m.value:.3f}",
        "r2": f"it explains {percent(m.value, unit=True)} of the variation"
        if m.value > 0
        else "it is no better than always predicting the mean",
    }[m.main]
    interval = m.metrics.intervals.get(m.main)
    between = ""
    if interval is not None:
        low, high = interval
        between = f" (95 % interval {value_text(low, m.main)} to {value_text(high, m.main)})"
    return (
        f"On {m.training.sizes.test:,} test {m.noun} that training never saw, {words}: "
        f"{METRICS[m.main].word} {value_text(m.value, m.main)}{between}."
    )


def _ranked(m: CardData) -> str:
    """The two kinds of graphs that AUROC ranks."""
    if m.task == "multiclass":
        other, meant = (m.named(shortened(name, 40)) for name in m.names[:2])
        return f"labelled {meant} and one labelled {other}"
    what = f"the label {shortened(m.names[0], 40)}" if len(m.names) == 1 else "a label"
    return f"with {what} and one without"


def card_findings(m: CardData, ignore: Iterable[str] = ()) -> tuple[list[Caveat], list[Caveat]]:
    """Warnings about the figures, and other findings, but for the codes to ignore."""
    judges = (
        *(_chance, _forest, _small, _few_to_validate, _late, _gap, _bound, _calibration),
        *(_against_baseline, _sets, _spread, _likeness),
        *(_class_mix, _copies, _contradictions, _rare, _explanations),
    )
    codes = check_codes(ignore)
    found = [one for judge in judges for one in judge(m) if one.code not in codes]
    return [one for one in found if one.warning], [one for one in found if not one.warning]


def _finding(
    m: CardData, code: str, kind: str = "", *, warning: bool = True, **values: str
) -> Caveat:
    return Caveat(code, {"noun": m.noun, **values}, kind=kind, warning=warning)


def _chance(m: CardData) -> Iterator[Caveat]:
    name = m.main or ""
    interval, guess = m.metrics.intervals.get(name), m.baseline.get(name)
    if m.main is None or guess is None or interval is None:
        return
    if interval[0] <= guess:
        yield _finding(
            m,
            "GT101",
            constant=f"always predicting {m.baseline_name}" if m.main == "accuracy" else "guessing",
            metric=METRICS[m.main].word,
            guess=value_text(guess, m.main),
            low=value_text(interval[0], m.main),
        )


def _forest(m: CardData) -> Iterator[Caveat]:
    rival = m.metrics.forest.get(m.main or "")
    if m.main is None or rival is None:
        if without := m.metrics.forest_left_out:
            yield _finding(m, "GT102", "no forest", warning=False, text=without)
        return
    forests = m.training.sizes.train * (1 if m.task == "multiclass" else len(m.names))
    gain = m.value - rival
    low, high = m.metrics.over_forest.get(m.main, (None, None))
    kind = "unclear"
    if low is None or high is None:
        kind = "no interval"
    elif low > 0 or high < 0:
        kind = "better" if low > 0 else ""
    yield _finding(
        m,
        "GT102",
        kind,
        warning=gain <= 0 if kind == "no interval" else kind != "better",
        features="fingerprints" if m.one == "molecule" else "simple statistics",
        takes="seconds" if forests <= QUICK_FOREST else "minutes",
        metric=METRICS[m.main].word,
        value=value_text(m.value, m.main),
        rival=value_text(rival, m.main),
        gain=number(gain, sign=True),
        low=number(low, sign=True),
        high=number(high, sign=True),
    )


def _small(m: CardData) -> Iterator[Caveat]:
    tested = m.training.sizes.test
    if 0 < tested < SMALL_TEST:
        yield _finding(m, "GT103", tested=count(tested, m.one))


def _few_to_validate(m: CardData) -> Iterator[Caveat]:
    held = m.training.sizes.validation
    if held < SMALL_VALIDATION:
        yield _finding(m, "GT104", held=count(held, m.one))


def _late(m: CardData) -> Iterator[Caveat]:
    limit, best = m.training.epochs, max(m.training.best_epochs)
    # Recipes other than the paper's end with a cosine schedule, which is best towards its end.
    allowed = LATE * limit if m.training.recipe == "paper" else limit - 1
    if m.training.model and not m.training.stopped_early and best > allowed:
        yield _finding(m, "GT105", best=str(best), limit=str(limit), more=str(2 * limit))


def _gap(m: CardData) -> Iterator[Caveat]:
    validation = None if m.main is None else m.metrics.validation.get(m.main)
    if m.main is None or validation is None or validation - m.value <= FAR_APART:
        return
    yield _finding(
        m,
        "GT106",
        metric=METRICS[m.main].word,
        test=value_text(m.value, m.main),
        validation=value_text(validation, m.main),
    )


def _bound(m: CardData) -> Iterator[Caveat]:
    temperature = m.all.temperature
    reasons = {
        TEMPERATURES[0]: ("lowest", "hardly any error"),
        TEMPERATURES[1]: ("highest", "confidence that says nothing about correctness"),
    }
    if temperature in reasons and m.task != "regression":
        bound, reason = reasons[temperature]
        yield _finding(m, "GT107", temperature=f"{temperature:g}", bound=bound, reason=reason)


def _calibration(m: CardData) -> Iterator[Caveat]:
    after, before = (part.get("ece") for part in (m.metrics.test, m.metrics.test_uncalibrated))
    if after is None or before is None or m.all.temperature == 1:
        return
    worse = after - before >= SAME_ECE
    values = {"before": value_text(before, "ece"), "after": value_text(after, "ece")}
    yield _finding(m, "GT108", "" if worse else "changed", warning=worse, **values)


def _against_baseline(m: CardData) -> Iterator[Caveat]:
    accuracy, largest = m.metrics.test.get("accuracy"), m.baseline.get("accuracy")
    if accuracy is None or largest is None:
        return
    yield _finding(
        m,
        "GT109",
        warning=accuracy < largest + NEAR_MAJORITY,
        accuracy=percent(accuracy, unit=True),
        constant=m.baseline_name,
        largest=percent(largest, unit=True),
    )


def _sets(m: CardData) -> Iterator[Caveat]:
    measured = m.all.uncertainty
    if measured is None or measured.held is None or measured.coverage is None:
        return
    held, aim = measured.held, measured.coverage
    yield _finding(
        m,
        "GT110",
        "" if m.task == "multiclass" else m.task,
        warning=held < aim - FAR_BELOW,
        size=f"{measured.size or 0.0:.1f}",
        aim=percent(aim, 0, unit=True),
        held=percent(held, 0, unit=True),
    )
    if m.training.split != "random":
        split = shortened(m.training.split, 20)
        yield _finding(m, "GT110", "split", warning=False, split=split)


def _spread(m: CardData) -> Iterator[Caveat]:
    found = m.all.uncertainty and m.all.uncertainty.spread
    if found:
        kind = "" if found.chance < SURE else "unclear"
        yield _finding(m, "GT111", kind, warning=False, errors=_errors(m, found))


def _likeness(m: CardData) -> Iterator[Caveat]:
    found = m.all.uncertainty and m.all.uncertainty.similarity
    if not found or not found.test:
        return
    test = found.test
    clear = test.chance < SURE
    yield _finding(
        m,
        "GT112",
        "" if clear else "unclear",
        warning=clear,
        graphs=str(test.graphs),
        threshold=f"{found.threshold:.2f}",
        where=", where validation errors rise" if found.justified else "",
        errors=_errors(m, test),
    )


def _errors(m: CardData, found: DividedErrors) -> str:
    if m.task == "regression":
        times = found.first / found.rest if found.rest else 1.0
        return f"errors are {times:.1f} times as large as those of the others"
    first, rest = percent(found.first, 0, unit=True), percent(found.rest, 0, unit=True)
    what = " of the labels" if m.task == "multilabel" else ""
    return f"{first}{what} are predicted incorrectly, of the others {rest}"


def _class_mix(m: CardData) -> Iterator[Caveat]:
    known = [m.data.class_shares.get(part, ()) for part in ("train", "validation", "test")]
    if {len(shares) for shares in known} != {len(m.names)}:
        return
    moved = [
        (round(abs(test - train), 6), place)
        for place, (train, test) in enumerate(zip(known[0], known[2], strict=True))
        if train is not None and test is not None
    ]
    far, place = max(moved, default=(0.0, 0))
    if far <= FAR_APART:
        return
    train, validation, test = (percent(shares[place], 0, unit=True) for shares in known)
    yield _finding(
        m,
        "GT113",
        "multilabel" if m.task == "multilabel" else "",
        train=train,
        validation=validation,
        test=test,
        label=shortened(m.named(m.names[place]), 50),
    )


def _copies(m: CardData) -> Iterator[Caveat]:
    across = m.data.duplicates.across if m.data.duplicates else 0
    if across:
        yield _finding(m, "GT114", copies=count(across, m.one))


def _contradictions(m: CardData) -> Iterator[Caveat]:
    differing = m.data.duplicates.differing if m.data.duplicates else 0
    if differing:
        yield _finding(
            m,
            "GT115",
            warning=m.task != "regression",
            copies=count(differing, m.one),
            targets={"multiclass": "classes", "multilabel": "labels"}.get(m.task, "values"),
        )


def _rare(m: CardData) -> Iterator[Caveat]:
    counts = m.data.class_counts
    if m.task != "multiclass" or not sum(counts):
        return
    share = min(counts) / sum(counts)
    if share < min(0.1, 0.5 / len(counts)):
        rarest = m.named(shortened(m.names[counts.index(min(counts))], 40))
        rare = percent(share, unit=True)
        yield _finding(m, "GT116", share=rare, label=rarest)


def _explanations(m: CardData) -> Iterator[Caveat]:
    if no_better_than_random(m.all.saliency or {}):
        yield _finding(m, "GT117")


def split_words(m: CardData) -> str:
    """How the data were split, and where duplicates are."""
    split = {
        "random": (
            f"Validation and test {m.noun} were drawn at random, with every "
            f"{'range of values' if m.task == 'regression' else 'class'} in proportion. "
            f"They resemble the training {m.noun}: expect worse results on {m.noun} of a new kind."
        ),
        "scaffold": (
            "Molecules that share a Bemis–Murcko scaffold are all in the same part: test molecules "
            "have scaffolds that training never saw, which is closer to new chemistry than a "
            "random split."
        ),
        "official": f"The split published with the data set determines which {m.noun} are "
        "trained on.",
    }.get(m.training.split, "The split was provided by the person who trained the model.")
    found = m.data.duplicates
    if not found:
        return split
    if not found.graphs:
        return f"{split} No {m.one} occurs twice."
    copies = f"{found.graphs:,} {m.noun} have a copy"  # older models count only these
    if found.distinct is not None:
        more = "occurs" if found.distinct == 1 else "occur"
        copies = f"{count(found.distinct, m.one)} {more} more than once"
    where = "" if found.across else "; all copies of one are in the same part"
    return f"{split} {copies}{where}."


def training_words(m: CardData) -> str:
    """How training went."""
    training = m.training
    metric = training.metric
    chosen = METRICS[metric].word if metric in METRICS else "the lowest loss"
    best = f"the best by {chosen} on the validation {m.noun}"
    if not training.model:
        made = m.all.baseline
        settings = [f"{k} {v}" for k, v in made.parameters.items()] if made else []
        text = f"Settings, tuned by {chosen} on graphs held out: {listed(settings)}."
    elif m.members > 1:
        epochs = [str(epoch) for epoch in training.best_epochs]
        text = (
            f"{m.members} networks were trained on the same {m.noun} with different seeds; their "
            f"mean is the prediction. Of each, one epoch was kept, {best}: {listed(epochs)}."
        )
    else:
        text = (
            f"Out of {count(training.epochs_run, 'epoch')}, the weights of epoch "
            f"{training.best_epoch} were kept, {best}."
        )
    if training.stopped_early:
        text += " Training stopped early because nothing improved."
    text += f" It took {duration(training.seconds)}."
    return text + (" Every class was drawn equally often." if training.balance else "")


def limits(m: CardData) -> list[str]:
    """Limitations of the model."""
    found = [
        (
            f"It has learned from {m.noun} with {m.data.mean_nodes:.0f} "
            f"{'atoms' if m.one == 'molecule' else 'nodes'} on average. Others, much larger or of "
            "another kind, may be predicted incorrectly and with high confidence."
        ),
        (
            f"One {'ensemble' if m.members > 1 else 'training run with one seed'} was measured. "
            f"The intervals show how much the figures depend on which test {m.noun} were drawn, "
            "not how much another run would differ."
        ),
    ]
    if m.task != "regression":
        text = (
            f"Probabilities were calibrated on {m.training.sizes.validation:,} validation "
            f"{m.noun} and hold for {m.noun} like those."
        )
        if m.all.temperature == 1 and m.metrics.validation.get("accuracy") == 1:
            text += " As it was right about all of those, its confidence was not raised."
        found.append(text)
    if m.data.skipped:
        rows = count(m.data.skipped, "row")
        found.append(f"{rows} of the data could not be used; {SKIPPED} lists them.")
    found.append(
        "Saliency, as the command explain draws it, shows what the model relies on. It does not "
        "show what causes the property."
    )
    return found
