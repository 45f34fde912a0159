"""How often do tests of cross-validated differences err? A simulation on HIV.

    python -m reproduction.error_rates                     # under an hour on two cores
    python -m reproduction.error_rates --replicates 50     # a look

Each replicate is a study of 1,000 molecules that compares learners by cross-validation as `compare`
does: three fifths train (600), one fifth is left out (validation), one fifth tests. The true
difference between two learners at that size is known: training sets are drawn anew, disjoint only
from a large set of evaluation molecules of the replicate. Learners see fingerprints. The four of
the null hypothesis are one learner on random halves of the bits, redrawn per replicate; their
scores are shifted by the true differences, so that nothing is left to find. Three more see ever
smaller parts of the reference's half: true differences of about 1, 2 and 4 points of AUROC.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import stats
from scipy.linalg import solve
from sklearn.linear_model import LogisticRegression

from graph_transplant.results.statistics import holm, paired_test, wilcoxon

ROOT = Path(__file__).resolve().parent.parent

BITS = 512
ROWS, POSITIVE = 1000, 100  # of a study; a tenth is active
EVALUATION, EVALUATION_POSITIVE = 9000, 1000
TRAIN, HALF = 600, 500  # training sets of the folds, and of 5 x 2 cv
DRAWN_ANEW = 20
NULLS = 4
# Shares of the reference's bits that the worse learners see, for about 1, 2 and 4 points.
PARTS: dict[str, tuple[float, float, float]] = {
    "ridge": (0.75, 0.55, 0.33),
    "naive Bayes": (0.7, 0.6, 0.42),
    "logistic regression": (0.75, 0.55, 0.33),
}
SPLITS = (5, 15, 25)
LEVEL = 0.05
# Protocols are cut before replicates.
PROTOCOLS = {"ridge": SPLITS, "naive Bayes": SPLITS, "logistic regression": (5,)}

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]
Bits = npt.NDArray[np.float32]
Learner = Callable[[Bits, Floats, list[Rows]], Floats]


def ridge(x: Bits, y: Floats, columns: list[Rows]) -> Floats:
    """Weights of ridge regressions of the labels on some of the bits."""
    centred = (x - x.mean(axis=0)).astype(np.float32)
    gram, target = (centred.T @ centred).astype(float), centred.T @ (y - y.mean())
    gram[np.diag_indices_from(gram)] += 100.0
    weights = np.zeros((BITS, len(columns)))
    for number, chosen in enumerate(columns):
        weights[chosen, number] = solve(
            gram[np.ix_(chosen, chosen)], target[chosen], assume_a="pos"
        )
    return weights


def naive_bayes(x: Bits, y: Floats, columns: list[Rows]) -> Floats:
    """Weights of naive Bayes on some of the bits, with Laplace smoothing."""
    ones, zeros = x[y == 1], x[y == 0]
    on = (ones.sum(axis=0) + 1) / (len(ones) + 2)
    off = (zeros.sum(axis=0) + 1) / (len(zeros) + 2)
    every = np.log(on / off) - np.log((1 - on) / (1 - off))
    weights = np.zeros((BITS, len(columns)))
    for number, chosen in enumerate(columns):
        weights[chosen, number] = every[chosen]
    return weights


def logistic(x: Bits, y: Floats, columns: list[Rows]) -> Floats:
    """Weights of logistic regressions on some of the bits."""
    weights = np.zeros((BITS, len(columns)))
    for number, chosen in enumerate(columns):
        model = LogisticRegression(C=0.02, max_iter=200, tol=1e-3).fit(x[:, chosen], y)
        weights[chosen, number] = model.coef_[0]
    return weights


LEARNERS: dict[str, Learner] = {
    "ridge": ridge,
    "naive Bayes": naive_bayes,
    "logistic regression": logistic,
}


def auroc(scores: Floats, y: Floats) -> Floats:
    """Area under the ROC curve of every column; ties count half."""
    positives = y.sum()
    ranks = stats.rankdata(scores, axis=0)[y == 1].sum(axis=0)
    area = (ranks - positives * (positives + 1) / 2) / (positives * (len(y) - positives))
    return np.asarray(area)


def fingerprints(table: Path) -> tuple[Bits, Floats]:
    """Morgan fingerprints of HIV's molecules, folded to ``BITS`` bits, and their labels."""
    from rdkit import Chem, RDLogger
    from rdkit.Chem.rdFingerprintGenerator import GetMorganGenerator

    RDLogger.DisableLog("rdApp.*")
    frame = pd.read_csv(table)
    generator = GetMorganGenerator(radius=2, fpSize=BITS)
    molecules = [Chem.MolFromSmiles(smiles) for smiles in frame["smiles"]]
    readable = [number for number, molecule in enumerate(molecules) if molecule is not None]
    bits = np.stack([generator.GetFingerprintAsNumPy(molecules[number]) for number in readable])
    return bits.astype(np.float32), frame["HIV_active"].to_numpy(float)[readable]


