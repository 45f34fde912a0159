"""Hostile folders of models: used or refused in one line, within bounds of time and memory.

``benchmarks/fuzz_models.py`` tries as many as one likes.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the limits are those of Linux")


def import_command() -> Any:
    path = Path(__file__).resolve().parents[1] / "benchmarks" / "fuzz_models.py"
    spec = importlib.util.spec_from_file_location("fuzz_models", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look there for their types
    spec.loader.exec_module(module)
    return module


fuzz = import_command()


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Any:
    found = fuzz.sound_models(tmp_path_factory.mktemp("models"))
    for model in found.values():
        assert fuzz.judged(fuzz.Case("sound", model.write, model.rows))[:2] == ("read", "")
    return found


BOMBS = (
    *("200,000 empty tensors", "60,000 members", "190,000 layers", "10^7 input layers"),
    *("a sparse file", "a sparse tensor", "long JSON"),
)


@pytest.mark.parametrize("name", BOMBS)
def test_a_folder_that_asks_for_far_too_much_is_refused(name: str, sound: Any) -> None:
    (case,) = (case for case in fuzz.bombs(sound) if case.name == f"bomb: {name}")
    assert fuzz.apart(case)[:2] == ("refused", "")


@pytest.mark.parametrize("seed", range(4))
def test_changed_folders_are_used_or_refused(seed: int, sound: Any) -> None:
    for case in fuzz.mutations(sound, 4, seed=seed):
        ended, problem, *_ = fuzz.apart(case)
        assert not problem, (case.name, ended)
