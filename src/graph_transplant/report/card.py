"""The card of a trained model: what it predicts, how well, and how far to trust it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from graph_transplant import __version__
from graph_transplant.experiments.verdict import NEAR_MAJORITY
from graph_transplant.figures import Drawn, shown
from graph_transplant.figures import card as charts
from graph_transplant.figures.parts import MANY
from graph_transplant.files import write_atomically
from graph_transplant.format import count, duration, number, percent, plain, units
from graph_transplant.metrics import METRICS
from graph_transplant.report.page import class_word, method_summary, render, shortened

MOST_CLASSES = 12
"""A confusion matrix with more classes than this is told as its most frequent mistakes."""

SMALL_TEST = 200
"""With fewer test graphs than this, the card says that its figures are rough."""

FAR_APART = 0.1
"""A test value so much below the validation value is named."""

_FLOOR = -1.0


def write_card(description: Mapping[str, Any], path: str | Path) -> None:
    """Write the card of a model, in one step.

    Args:
        description: The content of ``model.json``.
        path: The file.
    """
    write_atomically(Path(path), render_card(description))


def render_card(description: Mapping[str, Any]) -> str:
    """Make the card of a model from its description alone.

    Args:
        description: The content of ``model.json``.

    Returns:
        A whole HTML document that needs nothing else.
    """
    data, training = description["data"], description["training"]
    reading = description["reading"] or {}
    return render(
        "card.html",
        headline=_card_headline(description),
        dek=_card_summary(description),
        facts=_card_facts(description),
        notes=_card_notes(description),
        measures=_measure_rows(description),
        tested=bool(training["sizes"]["test"]),
        figures=_card_figures(description),
        curves=[one for one in _learning_figures(description) if one is not None],
        confusion=_confusion(description),
        mistakes=_mistakes(description),
        classes=_class_rows(description),
        data=data,
        split_words=_split_words(description),
        method=training["method"],
        about=method_summary(training["method"]),
        training_words=_training_words(description),
        limits=_limits(description),
        uses=_uses(description),
        columns=str(reading.get("smiles") or ""),
        command=_train_command(description),
        own_split=training["split"] not in ("random", "scaffold", "official"),
        settings=_settings(description),
        model_version=description["version"],
        noun=_noun(description),
        task=description["task"],
        version=__version__,
    )


def _noun(description: Mapping[str, Any], *, many: bool = True) -> str:
    reading = description["reading"] or {}
    word = "molecule" if reading.get("kind") == "molecules" else "graph"
    return word + ("s" if many else "")


def _targets(description: Mapping[str, Any]) -> list[str]:
    reading = description["reading"] or {}
    return [str(name) for name in reading.get("targets") or ()]


def _card_headline(description: Mapping[str, Any]) -> str:
    task, names = description["task"], description["label_names"]
    one = _noun(description, many=False)
    data = shortened(str(description["data"]["name"]), 40)
    targets = [shortened(name, 40) for name in _targets(description)]
    if task == "multiclass":
        what = targets[0] if targets else "the class"
        return f"Predicts {what} of a {one}, trained on {data}"
    if len(names) == 1:
        return f"Predicts {shortened(names[0], 40)} of a {one}, trained on {data}"
    kind = "labels" if task == "multilabel" else "values"
    return f"Predicts {len(names)} {kind} of a {one}, trained on {data}"


def _value(value: float | None, name: str) -> str:
    return units(value) if METRICS[name].form is units else number(value)


def _card_summary(description: Mapping[str, Any]) -> str:
    """The finding in plain words."""
    training, metrics = description["training"], description["metrics"]
    count, noun = training["sizes"]["test"], _noun(description)
    main = _main_measure(description)
    if not count or main is None:
        return (
            f"No {noun} were held out for testing: how good it is on new ones is not known beyond "
            "the validation figures below, which chose its weights."
        )
    value = metrics["test"][main]
    words = {
        "accuracy": f"{percent(value, 0, unit=True)} of its predictions are right",
        "auroc": (
            f"given one {_noun(description, many=False)} with the label and one without, it ranks "
            f"them rightly {round(100 * value)} times in 100"
        ),
        "average_precision": f"its average precision is {value:.3f}",
        "r2": f"it explains {percent(value, unit=True)} of the variation"
        if value > 0
        else "it is no better than always saying the mean",
    }[main]
    interval = metrics["intervals"].get(main)
    between = ""
    if interval and None not in interval:
        low, high = interval
        between = f" (95 % interval {_value(low, main)} to {_value(high, main)})"
    return (
        f"On {count:,} test {noun} that training never saw, {words}: "
        f"{METRICS[main].word} {_value(value, main)}{between}."
    )


def _main_measure(description: Mapping[str, Any]) -> str | None:
    test = description["metrics"]["test"]
    wanted = [description["training"]["metric"], "auroc", "r2", "accuracy", "average_precision"]
    plainly = ("accuracy", "auroc", "average_precision", "r2")
    return next((name for name in wanted if name in plainly and test.get(name) is not None), None)


def _card_facts(description: Mapping[str, Any]) -> list[tuple[str, str]]:
    training, data = description["training"], description["data"]
    kinds = {
        "multiclass": f"{len(description['label_names'])} classes",
        "multilabel": f"{count(len(description['label_names']), 'label')}, yes or no each",
        "regression": count(len(description["label_names"]), "number"),
    }
    sizes = training["sizes"]
    return [
        ("Predicts", kinds[description["task"]]),
        (_noun(description).capitalize(), f"{data['graphs']:,}"),
        (
            "Train, validation, test",
            f"{sizes['train']:,} / {sizes['validation']:,} / {sizes['test']:,}",
        ),
        ("Split", training["split"]),
        ("Network", f"{training['model']}, {count(training['layers'], 'layer')}"),
        ("Method", training["method"]),
    ]


def _card_notes(description: Mapping[str, Any]) -> list[str]:
    """What to know before the figures are trusted."""
    found = []
    sizes = description["training"]["sizes"]
    if 0 < sizes["test"] < SMALL_TEST:
        found.append(
            f"Only {count(sizes['test'], _noun(description, many=False))} were held out for "
            "testing: the figures are rough, see their intervals."
        )
    found += [*_gap(description), *_worse_calibration(description), *_near_majority(description)]
    counts = description["data"]["class_counts"]
    if description["task"] == "multiclass" and counts and sum(counts):
        rarest = min(counts) / sum(counts)
        if rarest < 0.1:
            name = shortened(description["label_names"][counts.index(min(counts))], 40)
            found.append(
                f"Classes are unequal: {percent(rarest, unit=True)} of the {_noun(description)} "
                f"are {name}. "
                f"Always saying the most frequent class would be right in "
                f"{percent(max(counts) / sum(counts), unit=True)} of the cases."
            )
    return found


def _gap(description: Mapping[str, Any]) -> Iterator[str]:
    """Say that the test value is far from the validation value."""
    main, metrics = _main_measure(description), description["metrics"]
    if main is None or metrics["validation"].get(main) is None:
        return
    test, validation = metrics["test"][main], metrics["validation"][main]
    if validation - test > FAR_APART:
        yield (
            f"It does worse on the test {_noun(description)} than on the validation ones: "
            f"{METRICS[main].word} {_value(test, main)} instead of {_value(validation, main)}. On "
            "new ones expect the lower value, or less."
        )


def _worse_calibration(description: Mapping[str, Any]) -> Iterator[str]:
    """Say that temperature scaling did harm on the test graphs."""
    metrics = description["metrics"]
    after, before = metrics["test"].get("ece"), metrics["test_uncalibrated"].get("ece")
    if after is not None and before is not None and after > before:
        yield (
            f"Calibration made confidence worse on the test {_noun(description)}: the calibration "
            f"error rose from {_value(before, 'ece')} to {_value(after, 'ece')}."
        )


def _near_majority(description: Mapping[str, Any]) -> Iterator[str]:
    """Say how often the largest class alone would be right, where that is nearly as often."""
    table = description["confusion"]
    total = sum(map(sum, table)) if table else 0
    accuracy = description["metrics"]["test"].get("accuracy")
    if not total or accuracy is None:
        return
    largest = max(map(sum, table)) / total
    if accuracy < largest + NEAR_MAJORITY:
        yield (
            f"{percent(accuracy, unit=True)} of its predictions are right; always saying the "
            f"largest class would be right in {percent(largest, unit=True)} of the test "
            f"{_noun(description)}."
        )


@dataclass(frozen=True)
class _Measure:
    """A row of the table of measurements, as text."""

    name: str
    test: str
    interval: str
    uncalibrated: str
    validation: str
    meaning: str


def _measure_rows(description: Mapping[str, Any]) -> list[_Measure]:
    metrics = description["metrics"]
    rows = []
    for key, metric in METRICS.items():
        if key not in metrics["test"] and key not in metrics["validation"]:
            continue
        interval = metrics["intervals"].get(key)
        known = bool(interval) and None not in interval
        rows.append(
            _Measure(
                name=metric.title,
                test=_value(metrics["test"].get(key), key),
                interval=f"{_value(interval[0], key)} to {_value(interval[1], key)}"
                if known
                else number(None),
                uncalibrated=_value(metrics["test_uncalibrated"].get(key), key),
                validation=_value(metrics["validation"].get(key), key),
                meaning=metric.definition,
            )
        )
    return rows


def _card_figures(description: Mapping[str, Any]) -> list[Drawn]:
    found = (
        _roc_figure(description),
        _scatter_figure(description),
        _reliability_figure(description),
    )
    return [one for one in found if one is not None]


def _sketch(
    name: str, title: str, caption: str, label: str, draw: Callable[[], Axes], data: pd.DataFrame
) -> Drawn | None:
    return shown(draw, name=name, title=title, caption=lambda: caption, label=label, data=data)


def _roc_figure(description: Mapping[str, Any]) -> Drawn | None:
    if not description["roc"]:
        return None
    curves = {class_word(name): curve for name, curve in description["roc"].items()}
    area = description["metrics"]["test"].get("auroc")
    label = f"ROC curve of {count(len(curves), 'label')} on the test {_noun(description)}."
    if area is not None:
        label += f" Area under the curve {area:.3f}."
    return _sketch(
        "roc",
        "How well does it rank?",
        "Going down the ranking, how many of those with the label are found and how many false "
        "alarms come with them. The dashed line is guessing."
        + (f" One curve for each of {len(curves)} labels." if len(curves) > MANY else ""),
        label,
        lambda: charts.roc(curves),
        pd.DataFrame(
            [(plain(name), *point) for name, curve in curves.items() for point in curve],
            columns=["label", "false_positive_rate", "true_positive_rate"],
        ),
    )


def _scatter_figure(description: Mapping[str, Any]) -> Drawn | None:
    points = description["scatter"]
    if not points:
        return None
    name = description["label_names"][0]
    within = (description["residual_90"] or [None])[0]
    caption = f"One dot per test {_noun(description, many=False)}; on the dashed line it is right."
    if within is not None:
        held = sum(abs(true - predicted) <= within for true, predicted in points) / len(points)
        caption += (
            f" Predictions are given with ±{within:.3g}, which holds for nine in ten "
            f"{_noun(description)} like the validation ones; here it holds for "
            f"{percent(held, 0, unit=True)}."
        )
    if len(description["label_names"]) > 1:
        caption += f" The first of {len(description['label_names'])} values is shown."
    true, predicted = zip(*points, strict=True)
    return _sketch(
        "predicted-measured",
        "Predicted and measured",
        caption,
        f"Predicted against measured {shortened(name, 60)} of {len(points)} test "
        f"{_noun(description)}.",
        lambda: charts.scatter(true, predicted, name=name),
        pd.DataFrame({"measured": true, "predicted": predicted}),
    )


def _reliability_figure(description: Mapping[str, Any]) -> Drawn | None:
    bins = description["reliability"]
    if not bins or not any(one["count"] for one in bins["after"]):
        return None
    metrics = description["metrics"]
    before, after = metrics["test_uncalibrated"].get("ece"), metrics["test"].get("ece")
    change = (
        f" Calibration error {_value(before, 'ece')} before, {_value(after, 'ece')} after."
        if before is not None and after is not None
        else ""
    )
    stages = {"after": bins["after"], "before": bins["before"]}
    return _sketch(
        "reliability",
        "Can its confidence be trusted?",
        "On the dashed line the model is right as often as it says. Below it the model is too sure "
        f"of itself. Filled is after its logits were divided by {description['temperature']:.2f}, "
        f"the temperature that fits the validation {_noun(description)} best, hollow is before; "
        "the area of a dot is the number of predictions.",
        f"Reliability on the test {_noun(description)}.{change}",
        lambda: charts.reliability_bins(stages),
        pd.concat([pd.DataFrame(own).assign(stage=stage) for stage, own in stages.items()]),
    )


def _learning_figures(description: Mapping[str, Any]) -> list[Drawn | None]:
    curve = pd.DataFrame(description["curve"])
    training = description["training"]
    metric = training["metric"]
    if curve.empty:
        return []
    best = training["best_epoch"]
    found: list[Drawn | None] = []
    if metric in METRICS and "validation_score" in curve and curve["validation_score"].count() > 1:
        # Before training has begun R² may be anywhere below zero: it would hide all the rest.
        scores = curve["validation_score"].clip(lower=_FLOOR)
        deep = bool((curve["validation_score"] < _FLOOR).any())
        title, word = METRICS[metric].title, METRICS[metric].word
        found.append(
            _sketch(
                "learning",
                "Learning",
                f"{title} on the validation {_noun(description)} by epoch. The weights of the best "
                "epoch were kept." + (" Values below −1 are drawn there." if deep else ""),
                f"Validation {word} by epoch. At epoch {curve['epoch'].iloc[-1]:g} it is "
                f"{scores.iloc[-1]:.3f}.",
                lambda: charts.learning_curve(
                    curve["epoch"], None, scores, best, title=f"Validation {word}",
                    form=lambda value: number(value, 2),
                ),
                curve[["epoch", "validation_score"]],
            )
        )  # fmt: skip
    losses = [name for name in ("train_loss", "validation_loss") if name in curve]
    if losses and curve[losses].count().sum() > 2:
        found.append(
            _sketch(
                "loss",
                "Loss",
                "What training makes smaller. With augmentation the training loss counts the mixed "
                "graphs too and lies higher.",
                "Training and validation loss by epoch.",
                lambda: charts.learning_curve(
                    curve["epoch"], curve.get("train_loss"), curve.get("validation_loss"), best
                ),
                curve[["epoch", *losses]],
            )
        )
    return found


@dataclass(frozen=True)
class _Cell:
    """A cell of the confusion matrix: a count, and its share of the row."""

    count: int
    share: str
    right: bool


def _confusion(description: Mapping[str, Any]) -> list[tuple[str, list[_Cell]]]:
    table, names = description["confusion"], description["label_names"]
    if not table or len(names) > MOST_CLASSES:
        return []
    return [
        (
            class_word(names[row]),
            [
                _Cell(count, f"{count / max(sum(counts), 1):.3f}", row == column)
                for column, count in enumerate(counts)
            ],
        )
        for row, counts in enumerate(table)
    ]


def _mistakes(description: Mapping[str, Any]) -> list[tuple[str, str, int]]:
    table, names = description["confusion"], description["label_names"]
    if not table or len(names) <= MOST_CLASSES:
        return []
    wrong = [
        (class_word(names[row]), class_word(names[column]), count)
        for row, counts in enumerate(table)
        for column, count in enumerate(counts)
        if row != column and count
    ]
    return sorted(wrong, key=lambda mistake: -mistake[2])[:10]


def _class_rows(description: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Name, number and share of the graphs of each class or label."""
    data, names = description["data"], description["label_names"]
    counts = data["class_counts"]
    # A label that was not measured is neither there nor absent.
    wholes = data["measured"] or [sum(counts)] * len(counts)
    if len(counts) != len(names) or len(wholes) != len(names) or not any(wholes):
        return []
    rows = [
        (
            class_word(name),
            f"{count:,}",
            percent(count / whole, unit=True) if whole else number(None),
        )
        for name, count, whole in zip(names, counts, wholes, strict=True)
    ]
    if len(rows) <= 2 * MOST_CLASSES:
        return rows
    rest = count(len(rows) - MOST_CLASSES, "further class").replace("classs", "classes")
    return [*rows[:MOST_CLASSES], (rest, "", "")]


