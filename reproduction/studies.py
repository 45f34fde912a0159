"""Studies that can be stopped: a JSON line per training, and what has one is not run again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

Record = dict[str, Any]


def read(path: Path) -> list[Record]:
    """Everything measured so far."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def run_missing(
    path: Path,
    keys: Sequence[str],
    cases: Iterable[tuple[Any, ...]],
    measure: Callable[..., Record],
) -> None:
    """Measure the cases that have no record yet; ``keys`` name what makes up a case."""
    path.parent.mkdir(parents=True, exist_ok=True)
    done = {tuple(record[key] for key in keys) for record in read(path)}
    for case in cases:
        if case not in done:
            record = {**dict(zip(keys, case, strict=True)), **measure(*case)}
            with path.open("a") as file:
                file.write(json.dumps(record) + "\n")
            print({key: value for key, value in record.items() if not isinstance(value, dict)})
