"""Forecasts by brute force: draw whole sequences of latents and futures from the prior, weight them by the history.

For d_model = 1 and a linear read-out, one step, slot and sequence at a time in numpy; no resampling, no caches.
"""

import numpy as np


def weighted_futures(model, history, horizon, n_samples, seed, n_weighted=None, given=None):
    """Futures (sample, horizon) after one history (time, 1), and their normalised weights.

    With `n_weighted` only X_1, ..., X_{n_weighted} count in the weights, which is a mistake. Values `given` ahead, by
    the step of the horizon (from 0), are not drawn but weighted.
    """
    given = given or {}
    number = {name: float(value.detach().double().reshape(-1)[0]) for name, value in model.state_dict().items()}
    window = model.config.window
    random = np.random.default_rng(seed)
    n_steps = len(history) - 1 + horizon
    x = np.empty((n_samples, n_steps + 1))
    x[:, : len(history)] = history.double().numpy()[:, 0]
    embedding, key, value = (np.empty((n_samples, n_steps)) for _ in range(3))
    log_weights = np.zeros(n_samples)
    for t in range(1, n_steps + 1):
        s = t - 1
        embedding[:, s] = number["encoder.projection.weight"] * x[:, s] + number["encoder.projection.bias"]

        def draw(name, mean):
            return mean + abs(number[f"attention.{name}_covariance.factor"]) * random.standard_normal(n_samples)

        query = draw("query", number["attention.query.weight"] * embedding[:, s])
        key[:, s] = draw("key", number["attention.key.weight"] * embedding[:, s])
        value[:, s] = draw("value", number["attention.value.weight"] * embedding[:, s])
        first = 0 if window is None else max(0, t - window)
        shares = np.exp(query[:, None] * key[:, first:t])
        shares /= shares.sum(axis=1, keepdims=True)
        z = draw("attention", number["attention.output.weight"] * (shares * value[:, first:t]).sum(axis=1))
        mean = number["readout.projection.weight"] * (z + embedding[:, s]) + number["readout.projection.bias"]
        deviation = abs(number["observation.covariance.factor"])
        if t - len(history) in given:
            x[:, t] = given[t - len(history)]
        if t < len(history) or t - len(history) in given:
            if n_weighted is None or t <= n_weighted:
                log_weights -= 0.5 * ((x[:, t] - mean) / deviation) ** 2
        else:
            x[:, t] = mean + deviation * random.standard_normal(n_samples)
    weights = np.exp(log_weights - log_weights.max())
    return x[:, len(history) :], weights / weights.sum()
