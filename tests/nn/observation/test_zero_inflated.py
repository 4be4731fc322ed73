"""The Student-t with a spike at the last value, against sums over who stays, quadrature and naive draws."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from smc_transformer import SMCTransformer, SMCTransformerConfig
from smc_transformer.inference.filter import particle_filter
from smc_transformer.learning import fit
from smc_transformer.nn.observation import ZeroInflatedObservation
from smc_transformer.nn.observation.student_t import StudentTComponents
from smc_transformer.nn.observation.zero_inflated import ZeroInflatedComponents
from smc_transformer.nn.streams import Streams
from smc_transformer.scores import covered
from smc_transformer.support.randomness import as_generator

LIMIT = 4.5
"""Standard errors allowed: a test compares up to some dozens of numbers, each beyond 4.5 with probability 7e-6."""

N_DRAWS = 20_000
DEGREES = 5.0
CORRELATION = np.array([[1.0, 0.7, -0.3], [0.7, 1.0, 0.2], [-0.3, 0.2, 1.0]])


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=as_generator(seed), dtype=torch.float64)


class Rows:
    """Components with random parameters, each row copied so many times, and what they are in numpy."""

    def __init__(self, n_rows, n_targets=3, copies=1):
        self.location, self.last = 2 * numbers(n_rows, n_targets), 2 * numbers(n_rows, n_targets, seed=1)
        self.scale, self.logit = numbers(n_rows, n_targets, seed=2).exp(), numbers(n_rows, n_targets, seed=3)
        self.stay = (1 / (1 + np.exp(-self.logit.numpy()))).tolist()
        self.matrix = CORRELATION[:n_targets, :n_targets]
        self.n_rows, self.n_targets, self.copies = n_rows, n_targets, copies
        location, last, scale, logit = (
            part.repeat_interleave(copies, dim=0) for part in (self.location, self.last, self.scale, self.logit)
        )
        root = torch.linalg.cholesky(torch.tensor(self.matrix))
        moving = StudentTComponents(location, root, scale, torch.tensor(DEGREES, dtype=torch.float64))
        self.components = ZeroInflatedComponents(moving, logit, last)

    def shape_matrix(self, row):
        scale = self.scale[row].numpy()
        return scale[:, None] * self.matrix * scale

    def margin(self, row, target):
        return stats.t(DEGREES, self.location[row, target].item(), self.scale[row, target].item())

    def log_prob(self, row, x, coordinates):
        """Naively: the probability of each that stays, that of each that moves, and the density of those that do."""
        moved = [j for j in coordinates if x[j] != self.last[row, j].item()]
        total = sum(math.log(1 - self.stay[row][j] if j in moved else self.stay[row][j]) for j in coordinates)
        if moved:
            location, matrix = self.location[row].numpy()[moved], self.shape_matrix(row)[np.ix_(moved, moved)]
            total += stats.multivariate_t.logpdf(x[moved], location, matrix, df=DEGREES)
        return total

    def draws(self, row, n, seed=0):
        """Naive draws: normals over a common precision, then a coin for each target."""
        random = np.random.default_rng(seed)
        normal = random.standard_normal((n, self.n_targets)) @ np.linalg.cholesky(self.shape_matrix(row)).T
        moving = self.location[row].numpy() + normal / np.sqrt(random.gamma(DEGREES / 2, 2 / DEGREES, (n, 1)))
        return np.where(random.random(moving.shape) < self.stay[row], self.last[row].numpy(), moving)


def every_pattern(n_targets):
    return torch.tensor(list(itertools.product((False, True), repeat=n_targets)))


# --- density ------------------------------------------------------------------------------------------------


def test_log_prob_is_that_of_the_naive_sum_for_every_pattern_of_moves_and_gaps():
    patterns = every_pattern(6)  # which targets have moved, and which were observed
    rows = Rows(len(patterns))
    moved, observed = patterns[:, :3], patterns[:, 3:]
    x = torch.where(moved, rows.location + numbers(len(patterns), 3, seed=4), rows.last)
    found = rows.components.log_prob(torch.where(observed, x, math.nan), observed)
    expected = [rows.log_prob(row, x[row].numpy(), np.flatnonzero(observed[row])) for row in range(rows.n_rows)]
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    whole = [rows.log_prob(row, x[row].numpy(), range(3)) for row in range(rows.n_rows)]
    np.testing.assert_allclose(rows.components.log_prob(x), whole, rtol=1e-6, atol=1e-6)


def test_probability_of_staying_and_density_of_moving_sum_to_one():
    rows = Rows(1, n_targets=1)

    def density(x):
        return rows.components.log_prob(torch.tensor([[x]], dtype=torch.float64)).exp().item()

    moving, _ = integrate.quad(density, -math.inf, math.inf)
    assert moving + rows.components.log_prob(rows.last).exp().item() == pytest.approx(1.0, abs=1e-7)


def test_log_prob_has_gradients_that_are_numbers_whoever_moves():
    logit = torch.zeros(8, 3, dtype=torch.float64, requires_grad=True)
    rows = Rows(8)
    components = ZeroInflatedComponents(rows.components.moving, logit, rows.last)
    moved = every_pattern(3)
    components.log_prob(torch.where(moved, rows.location, rows.last)).sum().backward()
    torch.testing.assert_close(logit.grad, torch.where(moved, -0.5, 0.5).double())


# --- cdf and moments ----------------------------------------------------------------------------------------


def test_cdf_jumps_at_the_last_value_by_the_probability_of_staying():
    rows = Rows(6)
    below, above = rows.last - 1e-9, rows.last
    for x in (below, above, rows.last + 1.0, rows.last - 1.0):
        expected = [
            [
                (1 - rows.stay[row][j]) * rows.margin(row, j).cdf(x[row, j].item())
                + rows.stay[row][j] * (x[row, j] >= rows.last[row, j]).item()
                for j in range(3)
            ]
            for row in range(6)
        ]
        np.testing.assert_allclose(rows.components.cdf(x), expected, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(rows.components.mass_at(above), torch.tensor(rows.stay, dtype=torch.float64))
    assert (rows.components.mass_at(below) == 0).all()


def test_mean_and_variance_are_those_of_quadrature():
    rows = Rows(4, n_targets=1)
    for row in range(4):
        stay, last, margin = rows.stay[row][0], rows.last[row, 0].item(), rows.margin(row, 0)
        moments = []
        for power in (1, 2):
            moving, _ = integrate.quad(lambda x, n=power, m=margin: x**n * m.pdf(x), -math.inf, math.inf, limit=200)
            moments.append((1 - stay) * moving + stay * last**power)
        assert rows.components.mean[row].item() == pytest.approx(moments[0], rel=1e-6, abs=1e-6)
        assert rows.components.variance[row].item() == pytest.approx(moments[1] - moments[0] ** 2, rel=1e-5)


def test_covariance_is_that_of_naive_draws():
    rows = Rows(1)
    draws = rows.draws(0, 400_000)
    centred = draws - rows.components.mean[0].numpy()
    for i, j in itertools.product(range(3), repeat=2):
        products = centred[:, i] * centred[:, j]
        # Squares of a t with 5 degrees have a variance but hardly more: their mean is far from Gaussian yet.
        room = 2 * LIMIT * products.std() / math.sqrt(len(draws))
        assert abs(products.mean() - rows.components.covariance[0, i, j].item()) < room


# --- draws --------------------------------------------------------------------------------------------------


def test_samples_stay_independently_and_move_together():
    rows = Rows(2, copies=N_DRAWS)
    samples = rows.components.sample(as_generator(0)).view(2, N_DRAWS, 3)
    for row in range(2):
        stays = samples[row] == rows.last[row]
        for targets in ((0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)):
            expected = math.prod(rows.stay[row][j] for j in targets)
            share = stays[:, targets].all(dim=-1).double().mean().item()
            assert abs(share - expected) < LIMIT * math.sqrt(expected * (1 - expected) / N_DRAWS)
        for j in range(3):
            moved = samples[row, ~stays[:, j], j].numpy()
            assert stats.kstest(moved, rows.margin(row, j).cdf).pvalue > 1e-3
        both = samples[row, ~stays[:, 0] & ~stays[:, 1]] - rows.location[row]
        expected = 0.5 + math.asin(rows.matrix[0, 1]) / math.pi  # P(one sign) of any elliptical distribution
        agree = (both[:, 0] * both[:, 1] > 0).double().mean().item()
        assert abs(agree - expected) < LIMIT * math.sqrt(expected * (1 - expected) / len(both))


@pytest.mark.parametrize("second_moved", [True, False])
def test_a_completion_learns_from_a_target_that_moved_and_from_no_other(second_moved):
    rows = Rows(1, n_targets=2, copies=N_DRAWS)
    value = rows.location[0, 1] + 3 * rows.scale[0, 1] if second_moved else rows.last[0, 1]
    x = torch.tensor([[math.nan, value.item()]], dtype=torch.float64).expand(N_DRAWS, 2)
    filled = rows.components.complete(x, ~x.isnan(), as_generator(0))
    assert torch.equal(filled[:, 1], x[:, 1])
    stays = filled[:, 0] == rows.last[0, 0]
    expected = rows.stay[0][0]
    assert abs(stays.double().mean().item() - expected) < LIMIT * math.sqrt(expected * (1 - expected) / N_DRAWS)
    conditional = rows.margin(0, 0)
    if second_moved:  # a t given one of its parts: Kotz and Nadarajah, 2004
        r, residual = rows.matrix[0, 1], 3.0
        location = rows.location[0, 0].item() + rows.scale[0, 0].item() * r * residual
        factor = (DEGREES + residual**2) / (DEGREES + 1) * (1 - r**2)
        conditional = stats.t(DEGREES + 1, location, rows.scale[0, 0].item() * math.sqrt(factor))
    assert stats.kstest(filled[~stays, 0].numpy(), conditional.cdf).pvalue > 1e-3


def test_draws_of_a_sequence_do_not_depend_on_the_others():
    rows = Rows(4)
    streams = Streams.named(["a", "b", "c", "d"], 0, "test")
    together = rows.components.sample(streams.at(1))
    part = ZeroInflatedComponents(
        StudentTComponents(rows.location[2:], rows.components.moving.root, rows.scale[2:], torch.tensor(DEGREES)),
        rows.logit[2:],
        rows.last[2:],
    )
    assert torch.equal(part.sample(streams.take([2, 3]).at(1)), together[2:])
    assert not torch.equal(together, rows.components.sample(streams.at(2)))


# --- the gradient of draws ----------------------------------------------------------------------------------


def gradients_of_draws(rows, score):
    """The gradients of a score of one row's draws in the logits, one for each draw."""
    logit = rows.components.logit.clone().requires_grad_()
    components = ZeroInflatedComponents(rows.components.moving, logit, rows.components.last)
    score(components.sample(as_generator(0))).sum().backward()
    return logit.grad


