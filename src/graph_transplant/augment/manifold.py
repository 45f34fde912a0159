"""Manifold mixup of whole graphs: embeddings after the readout are mixed, and so are targets."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from graph_transplant.augment.base import Augmentation, CleanPass, VirtualEmbeddings
from graph_transplant.augment.pairing import Pairing, as_pairing, mix_rows
from graph_transplant.augment.sampling import beta
from graph_transplant.errors import GraphTransplantError
from graph_transplant.graphs import GraphStore
from graph_transplant.nn import GraphClassifier
from graph_transplant.saliency import Predictor


@dataclass(frozen=True, kw_only=True)
class MixedEmbeddings(VirtualEmbeddings):
    """Mixed graph embeddings, and what each was mixed of.

    Sample ``i`` is made of graph ``i``, the destination, and of its source.

    Attributes:
        label_weight: λ, the weight of the source's embedding and label, float ``[graphs]``.
        source_of: The source graph of every sample, int64 ``[graphs]``.

    Example:
        >>> import graph_transplant as gt
        >>> batch = gt.load("motifs").batch(range(4))
        >>> model = gt.GraphClassifier(0, 6, max_degree=8, hidden=8, seed=0)
        >>> clean = gt.CleanPass(batch, torch.eye(6)[batch.y], model(batch))
        >>> mixed = ManifoldMixup()(clean, model=model, generator=None)
        >>> sorted(mixed.source_of.tolist()), mixed.graphs.shape
        ([0, 1, 2, 3], torch.Size([4, 8]))
    """

    label_weight: Tensor
    source_of: Tensor


class ManifoldMixup(Augmentation):
    """Mix the embeddings of graphs after the readout (Wang et al., WWW 2021; appendix "Baselines").

    The embedding and the target of every graph are mixed with those of another by the same weight
    λ ~ Beta(alpha, alpha), drawn for every pair. Only the head of the model runs on the mixture;
    its gradient reaches all layers through both embeddings. A label that is missing in one of the
    two graphs is missing in the mixture.

    The model must be a :class:`~graph_transplant.GraphClassifier`: of another model it is not known
    where its readout ends and its head begins.

    Args:
        alpha: Of the distribution of λ, positive. The paper takes 2.
        pairing: Which graph each one is mixed with; a policy of
            :class:`~graph_transplant.augment.pairing.Pairing`.

    Example:
        >>> import graph_transplant as gt
        >>> store = gt.load("motifs").subset(range(8))
        >>> model = gt.GraphClassifier.for_data(store, hidden=8, seed=0)
        >>> gt.augmented_loss(model, store.batch(range(8)), ManifoldMixup()).backward()
        >>> ManifoldMixup(alpha=0)
        Traceback (most recent call last):
        ...
        graph_transplant.errors.GraphTransplantError: `alpha` must be positive and finite, got 0
    """

    def __init__(self, alpha: float = 2.0, pairing: str | Pairing = "random") -> None:
        super().__init__()
        if not 0 < alpha < float("inf"):
            raise GraphTransplantError(f"`alpha` must be positive and finite, got {alpha}")
        self.alpha = alpha
        self.pairing = as_pairing(pairing)

    @property
    def gives_graphs(self) -> bool:
        """No: see :class:`Augmentation`."""
        return False

    def check(self, model: Predictor, data: GraphStore) -> None:
        """Refuse models without a known head; see :meth:`Augmentation.check`."""
        _check_head(model)
        self.pairing.check(data.task)

    def forward(
        self, clean: CleanPass, *, model: Predictor, generator: torch.Generator | None
    ) -> MixedEmbeddings:
        """Mix the graphs of a training batch; see :meth:`Augmentation.forward`."""
        _check_head(model)
        graphs = clean.prediction.graphs
        assert graphs is not None
        source_of = self.pairing.sources(clean.targets, clean.task, generator)
        weight = beta(graphs.shape[0], self.alpha, self.alpha, generator, graphs.device)
        return MixedEmbeddings(
            graphs=mix_rows(graphs, source_of, weight),
            targets=mix_rows(clean.targets, source_of, weight),
            label_weight=weight,
            source_of=source_of,
        )


def _check_head(model: Predictor) -> None:
    if not isinstance(model, GraphClassifier):
        raise GraphTransplantError(
            "manifold-mixup mixes graph embeddings between readout and head, which are known only "
            f"in a graph_transplant.GraphClassifier; got {type(model.module).__name__}"
        )
