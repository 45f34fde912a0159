"""How input rows are turned into features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from graph_transplant.errors import DataError, check_choice

_FORMER = ("ignored", "features", "elements")  # entries of earlier versions


@dataclass(frozen=True)
class Featurizer:
    """Settings that turn further rows into the same feature columns; kept by stores and models."""

    kind: str  # "molecules", or "graphs": nodes and edges with attributes
    # Molecules.
    largest_fragment: bool = False
    # Graphs: labels in the order of their columns, and the number of numeric columns.
    node_labels: tuple[str, ...] | None = None
    node_numbers: int = 0
    edge_labels: tuple[str, ...] | None = None
    edge_numbers: int = 0
    directed: bool = False  # whether some edge lacks its reverse
    # Names of input columns or entries.
    smiles: str | None = None
    targets: tuple[str, ...] = ()
    id: str | None = None
    decimal_comma: bool = False  # whether a target of 1,234 means 1.234

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values; defaults are left out."""
        return {
            field.name: list(value) if isinstance(value, tuple) else value
            for field in fields(self)
            if (value := getattr(self, field.name)) != field.default
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Featurizer:
        """Parse the output of :meth:`to_dict`; raise a `DataError` if malformed."""
        if content.get("features", "ogb") != "ogb":
            raise DataError(
                f"the molecules were read with the features {str(content['features'])[:40]!r}; "
                "this version reads only those of OGB: read the data, or train the model, again"
            )
        given = {key: value for key, value in content.items() if key not in _FORMER}
        kinds = {field.name: str(field.type) for field in fields(cls)}
        for key, value in given.items():
            if key not in kinds:
                raise DataError(f"featurizer: unknown entry {key[:40]!r}")
            if not _fits(value, kinds[key]):
                raise DataError(f"featurizer: {key} must be {kinds[key]}; got {str(value)[:40]!r}")
        try:
            check_choice("kind", str(given.get("kind")), ("molecules", "graphs"))
        except ValueError as error:
            raise DataError(f"featurizer: {error}") from None
        made: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in given.items()}
        if made.get("targets", ()) is None:
            made["targets"] = ()
        return cls(**made)

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


def _fits(value: Any, kind: str) -> bool:
    """Whether a JSON value matches a type annotation."""
    if value is None:
        return "None" in kind or "tuple" in kind
    if "tuple" in kind:
        texts = isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)
        return texts and len(set(value)) == len(value)
    if "str" in kind:
        return isinstance(value, str)
    return isinstance(value, bool) if kind == "bool" else type(value) is int and 0 <= value < 2**31