@pytest.mark.parametrize("row", range(6))
def test_draws_tell_how_a_score_changes_with_the_probability_of_staying(row):
    """d/dlogit E h(X) = p (1 - p) (h(a) - E h(Y)), Y the value of one that moves: here for h(x) = |x - c|."""
    every = Rows(6, n_targets=1, copies=N_DRAWS)
    centre = every.location[row, 0].item() - 0.7
    found = gradients_of_draws(every, lambda x: (x - centre).abs()).view(6, N_DRAWS)[row]
    moving, _ = integrate.quad(lambda y: abs(y - centre) * every.margin(row, 0).pdf(y), -math.inf, math.inf, limit=200)
    stay = every.stay[row][0]
    expected = stay * (1 - stay) * (abs(every.last[row, 0].item() - centre) - moving)
    assert abs(found.mean().item() - expected) < LIMIT * found.std().item() / math.sqrt(N_DRAWS)
    assert found.std().item() < 60 * abs(expected) + 10  # a gradient that is only noise would pass, too


def test_draws_tell_it_of_a_score_of_several_targets():
    """h(x) = |x_0 - x_1| + |x_1 - x_2|: what x_j counts for depends on what the others have drawn."""
    rows = Rows(1, copies=10 * N_DRAWS)

    def score(x):
        return abs(x[..., 0] - x[..., 1]) + abs(x[..., 1] - x[..., 2])

    found = gradients_of_draws(rows, score)
    stay = rows.stay[0]
    for j in range(3):
        # Naively: the same draws once with x_j at its last value, once moved for certain.
        rows.stay[0] = [0.0 if k == j else stay[k] for k in range(3)]
        moved = rows.draws(0, 400_000)
        stayed = moved.copy()
        stayed[:, j] = rows.last[0, j].item()
        differences = stay[j] * (1 - stay[j]) * (score(stayed) - score(moved))
        rows.stay[0] = stay
        room = math.hypot(differences.std() / math.sqrt(400_000), found[:, j].std().item() / math.sqrt(10 * N_DRAWS))
        assert abs(found[:, j].mean().item() - differences.mean()) < LIMIT * room
        assert abs(differences.mean()) > LIMIT * room  # the wrong sign, or none, would be seen


