"""Search with Optuna; trials that fall behind the others are pruned.

Run it with ``python examples/optuna_search.py [--graphs 240] [--epochs 30] [--trials 10]``; it
requires Optuna (``pip install optuna``).
"""

from __future__ import annotations

import argparse

import optuna

import graph_transplant as gt
from graph_transplant.training import EpochLog


def main() -> None:
    """Search on the validation graphs; the test graphs are used once, for the winner."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", type=int, default=240)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--trials", type=int, default=10)
    options = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    store = gt.load("motifs", graphs=options.graphs)

    def config(trial: optuna.trial.BaseTrial) -> gt.TrainConfig:
        ratio = trial.suggest_float("anchor_ratio", 0.05, 0.5)
        return gt.TrainConfig(
            method=gt.GraphTransplant(anchor_ratio=ratio),
            layers=trial.suggest_int("layers", 1, 3),
            hidden=32,
            learning_rate=trial.suggest_float("learning_rate", 1e-3, 1e-2, log=True),
            epochs=options.epochs,
            validation=0.2,
            test=0.2,
        )

    def objective(trial: optuna.Trial) -> float:
        best = float("inf")

        def report(log: EpochLog) -> None:
            nonlocal best
            best = min(best, log.validation_loss)
            trial.report(log.validation_loss, log.epoch)
            if trial.should_prune():
                raise optuna.TrialPruned

        gt.train(store, config(trial), callbacks=[report], progress=False)
        return best

    study = optuna.create_study(
        sampler=optuna.samplers.TPESampler(seed=0),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=3, n_warmup_steps=3),
    )
    study.optimize(objective, n_trials=options.trials)

    pruned = sum(trial.state.name == "PRUNED" for trial in study.trials)
    print(f"{len(study.trials)} trials, {pruned} pruned")
    print(f"best validation loss {study.best_value:.3f} with {study.best_params}")
    winner = gt.train(store, config(study.best_trial), progress=False)
    print(f"test accuracy {winner.description.metrics.test['accuracy']:.3f}")


if __name__ == "__main__":
    main()
