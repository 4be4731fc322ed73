"""Model cards: what a model is, what it was made for, and how to use it, for people and for Hugging Face's search."""

from collections.abc import Mapping

from smc_transformer._version import __version__
from smc_transformer.forecaster.fitted import Fitted
from smc_transformer.forecaster.settings import Settings
from smc_transformer.model import SMCTransformer

HEAD = """\
---
library_name: smc-transformer
pipeline_tag: time-series-forecasting
tags:
- time-series
- forecasting
- probabilistic-forecasting
- sequential-monte-carlo
---
"""


def card_of_forecaster(fitted: Fitted) -> str:
    """The card of a forecaster, without a word about the series it was fitted on."""
    settings = fitted.settings
    rows = {
        "forecasts": ", ".join(settings.targets),
        "steps ahead": settings.horizon,
        "frequency": settings.freq,
        "inputs known ahead": ", ".join(settings.future_inputs) or "none",
        "inputs observed only": ", ".join(settings.past_inputs) or "none",
        "calendar inputs": ", ".join(settings.calendar) or "none",
        "seasons, in rows": ", ".join(map(str, settings.seasons)) or "none",
        "scaling": settings.scaling,
        "particles": settings.n_particles,
        **_sizes(fitted.model),
    }
    return f"""{HEAD}
# A forecaster of time series

An SMC Transformer: a transformer whose keys, queries, values and attention vectors are random, inferred by a particle
filter. It answers with a distribution of the future, not with a point.

{_table(rows)}

## Use

```python
from smc_transformer.adapters import huggingface

forecaster = huggingface.from_pretrained("this folder or repository")
forecaster.predict(history, {_future(settings)}level=[80, 95])  # a long table with {_columns(settings)}
```

The folder holds the weights and how values are scaled. It holds no series, and no state of one: the forecaster follows
what it is given.

Written by smc-transformer {__version__}. Who publishes the model should say here what data it was fitted on, how well
it forecasts (`Forecaster.backtest`), and under which licence it may be used.
"""


def card_of_model(model: SMCTransformer, own_parts: Mapping[str, str]) -> str:
    """The card of a model by itself."""
    config = model.config
    rows = {
        "inputs": config.n_inputs,
        "targets, the first inputs": config.n_targets,
        "window": config.window or "all that was observed",
        "encoder": own_parts.get("encoder", config.encoder),
        "distribution": own_parts.get("observation", config.observation),
        "particles": model.inference.n_particles,
        **_sizes(model),
    }
    given = "".join(f", {part}={kind}(...)" for part, kind in own_parts.items())
    return f"""{HEAD}
# An SMC Transformer

A transformer whose keys, queries, values and attention vectors are random, inferred by a particle filter.

{_table(rows)}

## Use

```python
from smc_transformer.adapters import huggingface

model = huggingface.from_pretrained("this folder or repository"{given})
result = model.filter(x)  # (batch, time + 1, {config.n_inputs}), NaN targets are missing
paths = model.forecast(x, horizon=12)  # (batch, sample, horizon, {config.n_targets})
```

Written by smc-transformer {__version__}. Who publishes the model should say here what data it was trained on, how well
it predicts, and under which licence it may be used.
"""


def _sizes(model: SMCTransformer) -> dict[str, object]:
    return {
        "embedding size": model.config.d_model,
        "heads": model.config.n_heads,
        "weights": sum(tensor.numel() for tensor in model.parameters()),
    }


def _table(rows: Mapping[str, object]) -> str:
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items())])


def _future(settings: Settings) -> str:
    return "future=inputs_ahead, " if settings.future_inputs else ""


def _columns(settings: Settings) -> str:
    columns = (settings.id_column, settings.time_column, *settings.modelled, *settings.future_inputs)
    return ", ".join(columns)
