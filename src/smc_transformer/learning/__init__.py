"""Learning: the score by Fisher's identity, EM for the covariances, and a training loop around both."""

from smc_transformer.learning.em import Statistics, em_statistics, em_step, power_step_size
from smc_transformer.learning.goals import ForecastScore, Goal, Likelihood
from smc_transformer.learning.likelihood import negative_log_likelihood
from smc_transformer.learning.objective import OBJECTIVES, pathwise_objective, score_objective
from smc_transformer.learning.recipe import Recipe, Stage, evenly_spaced, train_in_stages
from smc_transformer.learning.schedule import constant, warmup_cosine, warmup_inverse_sqrt
from smc_transformer.learning.squared_error import SquaredError
from smc_transformer.learning.step import TrainingStep, training_step
from smc_transformer.learning.trainer import EpochReport, Trainer, fit

__all__ = [
    "OBJECTIVES",
    "EpochReport",
    "ForecastScore",
    "Goal",
    "Likelihood",
    "Recipe",
    "SquaredError",
    "Stage",
    "Statistics",
    "Trainer",
    "TrainingStep",
    "constant",
    "em_statistics",
    "em_step",
    "evenly_spaced",
    "fit",
    "negative_log_likelihood",
    "pathwise_objective",
    "power_step_size",
    "score_objective",
    "train_in_stages",
    "training_step",
    "warmup_cosine",
    "warmup_inverse_sqrt",
]
