"""The baselines of the experiments by name, with the paper's settings."""

from collections.abc import Callable
from functools import partial

from smct_paper.baselines.autoregression import Autoregression
from smct_paper.baselines.base import Method
from smct_paper.baselines.bayesian_lstm import BayesianLSTM
from smct_paper.baselines.lstm import LSTM
from smct_paper.baselines.naive import NaiveForecast
from smct_paper.baselines.transformer import Transformer

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
