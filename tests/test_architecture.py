"""The import order of the package's layers, and its public names."""

from __future__ import annotations

import ast
import doctest
import graphlib
import inspect
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

import graph_transplant

PACKAGE = "graph_transplant"
SOURCE = Path(__file__).resolve().parents[1] / "src" / PACKAGE

# A module imports only from its own layer and from the layers before it, in functions too.
LAYERS = (
    "errors",
    "processes",
    "files",
    "format",
    "metrics",
    "methods",
    "recipes",
    "known",
    "shown",
    "kernels",
    "segments",
    "sparse",
    "graphs",
    "targets",
    "scores",
    "nn",
    "saliency",
    "augment",
    "transforms",
    "checkpoints",
    "ranks",
    "steps",
    "training",
    "tensorboard",
    "analysis",
    "datasets",
    "structures",
    "splits",
    "settings",
    "classical",
    "config",
    "models",
    "experiments",
    "figures",
    "report",
    "estimator_data",
    "estimator",
    "cli",
    "paper",
    "__main__",
)


def name_of(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in sorted(SOURCE.rglob("*.py"))}


def parse(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


def layer(module: str) -> str:
    """First part of a module's name below the package; empty for the package itself."""
    return module.removeprefix(PACKAGE).removeprefix(".").partition(".")[0]


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and target of every import of our own modules."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == PACKAGE:
                    yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == PACKAGE:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                if name != f"{PACKAGE}.__version__":
                    yield node.lineno, name if name in MODULES else str(node.module)


# Neither imports the other: what both need lies below them.
APART = {"models", "experiments"}

# What is imported only when it is asked for: the charts and pages of results and models, the
# augmentations behind the names of methods.
OFFERED = {
    f"{PACKAGE}.models.model": ("report",),
    f"{PACKAGE}.experiments.results": ("figures", "report"),
    f"{PACKAGE}.methods": ("augment", "graphs", "nn", "saliency"),
}


def out_of_order(module: str, tree: ast.AST) -> list[str]:
    """Imports of a module from a layer behind its own, or through the package itself."""
    own = layer(module)
    allowed = {*LAYERS[: LAYERS.index(own) + 1], *OFFERED.get(module, ())}
    allowed -= APART - {own} if own in APART else set()
    return [
        f"{module}:{line} imports {target}"
        for line, target in imports(tree)
        if layer(target) not in allowed
    ]


def test_imports_follow_the_order_of_the_layers() -> None:
    # The package itself hands out names of every layer.
    for module in MODULES.keys() - {PACKAGE}:
        assert out_of_order(module, parse(module)) == []


def test_an_import_out_of_order_is_found() -> None:
    for line in (
        "from graph_transplant.training import fit",
        "from graph_transplant import training",
        "import graph_transplant.training",
        "from graph_transplant import fit",
        "def late():\n    from graph_transplant.cli import main",
    ):
        assert len(out_of_order("graph_transplant.graphs", ast.parse(line))) == 1
    for own, other in (("models", "experiments.protocol"), ("experiments", "models.model")):
        assert out_of_order(f"{PACKAGE}.{own}", ast.parse(f"import {PACKAGE}.{other}"))
    in_order = ast.parse("from graph_transplant.errors import DataError")
    assert out_of_order("graph_transplant.graphs", in_order) == []


def test_no_module_imports_itself_in_a_circle() -> None:
    # Imports inside functions run later: a store imports the module of its file so.
    graph = {
        name: {
            target
            for node in parse(name).body
            if isinstance(node, ast.Import | ast.ImportFrom)
            for _, target in imports(node)
        }
        for name in MODULES.keys() - {PACKAGE}
    }
    graphlib.TopologicalSorter(graph).prepare()


def test_public_names_are_explained_by_running_examples() -> None:
    names = graph_transplant.__all__
    assert len(set(names)) == len(names)
    assert set(names) <= set(dir(graph_transplant))
    # The examples themselves run with the doctests of their modules (`--doctest-modules`).
    parser = doctest.DocTestParser()
    for name in names:
        value = getattr(graph_transplant, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert parser.get_examples(inspect.getdoc(value) or ""), f"{name} has no example"
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = graph_transplant.no_such_name  # type: ignore[attr-defined]


def test_what_is_slow_to_import_is_imported_for_its_users_only() -> None:
    """PyG and torch's compiler take longer to import than torch; predicting does without."""
    model = Path(__file__).parent / "golden" / "models" / "motifs"
    code = f"""
        import sys
        import graph_transplant as gt
        from graph_transplant.steps import augmented_loss
        batch = gt.load("motifs", graphs=8).batch(range(8))
        network = gt.GraphClassifier.for_data(gt.load("motifs", graphs=8), hidden=4, layers=1)
        augmented_loss(network, batch, gt.GraphTransplant()).backward()
        gt.compare, gt.train, gt.explain
        gt.TrainedModel.load({str(model)!r}).predict("motifs", graphs=8)
        slow = ["scipy.stats", "sklearn", "torch_geometric", "torch._dynamo"]
        print([name for name in slow if name in sys.modules])
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
