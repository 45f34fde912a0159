"""Text of a model card: figures, data and training in words."""

from __future__ import annotations

import math
from functools import cached_property

from graph_transplant.metrics import METRICS, TEMPERATURES, no_better_than_random
from graph_transplant.report.page import class_word, shortened
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


Finding = tuple[bool, str] | None
"""Whether it is a warning, and a sentence."""


def card_findings(m: CardData) -> tuple[list[str], list[str]]:
    """Warnings about the figures, and other findings."""
    judges = (
        *(_chance, _forest, _small, _few_to_validate, _late, _gap, _bound, _calibration),
        *(_against_baseline, _sets, _spread, _likeness),
        *(_class_mix, _copies, _contradictions, _rare, _explanations),
    )
    found = [finding for judge in judges if (finding := judge(m)) is not None]
    return [text for bad, text in found if bad], [text for bad, text in found if not bad]


def _small(m: CardData) -> Finding:
    tested = m.training.sizes.test
    if not 0 < tested < SMALL_TEST:
        return None
    return True, (
        f"Only {count(tested, m.one)} {'was' if tested == 1 else 'were'} held out for testing: the "
        "figures are rough, see their intervals. The folds of a comparison test on all."
    )


def _few_to_validate(m: CardData) -> Finding:
    held = m.training.sizes.validation
    if held >= SMALL_VALIDATION:
        return None
    return True, (
        f"Only {count(held, m.one)} {'was' if held == 1 else 'were'} held out for validation, so "
        "the best epoch and the calibration owe much to chance: a larger share (--validation 0.2) "
        "or more data would help."
    )


def _late(m: CardData) -> Finding:
    limit, best = m.training.epochs, max(m.training.best_epochs)
    # Recipes other than the paper's end with a cosine schedule, which is best towards its end.
    allowed = LATE * limit if m.training.recipe == "paper" else limit - 1
    if m.training.stopped_early or best <= allowed:
        return None
    return True, (
        f"The best epoch, {best} of {limit}, is at the limit, so training had not ended: more "
        f"epochs (--epochs {2 * limit}) may give a better model."
    )


def _gap(m: CardData) -> Finding:
    validation = None if m.main is None else m.metrics.validation.get(m.main)
    if m.main is None or validation is None or validation - m.value <= FAR_APART:
        return None
    test = m.value
    return True, (
        f"It does worse on the test {m.noun} than on the validation ones: {METRICS[m.main].word} "
        f"{value_text(test, m.main)} instead of {value_text(validation, m.main)}. On new ones "
        "expect the lower value, or less."
    )


def _forest(m: CardData) -> Finding:
    rival = m.metrics.forest.get(m.main or "")
    if m.main is None or rival is None:
        without = m.metrics.forest_left_out
        return None if without is None else (False, without)
    what = "fingerprints" if m.one == "molecule" else "simple statistics"
    forests = m.training.sizes.train * (1 if m.task == "multiclass" else len(m.names))
    takes = "seconds" if forests <= QUICK_FOREST else "minutes"
    forest = f"a random forest on {what} of the same training {m.noun}, which takes {takes}"
    gain = m.value - rival
    low, high = m.metrics.over_forest.get(m.main, (None, None))
    figures = f"{METRICS[m.main].word} {value_text(m.value, m.main)} and "
    figures += f"{value_text(rival, m.main)}, difference {number(gain, sign=True)}"
    if low is None or high is None:  # older models
        return gain <= 0, f"Compared with {forest}: {figures}."
    figures += f" (95 % interval {number(low, sign=True)} to {number(high, sign=True)})"
    if low > 0:
        return False, f"It is better than {forest}: {figures}."
    if high < 0:
        return True, (
            f"It is worse than {forest}: {figures}. Use the forest, or try other options of the "
            "network."
        )
    return True, (
        f"It is not shown to be better than {forest}: {figures}. A comparison of both over several "
        "folds would tell more."
    )


def _bound(m: CardData) -> Finding:
    temperature = m.all.temperature
    if temperature not in TEMPERATURES or m.task == "regression":
        return None
    lowest = temperature == TEMPERATURES[0]
    reason = "hardly any error" if lowest else "confidence that says nothing about correctness"
    return True, (
        f"Its temperature, {temperature:g}, is the {'lowest' if lowest else 'highest'} allowed, "
        f"owing to {reason} on the validation {m.noun}: do not rely on its probabilities, or hold "
        "out more for validation (--validation 0.2)."
    )


def _calibration(m: CardData) -> Finding:
    after, before = (part.get("ece") for part in (m.metrics.test, m.metrics.test_uncalibrated))
    if after is None or before is None or m.all.temperature == 1:
        return None
    what = f"the calibration error on the test {m.noun}"
    first, last = value_text(before, "ece"), value_text(after, "ece")
    if after - before >= SAME_ECE:
        return True, f"Calibration made {what} worse: {first} → {last}."
    return False, f"Calibration changed {what} from {first} to {last}."


def _against_baseline(m: CardData) -> Finding:
    accuracy, largest = m.metrics.test.get("accuracy"), m.baseline.get("accuracy")
    if accuracy is None or largest is None:
        return None
    return accuracy < largest + NEAR_MAJORITY, (
        f"{percent(accuracy, unit=True)} of its predictions are right; always predicting "
        f"{m.baseline_name} would be right in {percent(largest, unit=True)} of the test {m.noun}."
    )