# --- mixtures -----------------------------------------------------------------------------------------------

N_PARTICLES = 4


def mixture(*, one_spike=True, batch=3, copies=1, seed=0, dtype=torch.float64):
    observation = ZeroInflatedObservation(2).to(dtype).requires_grad_(False)
    observation.moving.correlation.copy_(torch.tensor(CORRELATION[:2, :2]))
    generator = as_generator(seed)
    log_weights = torch.randn(batch, N_PARTICLES, 1, generator=generator, dtype=dtype).log_softmax(dim=1)
    raw = torch.randn(batch, N_PARTICLES, 1, observation.n_parameters, generator=generator, dtype=dtype)
    last = 0.3 * torch.randn(batch, 1 if one_spike else N_PARTICLES, 1, 2, generator=generator, dtype=dtype)
    parts = (log_weights, observation.shift(raw, last))
    return observation.mixture(*(part.repeat_interleave(copies, dim=0) for part in parts))


class NaiveMargin:
    """One target of a mixture: scipy's t distributions and jumps."""

    def __init__(self, found, row, target):
        parts, place = found.components, (row, slice(None), 0, target)
        self.weights = found.log_weights[row, :, 0].exp().tolist()
        self.stay, self.last = torch.sigmoid(parts.logit[place]).tolist(), parts.last[place].tolist()
        degrees = float(parts.moving.degrees)
        pairs = zip(parts.moving.location[place].tolist(), parts.moving.scale[place].tolist(), strict=True)
        self.moving = [stats.t(degrees, location, scale) for location, scale in pairs]

    def cdf(self, x, *, below=False):
        parts = zip(self.weights, self.stay, self.last, self.moving, strict=True)
        return sum(w * ((1 - p) * t.cdf(x) + p * (a < x if below else a <= x)) for w, p, a, t in parts)

    def crps(self, x):
        """The integral of (F(y) - 1{y >= x})^2, in pieces between all jumps."""
        ends = [-math.inf, *sorted({x, *self.last}), math.inf]
        pieces = [
            integrate.quad(lambda y: (self.cdf(y) - (y >= x)) ** 2, *piece, limit=200, epsabs=1e-10)[0]
            for piece in itertools.pairwise(ends)
        ]
        return sum(pieces)


