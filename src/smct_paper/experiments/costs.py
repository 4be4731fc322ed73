"""Rough costs of cells: to start with the longest, and to estimate the remaining time."""

from smct_paper.experiments.grid import BAYES_OPTIMAL, SMC_TRANSFORMER, Cell

# Seconds of one core in the quick profile on a synthetic set, and how many times longer the other sets take: rounded
# from the runs behind docs/results.md. A wrong one changes the order of the work and the first estimates, nothing else.
_OF_MODEL = {
    BAYES_OPTIMAL: 1.0,
    "naive": 0.3,
    "autoregression": 0.5,
    "lstm": 0.7,
    "transformer": 1.2,
    "lstm_dropout": 2.0,
    "transformer_dropout": 3.5,
    "bayesian_lstm_3": 6.0,
    "bayesian_lstm": 12.0,
    SMC_TRANSFORMER: 20.0,
}
_OF_DATASET = {"covid": 4.0, "air_quality": 3.5, "weather": 17.0, "energy": 6.5, "stock": 4.0}
_OF_DATASET_WITH_PARTICLES = {"covid": 15.0, "air_quality": 5.0, "weather": 20.0, "energy": 12.0, "stock": 11.0}


def expected_cost(cell: Cell) -> float:
    """Expected time of a cell, in seconds of some core."""
    family = max((name for name in _OF_MODEL if cell.model.startswith(name)), key=len, default="lstm")
    longer = _OF_DATASET_WITH_PARTICLES if cell.model == SMC_TRANSFORMER else _OF_DATASET
    return _OF_MODEL[family] * longer.get(cell.dataset, 1.0)
