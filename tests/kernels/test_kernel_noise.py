"""The kernels' noise: Threefry as published, standard normal, independent, and the same for any number of threads."""

import ctypes
import math

import numpy as np
import pytest
import torch
from helpers.agreement import random_model, seeded
from scipy import stats
from scipy.special import ndtr, ndtri

from smc_transformer.kernels import building, disabled, library
from smc_transformer.nn.noise import standard_normal

pytestmark = pytest.mark.skipif(building.c_compiler() is None, reason="no C compiler on this machine")

N = 2**20
LIMIT = 4.5
"""Standard errors allowed between an average and what it should be."""
LIKE = torch.empty(0)
KNOWN_ANSWERS = [
    ((0, 0, 0, 0), (0, 0, 0, 0), (0x9C6CA96A, 0xE17EAE66, 0xFC10ECD4, 0x5256A7D8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 4, (0x2A881696, 0x57012287, 0xF6C7446E, 0xA16A6732)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0, 0x082EFA98, 0xEC4E6C89),
        (0x59CD1DBB, 0xB8879579, 0x86B5D00C, 0xAC8B6D84),
    ),
]
"""Counter, key and words of Threefry 4x32-20, from the kat_vectors of Random123."""
QUANTILES = """
#include "noise.c"
void quantiles(const uint32_t *words, float *out, count n)
{
    for (count i = 0; i < n; i++) out[i] = normal_quantile(words[i]);
}
void together(const uint32_t *words, float *out, count n)
{
    normal_quantiles(words, out, (int)n);
}
"""


def fill(n, seed, n_threads=1, dtype=torch.float32):
    """Numbers straight from the kernel."""
    out = torch.full((n + 1,), math.pi, dtype=dtype)
    kernels = library(out)
    kernels.fill_normal(ctypes.c_void_p(out.data_ptr()), ctypes.c_int64(n), ctypes.c_uint64(seed), n_threads)
    assert out[n] == out.new_tensor(math.pi)  # nothing was written behind the end
    return out[:n]


def threefry(counter, key):
    words = (ctypes.c_uint32 * 4)()
    library(LIKE).threefry_words((ctypes.c_uint32 * 4)(*counter), (ctypes.c_uint32 * 4)(*key), words)
    return tuple(words)


@pytest.fixture(scope="module")
def numbers():
    return fill(N, seed=0x0123456789ABCDEF).double().numpy()


# --- bits ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN_ANSWERS)
def test_threefry_gives_the_known_answers(counter, key, words, calls):
    assert threefry(counter, key) == words


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("seed", [0, 1, 2**32 + 5, 2**63 - 1, 2**64 - 1])
def test_numbers_are_quantiles_at_the_words_of_their_place_and_seed(seed, dtype, calls):
    """Blocks of 16 counters; the first words of all of them come first, then the second ones, and so on."""
    n_blocks = 5
    key = (seed % 2**32, seed // 2**32, 0, 0)
    words = np.array(
        [[threefry((i, block, 0, 0), key) for i in range(16)] for block in range(n_blocks)], dtype=np.float64
    )
    expected = ndtri((words.transpose(0, 2, 1).reshape(-1) + 0.5) / 2**32)
    found = fill(64 * n_blocks - 7, seed, dtype=dtype).double().numpy()
    np.testing.assert_allclose(found, expected[:-7], atol=1e-5, rtol=0)


@pytest.fixture(scope="module", params=["quantiles", "together"])
def quantiles(compiled, request):
    """The kernel's quantile function, of one word or of many, and scipy's, of the same words."""
    function = getattr(compiled(QUANTILES), request.param)

    def evaluate(words):
        words, found = np.ascontiguousarray(words, dtype=np.uint32), np.empty(len(words), dtype=np.float32)
        pointers = (ctypes.c_void_p(values.ctypes.data) for values in (words, found))
        function(*pointers, ctypes.c_int64(len(words)))
        return found, ndtri((words.astype(np.float64) + 0.5) / 2**32)

    return evaluate


LAST = 150
"""So many words at either end have quantiles beyond 5.4, which one number in ten million is."""


def test_quantiles_are_exact_to_float32(quantiles):
    """In the centre, in the tails, and where the two approximations meet."""
    spread = np.linspace(LAST, 2**32 - 1 - LAST, 500_001).round()
    tail = (2.0 ** np.linspace(math.log2(LAST), 31, 100_001)).round()
    centre = 2**31 + np.arange(-1000.0, 1000.0)
    words = np.concatenate((spread, tail, 2**32 - 1 - tail, centre)).astype(np.uint32)
    found, expected = quantiles(words)
    np.testing.assert_allclose(found, expected, atol=3e-6, rtol=0)
    assert np.array_equal(quantiles(tail)[0], -quantiles(2**32 - 1 - tail)[0])  # symmetric to the bit


def test_quantiles_of_the_first_and_last_words_are_finite_and_nearly_exact(quantiles):
    """Of the words 0 and 2^32 - 1, too: finite, and as large as 2^32 draws are expected to be."""
    first = np.arange(LAST + 1)
    found, expected = quantiles(np.concatenate((first, 2**32 - 1 - first)))
    assert np.isfinite(found).all()
    assert (np.diff(found[: LAST + 1]) > 0).all()
    np.testing.assert_allclose(found, expected, atol=3e-3, rtol=0)


# --- distributions ---------------------------------------------------------------------------------------------------


def test_numbers_are_standard_normal(numbers):
    assert stats.kstest(numbers, ndtr).pvalue > 0.001
    for power, mean, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96), (6, 15, 10_170)):
        assert abs((numbers**power).mean() - mean) < LIMIT * math.sqrt(variance / N), power