def _sets(m: CardData) -> Finding:
    measured = m.all.uncertainty
    if measured is None or measured.held is None or measured.coverage is None:
        return None
    held, aim = measured.held, measured.coverage
    wanted, found = percent(aim, 0, unit=True), percent(held, 0, unit=True)
    what = {
        "multiclass": (
            f"Prediction sets, of {measured.size or 0.0:.1f} classes on average, should "
            "contain the class of"
        ),
        "multilabel": "Prediction sets should be right about each label for",
        "regression": "Intervals should contain the value of",
    }[m.task]
    text = f"{what} {wanted} of new {m.noun}; on the test part it was {found}."
    if m.training.split != "random":
        text += (
            f" That share holds only for {m.noun} like the validation ones, which the test "
            f"{m.noun} of this split ({shortened(m.training.split, 20)}) are not."
        )
    return held < aim - FAR_BELOW, text


def _spread(m: CardData) -> Finding:
    found = m.all.uncertainty and m.all.uncertainty.spread
    if not found:
        return None
    how = "expect errors" if found.chance < SURE else "there were not clearly more errors"
    return False, (
        f"Where its members disagree most (column spread) {how}: of that quarter of the test "
        f"{m.noun} {_errors(m, found)}."
    )


def _likeness(m: CardData) -> Finding:
    found = m.all.uncertainty and m.all.uncertainty.similarity
    if not found or not found.test:
        return None
    test = found.test
    clear = test.chance < SURE
    how, end = "Low similarity did not clearly mean more errors", ", which may be chance"
    if clear:
        how, end = "Trust predictions with a low similarity less", ""
    where = ", where validation errors rise" if clear and found.justified else ""
    return clear, (
        f"{how}: of {test.graphs} test {m.noun} unlike the training ones (similarity below "
        f"{found.threshold:.2f}{where}) {_errors(m, test)}{end}."
    )


def _errors(m: CardData, found: DividedErrors) -> str:
    if m.task == "regression":
        times = found.first / found.rest if found.rest else 1.0
        return f"errors are {times:.1f} times as large as those of the others"
    first, rest = percent(found.first, 0, unit=True), percent(found.rest, 0, unit=True)
    what = " of the labels" if m.task == "multilabel" else ""
    return f"{first}{what} are predicted incorrectly, of the others {rest}"


def _chance(m: CardData) -> Finding:
    name = m.main or ""
    interval, guess = m.metrics.intervals.get(name), m.baseline.get(name)
    if m.main is None or guess is None or interval is None:
        return None
    if interval[0] > guess:
        return None
    what = f"always predicting {m.baseline_name}" if m.main == "accuracy" else "guessing"
    return True, (
        f"It is not shown to be better than {what}, which has {METRICS[m.main].word} "
        f"{value_text(guess, m.main)}: the interval goes down to "
        f"{value_text(interval[0], m.main)}. Train for more epochs, or on more or other data."
    )


def _class_mix(m: CardData) -> Finding:
    known = [m.data.class_shares.get(part, ()) for part in ("train", "validation", "test")]
    if {len(shares) for shares in known} != {len(m.names)}:
        return None
    moved = [
        (round(abs(test - train), 6), place)
        for place, (train, test) in enumerate(zip(known[0], known[2], strict=True))
        if train is not None and test is not None
    ]
    far, place = max(moved, default=(0.0, 0))
    if far <= FAR_APART:
        return None
    train, validation, test = (percent(shares[place], 0, unit=True) for shares in known)
    what = m.named(m.names[place])
    what = f"have the label {what}" if m.task == "multilabel" else f"are {what}"
    return True, (
        f"The parts differ: {train} of the training {m.noun} {shortened(what, 60)}, {validation} "
        f"of the validation ones and {test} of the test ones."
    )


def _copies(m: CardData) -> Finding:
    across = m.data.duplicates.across if m.data.duplicates else 0
    if not across:
        return None
    return True, (
        f"{count(across, m.one)} held out for validation or test {'is' if across == 1 else 'are'} "
        "also in the training part: the figures are too optimistic. Remove the copies, or use a "
        "split that keeps them together."
    )


def _contradictions(m: CardData) -> Finding:
    differing = m.data.duplicates.differing if m.data.duplicates else 0
    if not differing:
        return None
    what = {"multiclass": "classes", "multilabel": "labels", "regression": "values"}[m.task]
    return m.task != "regression", (
        f"{count(differing, m.one)} with copies in the data {'has' if differing == 1 else 'have'} "
        f"different {what} there: no model can be right about all of them. Correct or remove them."
    )


def _rare(m: CardData) -> Finding:
    counts = m.data.class_counts
    if m.task != "multiclass" or not sum(counts):
        return None
    share = min(counts) / sum(counts)
    if share >= min(0.1, 0.5 / len(counts)):
        return None
    rarest = m.named(shortened(m.names[counts.index(min(counts))], 40))
    rare = percent(share, unit=True)
    return True, f"Classes are imbalanced: {rare} of the {m.noun} are {rarest}."


def _explanations(m: CardData) -> Finding:
    if not no_better_than_random(m.all.saliency or {}):
        return None
    return True, (
        f"Do not rely on its explanations: on the validation {m.noun}, removing the most salient "
        "parts changed the predictions no more than removing random parts."
    )


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
    if m.members > 1:
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
