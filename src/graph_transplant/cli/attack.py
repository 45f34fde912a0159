"""The command ``attack``: accuracy of a trained model under adversarial edge changes."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich.text import Text

from graph_transplant.cli.arguments import NO_INPUT_COLUMNS, InputColumns, tell_rows
from graph_transplant.cli.output import cell, note, output, plain_table
from graph_transplant.config.datasets import InputConfig
from graph_transplant.config.options import Count, PositiveShare, Seed
from graph_transplant.errors import DataError, GraphTransplantError
from graph_transplant.utils.text import count

if TYPE_CHECKING:
    from graph_transplant.data import GraphStore
    from graph_transplant.errors import Skipped
    from graph_transplant.models import TrainedModel


def attack(
    model: Path,
    data: str,
    /,
    *,
    budget: tuple[PositiveShare, ...] = (0.2,),
    hops: Count = 4,
    seed: Seed = 0,
    as_json: Annotated[bool, Parameter(name="--json")] = False,
    target: str | None = None,
    device: str = "cpu",
    columns: InputColumns = NO_INPUT_COLUMNS,
) -> None:
    """Measure a model's accuracy under adversarial changes to the edges of labelled graphs.

    The attack is GradArgmax, in a stronger variant and as stated in the paper, where part of the
    budget is spent without a change; the same number of random changes serves as a control. Use
    graphs that the model was not trained on. For a model that uses edge features, such as the
    default for molecules, edges are only removed, because a new edge would have no features.

    Args:
        model: Folder of a model written by `graph-transplant train` that predicts one class per
            graph.
        data: As for `graph-transplant predict`, with the true classes.
        budget: How many pairs of nodes to change in every graph, as a share of the mean number of
            edges of these graphs; or several shares, separated by commas.
        hops: How far apart the two nodes of a changed pair may be.
        seed: Seed for the random changes.
        as_json: Print one JSON object instead of the table.
        target: Column with the true classes. [default: as in the training data]
        device: cpu, cuda, cuda:1, mps ...
        columns: How the data are read.
    """
    from graph_transplant.analysis.attack import attack_edges, mean_edges, removals_only, robustness
    from graph_transplant.models import TrainedModel
    from graph_transplant.models.uncertainty import in_training_set as seen
    from graph_transplant.training.loop import evaluate

    loaded = TrainedModel.load(model, device=device)
    if loaded.task != "multiclass":
        raise GraphTransplantError(
            f"`model` must predict one class per graph, but the task of {model} is {loaded.task}"
        )
    store, skipped = labelled(loaded, data, target, columns)
    tell_rows(skipped, len(store))
    known = seen(loaded.description.get("training_graphs"), store, loaded.widths[1]) or ()
    if any(known):
        which = f"{sum(known)} of these {len(store)} graphs"
        note(f"the model was trained on {which}: use others for a meaningful result")
    changes = count(attack_edges(store, max(budget)), "change")
    note(f"attacking {count(len(store), 'graph')}, at most {changes} in each")
    only_removed = removals_only(loaded.network, store)
    if only_removed:
        conv = loaded.network.conv
        note(f"edges are only removed: {conv} uses edge features, which a new edge would not have")
    if loaded.network.walk:
        note(
            "the attack ignores the gradient through the random-walk features of this network: "
            "stronger attacks may exist"
        )
    clean = evaluate(loaded.network, store)
    if len(set(clean.logits.argmax(1).tolist())) == 1:
        note("the model predicts the same class for every graph: an attack can show little")
    begin = time.perf_counter()
    found = robustness(loaded.network, store, budget, data=store, hops=hops, seed=seed)
    document = {
        "model": str(model),
        "trained_on": loaded.name,
        "data": store.name,
        "graphs": len(store),
        "skipped": len(skipped),
        "seen": 2 * sum(known) > len(store),
        "mean_edges": mean_edges(store),
        "hops": hops,
        "removals_only": only_removed,
        "seed": seed,
        "clean": clean.accuracy,
        "budgets": found,
        "seconds": time.perf_counter() - begin,
    }
    if as_json:
        print(json.dumps(document, indent=1, allow_nan=False))
    else:
        print_attack(document)


def labelled(
    model: TrainedModel, data: str, target: str | None, columns: InputConfig
) -> tuple[GraphStore, list[Skipped]]:
    """Read labelled graphs like the model's training graphs; also return the skipped rows."""
    import torch

    from graph_transplant.datasets import stream
    from graph_transplant.datasets.rows import check_readable
    from graph_transplant.errors import Skipped

    reading = model.reading(target)
    # A single chunk: the budget depends on the mean number of edges of all graphs.
    chunks = stream(data, rows_per_chunk=sys.maxsize, **reading, **columns.given())
    chunk = next(chunks, None)
    if chunk is None:
        raise DataError(f"{data}: there are no graphs")
    reasons = {row: why for row, why in chunk.targets.items() if isinstance(why, str)}
    reasons |= chunk.problems
    values = {row: value for row, value in chunk.targets.items() if row not in reasons}
    skipped = [Skipped(row, chunk.ids[row - chunk.first], reasons[row]) for row in sorted(reasons)]
    if chunk.store is not None:
        model.check(chunk.store)
    if chunk.store is None or not values:
        column = reading["codec"].names[0]
        raise DataError(
            f"{data}: no row has both a graph and one of the model's classes; an attack needs the "
            f"true classes, in the column {column!r} or one named with `target`"
        )
    check_readable(data, len(chunk), skipped)
    assert chunk.store.rows is not None
    there = [row in values for row in chunk.store.rows.number.tolist()]
    # Both are in the order of the rows.
    store = chunk.store.subset(torch.tensor(there))
    return reading["codec"].apply(store, [values[row] for row in sorted(values)]), skipped


def print_attack(found: Mapping[str, Any]) -> None:
    """Print the accuracies by budget."""
    columns = {"budget": "budget", "edges": "changes", "clean": "clean", "random": "random"}
    columns |= {"accuracy": "attacked", "as_stated": "as stated"}
    table = plain_table(numbers=list(columns.values()))
    for row in found["budgets"]:
        row = {**row, "clean": found["clean"]}
        forms = {"budget": "g", "edges": "d"}
        table.add_row(*(cell(row[name], forms.get(name, ".3f")) for name in columns))
    how = f"pairs at most {found['hops']} steps apart"
    text = (
        f"{count(found['graphs'], 'graph')} of {found['mean_edges']:.1f} edges on average; "
        f"{'edges only removed' if found['removals_only'] else how}; "
        f"the attacks took {found['seconds']:.1f} s"
    )
    console = output()
    console.print()
    console.print(table, Text(text, style="dim"), "", sep="\n")
