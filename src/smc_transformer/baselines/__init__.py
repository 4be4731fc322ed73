"""Other ways to forecast, all with the same small interface, so that one evaluator scores them all.

from smc_transformer.baselines import BASELINES
from smc_transformer.datasets import load_windows
from smc_transformer.evaluation import evaluate

method, data = BASELINES["autoregression"](), load_windows("weather")
method.fit(data, seed=0)
evaluate(method, data, n_windows=500, seed=0)["multistep"].metrics["crps"]
"""

from smc_transformer.baselines.autoregression import Autoregression
from smc_transformer.baselines.base import Method, Predictive
from smc_transformer.baselines.bayes_optimal import BayesOptimal
from smc_transformer.baselines.bayesian_lstm import BayesianLSTM
from smc_transformer.baselines.lstm import LSTM
from smc_transformer.baselines.persistence import Persistence
from smc_transformer.baselines.registry import BASELINES
from smc_transformer.baselines.transformer import Transformer

__all__ = [
    "BASELINES",
    "LSTM",
    "Autoregression",
    "BayesOptimal",
    "BayesianLSTM",
    "Method",
    "Persistence",
    "Predictive",
    "Transformer",
]
