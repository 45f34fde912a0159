"""The paper's experiments: published and measured numbers side by side.

``published.py`` holds the paper's numbers, ``experiments.py`` runs its experiments as comparisons,
``tables.py`` joins the two. Nothing in the package imports this one.
"""
