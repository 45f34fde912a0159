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


def test_folders_that_ask_for_far_too_much_are_refused(sound: Any) -> None:
    ends = {case.name: fuzz.apart(case)[:2] for case in fuzz.bombs(sound)}
    assert set(ends.values()) == {("refused", "")}, ends


def test_changed_folders_are_used_or_refused(sound: Any) -> None:
    for case in fuzz.mutations(sound, 24, seed=0):
        ended, problem, *_ = fuzz.apart(case)
        assert not problem, (case.name, ended)
