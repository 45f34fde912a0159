"""Uncertainty: ensembles, similarity to the training graphs, conformal prediction sets."""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from graph_transplant.data import GraphBatch, GraphStore, as_batch
from graph_transplant.data.pyg import Data
from graph_transplant.datasets.duplicates import structure_keys
from graph_transplant.datasets.molecules import BOND_STEREO, CHIRALITY
from graph_transplant.errors import DataError
from graph_transplant.kernels.fingerprints import BITS, circles, nearest
from graph_transplant.nn import GraphClassifier, LayerOutput, Prediction

COVERAGE: Final = 0.9  # default share of new graphs that sets and intervals should cover
MOST_KNOWN: Final = 5_000  # maximum number of training graphs to compare with

# Minimum number of graphs for comparing a quarter with the rest.
_FEWEST: Final = 20
_LEAST_ALIKE: Final = 0.05


@dataclass(frozen=True, eq=False)
class Reference:
    """Reference data for uncertainty, saved with the weights of a model."""

    scores: Tensor  # `scores_of` the validation graphs; NaN where a target is missing
    known: Tensor  # fingerprints of training graphs, int64 [graphs, 32]
    of_nodes: Tensor  # which node features the fingerprints use, bool [features]
    of_edges: Tensor  # the same for edge features

    @classmethod
    def of(cls, train: GraphStore, scores: Tensor, *, edges: bool, seed: int) -> Reference:
        """Summarise training graphs; ``edges`` includes edge features."""
        if len(train) > MOST_KNOWN:
            drawn = torch.randperm(len(train), generator=torch.Generator().manual_seed(seed))
            train = train.subset(drawn[:MOST_KNOWN])
        of_nodes, of_edges = label_columns(train)
        of_edges = of_edges if edges else of_edges[:0]
        known = np.unique(fingerprints(train, of_nodes, of_edges), axis=0).view(np.int64)
        return cls(scores, *map(torch.from_numpy, (known, of_nodes, of_edges)))

    def similarity(self, store: GraphStore) -> Tensor:
        """Return each graph's highest Tanimoto similarity to a training graph, ``[graphs]``."""
        rows = fingerprints(store, self.of_nodes.numpy(), self.of_edges.numpy())
        return torch.from_numpy(nearest(rows, self.known.numpy().view(np.uint64)))

    def check(self, where: str, columns: int, widths: tuple[int, int]) -> None:
        """Raise a `DataError` if tensors from a file do not fit the model."""
        tensors = (self.scores, self.known, self.of_nodes, self.of_edges)
        types, shapes = zip(*((each.dtype, tuple(each.shape)) for each in tensors), strict=True)
        if (
            types != (torch.double, torch.long, torch.bool, torch.bool)
            or (shapes[0][1:], shapes[1][1:]) != ((columns,), (BITS // 64,))
            or shapes[2:] != ((widths[0],), (widths[1],))
        ):
            raise DataError(f"{where}: the reference tensors do not fit the model")


def scores_of(outputs: Tensor, targets: Tensor, task: str) -> Tensor:
    """Nonconformity, ``[graphs, 1 or outputs]``: 1 - p of the true value, or the absolute error."""
    exact, wanted = outputs.double(), targets.double()
    if task == "multiclass":
        return 1 - exact.gather(1, wanted.argmax(1, keepdim=True))
    return (exact - wanted).abs()


def conformal_bounds(scores: Tensor, coverage: float) -> Tensor:
    """Upper bounds on the scores of a new graph with probability ``coverage``, ``[columns]``.

    The ⌈(n + 1) · coverage⌉-th smallest of n scores; infinity if there are too few.
    """
    found = []
    for column in scores.unbind(1):
        known = column[~column.isnan()].sort().values
        # The inner rounding corrects floating-point errors: 0.55 * 100 is 55.00000000000001.
        rank = math.ceil(round((len(known) + 1) * coverage, 9))
        found.append(float(known[rank - 1]) if 0 < rank <= len(known) else math.inf)
    return torch.tensor(found, dtype=torch.double)


def graphs_needed(coverage: float) -> int:
    """Return from how many scores on :func:`conformal_bounds` are finite."""
    return math.ceil(round(coverage / (1 - coverage), 9))


def likely(outputs: Tensor, bounds: Tensor, task: str) -> Tensor:
    """Prediction sets, bool ``[graphs, classes]``; for labels ``[graphs, labels, 2]``, no and yes.

    No set is empty: the most likely value is always included.
    """
    chances = outputs.double() if task == "multiclass" else torch.stack((1 - outputs, outputs), 2)
    limit = bounds if task == "multiclass" else bounds[:, None]
    return (1 - chances <= limit) | (chances == chances.amax(-1, keepdim=True))


def set_words(outputs: Tensor, bounds: Tensor, task: str, names: tuple[str, ...]) -> list[str]:
    """Format sets: classes, or labels that may be present, with ``?`` if undecided."""
    held = likely(outputs, bounds, task)
    if task == "multiclass":
        rows = held.tolist()
        return [";".join(n for n, there in zip(names, row, strict=True) if there) for row in rows]
    return [
        ";".join(f"{n}?" if no else n for n, (no, yes) in zip(names, row, strict=True) if yes)
        for row in held.tolist()
    ]


def graph_errors(outputs: Tensor, targets: Tensor, task: str) -> Tensor:
    """Return the error of every graph, float64 ``[graphs]``; NaN if no target is known.

    Whether the class is wrong, the share of wrong labels, or the mean absolute error of values,
    each divided by the standard deviation of its targets.
    """
    if task == "multiclass":
        return outputs.argmax(1).ne(targets.argmax(1)).double()
    if task == "multilabel":
        wrong = outputs.ge(0.5).ne(targets.gt(0.5)).double()
        return wrong.where(~targets.isnan(), torch.nan).nanmean(1)
    wanted = targets.double()
    size = (wanted - wanted.nanmean(0)).square().nanmean(0).sqrt().clamp(min=1e-12)
    return ((outputs.double() - wanted).abs() / size).nanmean(1)


def divided(errors: Tensor, first: Tensor) -> dict[str, Any] | None:
    """Compare the errors of the graphs ``first`` with the rest; ``None`` if either is too few."""
    known = ~errors.isnan()
    one, other = errors[known & first], errors[known & ~first]
    if min(len(one), len(other)) < _FEWEST // 4:
        return None
    from scipy.stats import mannwhitneyu  # slow to import

    chance = float(mannwhitneyu(one, other, alternative="greater").pvalue)
    found = {"graphs": len(one), "first": float(one.mean()), "rest": float(other.mean())}
    return found | {"chance": 1.0 if math.isnan(chance) else chance}


def similarity_threshold(similarity: Tensor, errors: Tensor) -> tuple[float, bool]:
    """Return the similarity below which to warn, and whether the validation graphs justify it.

    The lower quartile, if errors below it are significantly larger; otherwise the 5 % quantile.
    """
    quarter = float(similarity.quantile(0.25))
    found = divided(errors, similarity < quarter) if len(errors) >= _FEWEST else None
    if found is not None and found["chance"] < 0.05:
        return quarter, True
    return float(similarity.quantile(_LEAST_ALIKE)), False


def uncertainty_metrics(
    reference: Reference,
    task: str,
    validation: tuple[GraphStore, Tensor, Tensor],
    test: tuple[GraphStore, Tensor, Tensor] | None,
    spread: Tensor | None,
) -> dict[str, Any]:
    """Evaluate prediction sets, ensemble spread and similarity on the test graphs.

    Both parts are graphs, outputs and targets in the units of the data; ``spread`` is the
    ensemble's on the test graphs.
    """
    store, outputs, targets = validation
    threshold, justified = similarity_threshold(
        reference.similarity(store), graph_errors(outputs, targets, task)
    )
    likeness: dict[str, Any] = {"threshold": threshold, "justified": justified, "test": None}
    found: dict[str, Any] = {
        "coverage": COVERAGE, "held": None, "size": None, "spread": None, "similarity": likeness,
    }  # fmt: skip
    if test is None:
        return found
    store, outputs, targets = test
    bounds = conformal_bounds(reference.scores, COVERAGE)
    scores = scores_of(outputs, targets, task)
    within = (scores <= bounds).double()
    if task != "regression":
        held = likely(outputs, bounds, task)
        found["size"] = float(held.double().sum(-1).mean())
        wanted = targets.argmax(1) if task == "multiclass" else targets.nan_to_num().long()
        within = held.gather(-1, wanted.unsqueeze(-1)).double().reshape(scores.shape)
    known = ~scores.isnan() & (bounds.isfinite() if task == "regression" else True)
    found["held"] = float(within[known].mean())
    errors = graph_errors(outputs, targets, task)
    likeness["test"] = divided(errors, reference.similarity(store) < threshold)
    if spread is not None and len(errors) >= _FEWEST:
        found["spread"] = divided(errors, spread > spread.quantile(0.75))
    return found


MOST_SEEN: Final = 180_000
"""With more training graphs than this, no hashes are kept: they would take more than 1 MB."""

_ROUNDS: Final = 8  # two rounds do not distinguish the isomers of a chain

Words = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]


def label_columns(store: GraphStore) -> tuple[Mask, Mask]:
    """Which node and edge features are labels: integers that are not marked as continuous."""
    of_nodes = np.arange(store.num_node_features) >= store.num_continuous
    of_edges = np.ones(store.num_edge_features, np.bool_)
    how = store.featurizer
    if how is not None and how.kind == "molecules":
        of_nodes[CHIRALITY] = of_edges[BOND_STEREO] = False  # as in ECFP4
    for piece in store.pieces():
        for key, whole in (("x", of_nodes), ("edge_attr", of_edges)):
            if whole.any() and (values := piece.field(key)).is_floating_point():
                whole &= (values == values.round()).all(0).numpy()
    return of_nodes, of_edges


def fingerprints(store: GraphStore, of_nodes: Mask, of_edges: Mask) -> Words:
    """Return fingerprints, uint64 ``[graphs, 32]``, from labels, or degrees without labels."""
    random, parts = np.random.default_rng(0), []
    of_node, of_edge = (
        np.where(mask, random.integers(1 << 62, size=len(mask)), 0).astype(np.uint64)
        for mask in (of_nodes, of_edges)
    )
    for piece in store.pieces():
        batch = piece.batch(np.arange(len(piece)))
        node = np.diff(batch.row_ptr).astype(np.uint64)
        edge = np.zeros(batch.num_edges, np.uint64)
        # Weighted sums of bit patterns, modulo 2^64. Adding 0 turns negative zeros into zeros.
        if batch.x is not None and of_nodes.any():
            node = (batch.x + 0.0).numpy().view(np.uint32).astype(np.uint64) @ of_node
        if batch.edge_attr is not None and of_edges.any():
            edge = (batch.edge_attr + 0.0).numpy().view(np.uint32).astype(np.uint64) @ of_edge
        parts.append(circles(batch.ptr, batch.row_ptr, batch.column, node, edge))
    return np.concatenate(parts)


def training_hashes(store: GraphStore, edge_features: int) -> str | None:
    """Hash training graphs; ``edge_features`` is the number that the network uses."""
    if len(store) > MOST_SEEN:
        return None
    return base64.b64encode(np.unique(_keys(store, edge_features)).tobytes()).decode()


def in_training_set(text: str | None, store: GraphStore, edge_features: int) -> list[bool] | None:
    """Whether each graph is among the packed ones; ``None`` if unknown."""
    if not text:
        return None
    try:
        known = np.frombuffer(base64.b64decode(text, validate=True), dtype="<u4")
    except ValueError:
        raise DataError("the model is damaged: `training_graphs` cannot be read") from None
    found: list[bool] = np.isin(_keys(store, edge_features), known).tolist()
    return found


def _keys(store: GraphStore, edge_features: int) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    node = edge = slice(0)
    if store.featurizer is not None and store.featurizer.kind == "molecules":
        # The first columns stay, so that keys in older models still match flat molecules.
        node, edge = (slice(each.start + 1, each.stop) for each in (CHIRALITY, BOND_STEREO))
    keys = structure_keys(store, node, edge if edge_features else slice(None), _ROUNDS).numpy()
    return (keys.view(np.uint64) >> np.uint64(32)).astype("<u4")


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
        config: dict[str, object] = members_of(self)[0].config()
        return config

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


def members_of(network: Any) -> list[Any]:
    """Return the members of an ensemble; anything else is its own member."""
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