def _split_words(description: Mapping[str, Any]) -> str:
    noun = _noun(description)
    return {
        "random": (
            f"Validation and test {noun} were drawn at random, with every class in proportion. "
            f"They resemble the training {noun}: expect less on {noun} of a new kind."
        ),
        "scaffold": (
            "Molecules that share a Bemis–Murcko scaffold are all in the same part: test molecules "
            "have scaffolds that training never saw, which is closer to new chemistry than a "
            "random split."
        ),
        "official": f"The split that the data set is published with decides which {noun} are "
        "trained on.",
    }.get(description["training"]["split"], "The parts were given by whoever trained the model.")


def _training_words(description: Mapping[str, Any]) -> str:
    training = description["training"]
    ended = (
        "training stopped early because nothing improved"
        if training["stopped_early"]
        else "training ran to its last epoch"
    )
    chosen = (
        METRICS[training["metric"]].word if training["metric"] in METRICS else "the lowest loss"
    )
    return (
        f"Of {count(training['epochs_run'], 'epoch')} the weights of epoch "
        f"{training['best_epoch']} were kept, the best by {chosen} on the validation "
        f"{_noun(description)}; {ended}. It took {duration(training['seconds'])}."
        + (" Every class was drawn equally often." if training["balance"] else "")
    )


