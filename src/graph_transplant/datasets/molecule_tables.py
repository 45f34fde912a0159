"""Convert tables of molecules to graphs; rows that fail get a reason."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from dataclasses import replace
from itertools import islice
from multiprocessing import get_context
from typing import Any, NamedTuple

import numpy as np

from graph_transplant.data import Featurizer, GraphStore
from graph_transplant.datasets.chemistry import chemistry
from graph_transplant.datasets.molecules import MoleculeArrays, chunk_of, molecule_arrays, store_of
from graph_transplant.datasets.rows import (
    Chunk,
    Reading,
    TableOptions,
    check_readable,
    find_codec,
    quoted,
)
from graph_transplant.datasets.tables import STRUCTURES, Table, listed, open_table
from graph_transplant.errors import DataError, GraphTransplantError, Skipped
from graph_transplant.utils.processes import set_up_worker
from graph_transplant.utils.text import count


def _chosen(table: Table, options: TableOptions, featurizer: Featurizer | None) -> TableOptions:
    """Fill in missing column names: those of the model if present, else a guess."""
    known = featurizer or Featurizer("molecules")
    if options.whole in table.columns:
        options = replace(options, targets=(str(options.whole),))

    def there(*names: str | None) -> bool:
        return all(name and list(table.columns).count(name) == 1 for name in names)

    targets = options.targets or (known.targets if there(*known.targets) else ())
    chosen = replace(
        options,
        smiles=options.smiles or (known.smiles if there(known.smiles) else None),
        id=options.id or (known.id if there(known.id) else None),
        targets=targets or table.targets,
    )
    if chosen.smiles is None and table.structures is None:
        chosen = replace(chosen, smiles=table.unnamed or _guessed(table, known.smiles))
    named = [("smiles", chosen.smiles), ("id", chosen.id)]
    for argument, name in named + [("target", name) for name in chosen.targets]:
        if name is not None:
            table.check(argument, name)
    return chosen


def _guessed(table: Table, trained: str | None) -> str:
    """Find the column of structures; ``trained`` is that of a model, which the table lacks."""
    columns = table.columns
    alike = [name for name in columns if trained and name.casefold() == trained.casefold()]
    exact = [name for name in columns if name.casefold() in STRUCTURES]
    every = [name for name in columns if name in exact or "smiles" in name.casefold()]
    # A model's column may have another name here, but which one is not guessed from several.
    found = alike or (every if trained else exact or every)
    lacking = (
        f"there is no column {quoted(trained)}, which the model was trained on" if trained else ""
    )
    if len(found) == 1:
        others = [name for name in every if name not in found]
        if lacking or others or not exact:
            note = f"Structures were read from the column {quoted(found[0])}"
            reason = f": {lacking}" if lacking else f", not from {listed(others)}" if others else ""
            table.notes[f"{note}{reason}."] = None
        return found[0]
    which = f"several of the columns ({listed(found)}) may" if found else "no column seems to"
    raise DataError(
        f"{table.where}: {lacking}{', and ' if lacking else ''}{which} hold the structures; name "
        f"the one that does with `smiles`. The columns are {listed(columns)}"
    )


class _Row(NamedTuple):
    """A row of a table; ``reason`` is why it cannot be used, if already known."""

    text: str
    id: str
    cells: tuple[str, ...]
    reason: str = ""


def _rows(table: Table, options: TableOptions, skip: int = 0) -> Iterator[_Row]:
    structures = options.smiles or table.structures
    assert structures is not None
    name = options.id or table.ids
    names = [structures, *([name] if name else []), *options.targets]
    first = len(names) - len(options.targets)
    for number, (cells, reason) in enumerate(islice(table.rows(names), skip, None), skip + 1):
        if not cells:
            yield _Row("", str(number), (), reason)
            continue
        text = cells[0] if "\n" in cells[0] else cells[0].strip()
        label = (cells[1].strip() if name else "") or ("" if "\n" in text else text)
        yield _Row("" if reason else text, label or str(number), tuple(cells[first:]), reason)


def read_table(data: Any, y: Any = None, name: str | None = None, **given: Any) -> GraphStore:
    """Read a table of molecules for training; rows without a target are skipped."""
    if y is not None and given.get("target") is not None:
        raise GraphTransplantError("give either `y` or `target`, the column of the targets")
    table = open_table(data, y, name)
    options = _chosen(table, TableOptions.of(**given), None)
    if not options.targets:
        structures = (options.smiles, table.structures)
        others = [column for column in table.columns if column not in structures]
        columns, there = ("columns", "are") if len(others) > 1 else ("column", "is only")
        what = f"name the {columns} to learn with `target`; there {there} {listed(others)}"
        if not others:
            what = "there are structures but no targets; add a target column and name it with "
            what += "`target`, or pass `y` with a list"
        raise DataError(f"{table.where}: {what}")
    rows = list(_rows(table, options))
    featurizer = Featurizer(
        "molecules",
        largest_fragment=options.largest_fragment,
        **options.columns(),
    )
    texts, ids = [row.text for row in rows], [row.id for row in rows]
    known = {place: row.reason for place, row in enumerate(rows) if row.reason}
    arrays = molecule_arrays(texts, known, featurizer.largest_fragment, table.size)
    # Checked before the targets: a wrong structure column is the most likely mistake.
    skipped = [Skipped(place + 1, ids[place], why) for place, why in arrays.problems.items()]
    check_readable(table.where, len(rows), skipped)
    cells = [rows[place].cells for place in arrays.places.tolist()]
    numbered = zip((arrays.places + 1).tolist(), cells, strict=True)
    codec, remarks = find_codec(table.where, options.targets, numbered, options.task)
    featurizer = replace(featurizer, decimal_comma=codec.decimal_comma)
    targets = dict(zip(arrays.places.tolist(), map(codec.encode, cells), strict=True))
    lacking = {place: why for place, why in targets.items() if isinstance(why, str)}
    arrays = replace(
        arrays.keep(~np.isin(arrays.places, list(lacking))),
        problems=dict(sorted((dict(arrays.problems) | lacking).items())),
    )
    store = codec.apply(
        store_of(arrays, featurizer, ids, texts, table.name, table.where),
        [target for target in targets.values() if not isinstance(target, str)],
    )
    mixtures = int(np.isin(arrays.places, list(arrays.fragments)).sum())
    salts = [
        f"{mixtures} of {len(store)} molecules have several fragments (salts, mixtures); "
        + ("the largest was kept." if options.largest_fragment else "`largest_fragment` keeps one.")
    ]
    store.notes = (*table.notes, *remarks, *(salts if mixtures else ()))
    return store


def stream_table(
    data: Any, reading: Reading, y: Any = None, name: str | None = None, **given: Any
) -> Iterator[Chunk]:
    """Read molecules in chunks."""
    table, options = open_table(data, y, name), TableOptions.of(**given)
    featurizer, codec = reading.featurizer, reading.codec
    how = featurizer or Featurizer("molecules", largest_fragment=options.largest_fragment)
    if options.largest_fragment and not how.largest_fragment:
        raise GraphTransplantError(
            "`largest_fragment` must be set when the model is trained, which it was not"
        )
    if codec is None:
        options = replace(options, targets=(), whole=None)
        table = replace(table, targets=())
        featurizer = featurizer and replace(featurizer, targets=())
    options = _chosen(table, options, featurizer)
    if codec is not None and not options.targets and set(codec.names) <= set(table.columns):
        options = replace(options, targets=codec.names)
    if codec is not None and options.targets and len(options.targets) != len(codec.names):
        raise DataError(
            f"{table.where}: `target` must be {count(len(codec.names), 'column')} "
            f"({listed(codec.names)}); got {listed(options.targets)}"
        )
    chemistry()
    return _stream(table, options, replace(how, **options.columns()), reading)


def _stream(
    table: Table, options: TableOptions, featurizer: Featurizer, reading: Reading
) -> Iterator[Chunk]:
    codec, first = reading.codec, reading.skip_rows + 1
    rows = _rows(table, options, reading.skip_rows)
    parts = iter(lambda: list(islice(rows, reading.rows_per_chunk)), [])
    for part, arrays in _in_order(parts, featurizer, reading.workers, table.size):
        ids, texts = [row.id for row in part], [row.text for row in part]
        chunk = chunk_of(arrays, featurizer, ids=ids, texts=texts, first=first, name=table.name)
        chunk = replace(chunk, notes=tuple(table.notes))
        if chunk.store is not None:
            chunk.store.notes = chunk.notes
        if codec is not None:
            targets = {first + place: codec.encode(row.cells) for place, row in enumerate(part)}
            chunk = replace(chunk, targets=targets)
        yield chunk
        first += len(part)


def _in_order(
    parts: Iterator[list[_Row]], how: Featurizer, workers: int, size: int | None
) -> Iterator[tuple[list[_Row], MoleculeArrays]]:
    """Read the molecules of chunks of rows, with worker processes if asked; yield in order."""

    def task(rows: list[_Row]) -> tuple[Any, ...]:
        reasons = {place: row.reason for place, row in enumerate(rows) if row.reason}
        return [row.text for row in rows], reasons, how.largest_fragment, size

    if workers == 1:
        for part in parts:
            yield part, molecule_arrays(*task(part))
        return
    # Spawned, as forking a process with threads, such as those of torch, may hang.
    pool = ProcessPoolExecutor(
        workers,
        mp_context=get_context("spawn"),
        initializer=set_up_worker,
        initargs=(os.getpid(),),
    )
    waiting: deque[tuple[list[_Row], Future[MoleculeArrays]]] = deque()
    try:
        while True:
            # Two tasks per worker, so that none idles while the oldest result is used.
            for part in islice(parts, max(0, 2 * workers - len(waiting))):
                waiting.append((part, pool.submit(molecule_arrays, *task(part))))
            if not waiting:
                return
            part, future = waiting.popleft()
            yield part, future.result()
    except BrokenExecutor:
        raise GraphTransplantError(
            f"a worker process died while reading molecules; `workers` is {workers}, try 1"
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
