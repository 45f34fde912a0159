"""Write the results in README and docs, and summary.csv, from the records in results/full.

    python -m reproduction.results_page             # after new records
    python -m reproduction.results_page --check     # say whether pages and records agree

What stands between the marks ``<!-- NAME -->`` and ``<!-- end -->`` of a page is replaced.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import matplotlib as mpl
import pandas as pd

import graph_transplant as gt
from graph_transplant.methods import METHODS
from graph_transplant.utils.text import capital, listed, number, p_value
from reproduction.across import HYPOTHESES, LIKELY, Outcome, new_alone, outcomes
from reproduction.across import rows as differences_by_data
from reproduction.claims import (
    ECE,
    LEAST,
    MAIN,
    RECORDS,
    WORDS,
    Claim,
    Finding,
    beside_networks,
    claims,
    compared,
    controls,
    family,
    methods_of,
    metric,
    of_paper,
    results,
    scores,
)
from reproduction.evidence import QUEUE

ROOT = Path(__file__).resolve().parent.parent
ENSEMBLES = ROOT / "results" / "ensembles"
BENCH = ROOT / "results" / "bench.json"
DETAILS = ROOT / "docs" / "results-details.md"
PAGES = [ROOT / "README.md", ROOT / "docs" / "results.md", DETAILS]
FIGURE = ROOT / "docs" / "_static" / "results.svg"
DP = "transplant-dp"


def difference(value: float | None, measure: str = "accuracy") -> str:
    """A difference in points, or in units of ECE."""
    if value is None:
        return ""
    return number(value, sign=True) if measure in ECE else number(100 * value, 1, sign=True)


def table(heads: str, rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown below a line of heads."""
    lines = [heads, "|---" * (heads.count("|") - 1) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(cells) + " |" for cells in rows)])


def tested(finding: Finding) -> list[str]:
    """Difference, interval, p-values and folds."""
    claim, test = finding.claim, finding.test
    gap, low, high = (
        difference(value, claim.measure) for value in (test.difference, test.ci_low, test.ci_high)
    )
    folds = f"{test.pairs}" if test.pairs >= claim.planned else f"{test.pairs} of {claim.planned}"
    return [gap, f"{low} to {high}", p_value(test.p_value), p_value(finding.p_holm), folds]


def unbroken(cells: Iterable[str]) -> list[str]:
    """Cells that keep a row on one line, also where the page is narrow."""
    return [cell.replace(" ", "\N{NO-BREAK SPACE}") for cell in cells]


def claims_table() -> str:
    """One row per tested claim."""
    rows = []
    for finding in claims():
        claim = finding.claim
        said = difference(claim.published, claim.measure)
        said = said or ("below" if claim.sign < 0 else "above")
        cells = [claim.title, claim.data, said, *tested(finding), finding.verdict]
        rows.append(unbroken(cells))
    heads = "| claim | data | published | measured | 95 % interval | p alone | p | folds | |"
    return table(heads, rows)


def untested() -> str:
    """The other claims, by name."""
    done = {finding.claim for finding in claims()}
    names = [f"{claim.title}, {claim.data}" for claim in of_paper() if claim not in done]
    return f"Not tested (fewer than {LEAST} folds are finished): {'; '.join(names)}."


def controls_table() -> str:
    """One row per control, data set and measure."""
    rows = []
    for measure in ("score", "attacked"):
        for finding in controls(measure):
            claim = finding.claim
            cells = [claim.title, claim.data, claim.other, difference(claim.published)]
            rows.append(unbroken([*cells, *tested(finding), finding.word]))
    heads = "| | data | against | published | measured | 95 % interval | p alone | p | folds | |"
    return table(heads, rows)


