"""How long the experiments train and what they are scored on: all numbers of the profiles are in this file."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

N_FOLDS = 5
"""Synthetic data are cross-validated, whatever the profile."""

WARMUP_STEPS = 4000
"""Of the schedule of Vaswani et al. (2017)."""


class Epochs(NamedTuple):
    """How long the baselines train; an epoch of the Bayesian LSTM takes longer than the others."""

    others: int
    bayesian: int

    def __str__(self) -> str:
        return f"{self.others} and {self.bayesian}"


@dataclass(frozen=True)
class Profile:
    """One way to run the grid.

    Attributes:
        name: what the user asks for, and what is written beside each result.
        epochs: of the baselines, and of the SMC Transformer as the paper describes it; how long the best one trains
            is in `smc_settings`.
        epochs_on: data sets on which they differ: small ones have few steps in an epoch.
        synthetic_smc_epochs: of the paper's SMC Transformer on synthetic data.
        best_length: how many times longer than in `quick` the best configuration trains.
        n_windows: test windows that are scored, evenly spaced (the same for every model); None: all of them.
        n_samples: samples of each predictive distribution.
        best_seeds: of the best configuration of the SMC Transformer on the chronological split.
        ablation_seeds: of the same with an ingredient left out.
        baseline_seeds: of every other model and configuration there.
        paper_split_seeds: of every model on the paper's split.
    """

    name: str
    epochs: Epochs
    n_windows: int | None
    n_samples: int = 1000
    best_seeds: int = 3
    baseline_seeds: int = 1
    ablation_seeds: int = 1
    paper_split_seeds: int = 1
    epochs_on: Mapping[str, Epochs] = field(default_factory=dict)
    synthetic_smc_epochs: int = 50
    best_length: int = 1

    def baseline_epochs(self, model: str, dataset: str) -> int:
        """Epochs of a baseline on a data set."""
        epochs = self.epochs_on.get(dataset, self.epochs)
        return epochs.bayesian if model.startswith("bayesian") else epochs.others

    def evaluation(self) -> dict[str, int | None]:
        """What the scores are taken over; a result that was scored over anything else has to be run again."""
        return {"n_windows": self.n_windows, "n_samples": self.n_samples}

    def describe(self, seeds: int | None = None) -> str:
        """The profile in plain words; `seeds` is what the user asked for instead of its own numbers."""
        windows = "all" if self.n_windows is None else f"at most {self.n_windows} evenly spaced"
        scoring = f"scores are taken on {windows} test windows, with {self.n_samples} samples of each forecast"
        return f"profile {self.name}: {self._training()}; {scoring}; {self._repetitions(seeds)}."

    def _training(self) -> str:
        remarks = [
            f"{epochs} on {', '.join(name for name, other in self.epochs_on.items() if other == epochs)}"
            for epochs in dict.fromkeys(self.epochs_on.values())
        ]
        longer = PAPER.best_length // self.best_length
        if self.name != PAPER.name:
            remarks.append(f"in the paper {PAPER.epochs}")
        return (
            f"baselines train {self.epochs.others} epochs, the Bayesian LSTM {self.epochs.bayesian}"
            + (f" ({'; '.join(remarks)})" if remarks else "")
            + ", the SMC Transformer of the paper as many as the baselines, on synthetic data "
            + str(self.synthetic_smc_epochs)
            + (f"; the best one trains 1/{longer} as long as in the profile {PAPER.name}" if longer > 1 else "")
        )

    def _repetitions(self, seeds: int | None) -> str:
        if seeds is not None:
            return f"synthetic data: {min(seeds, N_FOLDS)} of {N_FOLDS} folds, real data: {_seeds(seeds)}"
        return (
            f"synthetic data: {N_FOLDS} folds, real data: {_seeds(self.best_seeds)} of the best SMC Transformer and "
            f"{self.baseline_seeds} of the others on the chronological split, "
            f"{_seeds(self.paper_split_seeds)} on the split of the paper"
        )


def _seeds(count: int) -> str:
    return f"{count} seed" if count == 1 else f"{count} seeds"


QUICK = Profile(
    "quick",
    epochs=Epochs(12, bayesian=12),
    epochs_on={
        "covid": Epochs(50, bayesian=50),
        **dict.fromkeys(("model1", "model2", "model3"), Epochs(20, bayesian=20)),
        "weather": Epochs(8, bayesian=6),
    },
    synthetic_smc_epochs=6,
    n_windows=500,
)
"""All of synthetic in 10 minutes, all of the real data in 90, on two cores."""

PAPER = Profile(
    "paper",
    epochs=Epochs(50, bayesian=150),
    best_length=3,
    n_windows=2000,  # all of them but on weather (10,500) and energy (2,950)
    baseline_seeds=3,
    ablation_seeds=3,
    paper_split_seeds=3,
)
"""The paper's settings: about nine hours on two idle cores for what docs/results.md lists."""

PROFILES = {profile.name: profile for profile in (QUICK, PAPER)}