@pytest.mark.parametrize("one_spike", [True, False])
def test_cdf_and_quantiles_of_a_mixture_invert_each_other(one_spike):
    found = mixture(one_spike=one_spike)
    for p in (0.01, 0.2, 0.5, 0.7, 0.99):
        quantile = found.quantile(p)
        for row, target in itertools.product(range(3), range(2)):
            naive, value = NaiveMargin(found, row, target), quantile[row, 0, target].item()
            assert found.cdf(quantile)[row, 0, target].item() == pytest.approx(naive.cdf(value), abs=1e-9)
            assert naive.cdf(value, below=True) <= p + 1e-9
            assert naive.cdf(value) >= p - 1e-9


def test_a_quantile_in_the_jump_is_the_last_value_to_the_bit():
    found = mixture(batch=500, dtype=torch.float32)
    last = found.components.last[:, 0]
    mass = (found.weights * found.components.mass_at(last.unsqueeze(1))).sum(dim=1)
    before = found.cdf(last) - mass
    for p in (0.25, 0.5, 0.8):
        inside = (before + 1e-5 < p) & (p < before + mass - 1e-5)
        assert inside.sum() > 50
        assert torch.equal(found.quantile(p)[inside], last[inside])
    # So a value that has not changed is inside an interval that ends at the spike.
    lower, upper = found.interval(0.5)
    at_an_end = (lower == last) | (upper == last)
    assert at_an_end.sum() > 50
    assert covered((lower, upper), last)[at_an_end].all()


@pytest.mark.parametrize(("one_spike", "tolerance"), [(True, 1e-6), (False, 5e-3)])
def test_crps_is_that_of_quadrature(one_spike, tolerance):
    found = mixture(one_spike=one_spike)
    for x in (found.components.last[:, 0], found.mean + 0.01, found.mean - 3.0):
        crps = found.crps(x)
        for row, target in itertools.product(range(3), range(2)):
            expected = NaiveMargin(found, row, target).crps(x[row, 0, target].item())
            assert crps[row, 0, target].item() == pytest.approx(expected, abs=tolerance)