def attacks_table() -> str:
    """Graph Transplant against plain training and controls, under both attacks."""
    rows = []
    for data in ("ENZYMES", "NCI1", "Mutagenicity"):
        for method in ("transplant-dp", "transplant-ep"):
            for other in ("vanilla", "drop-nodes", "label-smoothing"):
                clean, stated, stronger = (
                    [scores(data, name, measure) for name in (method, other)]
                    for measure in ("accuracy", "attacked", "stronger")
                )
                lost = [stated[index] - clean[index] for index in (0, 1)]
                tests = [compared(*pair) for pair in (stated, stronger, lost)]
                if tests[0].pairs < LEAST:
                    continue
                cells = [(difference(test.difference), p_value(test.p_value)) for test in tests]
                folds = str(tests[0].pairs)
                rows.append([data, WORDS[method], f"`{other}`", *sum(cells, ()), folds])
    return table("| data | | against | as stated | p | ours | p | loss | p | folds |", rows)


def methods_table(directories: Iterable[str]) -> str:
    """Every method of some directories: mean and deviation, and the difference to the first."""
    rows = []
    for directory in directories:
        found = results(directory)
        depths = sorted({one.layers for one in found.groups if one.layers}) if found else []
        for layers in depths if len(depths) > 1 else [None]:
            label = f"{directory}, {layers} layers" if layers else directory
            rows += [[label, *cells] for cells in method_rows(directory, layers)]
    heads = (
        "| data | method | score | difference to `vanilla` | p alone | ECE | ECE, scaled | folds |"
    )
    return table(heads, rows)