def _limits(description: Mapping[str, Any]) -> list[str]:
    data, reading = description["data"], description["reading"] or {}
    noun = _noun(description)
    found = [
        (
            f"It has learned from {noun} with {data['mean_nodes']:.0f} "
            f"{'atoms' if noun == 'molecules' else 'nodes'} on average. Others, much larger or of "
            "another kind, may be predicted wrongly and with high confidence."
        ),
        (
            "One training run with one seed was measured. The intervals say how much the figures "
            f"hang on which test {noun} were drawn, not how much another run would differ."
        ),
    ]
    if reading.get("features") == "elements" and reading.get("elements"):
        elements = ", ".join(str(element) for element in reading["elements"])
        found.append(f"It knows the elements {shortened(elements, 200)} and refuses others.")
    if description["task"] != "regression":
        found.append(
            f"Probabilities were calibrated on {description['training']['sizes']['validation']:,} "
            f"validation {noun} and hold for {noun} like those."
        )
    if data["skipped"]:
        found.append(
            f"{count(data['skipped'], 'row')} of the data could not be used; skipped.csv lists "
            "them."
        )
    found.append(
        "Saliency, as the command explain draws it, shows what the model looks at. It does not "
        "show what causes the property."
    )
    return found


def _uses(description: Mapping[str, Any]) -> list[str]:
    reading = description["reading"] or {}
    fresh = shlex.quote(str(description["data"]["source"]))
    if reading.get("kind") == "molecules":
        # An SDF has no column of structures; a data set of OGB has no columns at all.
        fresh = "new.csv" if reading.get("smiles") or "smiles" not in reading else "new.sdf"
    elif reading.get("kind") == "graphs":
        fresh = "new.jsonl"
    return [
        f"graph-transplant predict MODEL {fresh} --out predictions.csv",
        f"graph-transplant explain MODEL {fresh} --out explain.html",
    ]


