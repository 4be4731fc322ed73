"""The numbers of the paper's tables, keyed like our rows: (model, dataset).

Two names differ from ours, because the paper's tables do: its Bayesian LSTM on real data does not say how many
samples its ELBO has (`bayesian_lstm`), and its SMC Transformer on synthetic data has one row for each number of
particles (`smc_transformer_10`, `smc_transformer_30`). `paper_name` finds the row that one of ours is compared with.
"""

from typing import NamedTuple

REAL_DATASETS = ("covid", "air_quality", "weather", "energy", "stock")
SYNTHETIC_DATASETS = ("model1", "model2")


class SyntheticNumbers(NamedTuple):
    """A row of Table 1; point forecasts have no dist-mse."""

    mse: float
    dist_mse: float | None


class IntervalNumbers(NamedTuple):
    """A cell of the tables on real data; point forecasts have no intervals, and multistep has no mse of its own."""

    mse: float | None
    picp: float | None
    mpiw: float | None


def paper_name(model: str, config: str, dataset: str) -> str:
    """The paper's name for one of our methods on a data set; it need not have a row of that name."""
    if dataset in REAL_DATASETS:
        return "bayesian_lstm" if model.startswith("bayesian_lstm") else model
    return f"{model}_{config.split('-')[1]}" if model == "smc_transformer" and "-" in config else model


_SYNTHETIC: dict[str, tuple[tuple[float, float | None], ...]] = {
    "bayes_optimal": ((0.50, 0.50), (0.30, 0.35)),
    "lstm": ((0.50, None), (0.32, None)),
    "transformer": ((0.52, None), (0.32, None)),
    "lstm_dropout_0.1": ((0.48, 0.004), (0.32, 0.003)),
    "lstm_dropout_0.2": ((0.53, 0.0099), (0.34, 0.007)),
    "lstm_dropout_0.5": ((0.53, 0.03), (0.33, 0.02)),
    "transformer_dropout_0.1": ((0.50, 0.02), (0.31, 0.03)),
    "transformer_dropout_0.2": ((0.50, 0.02), (0.32, 0.02)),
    "transformer_dropout_0.5": ((0.52, 0.05), (0.33, 0.05)),
    "bayesian_lstm_3": ((0.55, 0.04), (0.36, 0.05)),
    "bayesian_lstm_10": ((0.53, 0.03), (0.37, 0.04)),
    "smc_transformer_10": ((0.52, 0.49), (0.30, 0.35)),
    "smc_transformer_30": ((0.49, 0.52), (0.34, 0.35)),
}

# Of covid, air quality, weather, energy and stock.
_UNISTEP_MSE: dict[str, tuple[float, ...]] = {
    "lstm": (0.117, 0.120, 0.076, 0.039, 0.055),
    "lstm_dropout_0.1": (0.150, 0.139, 0.089, 0.07, 0.065),
    "lstm_dropout_0.2": (0.159, 0.152, 0.101, 0.103, 0.074),
    "lstm_dropout_0.5": (0.155, 0.211, 0.157, 0.218, 0.112),
    "transformer": (0.116, 0.132, 0.099, 0.042, 0.068),
    "transformer_dropout_0.1": (0.121, 0.141, 0.127, 0.046, 0.076),
    "transformer_dropout_0.2": (0.129, 0.159, 0.133, 0.053, 0.082),
    "transformer_dropout_0.5": (0.208, 0.196, 0.180, 0.09, 0.106),
    "bayesian_lstm": (0.144, 0.192, 0.092, 0.121, 0.086),
    "smc_transformer": (0.128, 0.148, 0.180, 0.043, 0.071),
}

