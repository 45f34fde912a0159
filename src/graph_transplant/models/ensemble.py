"""Ensembles of networks, whose predictions are averaged."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from graph_transplant.graphs import GraphBatch, as_batch
from graph_transplant.graphs.pyg import Data
from graph_transplant.nn import GraphClassifier, LayerOutput, Prediction


class Ensemble(GraphClassifier):
    """Networks of the same architecture, trained with different seeds.

    Not to be trained any further. Attributes are those of the first member.
    """

    def __init__(self, members: Sequence[GraphClassifier]) -> None:
        nn.Module.__init__(self)
        for name, value in vars(members[0]).items():
            if not name.startswith("_"):
                setattr(self, name, value)
        self.members = nn.ModuleList(members)

    def config(self) -> dict[str, object]:
        """Return the settings of one member."""
        return members_of(self)[0].config()

    def run(self, batch: GraphBatch | Data, *, layers: bool = True) -> Prediction:
        """Predict a batch; the logits are those of the mean probabilities.

        The last layers of all members are concatenated, so that saliency is a node's contribution
        to the joint prediction.
        """
        batch, members = as_batch(batch), members_of(self)
        outputs = [member.embed_nodes(batch) for member in members]
        last = [own[-1] for own in outputs]
        added = None
        if last[0].added is None:
            nodes = torch.cat([one.nodes for one in last], dim=1)
        else:  # a sum, so that gradients with respect to `added` exist
            added = torch.cat([one.added for one in last if one.added is not None], dim=1)
            before = [one.nodes - one.added for one in last if one.added is not None]
            nodes = torch.cat(before, dim=1) + added
        graphs, logits = [], []
        own_nodes = nodes.chunk(len(members), 1)
        for member, own, part in zip(members, outputs, own_nodes, strict=True):
            graphs.append(member._read_out((*own[:-1], own[-1]._replace(nodes=part)), batch))
            logits.append(member.classify(graphs[-1]))
        layer = LayerOutput(nodes, rectified=last[0].rectified, added=added)
        together = pooled(torch.stack(logits), self.task)
        return Prediction(nodes, torch.cat(graphs, dim=1), together, (layer,))


def members_of(network: GraphClassifier) -> list[GraphClassifier]:
    """Return the members of an ensemble; a single network is its own member."""
    if isinstance(network, Ensemble):
        return [member for member in network.members if isinstance(member, GraphClassifier)]
    return [network]


def pooled(logits: Tensor, task: str) -> Tensor:
    """Reduce ``[members, graphs, outputs]`` to logits of mean probabilities, or mean values."""
    if len(logits) == 1:
        return logits[0]
    if task == "regression":
        return logits.mean(0)
    count = math.log(len(logits))
    if task == "multiclass":
        return logits.log_softmax(2).logsumexp(0) - count
    return logsigmoid(logits).logsumexp(0) - logsigmoid(-logits).logsumexp(0)
