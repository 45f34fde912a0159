"""Public names and options change only on purpose.

``golden/public_names.txt`` lists them. After a change that is meant, write it again with
``python tests/test_public_names.py`` and add a line to CHANGELOG.md; CONTRIBUTING.md says what is
public and how a name goes.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from graph_transplant.cli import app

LIST = Path(__file__).parent / "golden" / "public_names.txt"

PACKAGES = [
    "",
    *("errors", "methods", "metrics", "config", "results", "figures"),
    *("data", "datasets", "nn", "augment", "transforms", "training"),
    *("analysis", "models", "comparison", "sklearn"),
]


def public_names() -> Iterator[str]:
    """Yield the names of each package, and the arguments and options of each command."""
    for package in PACKAGES:
        home = f"graph_transplant.{package}".removesuffix(".")
        yield from (f"{home}.{name}" for name in sorted(import_module(home).__all__))
    for command in sorted(name for name in app if not name.startswith("-")):
        yield f"graph-transplant {command}"
        listed = app[command].assemble_argument_collection(default_parameter=app.default_parameter)
        options = sorted(name for one in listed if one.show for name in one.names)
        yield from (f"graph-transplant {command} {option}" for option in options)


def test_public_names_and_options_are_those_of_the_list() -> None:
    listed, found = LIST.read_text(encoding="utf-8").splitlines(), list(public_names())
    assert found == listed, (
        f"gone: {sorted(set(listed) - set(found))}; new: {sorted(set(found) - set(listed))}; "
        "see the top of this file"
    )


def test_every_public_name_exists() -> None:
    for package in PACKAGES:
        module = import_module(f"graph_transplant.{package}".removesuffix("."))
        names = module.__all__
        assert len(set(names)) == len(names), module
        assert [name for name in names if not hasattr(module, name)] == [], module


if __name__ == "__main__":
    LIST.write_text("\n".join(public_names()) + "\n", encoding="utf-8")
