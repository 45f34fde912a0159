"""What is imported on use: public names (PEP 562), and objects of later packages by a string."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy(
    package: str, names: Mapping[str, str], modules: tuple[str, ...] = ()
) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package: it imports names, listed by module, on first use.

    ``modules`` are public themselves.
    """
    homes = {name: module for module, listed in names.items() for name in listed.split()}

    def load(name: str) -> Any:
        if name in modules:
            return import_module(f"{package}.{name}")
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{homes[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return load


def resolve(target: Any) -> Any:
    """Import what a string such as ``"augment.perturb:DropNodes"`` names in this package.

    Anything else is returned as it is.
    """
    if not isinstance(target, str):
        return target
    module, _, name = target.partition(":")
    return getattr(import_module(f"graph_transplant.{module}"), name)