def method_rows(directory: str, layers: int | None) -> Iterator[list[str]]:
    """The cells of every method of a directory, best first."""
    own = {name: scores(directory, name, "score", layers) for name in methods_of(directory)}
    own = {name: values for name, values in own.items() if len(values)}
    base = own.get("vanilla", pd.Series(dtype=float))
    if len(base):  # the same folds, so that means and differences agree
        own = {name: values[values.index.isin(base.index)] for name, values in own.items()}
    # Means over fewer repeats cannot be compared with the others and come last.
    order = sorted(own.items(), key=lambda one: (-(len(one[1]) // LEAST), -one[1].mean()))
    for name, mine in order:
        paired = compared(mine, base)
        errors = []
        for measure in ("ece", "scaled"):
            ece = scores(directory, name, measure, layers)
            ece = ece[ece.index.isin(mine.index)]
            errors.append(f"{ece.mean():.3f}" if len(ece) else "")
        enough = name != "vanilla" and paired.pairs >= LEAST
        gap = difference(paired.difference) if enough else ""
        p = p_value(paired.p_value) if enough and name != "majority" else ""
        spread = f" ± {mine.std():.3f}" if len(mine) > 1 else ""
        yield [f"`{name}`", f"{mine.mean():.3f}{spread}", gap, p, *errors, str(len(mine))]


def rivals_table() -> str:
    """Methods without a network against the best network."""
    rows = []
    for finding in beside_networks():
        claim = finding.claim
        against = f"{claim.other} ({claim.elsewhere})"
        cells = [data_name(claim.directory), claim.kind, claim.method, against, *tested(finding)]
        rows.append(unbroken([*cells, finding.word]))
    heads = "| data | | | best network | difference | 95 % interval | p alone | p | folds | |"
    return table(heads, rows)


def ensembles_table() -> str:
    """Trained models of several networks, with a random forest on the same split."""
    rows = []
    for path in sorted(ENSEMBLES.glob("*.json")):
        found = json.loads(path.read_text(encoding="utf-8"))
        training, metrics = found["training"], found["metrics"]
        low, high = metrics["intervals"]["auroc"]
        rows.append([
            f"{found['data']}, {training['split']} split",
            f"`{training['method']}`, {training['ensemble']} networks",
            f"{metrics['test']['auroc']:.3f}",
            f"{low:.3f} to {high:.3f}",
            f"{metrics['test']['ece']:.3f}",
            f"{metrics['forest']['auroc']:.3f}",
        ])  # fmt: skip
    return table("| data | model | test AUROC | 95 % interval | ECE | random forest |", rows)


def commands() -> str:
    """The comparisons behind the tables, without runs that another one covers."""
    whole = [
        one for one in QUEUE if not any(other is not one and other.covers(one) for other in QUEUE)
    ]
    lines = [shlex.join(["graph-transplant", *one.command]) for one in whole]
    return "\n".join(["```text", *lines, "```"])


# ------------------------------------------------------------------------------ sentences


KNOWN = ("significant", "not significant after correction", "practically equal", "not shown")


def data_name(directory: str) -> str:
    """The data set of a directory, in words."""
    if directory == "BACE-strong":
        return "BACE with scaffold folds"
    return directory.removesuffix("-strong").removesuffix("-classical")


def with_interval(finding: Finding) -> str:
    """A data set with its difference and interval."""
    gap, interval, *_ = tested(finding)
    return f"{data_name(finding.claim.directory)} ({gap}, {interval})"


def by_word(findings: Iterable[Finding]) -> str:
    """What is known, strongest first: "significant on A (…) and B (…); not shown on C (…)"."""
    groups: dict[str, list[str]] = {word: [] for word in KNOWN}
    for finding in findings:
        groups[finding.word].append(with_interval(finding))
    return "; ".join(f"{word} on {listed(names)}" for word, names in groups.items() if names)


def out_of(number: int, total: int) -> str:
    """How many of several."""
    if number in (0, total):
        return f"none of {total}" if not number else f"all {total}"
    return f"{number} of {total}"


def wrapped(text: str, first: str = "", rest: str = "") -> str:
    """Lines of at most 120 characters, as in the rest of the pages."""
    return textwrap.fill(
        text, 120, initial_indent=first, subsequent_indent=rest,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def bullet(text: str) -> str:
    """A paragraph of a list."""
    return wrapped(text, "- ", "  ")


def in_words(findings: Iterable[Finding]) -> str:
    """Claims of the paper with their differences, those of one kind together."""
    groups: dict[str, list[str]] = {}
    for finding in findings:
        claim = finding.claim
        where = {"accuracy": "in accuracy", "attacked": "under attack"}.get(
            claim.kind, f"in {'calibration error (ECE)' if claim.kind == 'ECE' else claim.title}"
        )
        network = f" with {claim.model.upper()}" if claim.model != "gcs" else ""
        unit = "" if claim.measure in ECE else " points"
        told = f"{claim.data}{network} ({tested(finding)[0]}{unit})"
        groups.setdefault(f"{WORDS[claim.method]} {where} on", []).append(told)
    return "; ".join(f"{what} {listed(names)}" for what, names in groups.items())


def counted() -> str:
    """How many claims are reproduced, and which."""
    found = {
        word: [one for one in claims() if one.verdict == word]
        for word in ("reproduced", "in sign", "other sign", "contradicted")
    }
    reproduced, refuted = found["reproduced"], found["contradicted"]
    what = f": {in_words(reproduced)}" if reproduced else ""
    text = (
        f"Of the {len(claims())} claims of the paper that are tested so far, {len(reproduced)} "
        "are **reproduced** (the published sign, significant after Holm's correction for the "
        f"number of claims){what}. Another {len(found['in sign'])} are **in sign** (the published "
        f"sign, not significant), and {len(found['other sign'])} have the other sign, not "
        "significantly either."
    )
    if refuted:
        text += f" Contradicted, significantly, are {in_words(refuted)}."
    inside = [
        finding.test.ci_low <= finding.claim.published <= finding.test.ci_high
        for finding in claims()
        if finding.claim.measure != "ece" and finding.claim.published is not None
    ]
    return (
        f"{text} {capital(out_of(sum(inside), len(inside)))} published differences in accuracy, "
        "attacked or not, lie within the measured 95 % intervals."
    )


def summary() -> str:
    """Claims and cautions in a few lines."""
    dropped = [one for one in controls("score") if one.claim.other == "drop-nodes"]
    beside = beside_networks()
    sure = [one for one in beside if one.significant]
    ahead = [one for one in sure if one.test.difference > 0]
    won = [f"{METHODS[one.claim.method].words} on {with_interval(one)}" for one in ahead]
    caution = (
        f"Two cautions. DP's difference to dropping random nodes is {by_word(dropped)}. And of "
        f"{len(beside)} comparisons of a method without a network with the best network, "
        f"{len(ahead)} {'is' if len(ahead) == 1 else 'are'} significant in its favour"
        f"{': ' + listed(won) if won else ''}; {len(sure) - len(ahead)} in favour of the network; "
        f"in {len(beside) - len(sure)}, a difference is not shown."
    )
    return f"{wrapped(counted())}\n\n{wrapped(caution)}"


def controls_list() -> str:
    """What each control leaves open, on test graphs as they are."""
    found = controls("score")
    significant = out_of(sum(one.significant for one in found), len(found))
    lines = [wrapped(f"Significant after correction: {significant}."), ""]
    for name, method in METHODS.items():
        own = [one for one in found if one.claim.other == name]
        if not own:
            continue
        text = (
            f"**{capital(listed(method.controls))}** (`{name}`). {WORDS[own[0].claim.method]}'s "
            f"difference to it is {by_word(own)}."
        )
        alone = family(Claim(one.claim.kind, one.claim.data, name, measure="score") for one in own)
        if alone:
            text += f" The control against plain training: {listed([*map(with_interval, alone)])}."
        lines.append(bullet(text))
    return "\n".join(lines)


def attacked_list() -> str:
    """Differences under attack: to plain training, as stated and under ours; to the controls."""
    against = controls("attacked")
    plain = family(
        Claim("attacked", data, method, measure=measure)
        for measure in ("attacked", "stronger")
        for method in (DP, "transplant-ep")
        for data in MAIN
    )

    def to_plain(measure: str) -> str:
        own = [one for one in plain if one.claim.measure == measure]
        methods = dict.fromkeys(one.claim.method for one in own)
        return "; ".join(
            f"for {WORDS[name]}, {by_word(one for one in own if one.claim.method == name)}"
            for name in methods
        )

    significant = out_of(sum(one.significant for one in against), len(against))
    lines = [
        (
            "**As the paper states the attack**, the differences to plain training are, "
            f"{to_plain('attacked')}."
        ),
        f"**Under our attack**, which wastes none of its budget, they are, {to_plain('stronger')}.",
        f"**Against the controls**, as stated, significant after correction: {significant}.",
    ]
    for name, method in METHODS.items():
        own = [one for one in against if one.claim.other == name]
        if own:
            lines.append(
                f"**{capital(listed(method.controls))}** (`{name}`). "
                f"{WORDS[own[0].claim.method]}'s difference to it is {by_word(own)}."
            )
    return "\n".join(map(bullet, lines))


def cheaper_list() -> str:
    """What costs less than DP: how long a step takes, and what is known of the difference."""
    steps = json.loads(BENCH.read_text(encoding="utf-8"))["methods"]
    lines = []
    for name in ("transplant-light", "transplant-cut", "drop-nodes", "label-smoothing"):
        times = [
            f"{measured['ratios'][name]['step'] / measured['ratios'][DP]['step']:.2f} on {data}"
            for data, measured in steps.items()
            if name in measured["ratios"]
        ]
        own = [one for one in controls("score") if one.claim.other == name]
        took = f" A step takes {listed(times)} of one of DP." if times else ""
        if own:
            lines.append(f"**`{name}`**: DP's difference to it is {by_word(own)}.{took}")
    beside = [
        f"{METHODS[one.claim.method].words} is {one.word} on {with_interval(one)}"
        for one in beside_networks()
    ]
    lines.append(
        "**Methods without a network**, against the network with the highest mean on the same "
        f"folds. The difference of {'; of '.join(beside)}."
    )
    return "\n".join(map(bullet, lines))


ACROSS = {
    "vanilla": "plain training",
    "transplant-cut": "`transplant-cut` (lost nodes and soft labels)",
    "transplant-light": "`transplant-light` (no saliency)",
    "drop-nodes": "`drop-nodes`",
    "label-smoothing": "`label-smoothing`",
}


def across_table() -> str:
    """One row per data set: the differences that hypotheses across data sets are about."""
    tested = [one for one in HYPOTHESES if not one.bayesian]
    heads = [
        f"{WORDS[one.method]} − `{one.other}`{', attacked' if one.measure == 'attacked' else ''}"
        for one in tested
    ]
    lines = [
        [data, *("" if gap is None else number(gap, 1, sign=True) for gap in gaps)]
        for data, gaps in differences_by_data()
    ]
    return table(f"| data | {' | '.join(heads)} |", lines)


def across_list() -> str:
    """What is shown across data sets; until all is measured, how much is."""
    found = outcomes()
    if found[0].p_value is None:
        missing = [
            f"{one.hypothesis.name} {len(one.gaps)} of {len(one.hypothesis.data)}" for one in found
        ]
        return wrapped(
            "The tests are made once, when every difference is measured; until then the table "
            "below is a description. Data sets measured so far, by hypothesis: "
            f"{', '.join(missing)}."
        )
    return "\n".join(bullet(across_sentence(one)) for one in found)


def across_sentence(found: Outcome) -> str:
    """A hypothesis in words: what is shown, median, interval, p, and the Bayesian test."""
    one = found.hypothesis
    place = f"{'attacked, ' if one.measure == 'attacked' else ''}{len(found.gaps)} data sets"
    what = f"**{WORDS[one.method]} against {ACROSS[one.other]}** ({place})"
    chances = (
        f"better by more than a point with probability {found.above:.2f}, practically equal "
        f"{found.within:.2f}, worse by more than a point {found.below:.2f}"
    )
    if one.bayesian:
        holds = "holds" if found.above < 1 - LIKELY else "is not shown"
        return f"{what}: that {ACROSS[one.other]} is at most one point below {holds} ({chances})."
    low, high = (number(value, 1, sign=True) for value in (found.low, found.high))
    word = "significant" if found.significant else "not shown"
    side = "one-sided" if one.greater else "two-sided"
    text = (
        f"{what}: median {number(found.difference, 1, sign=True)} points ({low} to {high}), {word} "
        f"(Wilcoxon, {side}: p = {p_value(found.p_value)}, corrected {p_value(found.p_holm)}); "
        f"{chances}."
    )
    if one.family == "1":
        text += f" On the new data sets alone, p = {p_value(new_alone(found))}."
    return text


def strong() -> list[Finding]:
    """DP against plain training, both with the strong recipe."""
    folders = dict.fromkeys(run.directory for run in QUEUE if run.directory.endswith("-strong"))
    return family(Claim(metric(folder), folder, DP, measure="score") for folder in folders)


def recipes() -> list[Finding]:
    """Plain training with the strong recipe against that with the paper's network."""
    return family(
        Claim(
            "accuracy", f"{data}-strong", "vanilla", "vanilla", "score", elsewhere=data
        )
        for data in ("ENZYMES", "NCI1")
    )  # fmt: skip


def beyond() -> str:
    """What the comparisons outside the paper's claims say."""
    scaled = family(
        Claim("ECE", data, "transplant-ep", measure="scaled")
        for data in ("ENZYMES", "Mutagenicity", "COIL-DEL")
    )
    epochs = [
        f"{data} {' and '.join(f'{best_epoch(data, name):.0f}' for name in ('vanilla', DP))}"
        for data in MAIN
        if {"vanilla", DP} <= {*methods_of(data)}
    ]
    lines = (
        (
            "**A strong recipe** (`--recipe strong`, {doc}`networks`). DP's difference to plain "
            f"training with it is {by_word(strong())}. Plain training with it against plain "
            f"training with the paper's network: {by_word(recipes())}."
        ),
        (
            "**Calibration.** After one temperature is fitted on validation graphs, as `train` "
            f"does, EP's difference in ECE to plain training is {by_word(scaled)}."
        ),
        (
            f"**Budget.** Best epochs of plain training and DP, on average: {'; '.join(epochs)}. "
            "With a small limit, DP may be stopped too early."
        ),
    )
    return "\n".join(map(bullet, lines))


def best_epoch(directory: str, method: str) -> float:
    """The mean best epoch of a method."""
    return float(scores(directory, method, "best_epoch").mean())


def remarks() -> str:
    """What else the records of the paper's network say."""
    ties = compared(scores("COIL-DEL-ties", DP, "score"), scores("COIL-DEL", DP, "score"))
    low, high = difference(ties.ci_low), difference(ties.ci_high)
    psi = [
        f"{100 * value:.0f} % ({data})"
        for data in MAIN
        if (value := psi_accuracy(data)) is not None
    ]
    return wrapped(
        "In `COIL-DEL-ties`, epochs with an equal validation score reset the patience, as in the "
        f"released code: the difference for DP is {difference(ties.difference)} points ({low} to "
        f"{high}). At the end of training, ψ classifies on average {listed(psi)} of pairs of "
        "validation graphs correctly."
    )


def psi_accuracy(directory: str) -> float | None:
    """Mean accuracy of the edge predictor on validation graphs, at the end of training."""
    found = results(directory)
    last = [
        record["curve"][-1]["measurements"]["edge_predictor_accuracy"]
        for record in (found.records if found else ())
        if record["method"] == "transplant-ep"
    ]
    return sum(last) / len(last) if last else None


DIRECTORIES = tuple(dict.fromkeys(run.directory for run in QUEUE))
OTHERS = tuple(name for name in DIRECTORIES if name.endswith(("-strong", "-classical")))

PARTS: dict[str, Callable[[], str]] = {
    "summary": summary,
    "claims": claims_table,
    "counted": lambda: wrapped(counted()),
    "untested": untested,
    "across": across_list,
    "differences": across_table,
    "controlled": controls_list,
    "attacked": attacked_list,
    "cheaper": cheaper_list,
    "beyond": beyond,
    "controls": controls_table,
    "attacks": attacks_table,
    "methods": lambda: methods_table(name for name in DIRECTORIES if name not in OTHERS),
    "remarks": remarks,
    "strong": lambda: methods_table(OTHERS),
    "rivals": rivals_table,
    "ensembles": ensembles_table,
    "commands": commands,
}


def page(text: str) -> str:
    """A page with its tables made anew."""

    def anew(match: re.Match[str]) -> str:
        return f"<!-- {match[1]} -->\n\n{PARTS[match[1]]()}\n\n<!-- end -->"

    return re.sub(r"<!-- (\w+) -->\n.*?<!-- end -->", anew, text, flags=re.DOTALL)


def draw() -> None:
    """Published and measured differences of accuracy and attack, one row per claim."""
    from matplotlib.figure import Figure

    mpl.rcParams.update({"svg.hashsalt": "results", "svg.fonttype": "none", "font.size": 9})
    rows = [one for one in claims() if one.claim.measure != "ece" and one.claim.other == "vanilla"]
    figure = Figure(figsize=(7.2, 0.9 + 0.3 * len(rows)), layout="constrained")
    axes = figure.subplots()
    for index, one in enumerate(reversed(rows)):
        claim, test = one.claim, one.test
        centre, low, high = (100 * v for v in (test.difference, test.ci_low, test.ci_high))
        colour, word = ("#35618f", ", significant") if one.significant else ("#9db4cc", "")
        axes.plot([low, high], [index, index], color=colour, linewidth=1.6)
        axes.plot(centre, index, "o", color=colour, label=f"measured{word}")
        if claim.published is not None:
            axes.plot(
                100 * claim.published, index, "D", color="none", markeredgecolor="#b5482a",
                label="published",
            )  # fmt: skip
    names = [f"{one.claim.data}, {one.claim.title}" for one in reversed(rows)]
    axes.set_yticks(range(len(rows)), names)
    axes.margins(y=0.1)
    axes.axvline(0, color="#888888", linewidth=0.8)
    axes.set_xlabel("difference in points")
    axes.spines[["top", "right", "left"]].set_visible(False)
    handles = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    figure.legend(
        handles.values(), handles.keys(), frameon=False, loc="outside upper center", ncols=3
    )
    figure.savefig(FIGURE, metadata={"Date": None})


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only compare pages and records")
    check = parser.parse_args().check
    for path in PAGES:
        before = path.read_text(encoding="utf-8")
        after = page(before)
        if check and after != before:
            sys.exit(f"{path} is not what the records say")
        path.write_text(after, encoding="utf-8")
    if not check:
        draw()
        for folder in RECORDS.iterdir():
            (folder / "summary.csv").write_text(gt.read_results(folder).to_csv(), encoding="utf-8")


if __name__ == "__main__":
    main()
