"""How input rows are turned into features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from graph_transplant.errors import DataError, check_choice
from graph_transplant.utils.schema import Columns, plain, read, refuse_unknown


@dataclass(frozen=True)
class Featurizer:
    """Settings that turn further rows into the same feature columns; kept by stores and models."""

    kind: str  # "molecules", or "graphs": nodes and edges with attributes
    # Molecules.
    largest_fragment: bool = False
    # Graphs: labels in the order of their columns, and the number of numeric columns.
    node_labels: tuple[str, ...] | None = None
    node_numbers: Columns = 0
    edge_labels: tuple[str, ...] | None = None
    edge_numbers: Columns = 0
    directed: bool = False  # whether some edge lacks its reverse
    # Names of input columns or entries.
    smiles: str | None = None
    targets: tuple[str, ...] = ()
    id: str | None = None
    decimal_comma: bool = False  # whether a target of 1,234 means 1.234

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, ("molecules", "graphs"))
        for name in ("node_labels", "edge_labels", "targets"):
            labels = getattr(self, name) or ()
            if len(set(labels)) < len(labels):
                raise DataError(f"`{name}` must be different; got {str(labels)[:40]}")

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values; defaults are left out."""
        content: dict[str, Any] = plain(self)
        return content

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Featurizer:
        """Parse the output of :meth:`to_dict`; raise a `DataError` if malformed."""
        content = upgrade(content)
        refuse_unknown(cls, content, "featurizer")
        return read(cls, content, "featurizer")

    def same_features(self, other: Featurizer | None) -> bool:
        """Whether both produce the same columns; true if ``other`` is ``None``."""
        return other is None or self._features() == other._features()

    def check_features(self, other: Featurizer | None, name: str) -> None:
        """Raise unless the graphs of data set ``name`` were read into the columns of a model."""
        if not self.same_features(other):
            raise DataError(
                f"{name}: the graphs were read with other features ({other}) than those of the "
                f"model ({self})"
            )

    def _features(self) -> Featurizer:
        return replace(self, smiles=None, targets=(), id=None, decimal_comma=False, directed=False)

    def __str__(self) -> str:
        text = ", ".join(f"{key} {value}" for key, value in self._features().to_dict().items())
        return text if len(text) <= 120 else text[:119] + "…"


def upgrade(content: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the content of an earlier version."""
    if content.get("features", "ogb") != "ogb":
        raise DataError(
            f"the molecules were read with the features {str(content['features'])[:40]!r}; "
            "this version reads only those of OGB: read the data, or train the model, again"
        )
    former = ("ignored", "features", "elements")
    # `targets` may be null.
    return {k: v for k, v in content.items() if k not in former and (k, v) != ("targets", None)}
