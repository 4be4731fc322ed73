"""Other ways to forecast, all with the same small interface, so that one evaluator scores them all.

from smct_paper.baselines import BASELINES
from smct_paper.datasets import load_windows
from smct_paper.evaluation import evaluate

method, data = BASELINES["autoregression"](), load_windows("weather")
method.fit(data, seed=0)
evaluate(method, data, n_windows=500, seed=0)["multistep"].metrics["crps"]
"""

from collections.abc import Callable
from functools import partial

from smct_paper.baselines.autoregression import Autoregression
from smct_paper.baselines.base import Method
from smct_paper.baselines.bayes_optimal import BayesOptimal
from smct_paper.baselines.bayesian_lstm import BayesianLSTM
from smct_paper.baselines.lstm import LSTM
from smct_paper.baselines.naive import NaiveForecast
from smct_paper.baselines.transformer import Transformer

__all__ = ["BASELINES", "BayesOptimal", "Method"]

DROPOUT_RATES = (0.1, 0.2, 0.5)

BASELINES: dict[str, Callable[..., Method]] = {
    "lstm": LSTM,
    "transformer": Transformer,
    **{f"lstm_dropout_{rate}": partial(LSTM, dropout=rate) for rate in DROPOUT_RATES},
    **{f"transformer_dropout_{rate}": partial(Transformer, dropout=rate) for rate in DROPOUT_RATES},
    "bayesian_lstm_3": partial(BayesianLSTM, elbo_samples=3),
    "bayesian_lstm_10": partial(BayesianLSTM, elbo_samples=10),
    "naive": NaiveForecast,
    "autoregression": Autoregression,
}
"""Each makes a method with the paper's settings; other settings (epochs, ...) are keyword arguments."""
