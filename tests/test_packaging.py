"""The wheel: what is in it, and that it works where the checkout is not."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import graph_transplant

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CONSTRAINTS = {
    canonicalize_name(line.split("==")[0]): line.split("==")[1].strip()
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    if "==" in line and not line.startswith("#")
}


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    options = ("--wheel", "--no-isolation", "--outdir", out)
    run(sys.executable, "-m", "build", *options, ROOT, cwd=out)
    (built,) = out.glob("*.whl")
    return built


def test_wheel_holds_the_whole_package_and_passes_twine(wheel: Path) -> None:
    source = ROOT / "src"
    wanted = {
        path.relative_to(source).as_posix()
        for path in source.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert held == wanted
    assert "graph_transplant/py.typed" in held
    assert any(name.startswith("graph_transplant/report/templates/") for name in held)
    run(sys.executable, "-m", "twine", "check", "--strict", wheel, cwd=wheel.parent)


def test_wheel_works_outside_the_checkout(wheel: Path, tmp_path: Path) -> None:
    installed, path = tmp_path / "elsewhere", {"PYTHONPATH": str(tmp_path / "elsewhere")}
    options = ("--quiet", "--no-deps", "--no-index", "--disable-pip-version-check")
    run(
        sys.executable, "-m", "pip", "install", *options, "--target", installed, wheel, cwd=tmp_path
    )
    where = "import graph_transplant; print(graph_transplant.__file__)"
    home = run(sys.executable, "-c", where, cwd=tmp_path, **path)
    assert Path(home.strip()).is_relative_to(installed)
    for command in (
        (sys.executable, "-m", "graph_transplant", "--version"),
        (sys.executable, installed / "bin" / "graph-transplant", "--version"),
    ):
        assert PROJECT["version"] in run(*command, cwd=tmp_path, **path)


def test_one_version_everywhere() -> None:
    version = PROJECT["version"]
    assert graph_transplant.__version__ == version
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {version}\n" in citation
    assert f"\n## {version}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("target", ["clean", "distclean"])
def test_clean_leaves_the_environment_and_distclean_nothing(target: str, tmp_path: Path) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    for folder in ("build", "src/__pycache__", ".venv/lib/__pycache__"):
        (tmp_path / folder).mkdir(parents=True)
    subprocess.run(["make", target], cwd=tmp_path, check=True, capture_output=True)
    assert {path.name for path in tmp_path.iterdir()} - {".venv"} == {"Makefile", "src"}
    assert not (tmp_path / "src" / "__pycache__").exists()
    assert (tmp_path / ".venv" / "lib" / "__pycache__").exists() == (target == "clean")


def test_every_requirement_has_a_tested_version_in_its_range() -> None:
    extras = PROJECT["optional-dependencies"]
    setup = [*PROJECT["dependencies"], *extras["test"], *extras["docs"], *extras["dev"]]
    for text in setup:
        requirement = Requirement(text)
        name = canonicalize_name(requirement.name)
        if name == PROJECT["name"]:
            continue
        assert name in CONSTRAINTS, f"{name} has no pin in constraints.txt"
        assert requirement.specifier.contains(CONSTRAINTS[name]), (text, CONSTRAINTS[name])
    # The torch that setup installs first is the tested one.
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.findall(r"torch==(\S+)", makefile) == [CONSTRAINTS["torch"]]


def test_workflows_and_hooks_run_what_the_makefile_runs() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    workflows = {
        path.stem: yaml.safe_load(path.read_text(encoding="utf-8"))
        for path in (ROOT / ".github" / "workflows").glob("*.yml")
    }
    assert workflows.keys() == {"tests", "docs", "release"}
    jobs = [job for workflow in workflows.values() for job in workflow["jobs"].values()]
    commands = "\n".join(step.get("run", "") for job in jobs for step in job["steps"])
    targets = re.findall(r"\bmake (\w+)", commands)
    assert set(targets) == {"setup", "check", "test", "docs"}
    assert set(targets) <= set(re.findall(r"^(\w+):", makefile, re.MULTILINE))
    pythons = workflows["tests"]["jobs"]["ranges"]["strategy"]["matrix"]["python"]
    assert PROJECT["requires-python"] == f">={pythons[0]}"
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    (repository,) = config["repos"]
    for hook in repository["hooks"]:
        assert f"\t{hook['entry'].replace('.venv/bin', '$(BIN)')}\n" in makefile
