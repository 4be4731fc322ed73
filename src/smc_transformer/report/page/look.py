"""Where the particles of a series look when they make its forecast."""

from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from smc_transformer.report.page.attention import attention_ahead
from smc_transformer.report.page.data import AttentionPage, plain_list
from smc_transformer.report.page.times import plain_times, times_until

if TYPE_CHECKING:
    from smc_transformer.forecaster import Forecast, Forecaster
    from smc_transformer.forecaster.fitted import Following
    from smc_transformer.forecaster.table import Name


def known_ahead(forecaster: "Forecaster", forecast: "Forecast", future: Any) -> "dict[Name, Float[Tensor, '1 known']]":
    """What is known ahead of the first time of a forecast, as the model sees it.

    Args:
        forecaster: the forecaster.
        forecast: its forecast.
        future: the table of future inputs that the forecast was given.
    """
    times = dict(zip(forecast.names, forecast.times, strict=True))
    panel, ahead = forecaster.fitted.panel, forecaster.read_future(times, future)
    return {name: torch.from_numpy(panel.known(series.rows(slice(1)))).float() for name, series in ahead.items()}


def series_attention(
    forecaster: "Forecaster",
    following: "Following",
    name: "Name",
    known: Float[Tensor, "1 known"],
    generator: Generator | None,
) -> AttentionPage:
    """The attention behind the first step of a forecast.

    Args:
        forecaster: the forecaster.
        following: the series that are followed.
        name: one of them.
        known: what is known ahead of that step.
        generator: source of randomness.
    """
    from smc_transformer.forecaster.following import meet_known

    particles = following.fleet.take([name])
    meet_known(forecaster.model, particles, known)
    attention = attention_ahead(forecaster.model, particles, generator)
    slots = times_until(following.series[name].last_time, attention.weights.shape[-1], forecaster.settings.freq)
    return AttentionPage(
        times=plain_times(slots),
        mean=plain_list(attention.mean[0]),
        lower=plain_list(attention.quantile(0.05)[0]),
        upper=plain_list(attention.quantile(0.95)[0]),
    )
