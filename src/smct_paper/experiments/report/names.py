"""Methods and data sets as the report calls and orders them."""

import re

from smct_paper.experiments.grid import ON_REQUEST, is_ablation
from smct_paper.experiments.paper_numbers import REAL_DATASETS
from smct_paper.experiments.report.results import MethodKey

SYNTHETIC_DATASETS = ("model1", "model2", "model3")
DATASET_TITLES = dict(zip(SYNTHETIC_DATASETS, ("Model I", "Model II", "Model III"), strict=True))
DATASET_TITLES |= {name: name.replace("_", " ") for name in REAL_DATASETS}
PAPER, BEST = MethodKey("smc_transformer", "paper"), MethodKey("smc_transformer", "best")

BASELINES = (
    *(
        MethodKey(model, "paper")
        for network in ("lstm", "transformer")
        for model in (network, *(f"{network}_dropout_{rate}" for rate in ("0.1", "0.2", "0.5")))
    ),
    *(MethodKey(model, "paper") for model in ("bayesian_lstm_3", "bayesian_lstm_10")),
    *(MethodKey(model, "default") for model in ("naive", "autoregression")),
)
REAL_METHODS = (BEST, PAPER, *BASELINES)
SYNTHETIC_SMC = tuple(
    MethodKey("smc_transformer", f"{config}-{size}") for config in ("best", "paper") for size in (10, 30)
)
SYNTHETIC_METHODS = (*SYNTHETIC_SMC, *BASELINES)

_MODEL_TITLES = {
    "smc_transformer": "SMC Transformer",
    "lstm": "LSTM",
    "transformer": "Transformer",
    "bayesian_lstm": "Bayesian LSTM",
    "naive": "naive forecast",
    "bayes_optimal": "Bayes-optimal",
}


def model_title(model: str) -> str:
    """A model's name in tables; the paper's `bayesian_lstm` and `smc_transformer_10` too."""
    found = re.fullmatch(r"(.+?)_(dropout_)?([\d.]+)", model)
    if found is not None and found[1] in _MODEL_TITLES:
        return f"{_MODEL_TITLES[found[1]]}, {'dropout' if found[2] else 'M ='} {found[3]}"
    return _MODEL_TITLES.get(model, model.replace("_", " "))


def method_title(method: MethodKey) -> str:
    """A method's name in tables: the configuration is said where there are several."""
    if method.model != "smc_transformer":
        return model_title(method.model)
    config, _, rest = method.config.partition("-")
    if not rest:
        return f"SMC Transformer ({config})"
    return f"SMC Transformer ({config}, {f'M = {rest}' if rest.isdigit() else f'without {ingredient_title(rest)}'})"


def ingredient_title(ingredient: str) -> str:
    """What an ablation leaves out, in words: `without_latent_noise` is "latent noise"."""
    return ingredient.replace("-", " ").replace("_", " ").removeprefix("without ")


def real_methods(found: set[MethodKey]) -> list[MethodKey]:
    """Rows of a table on real data: the grid's methods, run or not, then what else has results."""
    return _with_others([key for key in REAL_METHODS if key in found or key.model not in ON_REQUEST], found)


def synthetic_methods(found: set[MethodKey]) -> list[MethodKey]:
    """Rows of a table on synthetic data, in the same way."""
    return _with_others(list(SYNTHETIC_METHODS), found)


def _with_others(known: list[MethodKey], found: set[MethodKey]) -> list[MethodKey]:
    """Ablations and the true distribution have places of their own."""
    others = sorted(found - set(known))
    return known + [key for key in others if not is_ablation(*key) and key.model != "bayes_optimal"]


def dataset_title(dataset: str) -> str:
    """A data set's name in tables."""
    return DATASET_TITLES.get(dataset, dataset)
