"""Content for the pages: golden records, model cards, explanations, mixed graphs."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from collections import Counter
from collections.abc import Collection, Mapping
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from graph_transplant.report.card import render_card
from graph_transplant.results.examples import (
    DrawnGraph,
    DrawnPart,
    ExplainedRows,
    Explanation,
    Mixture,
    ModelView,
)
from graph_transplant.results.model_json import description_of
from graph_transplant.results.record import TrialRecord, record_of
from graph_transplant.utils.schema import plain

GOLDEN = Path(__file__).parents[1] / "golden" / "records"

# Names as data may have them, and none of which may break a page.
NASTY = {
    "script": "</style></script><script>alert('x')</script>",
    "quotes": "\"'><img src=x onerror=alert(1)>",
    "emoji": "🧬👩‍🔬",
    "long": "x" * 10_000,
    "mathematics": "$\\frac{x}$ $y$",
    "right to left": "\u202eשלום עולם",
    "nul": "a\x00b\x1bc",
    "half": "a\ud83db",
    "template": "{{ 7 * 7 }}{% raw %}",
}


def bins(shift: float) -> list[dict[str, Any]]:
    """Fifteen bins of confidence, the lower ones empty; accuracy is lower by ``shift``."""
    found: list[dict[str, Any]] = []
    for number in range(15):
        one = {"lower": number / 15, "upper": (number + 1) / 15, "count": 0}
        one |= {"confidence": None, "accuracy": None}
        if number >= 8:
            middle = (number + 0.5) / 15
            one |= {"count": 4 * number, "confidence": middle, "accuracy": middle - shift}
        found.append(one)
    return found


def card(task: str = "multiclass", **changes: Any) -> dict[str, Any]:
    """The description of a model, as ``model.json`` has it."""
    regression = task == "regression"
    names = {
        "multiclass": ["inactive", "active"],
        "multilabel": ["NR-AR", "NR-ER", "SR-p53"],
        "regression": ["pIC50"],
    }[task]
    test: dict[str, float | None] = {
        "multiclass": {"accuracy": 0.75, "ece": 0.05, "nll": 0.52, "auroc": 0.81},
        "multilabel": {"accuracy": 0.93, "ece": 0.02, "nll": 0.2, "auroc": 0.77},
        "regression": {"rmse": 0.84, "mae": 0.66, "r2": 0.52},
    }[task]
    if not regression:
        test["average_precision"] = 0.78
    main = "r2" if regression else "auroc"
    network = {"layers": 3, "hidden": 128, "readout": "mean", "dropout": 0.5}
    widths = {"in_features": 174, "num_outputs": len(names), "edge_features": 13}
    data = {"name": "bace", "source": "bace.csv.gz", "fingerprint": "ab" * 32, "skipped": 3}
    data |= {"graphs": 1513, "mean_nodes": 34.1, "mean_edges": 36.9}
    data |= {"node_features": 174, "edge_features": 13}
    training = {"method": "transplant-ep", "model": "gine", "epochs": 300, "batch_size": 128}
    training |= {"learning_rate": 0.0005, "balance": False, "metric": main, "split": "scaffold"}
    training |= {"validation": 0.1, "test": 0.1, "seed": 0, "seconds": 312.5}
    training |= {"best_epoch": 41, "epochs_run": 60, "stopped_early": True}
    description: dict[str, Any] = {
        "format": "graph-transplant model 1",
        "version": "0.1.0",
        "architecture": network
        | widths
        | {"conv": "gine", "max_degree": None, "continuous": 0, "task": task},
        "task": task,
        "label_names": names,
        "temperature": 1.0 if regression else 1.34,
        "target_scale": {"mean": [6.5], "std": [1.3]} if regression else None,
        "featurizer": {
            "kind": "molecules",
            "features": "ogb",
            "smiles": "mol",
            "targets": ["Class"] if task == "multiclass" else names,
            "id": "CID",
        },
        "data": {
            **data,
            "class_counts": {"multiclass": [822, 691], "multilabel": [90, 40, 300]}.get(task, []),
            "measured": {"multilabel": [1500, 400, 1200], "regression": [1513]}.get(task, []),
        },
        "training": network | training | {"sizes": {"train": 1210, "validation": 151, "test": 152}},
        "metrics": {
            "validation": dict(test),
            "test": test,
            "test_uncalibrated": test if regression else {**test, "ece": 0.12},
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
        "roc": None,
        "scatter": [[5.0 + k / 20, 5.2 + k / 22] for k in range(60)] if regression else None,
        "residual_90": [1.4] if regression else None,
    }
    if not regression:
        curve = [[0.0, 0.0], [0.1, 0.4], [0.4, 0.8], [1.0, 1.0]]
        described = names[1:] if task == "multiclass" else names
        description["roc"] = dict.fromkeys(described, curve)
    if "label_names" in changes:  # of another number
        outputs = {"num_outputs": len(changes["label_names"])}
        description["architecture"] |= outputs
        description |= {"confusion": None, "residual_90": None}
    return description | changes


def card_page(content: dict[str, Any], ignore: Collection[str] = ()) -> str:
    """The card of a ``model.json`` with this content."""
    return render_card(description_of(content, "sample"), ignore)


def nasty_card(name: str, task: str = "multiclass") -> dict[str, Any]:
    """A description in which every text that comes from data is the given one."""
    found = card(task)
    names = [f"{name}{number}" for number, _ in enumerate(found["label_names"])]
    found["label_names"] = names
    found["data"] = {**found["data"], "name": name, "source": name, "fingerprint": name}
    found["training"] = {**found["training"], "split": name, "model": name, "readout": name}
    reading = {"smiles": name, "targets": [name], "id": name}
    found["featurizer"] = {"kind": "molecules", **reading}
    found["version"] = found["command"] = name
    if found["roc"]:
        found["roc"] = {name: [[0.0, 0.0], [1.0, 1.0]]}
    return found


PHENOL = DrawnGraph(
    names=("O", "C", "C", "C", "C", "C", "C"),
    edges=((0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (1, 6)),
    orders=(1.0, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5),
    molecule=True,
    directed=False,
)


def view(structure: DrawnGraph, model: str = "transplant-ep", **changes: Any) -> ModelView:
    nodes = len(structure.names)
    raw = [0.5, -0.4, 0.1, *[0.0] * nodes][:nodes]
    given: dict[str, Any] = {
        "model": model,
        "label": "active",
        "confidence": 0.87,
        "correct": True,
        "output": "active",
        "saliency": tuple(value / 0.5 for value in raw),
        "share": tuple(raw),
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


def explained(*given: Explanation) -> ExplainedRows:
    return ExplainedRows(given, (), "some/where/bace.csv")


def nasty_explanation(name: str) -> Explanation:
    graph = DrawnGraph((name, name), ((0, 1),), (1.0,), molecule=False, directed=False)
    seen = view(graph, name, label=name, output=name + "!")
    return Explanation(name, name, name, graph, (seen, seen))


def mixture(name: str = "", **changes: Any) -> Mixture:
    """Phenol's ring in the place of a chain, or the same with every text the given one."""
    chain = DrawnGraph((name or "C",) * 3, ((0, 1), (1, 2)), (1.0, 2.0), True, False)
    mixed = DrawnGraph(
        (*PHENOL.names[:3], name or "C"), ((0, 1), (1, 2), (0, 3)), (1.0, 1.5, 1.0), True, False
    )
    given: dict[str, Any] = {
        "source": DrawnPart(
            name or "7", name or "active", PHENOL, (True,) * 3 + (False,) * 4, 0.61
        ),
        "destination": DrawnPart(name or "9", name or "inactive", chain, (True, False, False), 0.4),
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


@cache
def golden(name: str) -> tuple[TrialRecord, ...]:
    """The records of a committed comparison."""
    with gzip.open(GOLDEN / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return tuple(filter(None, (record_of(json.loads(line)) for line in lines)))


def changed(record: TrialRecord | Mapping[str, Any], **changes: Any) -> TrialRecord:
    """A record with other content, as a line of a file has it; ``...`` stands for a missing one."""
    content = {**plain(record), **changes}
    found = record_of({name: value for name, value in content.items() if value is not ...})
    assert found is not None
    return found


def rich(*methods: str, **same: Any) -> list[TrialRecord]:
    """Real trials with every field that a record may have: three methods with one model."""
    wanted = methods or ("vanilla", "transplant-ep", "transplant-dp")
    return [
        changed(record, **same)
        for record in golden("paper-quick-enzymes")
        if record.model == "gcs" and record.method in wanted
    ]


class Page(HTMLParser):
    """Checks that tags are balanced and collects what a test may ask for."""

    VOID = frozenset({"meta", "br", "hr", "img", "link", "input"})
    ENDS_A_WORD = frozenset({"p", "dt", "dd", "th", "td", "li", "h1", "h2", "h3", "caption", "pre"})

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
        if tag in self.ENDS_A_WORD:
            self.words.append(" ")

    def handle_data(self, data: str) -> None:
        if not {"style", "script"} & set(self._open):
            self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", "".join(self.words)).replace("\u00a0", " ")

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)

    def values(self, attribute: str) -> list[str]:
        """Every value of an attribute."""
        return [given[attribute] or "" for _, given in self.tags if attribute in given]


def check_harmless(text: str, usual: Page) -> Page:
    """Whatever the data are called: the elements of the usual page, and nothing runs or loads."""
    page = Page(text)
    # Long names are cut, with the whole name at hand.
    assert {tag for tag, _ in page.tags} <= {tag for tag, _ in usual.tags} | {"bdi"}
    for tag in ("script", "style", "section", "details", "article", "table", "tr", "svg", "figure"):
        assert page.count(tag) == usual.count(tag), tag
    for _, given in page.tags:
        assert not [key for key in given if key.startswith("on")]
        assert not {"src", "srcset", "action", "formaction", "data"} & set(given)
        assert (given.get("href") or "#").startswith("#")
    assert text.encode("utf-8")
    assert not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f]", text)
    return page


def check_self_contained(text: str) -> Page:
    """Nothing is loaded, its own script alone may run, and no id is given twice."""
    assert not re.search(r"https?://|url\((?!#)|@import|javascript:|<link|<img", text)
    page = Page(text)
    (policy,) = [content for content in page.values("content") if "default-src" in content]
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.S)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert "default-src 'none'" in policy
    assert re.findall(r"script-src ([^;]*);", policy) == [f"'sha256-{digest}'"]
    assert [name for name, n in Counter(page.values("id")).items() if n > 1] == []
    return page
