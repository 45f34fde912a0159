"""The command ``attack``: how well a trained model stands when someone changes a few edges."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich.table import Table
from rich.text import Text

from graph_transplant.cli.common import cell, output, print_files, split_list, split_numbers
from graph_transplant.cli.data import NO_INPUT_OPTIONS, SHOWN_REASONS, InputOptions
from graph_transplant.cli.models import note
from graph_transplant.errors import DataError, GraphTransplantError

if TYPE_CHECKING:
    from torch import Tensor

    from graph_transplant.analysis.attack import Attacked
    from graph_transplant.graphs import GraphStore, Skipped
    from graph_transplant.models import TrainedModel

SHOWN_CLASSES = 10
"""So many names of classes are given in a message."""


def attack(
    model: Path,
    data: str,
    /,
    *,
    budget: str = "0.2",
    hops: int = 4,
    as_stated: bool = False,
    seed: int = 0,
    as_json: Annotated[bool, Parameter(name="--json")] = False,
    out: Path | None = None,
    target: str | None = None,
    device: str = "cpu",
    columns: InputOptions = NO_INPUT_OPTIONS,
) -> int:
    """Attack the edges of labelled graphs, the model's gradient at hand, and see how it fares.

    The attack is GradArgmax; beside it stand as many random changes. Give graphs that the model
    was not trained on. A model that reads edge features, such as the default for molecules, only
    loses edges: a new edge would have no features.

    Args:
        model: Folder of a model that `graph-transplant train` wrote; it predicts one class per
            graph.
        data: As for `graph-transplant predict`, with the true classes.
        budget: How many pairs of nodes are changed in every graph, as a share of the mean number of
            edges of these graphs; or several shares, separated by commas.
        hops: How far apart the two nodes of a changed pair may be.
        as_stated: Also attack to the letter of the paper, which spends a part of its budget without
            a change.
        seed: Determines the random changes.
        as_json: Print one JSON object instead of the table.
        out: A table (CSV) to write, with what became of every graph.
        target: Column with the true classes. [default: that of the training data]
        device: cpu, cuda, cuda:1, mps ...
        columns: How the data are read.
    """
    budgets = list(dict.fromkeys(split_numbers("budget", budget, float)))
    for share in budgets:
        if not 0 < share <= 1:
            raise GraphTransplantError(f"`budget` must be shares in (0, 1], got {share:g}")
    if hops < 1:
        raise GraphTransplantError(f"`hops` must be at least 1, got {hops}")

    from graph_transplant.analysis.attack import (
        attack_edges,
        mean_edges,
        nested_attacks,
        removals_only,
    )
    from graph_transplant.models import TrainedModel
    from graph_transplant.training import evaluate

    loaded = TrainedModel.load(model, device=device)
    if loaded.task != "multiclass":
        raise GraphTransplantError(
            f"`model` must predict one class per graph, but the task of {model} is {loaded.task}"
        )
    store, skipped = labelled(loaded, data, target, columns)
    tell_left_out(skipped, len(store))
    seen = store.fingerprint() == loaded.description["data"]["fingerprint"]
    if seen:
        note("the model was trained on most of these graphs: others may tell more")
    edges = [attack_edges(store, share) for share in budgets]
    note(f"attacking {len(store)} graphs, at most {max(edges)} changes in each")
    only_removed = removals_only(loaded.network, store)
    if only_removed:
        conv = loaded.network.conv
        note(f"edges are only removed: {conv} reads edge features, which a new edge would not have")
    clean = evaluate(loaded.network, store)
    if len(set(clean.logits.argmax(1).tolist())) == 1:
        note("the model says the same of every graph: there is little that an attack could show")
    kinds = ("strong", "random", "as-stated") if as_stated else ("strong", "random")
    found: dict[str, list[Attacked]] = {}
    seconds: dict[str, float] = {}
    for kind in kinds:
        begin = time.perf_counter()
        found[kind] = nested_attacks(loaded.network, store, edges, kind=kind, hops=hops, seed=seed)
        seconds[kind] = time.perf_counter() - begin
    rows = [row_of(share, place, found) for place, share in enumerate(budgets)]

    def write_table() -> None:
        if out is not None:
            write_graphs(out, loaded.label_names, store, clean.logits, found["strong"], budgets)

    if as_json:
        document = {
            "model": str(model),
            "trained_on": loaded.name,
            "data": store.name,
            "graphs": len(store),
            "skipped": len(skipped),
            "seen": seen,
            "mean_edges": mean_edges(store),
            "hops": hops,
            "removals_only": only_removed,
            "seed": seed,
            "clean": clean.accuracy,
            "budgets": rows,
            "seconds": {kind.replace("-", "_"): spent for kind, spent in seconds.items()},
        }
        json.dump(document, sys.stdout, indent=1, allow_nan=False)
        print()
        write_table()
        return 0
    console = output()
    console.print()
    console.print(attack_table(rows, clean.accuracy))
    console.print(
        Text(
            f"{len(store)} graphs of {mean_edges(store):.1f} edges on average; "
            f"{'edges only removed' if only_removed else f'pairs at most {hops} steps apart'}; "
            f"the attack took {seconds['strong']:.1f} s",
            style="dim",
        )
    )
    console.print()
    # What was found is told first: a table that cannot be written does not take it away.
    write_table()
    if out is not None:
        print_files(console, {out: "what became of every graph"})
    return 0


def labelled(
    model: TrainedModel, data: str, target: str | None, columns: InputOptions
) -> tuple[GraphStore, list[Skipped]]:
    """Read graphs as the model's training graphs were read; also give the rows left out."""
    from graph_transplant.datasets import stream
    from graph_transplant.datasets.rows import TargetCodec, check_readable
    from graph_transplant.graphs import Skipped

    options = columns.given()
    named = list(model.featurizer.targets) if model.featurizer else []
    if target is not None:
        named = options["target"] = split_list("target", target)
    if len(named) > 1:
        raise GraphTransplantError(
            f"`target` must be one column, that of the classes; got {', '.join(named)}"
        )
    codec = TargetCodec("multiclass", tuple(named) or ("y",), model.label_names)
    chunks = stream(
        data,
        featurizer=model.featurizer,
        rows_per_chunk=sys.maxsize,
        targets=True,
        codec=codec,
        **options,
    )
    # One chunk, or none of an empty file: the mean number of edges is that of all graphs.
    for chunk in chunks:
        skipped = [
            Skipped(row, chunk.ids[row - chunk.first], reason)
            for row, reason in sorted(chunk.problems.items())
        ]
        check_readable(data, len(chunk), skipped)
        if chunk.store is not None:
            model.check(chunk.store)
            return as_model_names(model, chunk.store), skipped
    raise DataError(f"{data}: there are no graphs")


