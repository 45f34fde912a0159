"""Objects of later packages, named by strings and imported on use."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def resolve(target: Any) -> Any:
    """Import what a string such as ``"augment.perturb:DropNodes"`` names in this package.

    Anything else is returned as it is.
    """
    if not isinstance(target, str):
        return target
    module, _, name = target.partition(":")
    return getattr(import_module(f"graph_transplant.{module}"), name)
