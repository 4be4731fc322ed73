"""Learning: the score by Fisher's identity, EM for the covariances, and a training loop around both."""

from smc_transformer.learning.em import em_step, power_step_size
from smc_transformer.learning.goals import ForecastScore, Goal, Likelihood, Sampling, negative_log_likelihood
from smc_transformer.learning.recipe import Recipe, Stage, evenly_spaced, train_in_stages
from smc_transformer.learning.schedule import constant, warmup_cosine, warmup_inverse_sqrt
from smc_transformer.learning.squared_error import SquaredError
from smc_transformer.learning.step import TrainingStep, training_step
from smc_transformer.learning.trainer import EpochReport, Trainer, fit

__all__ = [
    "EpochReport",
    "ForecastScore",
    "Goal",
    "Likelihood",
    "Recipe",
    "Sampling",
    "SquaredError",
    "Stage",
    "Trainer",
    "TrainingStep",
    "constant",
    "em_step",
    "evenly_spaced",
    "fit",
    "negative_log_likelihood",
    "power_step_size",
    "train_in_stages",
    "training_step",
    "warmup_cosine",
    "warmup_inverse_sqrt",
]
