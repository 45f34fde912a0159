"""Options are declared once: signatures, command line, checks and records follow dataclasses."""

import inspect
from dataclasses import dataclass, fields
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
import pytest
from cyclopts import App, Parameter
from rich.console import Console

import graph_transplant as gt
from graph_transplant.cli.arguments import PARAMETER
from graph_transplant.config import CompareConfig, TrainConfig
from graph_transplant.config.compare import Settings
from graph_transplant.config.datasets import READING
from graph_transplant.datasets.rows import TableOptions
from graph_transplant.errors import GraphTransplantError, check_in

Tilt = Annotated[float, partial(check_in, "(0, 1]")]


# A copy with three more options, one of which the settings of a trial hold.
@dataclass(frozen=True, kw_only=True)
class MoreOptions(CompareConfig):
    """Options.

    Args:
        tilt: How far to tilt.
        shape: What it is.
        turns: How often.
    """

    tilt: Tilt = 0.5
    shape: Literal["round", "square"] = "round"
    turns: tuple[int, ...] = (1, 2)


@dataclass(frozen=True)
class MoreSettings(Settings):
    tilt: Tilt = MoreOptions.tilt


NOTHING = MoreOptions()


def show(*, config: Annotated[MoreOptions, Parameter(name="*")] = NOTHING) -> MoreOptions:
    """Return the options."""
    return config


APP = App(default_command=show, default_parameter=PARAMETER, result_action="return_value")


def typed(words: str) -> Any:
    return APP(words.split(), exit_on_error=False, print_error=False)


def test_an_option_that_is_declared_is_an_option_of_the_command_line(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert typed("--tilt 0.25 --shape square --turns 3,4") == MoreOptions(
        tilt=0.25, shape="square", turns=(3, 4)
    )
    APP.help_print(console=Console(width=200))
    lines = capfd.readouterr().out.splitlines()
    (tilt,) = [line for line in lines if "--tilt" in line]
    assert "How far to tilt. [default: 0.5]" in tilt
    (shape,) = [line for line in lines if "--shape" in line]
    assert "What it is. [choices: round, square] [default: round]" in shape
    (turns,) = [line for line in lines if "--turns" in line]
    assert "[default: 1,2]" in turns


@pytest.mark.parametrize(
    ("words", "given", "message"),
    [
        ("--tilt 2", {"tilt": 2.0}, r"`tilt` must be in \(0, 1\], got 2.0"),
        ("--shape squar", {"shape": "squar"}, "`shape` must be one of round, square; .*'square'"),
        ("--layers 3,0", {"layers": [3, 0]}, "`layers` must be at least 1, got 0"),
    ],
)
def test_python_and_the_command_line_refuse_in_the_same_words(
    words: str, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(GraphTransplantError, match=message) as python:
        MoreOptions(**given)
    with pytest.raises(GraphTransplantError) as shell:
        typed(words)
    assert str(shell.value) == str(python.value)


def test_an_option_that_is_a_setting_is_in_every_record() -> None:
    settings = MoreSettings.resolved(MoreOptions(tilt=0.25, ties="loss"), "small")
    record = settings.as_record("1")
    assert (record["tilt"], record["ties"], record["epochs"]) == (0.25, "loss", 1000)
    assert "shape" not in record


def test_lists_are_typed_with_commas_and_one_value_stands_for_a_list() -> None:
    config = typed("--layers 3,4 --attack 0.1,0.05 --models gcs,gin --methods drop-nodes:ratio=0.4")
    assert (config.layers, config.attack) == ((3, 4), (0.1, 0.05))
    assert (config.model, config.methods) == (("gcs", "gin"), ("drop-nodes:ratio=0.4",))
    assert config == MoreOptions(
        layers=np.array([3, 4, 3]),
        attack=[0.1, 0.05],
        model=["gcs", "gin"],
        methods="drop-nodes:ratio=0.4",
    )
    # Records hold no scalars of NumPy, and no negative zero.
    config = CompareConfig(seed=np.int64(3), label_noise=-0.0)
    assert (type(config.seed), repr(config.label_noise)) == (int, "(0.0,)")
    own = {"mine": object()}
    assert CompareConfig(methods=own).methods is own


def test_the_signature_of_compare_spells_out_every_option() -> None:
    parameters = inspect.signature(gt.compare).parameters
    other = ("data", "out", "fresh", "source", "reporter", "callbacks", "reading")
    spelled = {name: each.default for name, each in parameters.items() if name not in other}
    assert list(spelled) == [option.name for option in fields(CompareConfig)]
    assert CompareConfig(**spelled) == CompareConfig()


@pytest.mark.parametrize(
    ("estimator", "lacking"),
    [
        (gt.GraphTransplantClassifier, set()),
        (gt.GraphTransplantRegressor, {"balance", "class_weight"}),
    ],
)
def test_estimators_spell_out_the_options_of_training(
    estimator: type[Any], lacking: set[str]
) -> None:
    names = {"method": "augment", "validation": "validation_fraction", "seed": "random_state"}
    lacking = lacking | {"split", "test"}
    expected = {
        names.get(option.name, option.name): option.default
        for option in fields(TrainConfig)
        if option.name not in lacking
    }
    parameters = inspect.signature(estimator).parameters
    spelled = {name: each.default for name, each in parameters.items()}
    # An estimator is different every time unless told otherwise.
    assert spelled == expected | {"random_state": None, "device": "cpu", "verbose": 0}
    assert inspect.signature(estimator.__init__).parameters.keys() == {"self", *spelled}


def test_readers_take_the_options_of_reading() -> None:
    options = {name: "y" if name == "target" else None for name in READING if name != "root"}
    assert TableOptions.of(**options).targets == ("y",)


def test_shares_must_leave_graphs_to_train_on() -> None:
    with pytest.raises(GraphTransplantError, match="must leave graphs to train on"):
        TrainConfig(validation=0.5, test=0.5)
