"""Made-up content for the pages: every kind of model card, explanations, mixed graphs, records."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from html.parser import HTMLParser
from typing import Any

from graph_transplant.experiments.protocol import Record
from graph_transplant.trained.explanation import Explanation, ModelView, Structure
from graph_transplant.trained.gallery import Mixture, Part

# Names as data may have them, and none of which may break a page.
NASTY = {
    "script": "</style></script><script>alert('x')</script>",
    "quotes": "\"'><img src=x onerror=alert(1)>",
    "emoji": "🧬👩‍🔬",
    "long": "x" * 10_000,
    "right to left": "\u202eשלום עולם",
    "nul": "a\x00b\x1bc",
    "half": "a\ud83db",
    "template": "{{ 7 * 7 }}{% raw %}",
}


def bins(shift: float) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for number in range(15):
        lower, upper = number / 15, (number + 1) / 15
        middle = (lower + upper) / 2
        full = number >= 8
        found.append(
            {
                "lower": lower,
                "upper": upper,
                "count": 4 * number if full else 0,
                "confidence": middle if full else None,
                "accuracy": max(0.0, middle - shift) if full else None,
            }
        )
    return found


def card(task: str = "multiclass", **changes: Any) -> dict[str, Any]:
    """The description of a model, as ``model.json`` has it."""
    names = {
        "multiclass": ["inactive", "active"],
        "multilabel": ["NR-AR", "NR-ER", "SR-p53"],
        "regression": ["pIC50"],
    }[task]
    test: dict[str, float | None] = {
        "multiclass": {
            "accuracy": 0.75,
            "ece": 0.05,
            "nll": 0.52,
            "auroc": 0.81,
            "average_precision": 0.78,
        },
        "multilabel": {
            "accuracy": 0.93,
            "ece": 0.02,
            "nll": 0.2,
            "auroc": 0.77,
            "average_precision": 0.31,
        },
        "regression": {"rmse": 0.84, "mae": 0.66, "r2": 0.52},
    }[task]
    main = {"multiclass": "auroc", "multilabel": "auroc", "regression": "r2"}[task]
    regression = task == "regression"
    description: dict[str, Any] = {
        "format": "graph-transplant model 1",
        "version": "0.1.0",
        "architecture": {
            "in_features": 174,
            "num_outputs": len(names),
            "conv": "gine",
            "layers": 3,
            "hidden": 128,
            "readout": "mean",
            "dropout": 0.5,
            "max_degree": None,
            "continuous": 0,
            "edge_features": 13,
            "task": task,
        },
        "task": task,
        "label_names": names,
        "temperature": 1.0 if regression else 1.34,
        "target_scale": {"mean": [6.5], "std": [1.3]} if regression else None,
        "reading": {
            "kind": "molecules",
            "features": "ogb",
            "smiles": "mol",
            "targets": ["Class"] if task == "multiclass" else names,
            "id": "CID",
        },
        "data": {
            "name": "bace",
            "source": "bace.csv.gz",
            "fingerprint": "ab" * 32,
            "graphs": 1513,
            "mean_nodes": 34.1,
            "mean_edges": 36.9,
            "node_features": 174,
            "edge_features": 13,
            "skipped": 3,
            "class_counts": {"multiclass": [822, 691], "multilabel": [90, 40, 300]}.get(task, []),
            "measured": {"multilabel": [1500, 400, 1200], "regression": [1513]}.get(task, []),
        },
        "training": {
            "method": "transplant-ep",
            "model": "gine",
            "layers": 3,
            "hidden": 128,
            "readout": "mean",
            "dropout": 0.5,
            "epochs": 300,
            "batch_size": 128,
            "learning_rate": 0.0005,
            "balance": False,
            "metric": main,
            "split": "scaffold",
            "validation": 0.1,
            "test": 0.1,
            "seed": 0,
            "sizes": {"train": 1210, "validation": 151, "test": 152},
            "best_epoch": 41,
            "epochs_run": 60,
            "stopped_early": True,
            "seconds": 312.5,
        },
        "metrics": {
            "validation": dict(test),
            "test": test,
            "test_uncalibrated": {**test, "ece": 0.12} if not regression else test,
            "intervals": {main: [0.74, 0.87]},
        },
        "curve": [
            {
                "epoch": epoch,
                "train_loss": 1.4 - epoch / 100,
                "validation_loss": 0.9 - epoch / 200,
                "validation_accuracy": 0.5 + epoch / 200,
                "validation_score": 0.5 + epoch / 200,
            }
            for epoch in range(1, 61, 5)
        ],
        "reliability": None if regression else {"before": bins(0.15), "after": bins(0.02)},
        "confusion": [[60, 12], [20, 60]] if task == "multiclass" else None,
        "roc": None
        if regression
        else {
            name: [[0.0, 0.0], [0.1, 0.4], [0.4, 0.8], [1.0, 1.0]]
            for name in (names[1:] if task == "multiclass" else names)
        },
        "scatter": [[5.0 + k / 20, 5.2 + k / 22] for k in range(60)] if regression else None,
        "residual_90": [1.4] if regression else None,
    }
    return description | changes


def nasty_card(name: str, task: str = "multiclass") -> dict[str, Any]:
    """A description in which every text that comes from data is the given one."""
    found = card(task)
    names = [f"{name}{number}" for number, _ in enumerate(found["label_names"])]
    found["label_names"] = names
    found["data"] = {**found["data"], "name": name, "source": name, "fingerprint": name}
    found["training"] = {**found["training"], "split": name, "model": name, "readout": name}
    reading = {"kind": "molecules", "features": "elements", "elements": [name, "C"]}
    found["reading"] = {**reading, "smiles": name, "targets": [name], "id": name}
    found["version"] = name
    if found["roc"]:
        found["roc"] = {name: [[0.0, 0.0], [1.0, 1.0]]}
    return found


PHENOL = Structure(
    names=("O", "C", "C", "C", "C", "C", "C"),
    edges=((0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (1, 6)),
    orders=(1.0, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5),
    molecule=True,
    directed=False,
)


def view(structure: Structure, model: str = "transplant-ep", **changes: Any) -> ModelView:
    nodes = len(structure.names)
    raw = [1.0 / (1 + number) for number in range(nodes)]
    given: dict[str, Any] = {
        "model": model,
        "label": "active",
        "confidence": 0.87,
        "correct": True,
        "output": "active",
        "saliency": tuple(raw),
        "share": tuple(value / sum(raw) for value in raw),
    }
    return ModelView(**given | changes)


def explanation(name: str = "BACE_1", **changes: Any) -> Explanation:
    given: dict[str, Any] = {
        "id": name,
        "text": "Oc1ccccc1",
        "truth": "active",
        "structure": PHENOL,
        "views": (view(PHENOL), view(PHENOL, "vanilla", label="inactive", correct=False)),
    }
    return Explanation(**given | changes)


def nasty_explanation(name: str) -> Explanation:
    graph = Structure((name, name), ((0, 1),), (1.0,), molecule=False, directed=False)
    seen = view(graph, name, label=name, output=name + "!")
    return Explanation(name, name, name, graph, (seen, seen))


def mixture(name: str = "", **changes: Any) -> Mixture:
    """Phenol's ring in the place of a chain, or the same with every text the given one."""
    chain = Structure((name or "C",) * 3, ((0, 1), (1, 2)), (1.0, 2.0), True, False)
    mixed = Structure(
        (*PHENOL.names[:3], name or "C"), ((0, 1), (1, 2), (0, 3)), (1.0, 1.5, 1.0), True, False
    )
    given: dict[str, Any] = {
        "source": Part(name or "7", name or "active", PHENOL, (True,) * 3 + (False,) * 4, 0.61),
        "destination": Part(name or "9", name or "inactive", chain, (True, False, False), 0.4),
        "structure": mixed,
        "from_source": (True, True, True, False),
        "new_edges": (2,),
        "label": "60 % active, 40 % inactive",
        "labels": ((name or "active", 0.604), ((name and name + "2") or "inactive", 0.396)),
        "weight": 0.604,
        "method": "transplant-ep",
        "data": name or "bace",
        "note": name or "Saliency and edges come from a small model.",
    }
    return Mixture(**given | changes)


