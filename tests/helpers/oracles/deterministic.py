"""A plain causal transformer layer in numpy loops: what the model is when all latent noise is zero."""

import numpy as np


def deterministic_means(model, x):
    """Predicted means of X_1, ..., X_T, one sequence, step and slot at a time; x is (batch, time + 1, n_inputs)."""
    weights = {name: value.detach().double().numpy() for name, value in model.state_dict().items()}
    config = model.config
    x = x.double().numpy()
    means = np.empty((x.shape[0], x.shape[1] - 1, config.n_targets))
    for b in range(x.shape[0]):
        embeddings = [weights["encoder.projection.weight"] @ row + weights["encoder.projection.bias"] for row in x[b]]
        for t in range(1, x.shape[1]):
            first = 0 if config.window is None else max(0, t - config.window)
            query = weights["attention.query.weight"] @ embeddings[t - 1]
            scores = [
                query @ (weights["attention.key.weight"] @ embeddings[s]) / np.sqrt(config.d_model)
                for s in range(first, t)
            ]
            shares = np.exp(scores - np.max(scores))
            shares /= shares.sum()
            context = sum(
                share * (weights["attention.value.weight"] @ embeddings[s])
                for share, s in zip(shares, range(first, t), strict=True)
            )
            z = weights["attention.output.weight"] @ context
            mean = read_out(weights, config, z + embeddings[t - 1])
            means[b, t - 1] = mean + (x[b, t - 1, : config.n_targets] if config.predict_change else 0)
    return means


def read_out(weights, config, y):
    if config.readout == "transformer":
        h = _layer_norm(y, weights["readout.attention_norm.weight"], weights["readout.attention_norm.bias"])
        hidden = np.maximum(0, weights["readout.feed_forward.0.weight"] @ h + weights["readout.feed_forward.0.bias"])
        out = weights["readout.feed_forward.2.weight"] @ hidden + weights["readout.feed_forward.2.bias"]
        y = _layer_norm(h + out, weights["readout.output_norm.weight"], weights["readout.output_norm.bias"])
    return weights["readout.projection.weight"] @ y + weights["readout.projection.bias"]


def _layer_norm(y, gain, bias):
    return gain * (y - y.mean()) / np.sqrt(y.var() + 1e-5) + bias
