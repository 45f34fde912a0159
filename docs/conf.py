"""Sphinx configuration. The build needs no network, and the pages load nothing from outside."""

from __future__ import annotations

import pkgutil
import sys
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any

import torch_geometric.data  # noqa: F401 - before the package, whose annotations then name its types

sys.path.insert(0, str(Path(__file__).parent / "_ext"))
sys.path.insert(0, str(Path(__file__).parents[1]))  # reproduction

project = "graph-transplant"
author = "graph-transplant developers"
copyright = "2026, graph-transplant developers"
release = installed_version("graph-transplant")
version = release

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "mathml"]
exclude_patterns = ["_build"]
source_suffix = {".md": "markdown"}

myst_enable_extensions = ["attrs_inline", "deflist", "dollarmath"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = f"graph-transplant {release}"
html_static_path = ["_static"]
html_css_files = ["custom.css"]
html_math_renderer = "mathml"
html_show_sphinx = False

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
autodoc_default_options = {"members": True}
napoleon_numpy_docstring = False
napoleon_preprocess_types = False
napoleon_use_ivar = True

# Names of other projects are not linked: that would fetch their inventories at build time.
# Our own, written in full, must resolve.
nitpick_ignore_regex = [(r"py:.*", r"(?!graph_transplant).*")]


def find_public_name(app: Any, env: Any, node: Any, content: Any) -> Any:
    """Link a public name to the module that defines it; leave existing but undocumented names."""
    try:
        found = pkgutil.resolve_name(node.get("reftarget", ""))
    except (ImportError, AttributeError, ValueError):
        return None
    module, name = (
        getattr(found, key, None) for key in ("__module__", "__qualname__")
    )
    where = (
        env,
        node["refdoc"],
        app.builder,
        node["reftype"],
        f"{module}.{name}",
        node,
        content,
    )
    return env.get_domain("py").resolve_xref(*where) or content


def setup(app: Any) -> None:
    app.connect("missing-reference", find_public_name)
