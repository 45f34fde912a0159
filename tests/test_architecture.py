"""The import order of the packages, and its public names."""

from __future__ import annotations

import ast
import doctest
import graphlib
import inspect
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

import graph_transplant

PACKAGE = "graph_transplant"
SOURCE = Path(__file__).resolve().parents[1] / "src" / PACKAGE

# A package imports only from those before it in this list, also in functions and for types.
ORDER = [
    "errors",
    "utils",
    "metrics",
    "methods",
    "config",
    "results",
    "figures",
    "report",
    "kernels",
    "data",
    "datasets",
    "nn",
    "augment",
    "transforms",
    "training",
    "analysis",
    "baselines",
    "models",
    "comparison",
    "sklearn",
    "cli",
    "__main__",
]
LIGHT = ORDER[: ORDER.index("kernels")]

# Imported where it is used, or as a type: searching for the name finds it, which a string would
# not.
LATE = {
    "config.training": {"augment", "datasets"},  # types of what `gt.train` also takes
    "results.predictions": {"data"},  # a type
    "results.groups": {"figures"},  # `Results.plot`
    "results.results": {"report"},  # `Results.report`
}


def name_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in sorted(SOURCE.rglob("*.py"))}


def imports(tree: ast.Module) -> Iterator[tuple[str, bool]]:
    """Yield what is imported of our own, without the package's name, and whether at the top."""
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            if name.split(".")[0] == PACKAGE and name != f"{PACKAGE}.__version__":
                yield name.removeprefix(PACKAGE).removeprefix("."), node in tree.body


def out_of_order(module: str, tree: ast.Module) -> list[str]:
    """Imports of a module from a package behind its own, or through the package itself."""
    before = ORDER[: ORDER.index(module.partition(".")[0]) + 1]
    return [
        name
        for name, top in imports(tree)
        if (package := name.partition(".")[0]) not in before
        and (top or package not in LATE.get(module, ()))
    ]


