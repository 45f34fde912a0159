"""On a GPU: the same numbers as on the CPU, up to rounding. ``pytest -m cuda`` runs these alone.

Kernels choose on the host from one seed, so both devices mix the same nodes unless rounding changes
which nodes are most salient. So models are float64 here, and no two nodes have the same features.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import graph_transplant as gt
from graph_transplant.augment import build_method
from graph_transplant.data.targets import Loss
from graph_transplant.training.step import take_step

pytestmark = pytest.mark.cuda

MODEL = Path(__file__).parent / "golden" / "models" / "motifs"


def cuda() -> torch.device:
    """The GPU; called within tests, so that one line tells that all were skipped without one."""
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    return torch.device("cuda")


@pytest.fixture
def double() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def distinct_nodes(graphs: int) -> gt.GraphStore:
    generator = torch.Generator().manual_seed(0)
    made = gt.load("motifs", graphs=graphs).to_pyg()
    for data in made:
        data.x = torch.randn(data.num_nodes, 4, generator=generator, dtype=torch.float64)
    return gt.GraphStore.from_pyg(made)


def losses_and_weights(method: str, conv: str, device: torch.device) -> list[torch.Tensor]:
    """Three training steps: the parts of the loss of each, then the weights."""
    store = distinct_nodes(24)
    model = gt.GraphClassifier.for_data(store, conv=conv, layers=2, hidden=8, dropout=0.0, seed=0)
    augmentations = build_method(method, model, seed=0)
    modules = [model, *augmentations]
    for augmentation in augmentations:
        augmentation.check(model, store)
        augmentation.prepare(store, torch.Generator().manual_seed(0))
    for module in modules:
        module.to(device).train()
    parameters = [parameter for module in modules for parameter in module.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    generator = torch.Generator().manual_seed(0)
    found = []
    for numbers in torch.arange(24).split(8):
        losses = take_step(
            model, store.batch(numbers).to(device), augmentations, optimizer,
            loss_of=Loss(store.task), clip_norm=2.0, generator=generator,
        )  # fmt: skip
        assert losses is not None
        found += [losses.clean, losses.virtual, losses.auxiliary]
    assert all(value.device.type == device.type for value in found)
    return [value.detach().cpu() for value in [*found, *parameters]]


@pytest.mark.parametrize("conv", ["gcn", "gat"])
@pytest.mark.parametrize("method", ["transplant-dp", "transplant-ep"])
def test_training_steps_are_those_of_the_cpu(method: str, conv: str, double: None) -> None:
    device = cuda()
    expected = losses_and_weights(method, conv, torch.device("cpu"))
    found = losses_and_weights(method, conv, device)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-8)


def test_fit_and_evaluate_are_those_of_the_cpu(double: None) -> None:
    device = cuda()
    store = distinct_nodes(36)
    train, validation = store.subset(range(24)), store.subset(range(24, 36))
    on_cpu = gt.GraphClassifier.for_data(store, layers=2, hidden=8, dropout=0.0, seed=0)
    on_gpu = copy.deepcopy(on_cpu).to(device)
    found = []
    for model in (on_cpu, on_gpu):
        augment = gt.GraphTransplant("dp")
        fitted = gt.fit(model, train, validation, augment, seed=0, epochs=2, batch_size=8)
        found.append((gt.evaluate(model, validation), fitted.history[-1].train_loss))
    (expected, loss), (given, other) = found
    assert given.logits.device.type == "cpu"
    torch.testing.assert_close(given.logits, expected.logits, rtol=1e-6, atol=1e-8)
    assert other == pytest.approx(loss, rel=1e-6)


def test_predictions_of_a_saved_model_are_those_of_the_cpu() -> None:
    device = cuda()
    graphs = gt.load("motifs", graphs=16, seed=1)
    expected = gt.TrainedModel.load(MODEL).predictions(graphs)
    model = gt.TrainedModel.load(MODEL, device=device)
    assert model.device.type == "cuda"
    found = model.predictions(graphs)
    torch.testing.assert_close(found.outputs.cpu(), expected.outputs, rtol=1e-4, atol=1e-5)