def as_model_names(model: TrainedModel, store: GraphStore) -> GraphStore:
    """Number the classes of a store as the model does, by their names."""
    import torch

    classes = store.labels
    if store.num_outputs < 2 and store.label_names is None:
        raise DataError(f"{store.name} has no classes: an attack needs the true ones")
    names = store.output_names
    places = {name: place for place, name in enumerate(model.label_names)}
    unknown = [names[k] for k in torch.unique(classes).tolist() if names[k] not in places]
    if unknown:
        known = ", ".join(model.label_names[:SHOWN_CLASSES])
        more = ", …" if len(model.label_names) > SHOWN_CLASSES else ""
        raise DataError(
            f"{store.name} has the class {unknown[0]!r}; the model, trained on {model.name}, knows "
            f"{known}{more}"
        )
    numbers = torch.tensor([places.get(name, 0) for name in names])
    return store.with_targets(
        numbers[classes], num_outputs=len(model.label_names), label_names=model.label_names
    )


def tell_left_out(skipped: Sequence[Skipped], graphs: int) -> None:
    """Say which rows are not attacked."""
    if not skipped:
        return
    note(f"{len(skipped)} of {len(skipped) + graphs} rows are left out")
    for row in skipped[:SHOWN_REASONS]:
        note(f"  row {row.row}: {row.reason}")
    if len(skipped) > SHOWN_REASONS:
        note(f"  and {len(skipped) - SHOWN_REASONS} more")


def row_of(
    budget: float, place: int, found: Mapping[str, Sequence[Attacked]]
) -> dict[str, float | None]:
    """Say what the attacks of one budget did."""
    strong = found["strong"][place]
    return {
        "budget": budget,
        "edges": strong.edges,
        "accuracy": strong.accuracy,
        "as_stated": found["as-stated"][place].accuracy if "as-stated" in found else None,
        "random": found["random"][place].accuracy,
        "added": int(strong.added.sum()),
        "removed": int(strong.removed.sum()),
    }


def attack_table(rows: Sequence[Mapping[str, Any]], clean: float) -> Table:
    """Lay out the accuracies by budget."""
    stated = any(row["as_stated"] is not None for row in rows)
    headings = ["budget", "changes", "added", "removed", "clean", "random", "attacked"]
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in (*headings, *(["as stated"] if stated else [])):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        cells = [f"{row['budget']:g}", f"{row['edges']}", f"{row['added']}", f"{row['removed']}"]
        accuracies = [clean, row["random"], row["accuracy"]]
        accuracies += [row["as_stated"]] if stated else []
        table.add_row(*cells, *(cell(value, ".3f") for value in accuracies))
    return table


def write_graphs(
    path: Path,
    names: Sequence[str],
    store: GraphStore,
    clean: Tensor,
    attacked: Sequence[Attacked],
    budgets: Sequence[float],
) -> None:
    """Write what became of every graph at every budget; ``names`` are those of the classes."""
    import pandas as pd

    from graph_transplant.experiments.structures import graph_id
    from graph_transplant.files import write_atomically

    def named(classes: Tensor) -> list[str]:
        return [names[number] for number in classes.tolist()]

    parts = [
        pd.DataFrame({
            "budget": f"{share:g}",
            "id": [graph_id(store, number) for number in range(len(store))],
            "class": named(store.labels),
            "clean": named(clean.argmax(1)),
            "attacked": named(one.logits.argmax(1)),
            "added": one.added.tolist(),
            "removed": one.removed.tolist(),
        })
        for share, one in zip(budgets, attacked, strict=True)
    ]  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, pd.concat(parts).to_csv(index=False, lineterminator="\n"))
