"""Random draws: every one from an explicit generator, for all graphs of a batch at once."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from graph_transplant.segments import offsets, ranges, segment_ids


def uniform(
    size: tuple[int, ...], generator: torch.Generator | None, device: torch.device
) -> Tensor:
    """Draw uniform numbers in ``[0, 1)``, float64, where the generator lives.

    Args:
        size: Shape.
        generator: Source of randomness; ``None`` is torch's own.
        device: Where the numbers are wanted.
    """
    where = device if generator is None else generator.device
    return torch.rand(size, generator=generator, dtype=torch.double, device=where).to(device)


def scalar_generator(generator: torch.Generator | None) -> np.random.Generator:
    """Return a numpy generator for the few scalars of a plan, seeded from a torch generator.

    Args:
        generator: Source of randomness; ``None`` is torch's own.
    """
    device = "cpu" if generator is None else generator.device
    seed = torch.randint(2**62, (), generator=generator, device=device)
    return np.random.default_rng(int(seed))


def beta(
    size: int,
    alpha: float,
    other: float,
    generator: torch.Generator | None,
    device: torch.device,
) -> Tensor:
    """Draw numbers from Beta(alpha, other), float32 ``[size]``.

    Args:
        size: How many.
        alpha: First parameter, positive.
        other: Second parameter, positive.
        generator: Source of randomness; ``None`` is torch's own.
        device: Where the numbers are wanted.
    """
    drawn = scalar_generator(generator).beta(alpha, other, size)
    return torch.as_tensor(drawn, dtype=torch.float32, device=device)


def sample_distinct(
    size: Tensor, count: Tensor, generator: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """Draw distinct numbers below a bound, for many bounds at once, every subset equally likely.

    Work and memory grow with the numbers drawn, not with the bounds. Where more than half are
    wanted, the ones left out are drawn.

    Args:
        size: Bounds, int64 ``[groups]``.
        count: How many to draw in each group, at most ``size``, int64 ``[groups]``.
        generator: Source of randomness.

    Returns:
        The numbers, ``0 ≤ number < size``, and the group of each, both int64 ``[count.sum()]``; the
        groups are sorted.

    Example:
        >>> number, group = sample_distinct(torch.tensor([5, 1]), torch.tensor([5, 1]), None)
        >>> number.tolist(), group.tolist()
        ([0, 1, 2, 3, 4, 0], [0, 0, 0, 0, 0, 1])
    """
    many = 2 * count > size
    wanted = torch.where(many, size - count, count)
    start = offsets(size)[:-1]
    group = segment_ids(wanted)
    base, bound = start.index_select(0, group), size.index_select(0, group)

    def draw(bounds: Tensor) -> Tensor:
        return (uniform((bounds.numel(),), generator, size.device) * bounds).to(torch.long)

    code = base + draw(bound)
    while True:
        # Repeats are drawn again until there are none: sampling without replacement.
        order = torch.argsort(code, stable=True)
        ranked = code.index_select(0, order)
        again = order[1:][ranked[1:] == ranked[:-1]]
        if not again.numel():
            break
        code[again] = base.index_select(0, again) + draw(bound.index_select(0, again))
    drawn_many = many.index_select(0, group)
    number, owner = ranges(torch.zeros_like(size), torch.where(many, size, 0))
    stay = torch.ones_like(number, dtype=torch.bool)
    left_out = group[drawn_many]
    place = offsets(torch.where(many, size, 0))[:-1].index_select(0, left_out)
    stay[place + (code - base)[drawn_many]] = False
    numbers = torch.cat(((code - base)[~drawn_many], number[stay]))
    groups = torch.cat((group[~drawn_many], owner[stay]))
    order = torch.argsort(groups, stable=True)
    return numbers.index_select(0, order), groups.index_select(0, order)