def _train_command(description: Mapping[str, Any]) -> list[str]:
    """The command that trains this model again: every option that decides about the weights."""
    training, reading = description["training"], description["reading"] or {}
    options: dict[str, Any] = {}
    if reading.get("smiles"):
        options["smiles"] = reading["smiles"]
    if _targets(description):
        options["target"] = ",".join(_targets(description))
    if reading.get("id"):
        options["id"] = reading["id"]
    # Only what is read row by row has these; an SDF has no column of structures.
    if reading.get("features") and "smiles" in reading:
        options["features"] = reading["features"]
    if _targets(description):
        options["task"] = description["task"]
    names = ("method", "model", "layers", "hidden", "readout", "dropout", "epochs", "batch_size")
    options |= {name.replace("_", "-"): training[name] for name in names}
    options["learning-rate"] = training["learning_rate"]
    if training["split"] in ("random", "scaffold", "official"):
        options["split"] = training["split"]
    options |= {
        name: training[name] for name in ("validation", "test") if training[name] is not None
    }
    # Where there are no classes, training by accuracy goes by the loss.
    options["metric"] = "accuracy" if training["metric"] == "loss" else training["metric"]
    options["seed"] = training["seed"]
    command = shlex.join(["graph-transplant", "train", str(description["data"]["source"])])
    flags = ["--balance"] if training["balance"] else []
    return [
        command,
        *(f"--{name} {shlex.quote(str(value))}" for name, value in options.items()),
        *flags,
    ]


def _settings(description: Mapping[str, Any]) -> list[tuple[str, str]]:
    training, data = description["training"], description["data"]
    return [
        ("Convolution", training["model"]),
        ("Layers", str(training["layers"])),
        ("Width", str(training["hidden"])),
        ("Readout", training["readout"]),
        ("Dropout", f"{training['dropout']:g}"),
        ("Batch size", str(training["batch_size"])),
        ("Learning rate", f"{training['learning_rate']:g}"),
        ("Most epochs", str(training["epochs"])),
        ("Chosen by", training["metric"]),
        ("Balanced classes", "yes" if training["balance"] else "no"),
        ("Seed", str(training["seed"])),
        ("Temperature", f"{description['temperature']:.3f}"),
        ("Node features", str(data["node_features"])),
        ("Edge features", str(data["edge_features"])),
    ]