def folds(rng: np.random.Generator, y: Floats, repeats: int) -> Iterator[tuple[Rows, Rows]]:
    """Training and test rows of five stratified folds, as `compare` divides them."""
    for _ in range(repeats):
        part = deal(rng, y, 5)
        for fold in range(5):
            left_out = (fold + 1) % 5
            yield (
                np.flatnonzero((part != fold) & (part != left_out)),
                np.flatnonzero(part == fold),
            )


def halves(rng: np.random.Generator, y: Floats) -> Iterator[tuple[Rows, Rows]]:
    """Training and test rows of five times two halves."""
    for _ in range(5):
        part = deal(rng, y, 2)
        for fold in range(2):
            yield np.flatnonzero(part != fold), np.flatnonzero(part == fold)


def deal(rng: np.random.Generator, y: Floats, parts: int) -> Rows:
    """A part for every row, with equal shares of both classes."""
    part = np.empty(len(y), np.int64)
    for label in (0, 1):
        rows = rng.permutation(np.flatnonzero(y == label))
        part[rows] = np.arange(len(rows)) % parts
    return part


def draw(
    rng: np.random.Generator, positives: Rows, negatives: Rows, size: int, share: float
) -> Rows:
    """Rows drawn without replacement, in random order, a share of them positive."""
    wanted = round(size * share)
    chosen = (rng.choice(positives, wanted, False), rng.choice(negatives, size - wanted, False))
    return rng.permutation(np.concatenate(chosen))