def parse(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


def test_a_package_imports_only_from_those_before_it() -> None:
    # The package itself hands out names of every package.
    found = {module: out_of_order(module, parse(module)) for module in MODULES.keys() - {""}}
    assert {module: names for module, names in found.items() if names} == {}


def edited_texts(tree: ast.AST) -> list[str]:
    """Calls that edit a text: ``text.replace``, ``text.lstrip``, ``re.sub``."""
    found = [one.func for one in ast.walk(tree) if isinstance(one, ast.Call)]
    return [
        text
        for one in found
        if isinstance(one, ast.Attribute)
        and ((text := ast.unparse(one)) == "re.sub" or one.attr in ("replace", "lstrip"))
    ]


def test_sentences_are_not_mended() -> None:
    elsewhere = {
        "report.typography",
        *("figures.style", "figures.graphs"),  # colours and numbers of SVG
        "results.record",  # a file name
    }
    checked = [
        module
        for module in MODULES
        if module.startswith(("results.", "report.", "models.", "figures."))
    ]
    found = {module: edited_texts(parse(module)) for module in {*checked} - elsewhere}
    assert {module: calls for module, calls in found.items() if calls} == {}
    assert edited_texts(ast.parse("f(a.b().replace('x', 'y'), re.sub('x', 'y', z), b.strip())"))
    assert not edited_texts(ast.parse("replace(call, out=None), group._replace(layers=3)"))


def test_an_import_out_of_order_is_found() -> None:
    for line in (
        "from graph_transplant.training import fit",
        "from graph_transplant import training",
        "import graph_transplant.training",
        "import graph_transplant",
        "from graph_transplant import fit",
        "def late():\n    from graph_transplant.cli import main",
        "if TYPE_CHECKING:\n    from graph_transplant.nn import GraphClassifier",
    ):
        assert len(out_of_order("data.batch", ast.parse(line))) == 1
    late = "from graph_transplant.report import write_report"
    assert out_of_order("results.results", ast.parse(late))
    assert not out_of_order("results.results", ast.parse(f"def late():\n    {late}"))
    in_order = ast.parse("from graph_transplant.errors import DataError")
    assert out_of_order("data.batch", in_order) == []


def test_exceptions_from_the_order_are_needed() -> None:
    for module, packages in LATE.items():
        used = {name.partition(".")[0] for name, _ in imports(parse(module))}
        assert packages <= used, module


def test_files_do_not_import_each_other_in_a_circle() -> None:
    # Imports inside functions run later: a store imports the module of its file so.
    graph = {
        module: {
            name if name in MODULES else name.rpartition(".")[0]
            for name, top in imports(parse(module))
            if top
        }
        for module in MODULES.keys() - {""}
    }
    graphlib.TopologicalSorter(graph).prepare()


def test_what_says_sets_judges_and_shows_loads_no_torch() -> None:
    # What computes metrics is loaded by the first metric that is computed.
    light = [
        module
        for module in MODULES
        if module.partition(".")[0] in LIGHT and not module.startswith("metrics.")
    ]
    code = "import importlib, sys\n" + "".join(
        f"importlib.import_module('{PACKAGE}.{module}')\n" for module in light
    )
    code += "print([name for name in ('torch', 'numba') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_tree_stays_small() -> None:
    assert len(MODULES) <= 157


PAGE = SOURCE.parents[1] / "docs" / "architecture.md"


def test_the_page_lists_the_packages_in_order() -> None:
    table = PAGE.read_text(encoding="utf-8").partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \| ", table, re.M) == [*ORDER, "__init__"]


def test_the_page_knows_where_things_are() -> None:
    text = PAGE.read_text(encoding="utf-8")
    listed = re.findall(r"^\| .* \| `([a-z_/]+\.py)`: `([\w.]+)` \|$", text, re.M)
    assert len(listed) == 21
    for file, name in listed:
        *owner, last = name.split(".")
        code = (SOURCE / file).read_text(encoding="utf-8")
        for part in (*(f"^class {each}\\b" for each in owner), rf"^\s*(def |class )?{last}\b"):
            assert re.search(part, code, re.M), (file, name)
    for block in re.findall(r"^```text\n(.*?)^```$", text, re.M | re.S):
        for path in re.findall(r"[a-z]+/[a-z_]+", block):
            assert (SOURCE / path).is_dir() or (SOURCE / f"{path}.py").is_file(), path


def test_only_front_doors_have_many_parameters() -> None:
    found = {
        f"{module}.{node.name}"
        for module in MODULES
        for node in ast.walk(parse(module))
        if isinstance(node, ast.FunctionDef)
        and len([*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]) > 12
        and node.name != "__init__"
    }
    assert found == {"comparison.compare.compare", "training.loop.fit"}


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
        from graph_transplant.training import augmented_loss
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


# Content of files that is not yet upgraded is interpreted in these functions only.
UPGRADES = {"upgrade", "_newer", "description_of"}
CONTENT = [["content"], ["description"], ["document"], ["record"], ["settings"]]


def guesses(tree: ast.AST) -> list[str]:
    """List calls of ``get`` on the content of files outside the functions that upgrade it."""
    upgrading = {
        inner
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef) and function.name in UPGRADES
        for inner in ast.walk(function)
    }
    return [
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if node.func.attr == "get" and node not in upgrading
        if re.findall(r"\w+", ast.unparse(node.func.value))[-1:] in CONTENT
    ]


def test_only_upgrade_knows_what_older_files_lack() -> None:
    for call in ('record.get("model")', 'one.settings.get("split", "folds")'):
        assert guesses(ast.parse(f"def words(record):\n    return {call}")) == [
            call.replace('"', "'")
        ]
        assert not guesses(ast.parse(f"def upgrade(record):\n    return {call}"))
    readers = ("results", "figures", "report", "models", "comparison", "cli")
    names = [name for name in MODULES if name.startswith(readers)]
    assert not {name: found for name in names if (found := guesses(parse(name)))}
