"""Which cells there are: every data set with every split, model, configuration and seed, or a choice of them."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product

from smct_paper.experiments.profiles import N_FOLDS, Profile

SMC_TRANSFORMER = "smc_transformer"
FOLDS, CHRONOLOGICAL, PAPER_SPLIT = "folds", "chronological", "paper"
SPLITS = (CHRONOLOGICAL, PAPER_SPLIT)
GROUPS = ("synthetic", "realworld", "all")

SYNTHETIC_CONFIGS = ("paper-10", "paper-30", "best-10", "best-30")
"""Of the SMC Transformer; the number is the number of particles."""
REALWORLD_CONFIGS = ("paper", "best")
ABLATIONS = "ablations"
"""Stands for all the configurations `best-...` with an ingredient left out."""

ON_REQUEST = ("bayesian_lstm_3",)
"""Models that run on real data only on request: the paper has them on synthetic data only."""
BAYES_OPTIMAL = "bayes_optimal"
"""The true distribution: known on synthetic data only."""
WITHOUT_SETTINGS_OF_THE_PAPER = ("naive", "autoregression", BAYES_OPTIMAL)


class ChoiceError(ValueError):
    """A name that does not exist, or a choice that no cell fits."""


@dataclass(frozen=True)
class Cell:
    """One training and its scores.

    Attributes:
        dataset: name of the data set.
        split: "chronological" or "paper", and "folds" for synthetic data.
        model: name of the method.
        config: its settings: "paper", "best", ...
        seed: of the training; on synthetic data also the number of the fold.
    """

    dataset: str
    split: str
    model: str
    config: str
    seed: int

    @property
    def name(self) -> str:
        """A name that no other cell has, and that a file can have."""
        return f"{self.dataset}-{self.split}-{self.model}-{self.config}-{self.seed}"

    @property
    def repetition(self) -> str:
        """What the number counts: "fold" on synthetic data, "seed" elsewhere."""
        return "fold" if self.split == FOLDS else "seed"

    def identity(self) -> dict[str, str | int]:
        """The keys by which a result is found again."""
        return {
            "dataset": self.dataset,
            "split": self.split,
            "model": self.model,
            "config": self.config,
            self.repetition: self.seed,
        }

    def __str__(self) -> str:
        return f"{self.dataset} {self.split} {self.model} {self.config} {self.repetition} {self.seed}"


@dataclass(frozen=True)
class Choice:
    """What the user wants of the grid; None is what there is by default.

    Attributes:
        datasets: names of data sets.
        models: names of methods.
        configs: names of configurations; "ablations" stands for all `best-...`.
        splits: of real data: "chronological", "paper".
        seeds: how many seeds (or folds, of which there are five) instead of the profile's number.
    """

    datasets: Sequence[str] | None = None
    models: Sequence[str] | None = None
    configs: Sequence[str] | None = None
    splits: Sequence[str] | None = None
    seeds: int | None = None


def select_cells(group: str, profile: Profile, choice: Choice | None = None) -> list[Cell]:
    """The cells of a group ("synthetic", "realworld" or "all") that fit a choice.

    Raises:
        ChoiceError: a name is unknown, or no cell fits.
    """
    choice = choice or Choice()
    _check_names(group, choice)
    cells: list[Cell] = []
    if group in ("synthetic", "all"):
        cells += synthetic_grid(choice)
    if group in ("realworld", "all"):
        cells += realworld_grid(profile, choice)
    if not cells:
        raise ChoiceError(
            "no cell fits this choice of data sets, models, configurations and splits (the baselines have the "
            f"configuration 'paper', {', '.join(WITHOUT_SETTINGS_OF_THE_PAPER)} 'default'; {BAYES_OPTIMAL} is known on "
            "synthetic data only; ablations are chronological only)"
        )
    return cells


def synthetic_grid(choice: Choice | None = None) -> list[Cell]:
    """Cells on synthetic data: every model on every fold."""
    choice = choice or Choice()
    n_folds = min(choice.seeds or N_FOLDS, N_FOLDS)
    return [
        Cell(dataset, FOLDS, model, config, fold)
        for dataset in _chosen(synthetic_names(), choice.datasets)
        for model, config in _variants(SYNTHETIC_CONFIGS, choice)
        for fold in range(n_folds)
    ]


def realworld_grid(profile: Profile, choice: Choice | None = None) -> list[Cell]:
    """Cells on real data, in both splits."""
    choice = choice or Choice()
    configs = (*REALWORLD_CONFIGS, *(ablation_names() if choice.configs else ()))
    variants = [
        (model, config)
        for model, config in _variants(configs, choice)
        if model != BAYES_OPTIMAL and (choice.models is not None or model not in ON_REQUEST)
    ]
    datasets = _chosen(realworld_names(), choice.datasets)
    return [
        Cell(dataset, split, model, config, seed)
        for dataset, split, (model, config) in product(datasets, _chosen(SPLITS, choice.splits), variants)
        if split == CHRONOLOGICAL or not _is_ablation(model, config)
        for seed in range(choice.seeds or _n_seeds(profile, split, model, config))
    ]


def synthetic_names() -> tuple[str, ...]:
    """Synthetic data sets."""
    from smct_paper.datasets import SYNTHETIC

    return tuple(SYNTHETIC)


def realworld_names() -> tuple[str, ...]:
    """Data sets of real measurements."""
    from smct_paper.datasets import DATASETS

    synthetic = synthetic_names()
    return tuple(name for name in DATASETS if name not in synthetic)


def model_names() -> tuple[str, ...]:
    """Every method: the truth first, ours last."""
    from smct_paper.baselines import BASELINES

    return (BAYES_OPTIMAL, *BASELINES, SMC_TRANSFORMER)


def ablation_names() -> tuple[str, ...]:
    """Configurations of the SMC Transformer with an ingredient left out."""
    from smct_paper.experiments.smc_settings import ABLATIONS

    return tuple(ABLATIONS)


def baseline_config(model: str) -> str:
    """The one configuration of a baseline."""
    return "default" if model in WITHOUT_SETTINGS_OF_THE_PAPER else "paper"


def _variants(smc_configs: Iterable[str], choice: Choice) -> list[tuple[str, str]]:
    """Pairs of a model and one of its configurations."""
    wanted = _expanded(choice.configs)
    return [
        (model, config)
        for model in _chosen(model_names(), choice.models)
        for config in (smc_configs if model == SMC_TRANSFORMER else (baseline_config(model),))
        if wanted is None or config in wanted
    ]


def _is_ablation(model: str, config: str) -> bool:
    return model == SMC_TRANSFORMER and config not in (*REALWORLD_CONFIGS, *SYNTHETIC_CONFIGS)


def _n_seeds(profile: Profile, split: str, model: str, config: str) -> int:
    if split == PAPER_SPLIT:
        return profile.paper_split_seeds
    if _is_ablation(model, config):
        return profile.ablation_seeds
    return profile.best_seeds if (model, config) == (SMC_TRANSFORMER, "best") else profile.baseline_seeds


def _chosen(names: Iterable[str], wanted: Sequence[str] | None) -> list[str]:
    return [name for name in names if wanted is None or name in wanted]


def _expanded(configs: Sequence[str] | None) -> set[str] | None:
    if configs is None:
        return None
    return set(configs) | (set(ablation_names()) if ABLATIONS in configs else set())


def _check_names(group: str, choice: Choice) -> None:
    def datasets() -> tuple[str, ...]:
        synthetic = synthetic_names() if group != "realworld" else ()
        return (*synthetic, *(realworld_names() if group != "synthetic" else ()))

    def configs() -> tuple[str, ...]:
        synthetic = SYNTHETIC_CONFIGS if group != "realworld" else ()
        real = (*REALWORLD_CONFIGS, *ablation_names(), ABLATIONS) if group != "synthetic" else ("paper",)
        return (*synthetic, *real, "default")

    if group not in GROUPS:
        raise ChoiceError(f"unknown group {group!r}; there are: {', '.join(GROUPS)}")
    if group == "synthetic" and choice.splits is not None:
        raise ChoiceError("synthetic data are cross-validated in folds: a split is for real data only")
    _check("data set", choice.datasets, datasets)
    _check("model", choice.models, model_names)
    _check("configuration", choice.configs, configs)
    _check("split", choice.splits, lambda: SPLITS)


def _check(kind: str, wanted: Sequence[str] | None, names: Callable[[], tuple[str, ...]]) -> None:
    """Names are looked up only when there is something to check: the registries import torch."""
    if not wanted:
        return
    known = names()
    unknown = [name for name in wanted if name not in known]
    if unknown:
        listed = ", ".join(repr(name) for name in unknown)
        raise ChoiceError(f"unknown {kind} {listed}; there are: {', '.join(dict.fromkeys(known))}")
