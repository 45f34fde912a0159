"""Hold node saliency against GNNExplainer and integrated gradients, as PyG has them.

    python -m reproduction.explainers [--graphs 10] [--epochs 30]

A model is trained on ``motifs``; printed is the mean over test graphs of Spearman's rank
correlation between our saliency, in both readings, and each explainer. All explain the logarithm of
the probability of the true class. Integrated gradients need captum.
"""

from __future__ import annotations

import argparse
import copy
from itertools import product

import numpy as np
import torch
from scipy.stats import spearmanr
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot
from torch_geometric.data import Data
from torch_geometric.explain import CaptumExplainer, Explainer, GNNExplainer

import graph_transplant as gt
from graph_transplant.analysis.saliency import spread
from graph_transplant.data import GraphBatch
from graph_transplant.nn import evaluating

EXPLAINERS = ("gnn-explainer", "integrated-gradients")


class Given(nn.Module):
    """An input layer that takes the features as they are."""

    def forward(self, batch: GraphBatch, dtype: torch.dtype) -> Tensor:
        return batch.nodes["x"].to(dtype)


class LogProbabilities(nn.Module):
    """A graph classifier as explainers of PyG want it: a function of features and edges.

    The weights are a copy without gradients: explainers run backward passes that would else leave
    gradients in the model.
    """

    def __init__(self, model: gt.GraphClassifier) -> None:
        super().__init__()
        self.classifier = copy.deepcopy(model).requires_grad_(False)
        self.inputs = self.classifier.inputs
        self.classifier.add_module("inputs", Given())

    def inputs_of(self, batch: GraphBatch) -> Tensor:
        """What enters the first layer, float ``[nodes, features]``: one-hot degrees if nothing."""
        dtype = next(self.classifier.parameters()).dtype
        given = self.inputs(batch.dense(), dtype)
        if isinstance(given, Tensor):
            return given
        return one_hot(given.code, self.inputs.features).to(dtype)

    def forward(
        self, x: Tensor, edge_index: Tensor, batch: Tensor, edge_attr: Tensor | None = None
    ) -> Tensor:
        data = Data(x=x, edge_index=edge_index, batch=batch, edge_attr=edge_attr)
        return self.classifier.run(data).logits.log_softmax(1)


def node_masks(model: gt.GraphClassifier, graph: GraphBatch, explainer: str) -> Tensor:
    """What an explainer says about the nodes of one graph, with its sign.

    float ``[nodes, 1]`` of GNNExplainer, ``[nodes, features]`` of integrated gradients, whose sum
    is the difference to an input of zeros.
    """
    algorithm, mask = GNNExplainer(), "object"
    if explainer == "integrated-gradients":
        algorithm, mask = CaptumExplainer("IntegratedGradients"), "attributes"
    explained = LogProbabilities(model).eval()
    explaining = Explainer(
        model=explained,
        algorithm=algorithm,
        explanation_type="phenomenon",
        node_mask_type=mask,
        model_config={
            "mode": "multiclass_classification",
            "task_level": "graph",
            "return_type": "log_probs",
        },
    )
    further = {"edge_attr": graph.edge_attr} if model.takes_edge_attr else {}
    # Explainers draw from torch's own generator and know no other.
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(0)
        found = explaining(
            explained.inputs_of(graph),
            graph.edge_index,
            target=graph.y,
            batch=graph.batch,
            **further,
        )
    return found.node_mask.detach()


def agreement(
    model: gt.GraphClassifier,
    store: gt.GraphStore,
    explainer: str,
    graphs: int,
    reading: gt.NodeSaliency,
) -> float:
    """Mean rank correlation; graphs in which either ranks nothing are left out."""
    found = []
    for number in spread(len(store), graphs).tolist():
        graph = store.batch([number])
        with evaluating(model), torch.enable_grad():
            prediction = model.run(graph)
            loss = cross_entropy(prediction.logits, graph.y)
            ours = reading.read(loss, prediction)
        theirs = node_masks(model, graph, explainer).sum(1).abs()
        if bool((ours != ours[0]).any() and (theirs != theirs[0]).any()):
            found.append(spearmanr(ours, theirs).statistic)
    return float(np.mean(found))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--graphs", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=30)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    parts = np.split(np.arange(480), [300, 360])
    train, validation, test = (gt.load("motifs", graphs=480).subset(part) for part in parts)
    model = gt.GraphClassifier.for_data(train, layers=3, hidden=64, seed=0)
    gt.fit(model, train, validation, seed=0, epochs=chosen.epochs, learning_rate=5e-3)
    for kind, explainer in product(("gradient", "gradient-x-activation"), EXPLAINERS):
        value = agreement(model, test, explainer, chosen.graphs, gt.NodeSaliency(kind))
        print(f"{kind:24}{explainer:24}{value:6.2f}")


if __name__ == "__main__":
    main()
