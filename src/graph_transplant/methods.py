"""Registry of methods by name, with the paper's search spaces as presets.

To add a method, add a :class:`Method` to :data:`METHODS`. Augmentations and torch are imported only
when a method is built, not for its name and summary.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from itertools import product
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from graph_transplant.errors import GraphTransplantError, check_at_least, check_choice

if TYPE_CHECKING:
    from graph_transplant.augment.base import Augmentation


__all__ = [
    "METHODS",
    "Method",
    "expand_methods",
    "method_name",
    "parse_method",
    "search_space",
]

Value = float | int | str
Augmentations = tuple["Augmentation", ...]
Role = Literal["reference", "method", "rival", "ablation", "control", "baseline"]
"""What a method is for: a ``control`` isolates a part of Graph Transplant, an ``ablation`` changes
one, a ``baseline`` has no network."""


@dataclass(frozen=True)
class Method:
    """A named method.

    Attributes:
        build: Creates its augmentations, given the width of the model's node embeddings; further
            parameters have defaults.
        search: The paper's search space: values by parameter. Ablations and controls of Graph
            Transplant have the same one as Graph Transplant.
        in_paper: Whether it is in the paper's main table.
        role: What it is for.
        controls: Explanations of a gain that it has in common with Graph Transplant: what it is not
            beaten on, it may explain.

    Example:
        >>> METHODS["drop-nodes"].search
        {'ratio': (0.2, 0.4)}
    """

    build: Callable[..., Augmentations]
    summary: str
    search: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    in_paper: bool = False
    role: Role = "rival"
    controls: tuple[str, ...] = ()

    @property
    def parameters(self) -> dict[str, Value]:
        """Parameters that a name may set, with their defaults."""
        listed = list(inspect.signature(self.build).parameters.values())[1:]
        return {parameter.name: parameter.default for parameter in listed}


SALIENCIES: dict[str, dict[str, Any]] = {
    "gradient": {},
    "gradient-x-activation": {"kind": "gradient-x-activation"},
    "gradient-after-activation": {"activation": "after"},
}
"""Named arguments of ``NodeSaliency``: the default; the gradient times the embedding; and the
paper's literal definition, at the last layer's output, which ranks nothing with a mean or sum
readout."""


@dataclass(frozen=True)
class _Plain:
    """Builds an augmentation that does not depend on the model, from a class of ``augment``.

    Parameters whose default is a number or a string can be set by name.
    """

    place: str

    def _kind(self) -> Callable[..., Augmentation]:
        module, name = self.place.split(".")
        kind: Callable[..., Augmentation] = getattr(
            import_module(f"graph_transplant.augment.{module}"), name
        )
        return kind

    @property
    def __signature__(self) -> inspect.Signature:
        width = inspect.Parameter("width", inspect.Parameter.POSITIONAL_ONLY)
        given = (
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for parameter in inspect.signature(self._kind()).parameters.values()
            if type(parameter.default) in (float, int, str)
        )
        return inspect.Signature([width, *given])

    def __call__(self, width: int, **parameters: Value) -> Augmentations:
        return (self._kind()(**parameters),)


def _vanilla(width: int) -> Augmentations:
    return ()


def _m_evolve(width: int, ratio: float = 0.2) -> Augmentations:
    from graph_transplant.augment.m_evolve import ReliabilityFilter, SwapOpenTriads

    return (ReliabilityFilter(SwapOpenTriads(ratio)),)


def _transplanting(connect: str, **parts: Any) -> Callable[..., Augmentations]:
    def build(
        width: int,
        anchor_ratio: float = 0.1,
        pairing: str = "random",
        max_hops: int = 3,
        alpha: float = 2.0,
        saliency: str = "gradient",
    ) -> Augmentations:
        from graph_transplant.augment.transplant import GraphTransplant
        from graph_transplant.nn.saliency import NodeSaliency

        check_at_least(1, max_hops=max_hops)
        return (
            GraphTransplant(
                connect,
                anchor_ratio=anchor_ratio,
                hops=range(1, max_hops + 1),
                alpha=alpha,
                saliency=NodeSaliency(**SALIENCIES[check_choice("saliency", saliency, SALIENCIES)]),
                pairing=pairing,
                embedding_size=width,
                **parts,
            ),
        )

    return build


_PERTURBED = {"ratio": (0.2, 0.4)}
_ANCHORS = {"anchor_ratio": (0.05, 0.1, 0.15)}

SENSITIVITY: dict[str, tuple[Value, ...]] = {
    "anchor_ratio": (0.05, 0.1, 0.2, 0.3),
    "max_hops": (1, 2, 3, 5),
    "alpha": (0.5, 1.0, 2.0, 5.0),
    "saliency": tuple(SALIENCIES),
}
"""Values of Graph Transplant's parameters around its defaults: R, the largest K, the parameter of
the Beta distribution of p, and the kind of saliency."""

_paper = partial(Method, in_paper=True)
_ablation = partial(Method, role="ablation")
_control = partial(Method, role="control")

METHODS: dict[str, Method] = {
    "vanilla": _paper(
        _vanilla, "plain training, the baseline for all differences", role="reference"
    ),
    "manifold-mixup": _paper(
        _Plain("manifold.ManifoldMixup"), "mixes graph embeddings after the readout"
    ),
    "m-evolve": _paper(
        _m_evolve, "swaps edges of open triads, keeps graphs with reliable labels", _PERTURBED
    ),
    "drop-nodes": _paper(
        _Plain("perturb.DropNodes"), "drops random nodes", _PERTURBED, controls=("lost nodes",)
    ),
    "perturb-edges": _paper(
        _Plain("perturb.PerturbEdges"), "removes random edges and adds as many", _PERTURBED
    ),
    "mask-nodes": _paper(
        _Plain("perturb.MaskNodes"), "masks the features of random nodes", _PERTURBED
    ),
    "subgraph": _paper(
        _Plain("perturb.RandomSubgraph"), "keeps a random connected subgraph", {"size": (0.6, 0.8)}
    ),
    "transplant-dp": _paper(
        _transplanting("degree"),
        "Graph Transplant, new edges by degree preservation",
        _ANCHORS,
        role="method",
    ),
    "transplant-ep": _paper(
        _transplanting("predict"),
        "Graph Transplant, new edges by the edge predictor ψ",
        _ANCHORS,
        role="method",
    ),
    "transplant-disconnected": _ablation(
        _transplanting("none"), "ablation: no new edges", _ANCHORS
    ),
    "transplant-size-label": _ablation(
        _transplanting("predict", importance="size"),
        "ablation: EP with label weights by number of nodes",
        _ANCHORS,
    ),
    "transplant-scattered": _ablation(
        _transplanting("predict", cut="scattered"),
        "ablation: EP with scattered nodes instead of subgraphs",
        _ANCHORS,
    ),
    "transplant-random": _ablation(
        _transplanting("predict", anchors="random"),
        "ablation: EP with random source anchors",
        _ANCHORS,
    ),
    "if-mixup": Method(
        _Plain("if_mixup.IfMixup"), "interpolates node features and edge weights of two graphs"
    ),
    "sub-mix": Method(
        _Plain("sub_mix.SubMix"), "swaps a subgraph for one of another graph, labels by edges"
    ),
    "node-sam": Method(_Plain("node_sam.NodeSam"), "splits a node and merges two others"),
    "g-mixup": Method(
        _Plain("g_mixup.GMixup"), "samples graphs from mixed graphons of two classes"
    ),
    "drop-edge": Method(_Plain("perturb.DropEdges"), "removes random edges"),
    "label-smoothing": _control(
        _Plain("controls.LabelSmoothing"),
        "control: softer labels, no virtual graphs",
        controls=("soft labels",),
    ),
    "vanilla-x2": _control(
        _Plain("controls.OriginalGraphs"),
        "control: the original graphs twice per step",
        controls=("more steps",),
    ),
    "saliency-shuffled": _control(
        _transplanting("predict", shuffle_saliency=True),
        "control: EP with saliency permuted within each graph",
        _ANCHORS,
        controls=("saliency",),
    ),
    "transplant-cut": _control(
        _transplanting("none", insert=False),
        "control: DP that leaves the hole empty, with the labels of DP",
        _ANCHORS,
        controls=("lost nodes", "soft labels"),
    ),
    "transplant-light": _control(
        _transplanting("degree", anchors="random", importance="size"),
        "control: DP without saliency: random anchors, labels by size",
        _ANCHORS,
        controls=("saliency",),
    ),
}
"""Methods by name."""


GROUPS = ("all", "paper")
"""Names of groups of methods."""


def parse_method(text: str) -> tuple[str, dict[str, Value]]:
    """Parse a method such as ``drop-nodes:ratio=0.4``; colons separate several parameters.

    Returns the key of :data:`METHODS` and the parameters that differ from their defaults.
    """
    name, *settings = text.split(":")
    check_choice("method", name, METHODS)
    defaults = METHODS[name].parameters
    given: dict[str, Value] = {}
    for setting in settings:
        parameter, _, written = (part.strip() for part in setting.partition("="))
        if parameter not in defaults or parameter in given or not written:
            known = f"has {', '.join(defaults)}" if defaults else "has no parameters"
            raise GraphTransplantError(
                "write each parameter once, as NAME=VALUE, such as drop-nodes:ratio=0.4; "
                f"{name} {known}; got {setting!r} in {text!r}"
            )
        kind = type(defaults[parameter])
        try:
            given[parameter] = kind(written)
        except ValueError:
            noun = "a whole number" if kind is int else "a number"
            raise GraphTransplantError(
                f"{text}: `{parameter}` must be {noun}, got {written!r}"
            ) from None
    changed = {key: given[key] for key in defaults if key in given and given[key] != defaults[key]}
    return name, changed


def method_name(name: str, parameters: Mapping[str, Value]) -> str:
    """Format a method and its parameters; the inverse of :func:`parse_method`."""
    return ":".join([name, *(f"{key}={value}" for key, value in parameters.items())])


def search_space(name: str) -> list[str]:
    """List a method with every combination of the parameters that the paper searches.

    Example:
        >>> search_space("drop-nodes")
        ['drop-nodes', 'drop-nodes:ratio=0.4']
    """
    check_choice("method", name, METHODS)
    search = METHODS[name].search
    combined = (dict(zip(search, values, strict=True)) for values in product(*search.values()))
    return [method_name(*parse_method(method_name(name, values))) for values in combined]


def sensitivity(name: str) -> list[str]:
    """List a method, then its variants with one parameter changed from its default."""
    check_choice("method", name, METHODS)
    known = METHODS[name].parameters
    if not known.keys() >= SENSITIVITY.keys():
        usable = ", ".join(key for key, one in METHODS.items() if one.search == _ANCHORS)
        raise GraphTransplantError(
            f"`sensitivity` varies the parameters of Graph Transplant, which {name} does not have; "
            f"these have: {usable}"
        )
    variants = [
        method_name(*parse_method(method_name(name, {parameter: value})))
        for parameter, values in SENSITIVITY.items()
        for value in values
    ]
    return list(dict.fromkeys([name, *variants]))


def expand_methods(names: Sequence[str]) -> list[str]:
    """Expand names that stand for several methods, without duplicates and default parameters.

    ``NAME:paper`` is a method's search space in the paper, ``NAME:sensitivity`` a method with each
    parameter changed alone, ``paper`` all methods of the paper's main table, ``all`` all methods.
    """
    expanded: list[str] = []
    for text in names:
        name, _, rest = text.partition(":")
        check_choice("methods", name, [*GROUPS, *METHODS])
        if name in GROUPS and rest:
            raise GraphTransplantError(
                f"`{name}` stands for several methods and takes no parameters; got {text!r}"
            )
        if text == "all":
            expanded += METHODS
        elif text == "paper":
            expanded += [name for name, method in METHODS.items() if method.in_paper]
        elif rest == "paper":
            expanded += search_space(name)
        elif rest == "sensitivity":
            expanded += sensitivity(name)
        else:
            expanded.append(method_name(*parse_method(text)))
    return list(dict.fromkeys(expanded))


class Rival(NamedTuple):
    """Summary of a classical method, its module, its name for use in sentences, and its role."""

    summary: str
    module: str
    words: str
    role: Role = "baseline"


CLASSICAL: dict[str, Rival] = {
    "forest": Rival(
        "random forest on ECFP4 counts of molecules, on statistics of other graphs",
        "graph_transplant.baselines.forest",
        "a random forest",
    ),
    "wl-svm": Rival(
        "support vector machine on Weisfeiler-Lehman subtree counts",
        "graph_transplant.baselines.wl_svm",
        "a Weisfeiler-Lehman SVM",
    ),
    "structure-blind": Rival(
        "sum of embedded nodes and a perceptron: looks at no edge",
        "graph_transplant.baselines.structure_blind",
        "a model that sees no edges",
    ),
    "majority": Rival(
        "class frequencies, or means, of the training graphs",
        "graph_transplant.baselines.majority",
        "always predicting the largest class",
    ),
}
"""Classical methods by name."""


REFERENCE = "vanilla"
"""The method that every other method is compared with."""


DEFAULT_METHODS = ("vanilla", "transplant-dp", "transplant-ep")
"""Methods that are compared by default; for molecules, :data:`MOLECULE_RIVALS` are added."""

MOLECULE_RIVALS = ("forest", "majority")


CLASSICAL_GROUP = "classical"
"""Name of the group of all methods without a network."""
