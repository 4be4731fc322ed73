"""A causal transformer layer with several heads in numpy loops, on top of given embeddings: the zero-noise limit."""

import numpy as np

from helpers.oracles.deterministic import read_out


def multi_head_means(model, x, embeddings):
    """Predicted means of X_1, ..., X_T, one sequence, step, head and slot at a time.

    x is (batch, time + 1, n_inputs); embeddings are those of X_0, ..., X_{T-1}, (batch, time, d_model).
    """
    weights = {name: value.detach().double().numpy() for name, value in model.state_dict().items()}
    config = model.config
    size = config.d_model // config.n_heads
    x, embeddings = x.double().numpy(), embeddings.detach().double().numpy()
    means = np.empty((x.shape[0], x.shape[1] - 1, config.n_targets))
    for b in range(x.shape[0]):
        for t in range(1, x.shape[1]):
            slots = range(0 if config.window is None else max(0, t - config.window), t)
            query = weights["attention.query.weight"] @ embeddings[b, t - 1]
            context = np.zeros(config.d_model)
            for head in range(config.n_heads):
                first, end = head * size, (head + 1) * size
                shares = []
                for s in slots:
                    key = weights["attention.key.weight"] @ embeddings[b, s]
                    shares.append(np.exp(query[first:end] @ key[first:end] / np.sqrt(size)))
                for share, s in zip(shares, slots, strict=True):
                    value = weights["attention.value.weight"] @ embeddings[b, s]
                    context[first:end] += share / sum(shares) * value[first:end]
            z = weights["attention.output.weight"] @ context
            mean = read_out(weights, config, z + embeddings[b, t - 1])
            means[b, t - 1] = mean + (x[b, t - 1, : config.n_targets] if config.predict_change else 0)
    return means
