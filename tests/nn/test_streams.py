"""Streams of sequences: told by key and step, whoever else is in the batch, and distributed as they should be."""

import numpy as np
import pytest
import torch
from scipy import stats

from smc_transformer.kernels import disabled
from smc_transformer.nn.noise import standard_normal
from smc_transformer.nn.streams import Streams, in_stage, poisson, rows_of, standard_gamma, stream_key
from smc_transformer.smc.randomness import draw_uniform

NAMES = ["a", "b", 3, "3", "ä"]
LIKE = torch.empty(0)
DRAWS = {
    "uniform": lambda streams, shape: draw_uniform(shape, LIKE.double(), streams),
    "uniform32": lambda streams, shape: draw_uniform(shape, LIKE, streams),
    "normal": lambda streams, shape: standard_normal(shape, LIKE, streams),
    "normal64": lambda streams, shape: standard_normal(shape, LIKE.double(), streams),
    "gamma": lambda streams, shape: standard_gamma(torch.full(shape, 1.7), streams),
    "poisson": lambda streams, shape: poisson(torch.full(shape, 4.0), streams),
}
CDFS = {
    "uniform": stats.uniform().cdf,
    "uniform32": stats.uniform().cdf,
    "normal": stats.norm().cdf,
    "normal64": stats.norm().cdf,
    "gamma": stats.gamma(1.7).cdf,
}


def streams(n_draws=0, steps=(5, 0, 2**40, 7, 7)):
    return Streams.named(NAMES, 11, "follow").at(torch.tensor(steps), n_draws)


@pytest.fixture(params=[True, False], ids=["kernels", "no kernels"])
def kernels(request):
    if request.param:
        yield
    else:
        with disabled():
            yield


@pytest.mark.parametrize("kind", DRAWS)
@pytest.mark.usefixtures("kernels")
def test_a_row_does_not_depend_on_the_others(kind):
    draw = DRAWS[kind]
    whole = draw(streams(), (5, 3, 41))
    for rows in ([0], [4, 1], slice(1, 4), torch.tensor([3, 3])):
        chosen = streams().take(rows)
        assert torch.equal(draw(chosen, (len(chosen), 3, 41)), whole[rows])
    assert len({tuple(row.flatten().tolist()) for row in whole}) == 5


@pytest.mark.parametrize("kind", DRAWS)
@pytest.mark.usefixtures("kernels")
def test_key_step_and_number_of_the_draw_tell_the_numbers(kind):
    draw, shape = DRAWS[kind], (5, 20)
    first = streams()
    one, two = draw(first, shape), draw(first, shape)
    assert torch.equal(draw(streams(), shape), one)
    assert torch.equal(draw(streams(n_draws=1), shape), two)
    others = [
        two,
        draw(streams(steps=(6, 1, 3, 8, 8)), shape),
        draw(Streams.named(NAMES, 12, "follow").at(first.steps), shape),
        draw(Streams.named(NAMES, 11, "forecast").at(first.steps), shape),
    ]
    for other in others:
        assert (other != one).any(dim=1).all()


@pytest.mark.parametrize("kind", CDFS)
@pytest.mark.usefixtures("kernels")
def test_distributions(kind):
    for place in range(3):  # within a row, across rows at the same place, across steps
        if place == 0:
            found = DRAWS[kind](streams(), (5, 20_000))[0]
        elif place == 1:
            many = Streams.named(range(4000), 0, "follow")
            found = DRAWS[kind](many, (4000, 2))[:, 1]
        else:
            one = Streams(torch.full((4000,), stream_key("a", 0, "follow")), torch.arange(4000))
            found = DRAWS[kind](one, (4000, 2))[:, 0]
        assert stats.kstest(found.double().numpy(), CDFS[kind]).pvalue > 1e-4


def test_poisson_numbers():
    found = DRAWS["poisson"](streams(), (5, 20_000))
    assert (found == found.round()).all()
    assert abs(found.mean() - 4) < 5 * 2 / np.sqrt(100_000)
    assert abs(found.var() - 4) < 0.15


def test_keys_are_the_same_on_every_machine():
    # Computed by hashlib alone: blake2b of "follow", 0, "text" and "a", with zero bytes between them.
    assert stream_key("a", 0, "follow") == -7123154642971324266
    assert stream_key(3, 0, "follow") != stream_key("3", 0, "follow")


def test_other_generators_pass_through():
    plain = torch.Generator().manual_seed(3)
    assert rows_of(plain, [0]) is plain
    assert in_stage(plain, 1) is plain
    assert rows_of(None, [0]) is None


def test_a_batch_of_another_size_is_refused():
    with pytest.raises(ValueError, match="streams of 5 sequences, but 4 draw"):
        streams().uniforms((4, 2))


def test_torch_draws_the_same_numbers_for_the_same_batch():
    assert torch.equal(torch.rand(3, generator=streams()), torch.rand(3, generator=streams()))
