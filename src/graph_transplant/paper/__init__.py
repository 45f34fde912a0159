"""The paper's experiments, with its published numbers beside measured ones.

``published.py`` holds the paper's numbers, ``experiments.py`` runs its experiments as comparisons,
``tables.py`` joins the two. Only the command line imports this package.
"""