# (PICP, MPIW) in the same order; point forecasts have none.
_UNISTEP: dict[str, tuple[tuple[float, float], ...]] = {
    "lstm_dropout_0.1": ((0.77, 0.27), (0.64, 0.40), (0.55, 0.38), (0.99, 0.49), (0.93, 0.28)),
    "lstm_dropout_0.2": ((0.79, 0.38), (0.72, 0.54), (0.64, 0.53), (0.99, 0.45), (0.95, 0.38)),
    "lstm_dropout_0.5": ((0.89, 0.63), (0.86, 0.87), (0.78, 0.92), (0.96, 1.24), (0.97, 0.108)),
    "transformer_dropout_0.1": ((0.96, 0.37), (0.77, 0.47), (0.60, 0.35), (0.96, 0.45), (0.93, 0.34)),
    "transformer_dropout_0.2": ((0.94, 0.46), (0.89, 0.58), (0.72, 0.44), (0.98, 0.64), (0.95, 0.41)),
    "transformer_dropout_0.5": ((0.97, 0.76), (0.96, 0.85), (0.89, 0.68), (0.97, 1.00), (0.95, 0.63)),
    "bayesian_lstm": ((0.25, 0.12), (0.77, 0.51), (0.25, 0.15), (0.91, 0.76), (0.85, 0.22)),
    "smc_transformer": ((0.997, 0.70), (0.97, 1.54), (0.99, 1.65), (0.99, 0.82), (0.99, 1.08)),
}
_MULTISTEP: dict[str, tuple[tuple[float, float], ...]] = {
    "lstm_dropout_0.1": ((0.67, 0.61), (0.54, 0.73), (0.62, 1.15), (0.96, 1.12), (0.85, 0.74)),
    "lstm_dropout_0.2": ((0.73, 0.83), (0.60, 0.97), (0.70, 1.44), (0.96, 1.12), (0.85, 0.74)),
    "lstm_dropout_0.5": ((0.80, 1.64), (0.70, 1.31), (0.75, 1.74), (0.88, 1.57), (0.87, 1.42)),
    "transformer_dropout_0.1": ((0.74, 0.74), (0.69, 1.44), (0.38, 0.59), (0.89, 0.60), (0.71, 0.54)),
    "transformer_dropout_0.2": ((0.73, 0.77), (0.60, 0.97), (0.70, 1.44), (0.93, 0.77), (0.71, 0.54)),
    "transformer_dropout_0.5": ((0.84, 1.52), (0.77, 1.97), (0.59, 1.04), (0.94, 1.21), (0.83, 0.77)),
    "bayesian_lstm": ((0.15, 0.23), (0.49, 0.72), (0.27, 0.38), (0.93, 1.08), (0.34, 0.45)),
    "smc_transformer": ((0.91, 1.85), (0.97, 3.17), (0.92, 2.90), (0.97, 1.33), (0.98, 1.80)),
}

SYNTHETIC: dict[tuple[str, str], SyntheticNumbers] = {
    (model, dataset): SyntheticNumbers(*numbers)
    for model, row in _SYNTHETIC.items()
    for dataset, numbers in zip(SYNTHETIC_DATASETS, row, strict=True)
}
"""Table 1; `bayes_optimal` is the paper's "true model"."""

UNISTEP: dict[tuple[str, str], IntervalNumbers] = {
    (model, dataset): IntervalNumbers(mse, *interval)
    for model, row in _UNISTEP_MSE.items()
    for dataset, mse, interval in zip(REAL_DATASETS, row, _UNISTEP.get(model, ((None, None),) * 5), strict=True)
}

MULTISTEP: dict[tuple[str, str], IntervalNumbers] = {
    (model, dataset): IntervalNumbers(None, *interval)
    for model, row in _MULTISTEP.items()
    for dataset, interval in zip(REAL_DATASETS, row, strict=True)
}
"""Without mse: the paper repeats the unistep one."""

REAL = {"unistep": UNISTEP, "multistep": MULTISTEP}
"""By task."""


def best_paper_mse(dataset: str) -> float:
    """The lowest mse of the paper's table on a real data set, of any model."""
    return min(row[REAL_DATASETS.index(dataset)] for row in _UNISTEP_MSE.values())


def smc_interval(task: str, dataset: str) -> tuple[float, float]:
    """PICP and MPIW of the paper's SMC Transformer on a real data set."""
    rows = {"unistep": _UNISTEP, "multistep": _MULTISTEP}[task]
    return rows["smc_transformer"][REAL_DATASETS.index(dataset)]
