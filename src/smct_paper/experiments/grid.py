"""Which cells there are: every data set with every split, model, configuration and seed, or a choice of them."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import product

from smct_paper.experiments.profiles import N_FOLDS, Profile

SMC_TRANSFORMER = "smc_transformer"
FOLDS, CHRONOLOGICAL, PAPER_SPLIT = "folds", "chronological", "paper"
SPLITS = (CHRONOLOGICAL, PAPER_SPLIT)
GROUPS = ("synthetic", "realworld", "all")

SYNTHETIC_CONFIGS = ("paper-10", "paper-30", "best-10", "best-30")
"""Of the SMC Transformer; the number is the number of particles."""
VIEWED = "paper+view"
"""The paper's network and training on windows seen through the local view; chronological split only."""
REALWORLD_CONFIGS = ("paper", VIEWED, "best")
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
    """One training and its scores."""

    dataset: str
    split: str
    """`CHRONOLOGICAL` or `PAPER_SPLIT`, and `FOLDS` of synthetic data."""
    model: str
    config: str
    """Of the model: "paper", "best", ..."""
    seed: int
    """Of the training; on synthetic data also the number of the fold."""

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
        return {self.repetition if name == "seed" else name: value for name, value in asdict(self).items()}

    def __str__(self) -> str:
        return f"{self.dataset} {self.split} {self.model} {self.config} {self.repetition} {self.seed}"


@dataclass(frozen=True)
class Choice:
    """What the user wants of the grid; None is what there is by default."""

    datasets: Sequence[str] | None = None
    models: Sequence[str] | None = None
    configs: Sequence[str] | None = None
    """`ABLATIONS` stands for all that leave an ingredient out."""
    splits: Sequence[str] | None = None
    """Of real data."""
    seeds: int | None = None
    """How many seeds (or folds, of which there are five) instead of the profile's number."""


EVERYTHING = Choice()


def select_cells(group: str, profile: Profile, choice: Choice = EVERYTHING) -> list[Cell]:
    """The cells of a group ("synthetic", "realworld" or "all") that fit a choice.

    Raises:
        ChoiceError: a name is unknown, or no cell fits.
    """
    _check_names(group, choice)
    cells = synthetic_grid(choice) if group != "realworld" else []
    cells += realworld_grid(profile, choice) if group != "synthetic" else []
    if not cells:
        raise ChoiceError(
            "no cell fits this choice of data sets, models, configurations and splits (the baselines have the "
            f"configuration 'paper', {', '.join(WITHOUT_SETTINGS_OF_THE_PAPER)} 'default'; {BAYES_OPTIMAL} is known on "
            "synthetic data only; ablations are chronological only)"
        )
    return cells


def synthetic_grid(choice: Choice = EVERYTHING) -> list[Cell]:
    """Cells on synthetic data: every model on every fold."""
    return [
        Cell(dataset, FOLDS, model, config, fold)
        for dataset in _chosen(synthetic_names(), choice.datasets)
        for model, config in _variants(SYNTHETIC_CONFIGS, choice)
        for fold in range(min(choice.seeds or N_FOLDS, N_FOLDS))
    ]


def realworld_grid(profile: Profile, choice: Choice = EVERYTHING) -> list[Cell]:
    """Cells on real data, in both splits."""
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
        if split == CHRONOLOGICAL or not (is_ablation(model, config) or config == VIEWED)
        for seed in range(choice.seeds or _n_seeds(profile, split, model, config))
    ]


def synthetic_names() -> tuple[str, ...]:
    """Synthetic data sets."""
    from smct_paper.datasets import SYNTHETIC

    return tuple(SYNTHETIC)


def realworld_names() -> tuple[str, ...]:
    """Data sets of real measurements."""
    from smct_paper.datasets import DATASETS, SYNTHETIC

    return tuple(name for name in DATASETS if name not in SYNTHETIC)


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
    wanted = choice.configs
    if wanted is not None and ABLATIONS in wanted:
        wanted = (*wanted, *ablation_names())
    return [
        (model, config)
        for model in _chosen(model_names(), choice.models)
        for config in _chosen(smc_configs if model == SMC_TRANSFORMER else (baseline_config(model),), wanted)
    ]


def is_ablation(model: str, config: str) -> bool:
    """Whether this is `best` with something left out (best-10 is not: the number is M)."""
    ingredient = config.removeprefix("best-")
    return model == SMC_TRANSFORMER and ingredient != config and not ingredient.isdigit()


def _n_seeds(profile: Profile, split: str, model: str, config: str) -> int:
    if split == PAPER_SPLIT:
        return profile.paper_split_seeds
    if is_ablation(model, config):
        return profile.ablation_seeds
    return profile.best_seeds if (model, config) == (SMC_TRANSFORMER, "best") else profile.baseline_seeds


def _chosen(names: Iterable[str], wanted: Sequence[str] | None) -> list[str]:
    return [name for name in names if wanted is None or name in wanted]


def _check_names(group: str, choice: Choice) -> None:
    if group not in GROUPS:
        raise ChoiceError(f"unknown group {group!r}; there are: {', '.join(GROUPS)}")
    if group == "synthetic" and choice.splits is not None:
        raise ChoiceError("synthetic data are cross-validated in folds: a split is for real data only")
    synthetic = (synthetic_names(), SYNTHETIC_CONFIGS) if group != "realworld" else ((), ())
    real_configs = (*REALWORLD_CONFIGS, *ablation_names(), ABLATIONS)
    real = (realworld_names(), real_configs) if group != "synthetic" else ((), ("paper",))
    for kind, wanted, known in (
        ("data set", choice.datasets, (*synthetic[0], *real[0])),
        ("model", choice.models, model_names()),
        ("configuration", choice.configs, (*synthetic[1], *real[1], "default")),
        ("split", choice.splits, SPLITS),
    ):
        unknown = ", ".join(repr(name) for name in wanted or () if name not in known)
        if unknown:
            raise ChoiceError(f"unknown {kind} {unknown}; there are: {', '.join(dict.fromkeys(known))}")
