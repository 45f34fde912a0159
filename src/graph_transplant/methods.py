"""Registry of methods by name, with the paper's search spaces as presets.

To add a method, add a :class:`Method` to :data:`METHODS`. Its class is imported when it is needed,
so that names, groups and summaries are read without torch.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any, Final, Literal

from graph_transplant.errors import GraphTransplantError, check_choice
from graph_transplant.utils.lazy import resolve

__all__ = [
    "METHODS",
    "Method",
    "expand_methods",
    "method_name",
    "parse_method",
    "search_space",
]

NUMERICS: Final = 2
"""Of methods whose numbers have not changed since 0.2.0; older records have 1."""

Value = float | int | str
Role = Literal["reference", "method", "rival", "ablation", "control", "baseline"]
"""What a method is for: a ``control`` isolates a part of Graph Transplant, an ``ablation`` changes
one, a ``baseline`` has no network."""


@dataclass(frozen=True)
class Method:
    """A named method.

    Attributes:
        target: What makes it, as ``"module:name"`` in this package or, for a method of your own,
            the class or function itself: an augmentation; for a baseline, a function of a
            :class:`~graph_transplant.baselines.BaselineTask`; empty for plain training. A class
            that takes ``embedding_size`` is given the width of the model's node embeddings.
        summary: One line for lists and pages.
        role: What it is for.
        controls: Explanations of a gain that it has in common with Graph Transplant: what it is not
            beaten on, it may explain.
        words: Its name within a sentence, if that is not its key.
        fixed: Arguments that make this method of its target.
        settable: Parameters that a name may set, in this order. (default: all arguments of the
            target that are not fixed and have a number or text as default)
        search: The paper's search space: values by parameter. Ablations and controls of Graph
            Transplant have the same one as Graph Transplant.
        in_paper: Whether it is in the paper's main table.
        needs_smiles: Whether it reads the SMILES of molecules, which saved graphs do not keep.
        numerics: Increased whenever the same settings give other numbers of this method.
        model: For a baseline of which a trained model can be made, the class of what its target
            returns, as ``"module:name"``.
        only_compared: For other baselines, why no trained model is made of them.

    Example:
        >>> METHODS["drop-nodes"].search
        {'ratio': (0.2, 0.4)}
    """

    target: str | Callable[..., Any]
    summary: str
    role: Role = "rival"
    controls: tuple[str, ...] = ()
    words: str = ""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    settable: tuple[str, ...] = ()
    search: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    in_paper: bool = False
    needs_smiles: bool = False
    numerics: int = NUMERICS
    model: str = ""
    only_compared: str = "it is for comparisons"

    @property
    def network(self) -> bool:
        """Whether it trains a network."""
        return self.role != "baseline"

    @property
    def parameters(self) -> dict[str, Value]:
        """Parameters that a name may set, with the defaults of the target."""
        if not (self.target and self.network):
            return {}
        known = inspect.signature(resolve(self.target)).parameters
        defaults = {
            name: known[name].default
            for name in self.settable or known
            if name not in ("embedding_size", *self.fixed)
        }
        return {key: value for key, value in defaults.items() if type(value) in (float, int, str)}


_PERTURBED = {"ratio": (0.2, 0.4)}
_ANCHORS = {"anchor_ratio": (0.05, 0.1, 0.15)}

SENSITIVITY: dict[str, tuple[Value, ...]] = {
    "anchor_ratio": (0.05, 0.1, 0.2, 0.3),
    "max_hops": (1, 2, 3, 5),
    "alpha": (0.5, 1.0, 2.0, 5.0),
    "saliency": ("gradient", "gradient-x-activation", "gradient-after-activation"),
}
"""Values of Graph Transplant's parameters around its defaults: R, the largest K, the parameter of
the Beta distribution of p, and the kind of saliency."""

_transplant = partial(
    Method,
    "augment.transplant:GraphTransplant",
    settable=("anchor_ratio", "pairing", "max_hops", "alpha", "saliency"),
    search=_ANCHORS,
)
_baseline = partial(Method, role="baseline")

METHODS: dict[str, Method] = {
    "vanilla": Method(
        "", "plain training, the baseline for all differences", role="reference", in_paper=True
    ),
    "manifold-mixup": Method(
        "augment.manifold:ManifoldMixup", "mixes graph embeddings after the readout", in_paper=True
    ),
    "m-evolve": Method(
        "augment.m_evolve:m_evolve",
        "swaps edges of open triads, keeps graphs with reliable labels",
        search=_PERTURBED,
        in_paper=True,
    ),
    "drop-nodes": Method(
        "augment.perturb:DropNodes",
        "drops random nodes",
        controls=("lost nodes",),
        search=_PERTURBED,
        in_paper=True,
    ),
    "perturb-edges": Method(
        "augment.perturb:PerturbEdges",
        "removes random edges and adds as many",
        search=_PERTURBED,
        in_paper=True,
    ),
    "mask-nodes": Method(
        "augment.perturb:MaskNodes",
        "masks the features of random nodes",
        search=_PERTURBED,
        in_paper=True,
    ),
    "subgraph": Method(
        "augment.perturb:RandomSubgraph",
        "keeps a random connected subgraph",
        search={"size": (0.6, 0.8)},
        in_paper=True,
    ),
    "transplant-dp": _transplant(
        "Graph Transplant, new edges by degree preservation",
        role="method",
        fixed={"connect": "dp"},
        in_paper=True,
    ),
    "transplant-ep": _transplant(
        "Graph Transplant, new edges by the edge predictor ψ",
        role="method",
        fixed={"connect": "ep"},
        in_paper=True,
    ),
    "transplant-disconnected": _transplant(
        "ablation: no new edges", role="ablation", fixed={"connect": "none"}
    ),
    "transplant-size-label": _transplant(
        "ablation: EP with label weights by number of nodes",
        role="ablation",
        fixed={"connect": "ep", "importance": "size"},
    ),
    "transplant-scattered": _transplant(
        "ablation: EP with scattered nodes instead of subgraphs",
        role="ablation",
        fixed={"connect": "ep", "cut": "scattered"},
    ),
    "transplant-random": _transplant(
        "ablation: EP with random source anchors",
        role="ablation",
        fixed={"connect": "ep", "anchors": "random"},
    ),
    "if-mixup": Method(
        "augment.if_mixup:IfMixup", "interpolates node features and edge weights of two graphs"
    ),
    "sub-mix": Method(
        "augment.sub_mix:SubMix", "swaps a subgraph for one of another graph, labels by edges"
    ),
    "node-sam": Method("augment.node_sam:NodeSam", "splits a node and merges two others"),
    "g-mixup": Method(
        "augment.g_mixup:GMixup", "samples graphs from mixed graphons of two classes"
    ),
    "drop-edge": Method("augment.perturb:DropEdges", "removes random edges"),
    "label-smoothing": Method(
        "augment.controls:LabelSmoothing",
        "control: softer labels, no virtual graphs",
        role="control",
        controls=("soft labels",),
    ),
    "vanilla-x2": Method(
        "augment.controls:OriginalGraphs",
        "control: the original graphs twice per step",
        role="control",
        controls=("more steps",),
    ),
    "saliency-shuffled": _transplant(
        "control: EP with saliency permuted within each graph",
        role="control",
        controls=("saliency",),
        fixed={"connect": "ep", "shuffle_saliency": True},
    ),
    "transplant-cut": _transplant(
        "control: DP that leaves the hole empty, with the labels of DP",
        role="control",
        controls=("lost nodes", "soft labels"),
        fixed={"connect": "none", "insert": False},
    ),
    "transplant-light": _transplant(
        "control: DP without saliency: random anchors, labels by size",
        role="control",
        controls=("saliency",),
        fixed={"connect": "dp", "anchors": "random", "importance": "size"},
    ),
    "forest": _baseline(
        "baselines.forest:fit",
        "random forest on ECFP4 counts and descriptors of molecules, on statistics of other graphs",
        words="a random forest",
        needs_smiles=True,
        numerics=3,
        model="baselines.forest:Forest",
    ),
    "wl-svm": _baseline(
        "baselines.wl_svm:fit",
        "support vector machine on Weisfeiler-Lehman subtree counts",
        words="a Weisfeiler-Lehman SVM",
        model="baselines.wl_svm:Subtrees",
    ),
    "wl-oa": _baseline(
        "baselines.wl_svm:fit_assignment",
        "support vector machine on the optimal assignment of Weisfeiler-Lehman subtrees",
        words="a Weisfeiler-Lehman optimal assignment SVM",
        model="baselines.wl_svm:Subtrees",
    ),
    "structure-blind": _baseline(
        "baselines.structure_blind:fit",
        "sum of embedded nodes and a perceptron: looks at no edge",
        words="a model that sees no edges",
        only_compared="it shows what can be predicted without looking at edges",
    ),
    "majority": _baseline(
        "baselines.problems:majority",
        "class frequencies, or means, of the training graphs",
        words="always predicting the largest class",
        only_compared="it says the same of every graph",
    ),
}
"""Methods by name. One of your own is used by its name once it is in here."""

BUILT_IN: Final = frozenset(METHODS)
"""Methods that every process has."""

REFERENCE = "vanilla"
"""The method that every other method is compared with."""

MAJORITY = "majority"
"""The floor: always predicting the largest class."""

DEFAULT_METHODS = (REFERENCE, "transplant-dp", "transplant-ep")
"""Methods that are compared by default; for molecules, :data:`MOLECULE_BASELINES` are added."""

MOLECULE_BASELINES = ("forest", MAJORITY)

_UNLISTED = Method("", "")


def method_key(name: str) -> str:
    """Return the name of a method without its parameters."""
    return name.partition(":")[0]


def method_of(name: str) -> Method:
    """Return the row of a method, with or without parameters; an empty one if it has none."""
    return METHODS.get(method_key(name), _UNLISTED)


GROUPS = ("all", "paper", "baselines")
"""Names of groups of methods."""

RENAMED_GROUPS = {"classical": "baselines"}
"""Former names of groups, which are accepted with a warning until the next release."""


def group_name(name: str) -> str:
    """Return the present name of a group, with a warning for a former one; other names as is."""
    if name in RENAMED_GROUPS:
        text = f"the group of methods `{name}` is now called `{RENAMED_GROUPS[name]}`"
        warnings.warn(text, FutureWarning, stacklevel=3)
    return RENAMED_GROUPS.get(name, name)


def trainable_methods() -> list[str]:
    """List the methods that `train` takes: all but the baselines that are only for comparisons."""
    return [name for name, method in METHODS.items() if method.network or method.model]


def check_trainable(text: str) -> None:
    """Raise unless a trained model can be made with a method."""
    name = method_key(text)
    if name in METHODS and not METHODS[name].network and not METHODS[name].model:
        raise GraphTransplantError(
            f"`method` {name} cannot be trained as a model: {METHODS[name].only_compared}"
        )
    check_choice("method", name, trainable_methods())


def parse_method(text: str, *, network: bool = False) -> tuple[str, dict[str, Value]]:
    """Parse a method such as ``drop-nodes:ratio=0.4``; colons separate several parameters.

    Returns the key of :data:`METHODS` and the parameters that differ from their defaults. With
    ``network``, the method must be one that trains a network.
    """
    name, *settings = text.split(":")
    check_choice("method", name, expand_methods(["all"]) if network else METHODS)
    if not settings:
        return name, {}
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
    if not METHODS[name].parameters.keys() >= SENSITIVITY.keys():
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
    parameter changed alone, ``paper`` all methods of the paper's main table, ``all`` all methods
    that train a network, ``baselines`` all others.
    """
    groups = {
        "all": [name for name, method in METHODS.items() if method.network],
        "paper": [name for name, method in METHODS.items() if method.in_paper],
        "baselines": [name for name, method in METHODS.items() if not method.network],
    }
    expanded: list[str] = []
    for text in map(group_name, names):
        name, _, rest = text.partition(":")
        if name not in METHODS:
            check_choice("methods", name, [*groups, *METHODS])
        if name in groups and rest:
            raise GraphTransplantError(
                f"`{name}` stands for several methods and takes no parameters; got {text!r}"
            )
        if name in groups:
            expanded += groups[name]
        elif rest == "paper":
            expanded += search_space(name)
        elif rest == "sensitivity":
            expanded += sensitivity(name)
        else:
            expanded.append(method_name(*parse_method(text)))
    return list(dict.fromkeys(expanded))