@pytest.mark.parametrize("beyond", [1.0, 2.0, 3.0, 4.0, 4.5])
def test_tails_are_as_heavy_as_they_should_be(beyond, numbers):
    expected = N * ndtr(-beyond)
    for n_beyond in ((numbers > beyond).sum(), (numbers < -beyond).sum()):
        assert abs(n_beyond - expected) < LIMIT * math.sqrt(expected)


@pytest.mark.parametrize("lag", [1, 2, 3, 4, 15, 16, 17, 32, 48, 63, 64, 65, 128, 1024])
def test_numbers_know_nothing_of_their_neighbours(lag, numbers):
    one, other = numbers[:-lag], numbers[lag:]
    assert abs((one * other).mean()) < LIMIT / math.sqrt(N - lag)
    # Nor of their size: Var[(x^2 - 1)(y^2 - 1)] = 4.
    assert abs(((one**2 - 1) * (other**2 - 1)).mean()) < LIMIT * 2 / math.sqrt(N - lag)


@pytest.mark.parametrize("other_seed", [1, 2**31, 2**32, 2**62, 0x0123456789ABCDEF])
def test_seeds_know_nothing_of_each_other(other_seed):
    """Neighbouring seeds, and those that differ in one bit of the lower or the upper half."""
    one, other = (fill(N, seed).double() for seed in (0, other_seed))
    assert abs((one * other).mean()) < LIMIT / math.sqrt(N)
    assert abs(((one**2 - 1) * (other**2 - 1)).mean()) < LIMIT * 2 / math.sqrt(N)


# --- the same seed, the same numbers ------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1, 63, 64, 65, 1000])
def test_the_beginning_of_more_numbers_is_fewer_numbers(n, numbers):
    assert np.array_equal(fill(n, seed=0x0123456789ABCDEF).double().numpy(), numbers[:n])


@pytest.mark.parametrize("n_threads", [2, 3, 8])
def test_threads_change_nothing(n_threads):
    assert torch.equal(fill(100_001, seed=5, n_threads=n_threads), fill(100_001, seed=5))


def test_noise_depends_on_the_generator_alone(calls, set_threads):
    generator, same = seeded(1), seeded(1)
    first = standard_normal((3, 50), LIKE, generator)
    assert first.shape == (3, 50)
    assert first.dtype == torch.float32
    set_threads(3)
    assert torch.equal(standard_normal((3, 50), LIKE, same), first)
    assert not torch.equal(standard_normal((3, 50), LIKE, generator), first)
    assert not torch.equal(standard_normal((3, 50), LIKE, seeded(2)), first)
    assert calls == {"fill_normal": 4}
    assert calls.threads == {1, 3}


def test_seeds_have_all_their_bits():
    """63 of them: with 31, two of some ten thousand draws would be the same."""
    generator, same = seeded(1), seeded(1)
    seeds = [int(torch.randint(2**63 - 1, (), generator=same)) for _ in range(200)]
    for seed in seeds:
        assert torch.equal(standard_normal((3,), LIKE, generator), fill(3, seed))
    for bit in range(63):
        # Each bit is set in half of them: 100, and a standard deviation of 7.
        assert 60 < sum(seed >> bit & 1 for seed in seeds) < 140, bit


def test_without_a_generator_noise_follows_that_of_torch(calls):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        first, second = standard_normal((50,), LIKE, None), standard_normal((50,), LIKE, None)
        torch.manual_seed(1)
        assert torch.equal(standard_normal((50,), LIKE, None), first)
        assert not torch.equal(first, second)
    assert calls == {"fill_normal": 3}


def test_the_four_noises_of_a_model_are_different(calls):
    """Each of a model's noises has numbers of its own, and all are those of the kernel."""
    model = random_model(d_model=16, d_ff=5).float()
    noise = model.attention.draw_noise(8, 32, 64, seeded(1))
    assert calls == {"fill_normal": 1}
    flat = torch.stack([eps.flatten() for eps in noise]).double()
    n = flat.shape[1]
    products = flat @ flat.T / n - torch.eye(4, dtype=torch.float64)
    assert products.fill_diagonal_(0).abs().max() < LIMIT / math.sqrt(n)
    assert (flat.square().mean(dim=1) - 1).abs().max() < LIMIT * math.sqrt(2 / n)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_types_have_the_noise_of_torch(dtype, calls):
    """The kernel's numbers have the precision of float32."""
    found = standard_normal((50,), torch.empty(0, dtype=dtype), seeded(1))
    assert torch.equal(found, torch.randn(50, generator=seeded(1), dtype=dtype))
    assert calls == {}


def test_disabled_kernels_leave_the_noise_to_torch(calls):
    with disabled():
        assert torch.equal(standard_normal((50,), LIKE, seeded(1)), torch.randn(50, generator=seeded(1)))
    assert calls == {}