def replicate(x: Bits, y: Floats, learner: str, seed: int) -> dict[str, object]:
    """One study: what each test finds in every comparison with the reference."""
    rng = np.random.default_rng([seed, list(LEARNERS).index(learner)])
    fit = LEARNERS[learner]
    positives, negatives = rng.permutation(np.flatnonzero(y == 1)), np.flatnonzero(y == 0)
    negatives = rng.permutation(negatives)
    beside = EVALUATION - EVALUATION_POSITIVE
    evaluation = np.concatenate((positives[:EVALUATION_POSITIVE], negatives[:beside]))
    pool = (positives[EVALUATION_POSITIVE:], negatives[beside:])
    reference = rng.choice(BITS, BITS // 2, False)
    columns = [reference, *(rng.choice(BITS, BITS // 2, False) for _ in range(NULLS - 1))]
    smaller = [round(part * len(reference)) for part in PARTS[learner]]
    columns += [rng.choice(reference, size, False) for size in smaller]

    def scores(train: Rows, test: Rows) -> Floats:
        weights = fit(x[train], y[train], columns)
        return auroc(x[test] @ weights.astype(np.float32), y[test])

    anew = [draw(rng, *pool, TRAIN, POSITIVE / ROWS) for _ in range(DRAWN_ANEW)]
    truth = np.mean([scores(rows, evaluation) for rows in anew], axis=0)
    truth_of_halves = np.mean([scores(rows[:HALF], evaluation) for rows in anew], axis=0)

    study = draw(rng, *pool, ROWS, POSITIVE / ROWS)
    measured = np.array(
        [
            scores(study[train], study[test])
            for train, test in folds(rng, y[study], max(PROTOCOLS[learner]) // 5)
        ]
    )
    twice = np.array([scores(study[train], study[test]) for train, test in halves(rng, y[study])])
    found: dict[str, object] = {"true": list((truth - truth[0])[NULLS:])}
    groups = {"null": slice(0, NULLS), "alternative": np.r_[0, NULLS : len(columns)]}
    for name, group in groups.items():
        shift = truth if name == "null" else np.zeros_like(truth)
        shift_of_halves = truth_of_halves if name == "null" else shift
        for splits in PROTOCOLS[learner]:
            table = (measured - shift)[:splits, group]
            for test, flags in tests_of(table).items():
                found[f"{name}/{test}/{splits}"] = flags
        found[f"{name}/5 x 2 cv/10"] = significant(
            [five_times_two(pair) for pair in differences((twice - shift_of_halves)[:, group])]
        )
    return found


def differences(table: Floats) -> list[Floats]:
    """Differences to the first column."""
    return [table[:, column] - table[:, 0] for column in range(1, table.shape[1])]


def significant(p_values: list[float | None]) -> list[bool]:
    """Whether each is, after Holm's correction; what cannot be tested is not."""
    return [p is not None and p < LEVEL for p in holm(p_values)]


def tests_of(table: Floats) -> dict[str, list[bool]]:
    """What is significant, by test, one for each comparison with the first column."""
    pairs = differences(table)
    ratio = ROWS / 5 / TRAIN
    return {
        "corrected t": significant([paired_test(d, test_to_train=ratio).p_value for d in pairs]),
        "paired t": significant([paired_test(d, test_to_train=0.0).p_value for d in pairs]),
        "Wilcoxon": significant([wilcoxon(d) for d in pairs]),
        "ANOVA and Tukey": tukey(table),
    }


@cache
def critical_range(methods: int, freedom: int) -> float:
    """Critical value of the studentised range."""
    return float(stats.studentized_range.ppf(1 - LEVEL, methods, freedom))


def tukey(table: Floats) -> list[bool]:
    """Tukey's test after a repeated-measures analysis of variance, over all pairs of columns."""
    n, k = table.shape
    rest = table - table.mean(axis=1, keepdims=True) - table.mean(axis=0) + table.mean()
    freedom = (n - 1) * (k - 1)
    error = np.sqrt((rest**2).sum() / freedom / n)
    critical = critical_range(k, freedom)
    return [bool(abs(pair.mean()) / error > critical) for pair in differences(table)]


def five_times_two(pair: Floats) -> float:
    """Dietterich's 5 x 2 cv t-test: five degrees of freedom, the first difference on top."""
    rounds = pair.reshape(5, 2)
    variance = ((rounds - rounds.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
    return float(2 * stats.t.sf(abs(pair[0]) / np.sqrt(variance.mean()), 5))


def summary(replicates: list[dict[str, object]]) -> dict[str, object]:
    """Share of replicates with a finding, by test: false ones, and those of true differences."""
    keys = [key for key in replicates[0] if key != "true"]
    shares: dict[str, object] = {}
    for key in keys:
        kind, name = key.split("/", 1)
        flags = np.array([one[key] for one in replicates])
        row = shares.setdefault(name, {})
        assert isinstance(row, dict)
        if kind == "null":
            row["any false"] = float(flags.any(axis=1).mean())
            row["false per comparison"] = float(flags.mean())
        else:
            row["found"] = [float(share) for share in flags.mean(axis=0)]
    true = np.array([one["true"] for one in replicates])
    return {
        "replicates": len(replicates),
        "true differences": [float(value) for value in true.mean(axis=0)],
        "spread of true differences": [float(value) for value in true.std(axis=0)],
        "tests": shares,
    }


_DATA: list[tuple[Bits, Floats]] = []


def _load(path: Path) -> None:
    with np.load(path, allow_pickle=False) as arrays:
        _DATA.append((arrays["x"], arrays["y"]))


def _one(task: tuple[str, int]) -> dict[str, object]:
    return replicate(*_DATA[0], *task)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--replicates", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--cache", type=Path, default=ROOT / ".evidence" / "error-rates")
    parser.add_argument("--learners", default=",".join(LEARNERS))
    options = parser.parse_args()
    options.cache.mkdir(parents=True, exist_ok=True)
    arrays = options.cache / "hiv.npz"
    if not arrays.exists():
        print("fingerprints of HIV", flush=True)
        x, y = fingerprints(Path(os.environ["GRAPH_TRANSPLANT_DATA"], "molecules/HIV.csv.gz"))
        np.savez_compressed(arrays, x=x, y=y)
    out: dict[str, object] = {}
    with ProcessPoolExecutor(options.workers, initializer=_load, initargs=(arrays,)) as pool:
        for learner in options.learners.split(","):
            kept, start = options.cache / f"{learner.replace(' ', '-')}.jsonl", time.monotonic()
            done = [json.loads(line) for line in kept.open()] if kept.exists() else []
            with kept.open("a") as file:
                tasks = [(learner, seed) for seed in range(len(done), options.replicates)]
                for found in pool.map(_one, tasks, chunksize=4):
                    done.append(found)
                    file.write(json.dumps(found) + "\n")
                    if len(done) % 50 == 0:
                        seconds = time.monotonic() - start
                        print(f"{learner}: {len(done)} replicates, {seconds:.0f} s", flush=True)
            out[learner] = summary(done[: options.replicates])
    json.dump(out, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
