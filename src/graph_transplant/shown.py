"""Graphs as pages show them; needs no torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

INLINE: Final = {"inline": True}
"""Marks a field whose own fields stand among those of its owner in a record."""


@dataclass(frozen=True)
class Structure:
    """A graph as it is drawn.

    Attributes:
        names: Label of every node, or element with hydrogens and charge where they are known
            (``NH``, ``O-``); empty texts for none.
        edges: Pairs of node numbers; an undirected edge stands here once.
        orders: Bond order of every edge, 1.5 for aromatic ones; empty where all are 1.
        molecule: Whether it is a molecule.
        directed: Whether its edges have a direction.
    """

    names: tuple[str, ...]
    edges: tuple[tuple[int, int], ...]
    orders: tuple[float, ...]
    molecule: bool
    directed: bool


@dataclass(frozen=True)
class Part:
    r"""One of the two graphs that were mixed.

    ``chosen`` marks the nodes that are in the mixed graph, ``share`` is their share of the graph's
    saliency, I(S_π, V̄_π) or I(S, V \ V̄); with labels by size, of its nodes.
    """

    id: str
    label: str
    structure: Structure = field(metadata=INLINE)
    chosen: tuple[bool, ...]
    share: float


@dataclass(frozen=True)
class Mixture:
    """A mixed graph beside the two it was made of.

    ``from_source`` marks the transplanted nodes, ``new_edges`` numbers the edges between the parts,
    ``weight`` is λ, the weight of the source's label. ``labels`` (weight of every class or label in
    it, the largest first) and what follows is not known of an example in a record. ``target`` is
    the column of the classes.
    """

    source: Part
    destination: Part
    structure: Structure = field(metadata=INLINE)
    from_source: tuple[bool, ...]
    new_edges: tuple[int, ...]
    label: str
    weight: float
    labels: tuple[tuple[str, float], ...] = ()
    method: str = ""
    data: str = ""
    note: str = ""
    target: str = ""


@dataclass(frozen=True)
class Salient:
    """What a trained model says about a test graph, and which nodes move it.

    ``truth``, ``confidence`` and ``correct`` are ``None`` where they are not known. ``saliency`` of
    every node is divided by the largest of the graph. ``motif`` marks the nodes that decide the
    class, where the data say so.
    """

    graph: str
    truth: str | None
    predicted: str
    confidence: float | None
    correct: bool | None
    structure: Structure = field(metadata=INLINE)
    saliency: tuple[float, ...]
    motif: tuple[bool, ...] | None = None


@dataclass(frozen=True)
class Made:
    """A graph that an augmentation made, without a trace of where its nodes come from."""

    structure: Structure = field(metadata=INLINE)
    label: str


Example = Salient | Mixture | Made
