"""Write the tables of the results pages and summary.csv from the records in results/full.

    python benchmarks/results_page.py             # after new records
    python benchmarks/results_page.py --check     # say whether pages and records agree

What stands between the marks ``<!-- NAME -->`` and ``<!-- end -->`` of a page is replaced.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import matplotlib as mpl
import pandas as pd
from evidence import QUEUE

import graph_transplant as gt
from graph_transplant.experiments.statistics import Paired, holm, paired_test
from graph_transplant.format import number, p_value, p_words
from graph_transplant.paper.published import published

ROOT = Path(__file__).resolve().parent.parent
RECORDS = ROOT / "results" / "full"
ENSEMBLES = ROOT / "results" / "ensembles"
PAGES = [ROOT / "docs" / name for name in ("results.md", "results-details.md")]
FIGURE = ROOT / "docs" / "_static" / "results.svg"
KEYS = ["repeat", "fold"]
LEAST = 5  # folds; fewer test nothing
TEST_TO_TRAIN = 1 / 3  # of five folds one tests and one validates
ATTACK = 0.2  # share of the mean number of edges in the paper's Table 3
ATTACKS = {"attacked": "as_stated", "stronger": "accuracy"}  # columns of attacked accuracies


@dataclass(frozen=True)
class Claim:
    """One claim of the paper: a method differs from another in a measure, on a data set."""

    kind: str
    data: str
    method: str
    experiment: str
    measure: str = "accuracy"
    other: str = "vanilla"
    model: str = "gcs"
    sign: int = 1  # what the paper says where it gives a chart without numbers

    @property
    def title(self) -> str:
        """What is claimed, in short."""
        network = self.model.upper() if self.model != "gcs" else ""
        return ", ".join(part for part in (self.kind, WORDS[self.method], network) if part)

    @property
    def directory(self) -> str:
        """Where the records are."""
        return self.data if self.model == "gcs" else f"{self.data}-{self.model}"

    @property
    def published(self) -> float | None:
        """The published difference."""
        both = [
            published(self.experiment, self.data, self.model, name)
            for name in (self.method, self.other)
        ]
        means = [None if one is None else one.mean for one in both]
        return None if means[0] is None or means[1] is None else means[0] - means[1]

    @property
    def expected(self) -> int:
        """The published sign."""
        gap = self.published
        return self.sign if gap is None else (1 if gap > 0 else -1)


WORDS = {
    "transplant-dp": "DP",
    "transplant-ep": "EP",
    "transplant-disconnected": "no new edges",
    "transplant-size-label": "labels by size",
    "transplant-scattered": "scattered nodes",
    "transplant-random": "random anchors",
}


def claims() -> Iterator[Claim]:
    """Every claim of the paper that the queue of measurements serves."""
    for data in ("COIL-DEL", "ENZYMES", "NCI1", "Mutagenicity", "COLLAB"):
        for method in ("transplant-dp", "transplant-ep"):
            yield Claim("accuracy", data, method, "table1")
    for method in ("transplant-dp", "transplant-ep"):
        yield Claim("accuracy", "ENZYMES", method, "table1", model="gin")
    for data in ("ENZYMES", "Mutagenicity", "COIL-DEL"):
        yield Claim("ECE", data, "transplant-ep", "table4-calibration", "ece")
    for data in ("ENZYMES", "Mutagenicity", "NCI1"):
        experiment = "table3-robustness"
        yield Claim("attacked", data, "transplant-ep", experiment, "attacked")
    for method in list(WORDS)[2:]:
        yield Claim("ablation", "ENZYMES", method, "ablation", other="transplant-ep", sign=-1)


def controls() -> Iterator[Claim]:
    """Graph Transplant against simpler methods that share a part of it."""
    for kind, measure, experiment, sets in (
        ("accuracy", "accuracy", "table1", ("COIL-DEL", "ENZYMES", "NCI1", "Mutagenicity")),
        ("attacked", "attacked", "table3-robustness", ("ENZYMES", "NCI1", "Mutagenicity")),
    ):
        for data in sets:
            for other in ("drop-nodes", "label-smoothing"):
                if (data, other) != ("Mutagenicity", "drop-nodes"):  # not in the queue
                    yield Claim(kind, data, "transplant-dp", experiment, measure, other)
        yield Claim(kind, "ENZYMES", "transplant-ep", experiment, measure, "saliency-shuffled")


@cache
def results(directory: str) -> gt.Results | None:
    """The finished trials of a directory, if there are any."""
    folder = RECORDS / directory
    return gt.read_results(folder) if (folder / "records.jsonl").exists() else None


def scores(directory: str, method: str, measure: str, model: str | None = None) -> pd.Series:
    """A measure of a method by repeat and fold; empty where nothing was measured."""
    trials = results(directory)
    nothing = pd.Series(dtype=float)
    if trials is None:
        return nothing
    frame, column = trials.frame, measure
    if measure in ATTACKS:
        frame, column = trials.long("attacked"), ATTACKS[measure]
        if "budget" not in frame:
            return nothing
        frame = frame[frame["budget"] == ATTACK]
    elif measure == "scaled":
        frame, column = trials.wide("calibrated"), "ece"
    if column not in frame:
        return nothing
    rows = (frame["method"] == method) & (frame["model"].eq(model) if model else True)
    found = frame[rows].set_index(KEYS)[column].dropna()
    if not found.index.is_unique:
        sys.exit(f"{directory}: {method} has several records of one fold")
    return found


def compared(one: pd.Series, two: pd.Series) -> Paired:
    """Corrected resampled t-test over the folds that both have: one tests, one validates."""
    gaps = (one - two).dropna() if len(one) and len(two) else pd.Series(dtype=float)
    return paired_test(gaps.tolist(), test_to_train=TEST_TO_TRAIN)


def measured(claim: Claim) -> tuple[pd.Series, pd.Series, Paired]:
    """Both methods' scores and their test."""
    one, two = (
        scores(claim.directory, name, claim.measure, claim.model)
        for name in (claim.method, claim.other)
    )
    return one, two, compared(one, two)