def records(data: str = "toy", method: str = "transplant-ep", model: str = "gcs") -> list[Record]:
    """Finished trials of a comparison."""
    found: list[Record] = []
    for name, lift in (("vanilla", 0.0), (method, 0.1)):
        for fold in range(5):
            accuracy = 0.6 + lift + 0.01 * (fold % 3)
            found.append(
                {
                    "data": data,
                    "source": data,
                    "fingerprint": "0f" * 32,
                    "method": name,
                    "model": model,
                    "layers": 3,
                    "repeat": 0,
                    "fold": fold,
                    "test": {"accuracy": accuracy, "ece": 0.1, "nll": 0.7},
                    "sizes": {"train": 60, "validation": 20, "test": 20},
                    "settings": {"folds": 5, "epochs": 9, "batch_size": 16, "seed": 4},
                    "seconds": 2.0,
                    "epochs": 9,
                    "best_epoch": 5,
                    "curve": [
                        {
                            "epoch": epoch,
                            "train_loss": 1.0,
                            "validation_loss": 1.0,
                            "validation_accuracy": accuracy * epoch / 9,
                        }
                        for epoch in (1, 5, 9)
                    ],
                }
            )
    return found


# How much better than plain training each made-up method is, by the kind of its name.
LIFTS = {"transplant-ep": 0.075, "transplant-dp": 0.06, "transplant": 0.03, "manifold": 0.02}


