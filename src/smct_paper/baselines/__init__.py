"""Other ways to forecast, all with the same small interface, so that one evaluator scores them all.

from smct_paper.baselines import BASELINES
from smct_paper.datasets import load_windows
from smct_paper.evaluation import evaluate

method, data = BASELINES["autoregression"](), load_windows("weather")
method.fit(data, seed=0)
evaluate(method, data, n_windows=500, seed=0)["multistep"].metrics["crps"]
"""

from smct_paper.baselines.autoregression import Autoregression
from smct_paper.baselines.base import Method
from smct_paper.baselines.bayes_optimal import BayesOptimal
from smct_paper.baselines.bayesian_lstm import BayesianLSTM
from smct_paper.baselines.lstm import LSTM
from smct_paper.baselines.naive import NaiveForecast
from smct_paper.baselines.registry import BASELINES
from smct_paper.baselines.transformer import Transformer

__all__ = [
    "BASELINES",
    "LSTM",
    "Autoregression",
    "BayesOptimal",
    "BayesianLSTM",
    "Method",
    "NaiveForecast",
    "Transformer",
]
