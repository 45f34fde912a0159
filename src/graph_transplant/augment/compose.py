"""Compositions of augmentations: one of several at random, or one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import torch
from torch import nn

from graph_transplant.augment.base import (
    Augmentation,
    CleanPass,
    Virtual,
    VirtualGraphs,
    as_augmentations,
    merged_measurements,
    random_numbers,
)
from graph_transplant.augment.controls import LabelSmoothing
from graph_transplant.data import GraphBatch, GraphStore
from graph_transplant.errors import GraphTransplantError
from graph_transplant.nn import Prediction
from graph_transplant.nn.adapter import Predictor


class _Composed(Augmentation):
    """Base of compositions; hooks are called for all parts."""

    def __init__(self, augmentations: Sequence[Augmentation]) -> None:
        super().__init__()
        name = type(self).__name__
        if not augmentations:
            raise GraphTransplantError(f"{name} needs at least one augmentation, got none")
        self.augmentations = nn.ModuleList(
            as_augmentations(augmentations, f"{name} takes augmentations")
        )

    @property
    def parts(self) -> tuple[Augmentation, ...]:
        return tuple(self.augmentations)  # type: ignore[arg-type]

    def check(self, model: Predictor, data: GraphStore) -> None:
        for augmentation in self.parts:
            augmentation.check(model, data)

    def prepare(self, train: GraphStore, generator: torch.Generator) -> None:
        for augmentation in self.parts:
            augmentation.prepare(train, generator)

    def after_epoch(self, model: Predictor | nn.Module, validation: GraphStore) -> dict[str, float]:
        """Adapt and measure all parts; repeated names get a number, as in ``label_threshold_2``."""
        return merged_measurements(*(part.after_epoch(model, validation) for part in self.parts))


class OneOf(_Composed):
    """Apply one augmentation, drawn at random for every batch.

    Args:
        *augmentations: The augmentations to draw from; at least one.
        probabilities: One per augmentation, summing to 1; equal by default.

    Example:
        >>> import graph_transplant as gt
        >>> store = gt.load("motifs").subset(range(8))
        >>> model = gt.GraphClassifier.for_data(store, hidden=8, seed=0)
        >>> parts = gt.GraphTransplant(), gt.augment.OriginalGraphs()
        >>> either = OneOf(*parts, probabilities=(0.75, 0.25))
        >>> gt.augmented_loss(model, store.batch(range(8)), either).backward()
    """

    def __init__(
        self, *augmentations: Augmentation, probabilities: Sequence[float] | None = None
    ) -> None:
        super().__init__(augmentations)
        count = len(augmentations)
        given = np.full(count, 1 / count) if probabilities is None else np.array(probabilities)
        fits = given.shape == (count,) and given.dtype.kind in "iuf"
        if not (fits and (given >= 0).all() and abs(given.sum() - 1) < 1e-6):
            raise GraphTransplantError(
                "`probabilities` must be non-negative, one per augmentation, and sum to 1; "
                f"got {probabilities}"
            )
        self.probabilities = tuple((given / given.sum()).tolist())

    @property
    def gives_graphs(self) -> bool:
        """Whether all parts return graphs."""
        return all(part.gives_graphs for part in self.parts)

    def forward(
        self, clean: CleanPass, *, model: Predictor | None, generator: torch.Generator | None
    ) -> Virtual:
        """Apply one augmentation."""
        drawn = random_numbers(generator).choice(len(self.parts), p=self.probabilities)
        virtual: Virtual = self.parts[drawn](clean, model=model, generator=generator)
        return virtual


class Sequential(_Composed):
    """Apply augmentations in sequence, each to the virtual graphs of the previous one.

    Origins refer to the batch that the last augmentation received. Sample weights are multiplied,
    auxiliary losses are added. The model is run on virtual graphs, in training mode, only if an
    augmentation needs its prediction. Later augmentations treat edges of weight zero as edges.

    Args:
        *augmentations: At least one, in order. All but the last must produce virtual graphs.

    Example:
        >>> import graph_transplant as gt
        >>> store = gt.load("motifs").subset(range(8))
        >>> model = gt.GraphClassifier.for_data(store, hidden=8, seed=0)
        >>> both = Sequential(gt.GraphTransplant(), gt.augment.OriginalGraphs())
        >>> gt.augmented_loss(model, store.batch(range(8)), both).backward()
    """

    def __init__(self, *augmentations: Augmentation) -> None:
        super().__init__(augmentations)
        for part, later in pairwise(self.parts):
            if not part.gives_graphs:
                raise GraphTransplantError(
                    f"Sequential: {type(part).__name__} does not return graphs, so "
                    f"{type(later).__name__} cannot follow it; put {type(part).__name__} last"
                )
        if len(self.parts) > 1 and any(isinstance(m, LabelSmoothing) for m in self.modules()):
            raise GraphTransplantError(
                "Sequential: LabelSmoothing only adds to the loss of the original graphs; put it "
                "next to the others in a list, as in [DropNodes(), LabelSmoothing()]"
            )

    @property
    def gives_graphs(self) -> bool:
        """Whether the last part returns graphs."""
        return self.parts[-1].gives_graphs

    def forward(
        self, clean: CleanPass, *, model: Predictor | None, generator: torch.Generator | None
    ) -> Virtual:
        """Apply the augmentations in order."""
        virtual: Virtual = self.parts[0](clean, model=model, generator=generator)
        for augmentation in self.parts[1:]:
            assert isinstance(virtual, VirtualGraphs)
            batch = virtual.batch
            # Lazy: the model runs only if the next augmentation needs its prediction.
            between = CleanPass(
                batch,
                virtual.targets,
                _prediction(model, batch, clean),
                clean.loss_of,
                saliency=clean.saliency_of,
            )
            later: Virtual = augmentation(between, model=model, generator=generator)
            own = [each for each in (virtual.weight, later.weight) if each is not None]
            losses = [virtual.auxiliary_loss, later.auxiliary_loss]
            added = [loss for loss in losses if loss is not None]
            virtual = replace(
                later,
                weight=torch.stack(own).prod(0) if own else None,
                auxiliary_loss=torch.stack(added).sum() if added else None,
            )
        return virtual


def _prediction(
    model: Predictor | None, batch: GraphBatch, clean: CleanPass
) -> Callable[[], Prediction]:
    # Without a model, the first pass says why there is no prediction.
    return lambda: clean.prediction if model is None else model.run(batch)
