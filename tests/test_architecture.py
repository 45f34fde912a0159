"""The corridor: a module imports only from rooms that stand before its own."""

from __future__ import annotations

import ast
import doctest
import graphlib
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

import graph_transplant

PACKAGE = "graph_transplant"
SOURCE = Path(__file__).resolve().parents[1] / "src" / PACKAGE

# The rooms in the order in which data flows through them. A new room takes its place here,
# in docs/design.md, and nowhere else.
CORRIDOR = (
    "errors",
    "files",
    "segments",
    "sparse",
    "graphs",
    "targets",
    "metrics",
    "nn",
    "saliency",
    "augment",
    "checkpoints",
    "training",
    "tensorboard",
    "analysis",
    "datasets",
    "experiments",
    "trained",
    "report",
    "estimator",
    "cli",
    "__main__",
)

# Names of the package itself that any room may read: they lead into no room.
FREE_NAMES = frozenset({"__version__"})


def modules() -> dict[str, Path]:
    """Dotted name of every module of the package, with its file."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()
NAMES = sorted(MODULES)


def room(module: str) -> str:
    """First part of a module's name below the package; empty for the package itself."""
    return module.removeprefix(PACKAGE).removeprefix(".").partition(".")[0]


def resolve(module: str, name: str) -> str:
    """``from module import name`` reads the module ``module.name`` where there is one."""
    return f"{module}.{name}" if f"{module}.{name}" in MODULES else module


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and target of every import of our own modules, inside functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == PACKAGE:
                    yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: write the import in full, not relative"
            if node.module and node.module.split(".")[0] == PACKAGE:
                for alias in node.names:
                    if node.module == PACKAGE and alias.name in FREE_NAMES:
                        continue
                    yield node.lineno, resolve(node.module, alias.name)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            for argument in node.args[:1]:
                if isinstance(argument, ast.Constant) and str(argument.value).startswith(PACKAGE):
                    yield node.lineno, str(argument.value)


def violations(module: str, source: str) -> list[str]:
    """Imports in ``source``, the text of ``module``, that go against the corridor."""
    here = room(module)
    if not here:
        return []  # the package itself hands out names of every room, lazily
    wrong = []
    for line, target in imports(ast.parse(source)):
        there = room(target)
        if there not in CORRIDOR:
            wrong.append(f"{module}:{line} imports {target}: name the module, not the package")
        elif there != here and CORRIDOR.index(there) > CORRIDOR.index(here):
            wrong.append(f"{module}:{line} imports {target}, which stands after {here!r}")
    return wrong


def test_every_module_stands_in_a_room() -> None:
    assert {room(name) for name in NAMES} - {""} <= set(CORRIDOR)


@pytest.mark.parametrize("module", NAMES)
def test_imports_follow_the_corridor(module: str) -> None:
    assert violations(module, MODULES[module].read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "line",
    [
        "from graph_transplant.training import fit",
        "from graph_transplant import training",
        "import graph_transplant.training",
        "from graph_transplant import fit",
        "def late():\n    from graph_transplant.cli import main",
        "importlib.import_module('graph_transplant.training')",
    ],
)
def test_an_import_out_of_order_is_found(line: str) -> None:
    assert len(violations("graph_transplant.graphs", line)) == 1
    assert (
        violations("graph_transplant.graphs", "from graph_transplant.errors import DataError") == []
    )


def test_no_module_imports_itself_in_a_circle() -> None:
    graph = {
        name: {target for _, target in imports(ast.parse(path.read_text(encoding="utf-8")))}
        for name, path in MODULES.items()
    }
    graph.pop(PACKAGE)
    graphlib.TopologicalSorter(graph).prepare()


@pytest.mark.parametrize("module", NAMES)
def test_module_has_a_docstring(module: str) -> None:
    docstring = ast.get_docstring(ast.parse(MODULES[module].read_text(encoding="utf-8")))
    assert docstring, f"{module} does not say what lives there"


def test_public_names_are_listed_once_and_exist() -> None:
    names = list(graph_transplant.__all__)
    assert len(set(names)) == len(names)
    assert set(names) <= set(dir(graph_transplant))


@pytest.mark.parametrize("name", sorted(set(graph_transplant.__all__) - FREE_NAMES))
def test_public_name_is_explained_by_a_running_example(name: str) -> None:
    value = getattr(graph_transplant, name)
    if not (inspect.isclass(value) or inspect.isfunction(value)):
        page = (SOURCE.parents[1] / "docs" / "api.md").read_text(encoding="utf-8")
        assert f".{name}\n" in page, (
            f"{name} is data and has no docstring: docs/api.md must show it"
        )
        return
    docstring = inspect.getdoc(value)
    assert docstring, f"{name} has no docstring"
    # The examples themselves run with the doctests of their modules (`--doctest-modules`).
    assert doctest.DocTestParser().get_examples(docstring), f"{name} shows no `>>>` example"
    home = importlib.import_module(value.__module__)
    assert getattr(home, value.__name__) is value


def test_an_unknown_public_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = graph_transplant.no_such_name  # type: ignore[attr-defined]