def rich_records(
    methods: Sequence[str] = ("vanilla", "transplant-ep", "transplant-dp", "manifold-mixup"),
    *,
    models: Sequence[str] = ("gcs",),
    repeats: int = 1,
    folds: int = 5,
    budgets: Sequence[float] = (0.05, 0.1, 0.2),
    conditions: Sequence[tuple[float, float]] = ((0.0, 1.0),),
    points: int = 40,
    data: str = "ENZYMES",
) -> list[Record]:
    """Finished trials with every field that a record may have, and numbers as they might be."""
    found: list[Record] = []
    for model in models:
        for noise, fraction in conditions:
            for repeat in range(repeats):
                for fold in range(folds):
                    chance = random.Random(f"{model} {repeat} {fold}")
                    level = 0.62 + chance.gauss(0, 0.025) - 0.5 * noise - 0.18 * (1 - fraction)
                    for method in methods:
                        own = random.Random(f"{model} {repeat} {fold} {method}")
                        lift = next((v for k, v in LIFTS.items() if method.startswith(k)), 0.0)
                        accuracy = min(0.99, level + lift + own.gauss(0, 0.012))
                        trial = _rich(method, accuracy, own, budgets, points)
                        trial |= {"data": data, "source": data, "model": model}
                        trial |= {"repeat": repeat, "fold": fold}
                        trial["settings"] |= {"folds": folds, "attack": list(budgets)}
                        if repeat == fold == 0:
                            trial["examples"] = _examples(method, own)
                        if noise:
                            trial["label_noise"] = noise
                        if fraction != 1:
                            trial["train_fraction"] = fraction
                        found.append(trial)
    return found


def _rich(
    method: str, accuracy: float, own: random.Random, budgets: Sequence[float], points: int
) -> Record:
    mixing = method.startswith("transplant")
    gap = 0.06 if mixing else 0.27
    curve: list[dict[str, Any]] = []
    for number in range(1, points + 1):
        epoch = 12 * number - 11
        score = accuracy * (1 - 0.7 * 0.9**number) + own.gauss(0, 0.01)
        curve.append(
            {
                "epoch": epoch,
                "train_loss": 1.7 * 0.93**number + 0.2,
                "validation_loss": 1.1 + gap * number / points,
                "validation_accuracy": score,
                "validation_score": score,
            }
        )
        if method == "transplant-ep":
            curve[-1]["measurements"] = {"edge_predictor_accuracy": 0.9 - 0.4 * 0.85**number}
    bins: list[Record] = []
    calm: list[Record] = []
    for number in range(3, 15):
        middle = (number + 0.5) / 15
        count = 2 + 2 * number if number < 14 else (60 if gap > 0.1 else 25)
        right = max(0.0, middle - gap * middle)
        bins.append({"bin": number, "count": count, "confidence": middle, "accuracy": right})
        calm.append({"bin": number, "count": count, "confidence": 0.9 * middle, "accuracy": right})
    shares = [number / 10 for number in range(11)]
    seconds = 190.0 if method == "transplant-ep" else 120.0 if mixing else 80.0
    seconds *= 1 + 0.05 * own.random()
    trial: Record = {
        "fingerprint": "0f" * 32,
        "method": method,
        "layers": 3,
        "test": {
            "accuracy": accuracy,
            "ece": gap + own.gauss(0, 0.01),
            "adaptive_ece": gap + own.gauss(0, 0.01),
            "brier": 0.52 + gap / 3,
            "nll": 1.0 + 2 * gap,
        },
        "validation": {"accuracy": accuracy + own.gauss(0, 0.02), "ece": gap, "nll": 1.0 + 2 * gap},
        "calibrated": {
            "temperature": 1.05 if mixing else 2.1,
            "ece": 0.05,
            "adaptive_ece": 0.048,
            "brier": 0.5,
            "nll": 1.0,
        },
        "reliability": bins,
        "reliability_calibrated": calm,
        "attacked": [
            {
                "budget": budget,
                "edges": int(62 * budget),
                "accuracy": max(0.02, accuracy - (1.6 if mixing else 2.1) * budget),
                "as_stated": max(0.05, accuracy - 0.9 * budget),
                "random": accuracy - 0.25 * budget,
            }
            for budget in budgets
        ],
        "sizes": {"train": 360, "validation": 120, "test": 120},
        "settings": {"epochs": 500, "batch_size": 128, "seed": 0, "version": "0.2.0"},
        "seconds": seconds,
        "epochs": 480,
        "best_epoch": 300,
        "cost": {
            "epoch_seconds": seconds / 480,
            "best_seconds": seconds * 0.6,
            "fit_seconds": seconds,
        },
        "saliency": {
            "graphs": 120,
            "deletion": 0.3 if mixing else 0.36,
            "insertion": 0.61 if mixing else 0.52,
            "deletion_random": 0.41,
            "insertion_random": 0.42,
            "auroc": 0.83 if mixing else 0.71,
            "precision": 0.64 if mixing else 0.49,
            "chance": 0.22,
        },
        "saliency_curve": [
            {
                "share": share,
                "deletion": 0.2 + 0.6 * (1 - share) ** (2.5 if mixing else 1.8),
                "insertion": 0.2 + 0.6 * share ** (0.5 if mixing else 0.8),
                "deletion_random": 0.2 + 0.6 * (1 - share),
                "insertion_random": 0.2 + 0.6 * share,
            }
            for share in shares
        ],
        "curve": curve,
    }
    if method not in ("vanilla", "manifold-mixup", "label-smoothing"):
        trial["samples"] = {
            "graphs": 360,
            "nodes_ratio": 1.02,
            "edges_ratio": 0.98,
            "degree_distance": 0.12 if "dp" in method else 0.3,
            "degree_distance_control": 0.03,
            "components": 1.2,
            "components_original": 1.05,
            "disconnected": 0.1,
            "disconnected_original": 0.04,
            "isolated": 0.01,
            "isolated_original": 0.002,
            "label_gap": 0.08,
            "label_share_correlation": 0.71,
        }
    return trial


