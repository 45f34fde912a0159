"""Search methods and their parameters with scikit-learn's GridSearchCV.

Run it with ``python examples/grid_search.py [--graphs 240] [--epochs 20]``.
"""

from __future__ import annotations

import argparse

import pandas as pd
from sklearn.model_selection import GridSearchCV, StratifiedKFold

import graph_transplant as gt


def main() -> None:
    """Search, and print the candidates in order of their scores."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", type=int, default=240)
    parser.add_argument("--epochs", type=int, default=20)
    options = parser.parse_args()

    store = gt.load("motifs", graphs=options.graphs)
    estimator = gt.GraphTransplantClassifier(
        hidden=32, epochs=options.epochs, learning_rate=5e-3, random_state=0
    )
    grid = [
        {"augment": ["vanilla"], "layers": [2, 3]},
        {"augment": ["transplant-dp"], "augment__anchor_ratio": [0.1, 0.3], "layers": [2, 3]},
    ]
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    search = GridSearchCV(estimator, grid, cv=folds, scoring="accuracy")
    search.fit(store.to_pyg(), store.labels.numpy())

    results = pd.DataFrame(search.cv_results_).sort_values("rank_test_score")
    for _, row in results.iterrows():
        print(f"{row.mean_test_score:.3f} ± {row.std_test_score:.3f}  {row.params}")
    print("best:", search.best_params_)


if __name__ == "__main__":
    main()
