"""The columns of an answer, before anything is computed: from the answer for a series that is made up.

A lazy engine must know them ahead. What a method answers with depends on its settings and arguments; asking it is
shorter, and truer, than writing that down a second time.
"""

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from smc_transformer.engines.bucket import ERROR, STATES, Call, received, ship
from smc_transformer.forecaster.frequency import times_after

if TYPE_CHECKING:
    from smc_transformer.forecaster import Forecaster


def example_answer(forecaster: "Forecaster", call: Call, *, text: bool) -> pd.DataFrame:
    """An answer of few rows, with the columns and types of all others."""
    settings, arguments = forecaster.settings, dict(call.arguments)
    name: str | int = "example" if text else 0
    n_rows = 4
    if call.verb == "backtest":
        horizon = arguments.get("h") or settings.horizon
        n_rows += horizon + (arguments.get("step_size") or horizon) * (arguments.get("n_windows", 1) - 1)
    if call.verb in ("predict", "simulate", "backtest"):
        arguments["n_paths"] = 2
    before = forecaster.fitted.some_time
    table = _table(forecaster, name, times_after(before, n_rows, settings.freq))
    if "future" in arguments:
        last = table[settings.time_column].iloc[-1]
        horizon = arguments.get("h") or settings.horizon
        arguments["future"] = _table(forecaster, name, times_after(last, horizon, settings.freq))
    # A copy that follows no series and was trained on none of this name.
    alone = received(ship(forecaster, Call("score", {})).model, fresh=True)
    method = "past_forecasts" if call.verb == "backtest" else call.verb
    answer = getattr(alone, method)(table, **arguments)
    if call.collecting:
        answer = answer.assign(**{ERROR: "reason"})
    return answer.assign(**{STATES: b"bytes"}) if call.verb == "update" else answer


def _table(forecaster: "Forecaster", name: str | int, times: pd.Index) -> pd.DataFrame:
    """Rows of a series; its values are 0, 1, 0, 1, ..., which every distribution can have."""
    settings = forecaster.settings
    columns = {column: np.arange(len(times), dtype=float) % 2 for column in settings.modelled}
    columns |= {column: np.zeros(len(times)) for column in settings.future_inputs}
    return pd.DataFrame({settings.id_column: name, settings.time_column: times, **columns})
