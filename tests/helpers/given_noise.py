"""Filters and streams under noise that is given instead of drawn."""

from smc_transformer.inference.filter import particle_filter


def filter_under(noise, model, x, generator=None, **options):
    """The filter over whole sequences, with the given noise of its particles."""
    return particle_filter(model, x, model.settings(noise.query.shape[1]), generator, noise=noise, **options)


def stream_under(noise, model, x, seed):
    """Feed sequences step by step under given noise; returns the state and what each observation meant."""
    state = model.init_state(len(x), noise.query.shape[1], generator=seed)
    infos = []
    for t in range(x.shape[1]):
        given = noise.at(t) if t < x.shape[1] - 1 else None
        infos.append(state.observe(x[:, t], noise=given))
    return state, infos