def word(claim: Claim, paired: Paired) -> str:
    """What became of a claim."""
    if paired.pairs < LEAST or paired.p_value is None:
        return "not tested"
    sure = paired.p_value < 0.05
    if paired.difference * claim.expected <= 0:
        return "contradicted" if sure else "other sign"
    return "reproduced" if sure else "in sign"


def difference(value: float | None, measure: str = "accuracy") -> str:
    """A difference in points, or in units of ECE."""
    if value is None:
        return ""
    return number(value, sign=True) if measure == "ece" else number(100 * value, 1, sign=True)


def table(heads: str, rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown below a line of heads."""
    lines = [heads, "|---" * (heads.count("|") - 1) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(cells) + " |" for cells in rows)])


def tested(claim: Claim) -> list[str]:
    """Difference, interval, p-value and folds of a claim."""
    _, _, paired = measured(claim)
    if word(claim, paired) == "not tested":
        return ["", "", "", str(paired.pairs or "")]
    low, high = (difference(end, claim.measure) for end in (paired.ci_low, paired.ci_high))
    gap, p = difference(paired.difference, claim.measure), p_value(paired.p_value)
    return [gap, f"{low} to {high}", p, str(paired.pairs)]


def unbroken(cells: Iterable[str]) -> list[str]:
    """Cells that keep a row on one line, also where the page is narrow."""
    return [cell.replace(" ", "\N{NO-BREAK SPACE}") for cell in cells]


def judged() -> Iterator[tuple[Claim, Paired, str]]:
    """Every claim with its test and what became of it."""
    for claim in claims():
        paired = measured(claim)[2]
        yield claim, paired, word(claim, paired)


def claims_table() -> str:
    """One row per tested claim."""
    rows = []
    for claim, _, verdict in judged():
        if verdict != "not tested":
            said = difference(claim.published, claim.measure)
            said = said or ("below" if claim.sign < 0 else "above")
            rows.append(unbroken([claim.title, claim.data, said, *tested(claim), verdict]))
    return table("| claim | data | published | measured | 95 % interval | p | folds | |", rows)


def untested() -> str:
    """The other claims, by name."""
    names = [
        f"{claim.title}, {claim.data}" for claim, _, verdict in judged() if verdict == "not tested"
    ]
    return f"Not tested (fewer than {LEAST} folds are finished): {'; '.join(names)}."


def controls_table() -> str:
    """One row per control."""
    rows = [
        unbroken([claim.title, claim.data, claim.other, difference(claim.published)])
        + unbroken(tested(claim))
        for claim in controls()
    ]
    return table("| | data | against | published | measured | 95 % interval | p | folds |", rows)


def corrected() -> str:
    """Which claims remain if corrected for their number."""
    tests = [(claim, test) for claim, test, verdict in judged() if verdict != "not tested"]
    p_values = holm([test.p_value for _, test in tests])
    left = [
        f"{claim.title}, {claim.data} ({p_words(p)})"
        for (claim, _), p in zip(tests, p_values, strict=True)
        if p is not None and p < 0.05
    ]
    return (
        f"Corrected for all {len(tests)} tested claims (Holm), {len(left)} remain significant: "
        f"{'; '.join(left)}."
    )


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
                lost = [stated[place] - clean[place] for place in (0, 1)]
                tests = [compared(*pair) for pair in (stated, stronger, lost)]
                if tests[0].pairs < LEAST:
                    continue
                cells = [(difference(test.difference), p_value(test.p_value)) for test in tests]
                folds = str(tests[0].pairs)
                rows.append([data, WORDS[method], f"`{other}`", *sum(cells, ()), folds])
    return table("| data | | against | as stated | p | ours | p | loss | p | folds |", rows)


def methods_table(*directories: str) -> str:
    """Every method of some directories: mean and deviation, and the difference to the first."""
    rows = []
    for directory in directories:
        found = results(directory)
        own = {name: scores(directory, name, "score") for name in found.methods} if found else {}
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
                ece = scores(directory, name, measure)
                ece = ece[ece.index.isin(mine.index)]
                errors.append(f"{ece.mean():.3f}" if len(ece) else "")
            enough = name != "vanilla" and paired.pairs >= LEAST
            gap = difference(paired.difference) if enough else ""
            p = p_value(paired.p_value) if enough and name != "majority" else ""
            spread = f" ± {mine.std():.3f}" if len(mine) > 1 else ""
            score = f"{mine.mean():.3f}{spread}"
            rows.append([directory, f"`{name}`", score, gap, p, *errors, str(len(mine))])
    heads = "| data | method | score | difference to `vanilla` | p | ECE | ECE, scaled | folds |"
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


PARTS: dict[str, Callable[[], str]] = {
    "claims": claims_table,
    "untested": untested,
    "corrected": corrected,
    "controls": controls_table,
    "attacks": attacks_table,
    "methods": lambda: methods_table(
        "COIL-DEL", "COIL-DEL-ties", "ENZYMES", "NCI1", "Mutagenicity"
    ),
    "strong": lambda: methods_table(
        "ENZYMES-strong", "ENZYMES-classical", "NCI1-strong", "BACE-strong"
    ),
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
    rows = [
        (claim, paired)
        for claim, paired, verdict in judged()
        if claim.measure != "ece" and claim.other == "vanilla" and verdict != "not tested"
    ]
    figure = Figure(figsize=(7.2, 0.9 + 0.3 * len(rows)), layout="constrained")
    axes = figure.subplots()
    for place, (claim, paired) in enumerate(reversed(rows)):
        centre, low, high = (100 * v for v in (paired.difference, paired.ci_low, paired.ci_high))
        axes.plot([low, high], [place, place], color="#35618f", linewidth=1.6)
        axes.plot(centre, place, "o", color="#35618f", label="measured, 95 % interval")
        if claim.published is not None:
            axes.plot(
                100 * claim.published, place, "D", color="none", markeredgecolor="#b5482a",
                label="published",
            )  # fmt: skip
    names = [f"{claim.data}, {claim.title}" for claim, _ in reversed(rows)]
    axes.set_yticks(range(len(rows)), names)
    axes.margins(y=0.1)
    axes.axvline(0, color="#888888", linewidth=0.8)
    axes.set_xlabel("difference in points")
    axes.spines[["top", "right", "left"]].set_visible(False)
    handles = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    figure.legend(
        handles.values(), handles.keys(), frameon=False, loc="outside upper center", ncols=2
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