def test_crps_is_that_of_many_draws():
    found = mixture()
    x = found.mean + 0.2
    draws = found.sample(N_DRAWS, 0)
    apart = (draws[:, : N_DRAWS // 2] - draws[:, N_DRAWS // 2 :]).abs()
    distance = (draws - x.unsqueeze(1)).abs()
    expected = distance.mean(dim=1) - apart.mean(dim=1) / 2
    room = LIMIT * (distance.std(dim=1) / math.sqrt(N_DRAWS) + apart.std(dim=1) / math.sqrt(2 * N_DRAWS))
    assert ((found.crps(x) - expected).abs() < room).all()


def test_pit_is_uniform_and_would_not_be_without_the_draw():
    found = mixture(batch=2, copies=N_DRAWS)
    x = found.sample(1, 0).squeeze(1)
    for target in range(2):
        drawn, plain = found.pit(x, 1)[:N_DRAWS, 0, target].numpy(), found.cdf(x)[:N_DRAWS, 0, target].numpy()
        assert stats.kstest(drawn, "uniform").pvalue > 1e-3
        assert stats.kstest(plain, "uniform").pvalue < 1e-9


def test_samples_of_a_mixture_have_its_mean_and_variance():
    found = mixture()
    draws = found.sample(5 * N_DRAWS, 0)
    assert ((draws.mean(dim=1) - found.mean).abs() < LIMIT * draws.std(dim=1) / math.sqrt(5 * N_DRAWS)).all()
    squares = (draws - found.mean.unsqueeze(1)).square()
    room = 2 * LIMIT * squares.std(dim=1) / math.sqrt(5 * N_DRAWS)
    assert ((squares.mean(dim=1) - found.variance).abs() < room).all()


# --- the observation model ----------------------------------------------------------------------------------


def test_parameters_are_moved_by_the_last_targets():
    observation = ZeroInflatedObservation(2)
    parameters, last = torch.randn(3, 8, generator=as_generator(0)), torch.tensor([[1.0, -2.0]])
    components = observation.components(observation.shift(parameters, last))
    torch.testing.assert_close(components.moving.mean, parameters[:, :2] + last)
    torch.testing.assert_close(components.moving.scale, parameters[:, 2:4].exp())
    assert torch.equal(components.logit, parameters[:, 4:6])
    assert torch.equal(components.last, last.expand(3, 2))


def test_it_needs_the_last_targets():
    with pytest.raises(ValueError, match="ZeroInflatedObservation needs predict_change=True"):
        SMCTransformer(SMCTransformerConfig(observation="zero_inflated"))


def simulated(n_steps, stay=0.6, seed=0):
    """Steps of three targets with standard parameters, the last values zero: what EM should find is the correlation."""
    random = np.random.default_rng(seed)
    normal = random.standard_normal((n_steps, 3)) @ np.linalg.cholesky(CORRELATION).T
    moving = normal / np.sqrt(random.gamma(DEGREES / 2, 2 / DEGREES, (n_steps, 1)))
    targets = torch.from_numpy(np.where(random.random(moving.shape) < stay, 0.0, moving)).view(1, 1, n_steps, 3)
    return targets, torch.zeros(1, 1, n_steps, 12, dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64)


def test_em_finds_the_correlation_of_those_that_move():
    observation = ZeroInflatedObservation(3, degrees=DEGREES).double()
    batch = simulated(60_000)
    for _ in range(15):
        observation.em_step_(observation.statistics(*batch), 1.0)
    # Each pair moves in 16 % of the steps; the heavy tails cost a little of a Gaussian's efficiency.
    room = 1.5 * LIMIT * (1 - CORRELATION**2) / math.sqrt(0.16 * 60_000)
    assert (np.abs(observation.moving.correlation.numpy() - CORRELATION) <= room + 1e-9).all()


def test_statistics_of_parts_merge_to_those_of_the_whole():
    observation = ZeroInflatedObservation(3, degrees=DEGREES).double()
    targets, parameters, weights = simulated(500)
    parts = [
        observation.statistics(targets[:, :, at], parameters[:, :, at], weights) for at in (slice(200), slice(200, 500))
    ]
    merged, whole = observation.merge(parts, [0.4, 0.6]), observation.statistics(targets, parameters, weights)
    torch.testing.assert_close(merged.pairs, whole.pairs)
    torch.testing.assert_close(merged.moving.correlation, whole.moving.correlation)


def test_targets_that_never_move_together_keep_their_correlation():
    observation = ZeroInflatedObservation(2).double()
    observation.moving.correlation.copy_(torch.tensor([[1.0, 0.4], [0.4, 1.0]]))
    targets = torch.zeros(1, 1, 100, 2, dtype=torch.float64)
    targets[..., ::2, 0] = numbers(50)
    parameters, weights = torch.zeros(1, 1, 100, 8, dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64)
    observation.em_step_(observation.statistics(targets, parameters, weights), 0.5)
    assert observation.moving.correlation[0, 1].item() == pytest.approx(0.4, abs=0.1)
    assert observation.moving.correlation.isfinite().all()


@pytest.mark.parametrize("factor", [0.4, 2.5])
def test_widening_makes_moves_wider_and_leaves_the_spike(factor):
    observation = ZeroInflatedObservation(2).double().requires_grad_(False)
    parameters = numbers(5, 8)
    before = observation.components(parameters)
    observation.widen_(factor)
    after = observation.components(parameters)
    torch.testing.assert_close(after.moving.variance, factor**2 * before.moving.variance)
    assert torch.equal(after.stay, before.stay)


# --- the model ----------------------------------------------------------------------------------------------


def random_steps(n_series, n_steps, seed=0):
    """A walk that is sticky: after a day without a change another one follows with 0.9, after a change with 0.3."""
    random = np.random.default_rng(seed)
    stays, x = np.zeros((n_series, n_steps), dtype=bool), np.zeros((n_series, n_steps))
    for t in range(1, n_steps):
        stays[:, t] = random.random(n_series) < np.where(stays[:, t - 1], 0.9, 0.3)
        x[:, t] = np.where(stays[:, t], x[:, t - 1], x[:, t - 1] + random.standard_normal(n_series))
    return torch.from_numpy(x).float().unsqueeze(-1), torch.from_numpy(stays)


SETTINGS = {
    "observation": "zero_inflated",
    "predict_change": True,
    "input_changes": True,
    "encoder": "gru",
    "d_model": 16,
    "d_ff": 16,
    "n_particles": 4,
    "initial_latent_variance": 0.05,
}


@pytest.fixture(scope="module")
def trained():
    model = SMCTransformer.from_settings(SETTINGS, generator=0)
    x, _ = random_steps(256, 21)
    model.encoder.set_scales_(x)
    fit(model, x, epochs=25, batch_size=32, learning_rate=1e-2, seed=0, progress=False)
    return model


def test_a_model_learns_when_nothing_changes(trained):
    x, stays = random_steps(200, 21, seed=1)
    parts = particle_filter(trained, x, trained.settings(16), as_generator(0)).predictive
    stay = (parts.weights * parts.components.stay).sum(dim=1)[..., 0]
    still = stays[:, 1:-1]
    assert stay[:, 1:][still].mean().item() == pytest.approx(0.9, abs=0.05)
    assert stay[:, 1:][~still].mean().item() == pytest.approx(0.3, abs=0.07)


def test_paths_repeat_values_to_the_bit_as_often_as_they_should(trained):
    x, stays = random_steps(200, 21, seed=2)
    paths = trained.forecast(x, 6, 200, generator=0)[..., 0]
    values = torch.cat((x[:, None, -1:, 0].expand(-1, 200, -1), paths), dim=-1)
    repeated = (values.diff(dim=-1) == 0).double()
    chance = torch.where(stays[:, -1], 0.9, 0.3).double()
    for ahead in range(6):
        expected = chance.mean().item()
        assert repeated[..., ahead].mean().item() == pytest.approx(expected, abs=0.07)
        chance = 0.9 * chance + 0.3 * (1 - chance)


def test_missing_values_are_drawn_at_the_last_value_or_elsewhere(trained):
    x, stays = random_steps(300, 21, seed=3)
    gaps = x.clone()
    gaps[:, 10] = math.nan
    result = particle_filter(trained, gaps, trained.settings(50), as_generator(0))
    same = (result.completed[:, :, 9, 0] == x[:, None, 9, 0]).double().mean(dim=1)
    assert same[stays[:, 9]].mean().item() > 0.75
    assert same[~stays[:, 9]].mean().item() < 0.45
    assert result.log_likelihood.isfinite().all()


def test_a_row_that_never_changes_is_scored_and_followed(trained):
    still = torch.full((2, 21, 1), 3.7)
    predictive = particle_filter(trained, still, trained.settings(16), as_generator(0)).predictive
    assert predictive.crps(still[:, 1:]).isfinite().all()
    lower, upper = predictive.interval(0.6)
    assert covered((lower, upper), still[:, 1:])[:, 5:].all()
    assert (upper - lower)[:, 5:].max().item() == 0.0  # all of the middle 60 % is at the spike