def _ladder(nodes: int, own: random.Random) -> tuple[list[str], list[list[int]]]:
    """Names and edges of a connected graph with some rings."""
    edges = [[max(0, node - 1 - node % 2), node] for node in range(1, nodes)]
    edges += [[node, node + 4] for node in range(0, nodes - 4, 7)]
    return [own.choice("ABC") for _ in range(nodes)], edges


def _examples(method: str, own: random.Random) -> list[Record]:
    flags = {"molecule": False, "directed": False}
    found: list[Record] = []
    for number in range(4):
        same = random.Random(number)  # the graphs are the same for all methods
        names, edges = _ladder(16 + 4 * number, same)
        motif = [int(4 <= node < 10) for node in range(len(names))]
        guess = 1 + (number + (own.random() < 0.3)) % 6
        raw = [own.random() * (0.35 + 0.9 * inside) for inside in motif]
        found.append(
            {
                "kind": "saliency",
                "graph": str(17 * number + 3),
                "truth": f"EC {number + 1}",
                "predicted": f"EC {guess}",
                "confidence": round(0.5 + 0.5 * own.random(), 4),
                "correct": guess == number + 1,
                "names": names,
                "edges": edges,
                "orders": [],
                **flags,
                "saliency": [round(value / max(raw), 4) for value in raw],
                "motif": motif,
            }
        )
    if method in ("vanilla", "manifold-mixup", "label-smoothing"):
        return found
    for _ in range(2):
        names, edges = _ladder(18, own)
        if not method.startswith("transplant"):
            made = {"kind": "virtual", "names": names, "edges": edges, "orders": []}
            found.append({**made, **flags, "label": "EC 2"})
            continue
        more = [*edges, [2, 12], [3, 15]]
        found.append(
            {
                "kind": "mixture",
                "source": {
                    "id": "12",
                    "label": "EC 1",
                    "names": names,
                    "edges": edges,
                    "orders": [],
                    "chosen": [int(node < 7) for node in range(18)],
                    "share": 0.62,
                },
                "destination": {
                    "id": "40",
                    "label": "EC 4",
                    "names": names[::-1],
                    "edges": edges,
                    "orders": [],
                    "chosen": [int(node > 6) for node in range(18)],
                    "share": 0.44,
                },
                "names": names,
                "edges": more,
                "orders": [],
                **flags,
                "from_source": [int(node < 7) for node in range(18)],
                "new_edges": [len(more) - 2, len(more) - 1],
                "label": "58 % EC 1, 42 % EC 4",
                "weight": 0.585,
            }
        )
    return found


class Page(HTMLParser):
    """Checks that tags are balanced and collects what a test may ask for."""

    VOID = frozenset({"meta", "br", "hr", "img", "link", "input"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"style", "script"} & set(self._open):
            self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)
