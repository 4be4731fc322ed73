"""What training makes small: the score of free-running forecasts, its gradient, and what it does to a model."""

import json
import math

import numpy as np
import pytest
import torch
from helpers.models import make_model, sequences
from helpers.user_modules import NotingObservation, QuantileObservation, give_observation

from smc_transformer.inference.paths import rollout, rollout_numbers
from smc_transformer.learning import (
    ForecastScore,
    Likelihood,
    Sampling,
    Trainer,
    fit,
    goals,
    negative_log_likelihood,
    training_step,
)
from smc_transformer.learning.goals import fair_crps
from smc_transformer.smc import WeightCollapseError
from smct_paper.datasets import SYNTHETIC

LIMIT = 4.5
"""Standard errors allowed."""


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=seeded(seed), dtype=torch.float64)


def closed_form_crps(x, mean, deviation):
    """The CRPS of a Gaussian (Gneiting and Raftery, 2007)."""
    z = (x - mean) / deviation
    density = torch.exp(-z.square() / 2) / math.sqrt(2 * math.pi)
    return deviation * (z * torch.erf(z / math.sqrt(2)) + 2 * density - 1 / math.sqrt(math.pi))


# --- the fair score -----------------------------------------------------------------------------------------------


def naive_crps(samples, observed):
    """One number and one pair at a time."""
    batch, n_samples, n_steps, n_targets = samples.shape
    scores = np.empty((batch, n_steps, n_targets))
    for b, t, d in np.ndindex(*scores.shape):
        draws = samples[b, :, t, d].tolist()
        error = sum(abs(draw - float(observed[b, t, d])) for draw in draws) / n_samples
        pairs = [abs(draws[i] - draws[j]) for i in range(n_samples) for j in range(n_samples) if i != j]
        scores[b, t, d] = error - sum(pairs) / len(pairs) / 2
    return torch.from_numpy(scores)


@pytest.mark.parametrize("n_samples", [2, 3, 7, 16])
def test_the_fair_score_is_that_of_all_pairs(n_samples):
    samples, observed = numbers(3, n_samples, 4, 2), numbers(3, 4, 2, seed=1)
    samples[0, :2] = 0.5  # ties
    torch.testing.assert_close(fair_crps(samples, observed), naive_crps(samples, observed))


@pytest.mark.parametrize("n_samples", [2, 3, 10])
def test_the_fair_score_is_unbiased_for_any_number_of_samples(n_samples):
    repeats = 60_000
    observed = torch.tensor([-1.5, 0.0, 0.3, 2.0], dtype=torch.float64)
    mean, deviation = 0.4, 1.7
    samples = mean + deviation * numbers(repeats, n_samples, 4, 1)
    scores = fair_crps(samples, observed.view(1, 4, 1).expand(repeats, -1, -1))[..., 0]
    error = scores.std(dim=0) / repeats**0.5
    exact = closed_form_crps(observed, mean, deviation)
    assert ((scores.mean(dim=0) - exact).abs() < LIMIT * error).all()
    # All pairs, those of a sample with itself included, would be off by E|X - X'| / (2n): that would be seen.
    assert (deviation / math.sqrt(math.pi) / n_samples > 2 * LIMIT * error).all()


def test_the_fair_score_is_missing_where_the_observation_is_and_nowhere_else():
    samples, observed = numbers(3, 5, 4, 2), numbers(3, 4, 2, seed=1)
    expected = fair_crps(samples, observed)
    observed[0, 1, 0] = observed[2, :, 1] = math.nan
    found = fair_crps(samples, observed)
    assert torch.equal(found.isnan(), observed.isnan())
    assert torch.equal(found[~observed.isnan()], expected[~observed.isnan()])


def test_the_fair_score_has_the_gradient_of_differences():
    samples, observed = numbers(2, 5, 3, 2).requires_grad_(), numbers(2, 3, 2, seed=1)
    assert torch.autograd.gradcheck(lambda draws: fair_crps(draws, observed), samples)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_missing_observations_have_no_gradient(dtype):
    """Long enough for vectorised code, whose rules for NaN could be others."""
    samples, observed = numbers(40, 8, 30, 2).to(dtype).requires_grad_(), numbers(40, 30, 2, seed=1).to(dtype)
    missing = torch.rand(observed.shape, generator=seeded(2)) < 0.3
    fair_crps(samples, observed.masked_fill(missing, math.nan)).nansum().backward()
    gradient = samples.grad
    assert gradient.isfinite().all()
    assert (gradient.movedim(1, 0)[:, missing] == 0).all()
    expected = torch.autograd.grad(fair_crps(samples, observed)[~missing].sum(), samples)[0]
    torch.testing.assert_close(gradient, expected)


# --- a batch ------------------------------------------------------------------------------------------------------

HISTORY, HORIZON = 4, 3
FULL = HISTORY + 1 + HORIZON


def small_model(**settings):
    return make_model(**{"d_model": 4, "d_ff": 4, "n_particles": 5, "n_inputs": 2, "n_targets": 2, **settings})


def accumulate(goal, model, x, seed=0, n_particles=5):
    model.zero_grad()
    report = goal.accumulate(model, x, Sampling(n_particles, generator=seeded(seed)))
    return report, {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def model_without_chance(**settings):
    """Paths depend on their sequence and nothing else, if there is one particle."""
    return give_observation(small_model(n_inputs=3, initial_latent_variance=0.0, **settings), QuantileObservation)


def sequences_with_gaps():
    x = sequences(7, FULL - 1, 3)
    missing = torch.rand(x.shape, generator=seeded(3)) < 0.2
    missing[:, 0] = missing[..., 2] = False
    return x.masked_fill(missing, math.nan)


def long_sequences():
    """With so long a horizon and 900 paths, three sequences of a batch are done at a time."""
    return sequences(7, HISTORY + 40, 3)


def test_chunks_of_a_batch_add_up_to_the_batch(monkeypatch):
    model, goal = model_without_chance(window=1), ForecastScore(HISTORY, n_paths=9, short_share=0.0)
    x = long_sequences()
    x[:, 1:, :2][torch.rand(7, HISTORY + 40, 2, generator=seeded(3)) < 0.2] = math.nan
    held = rollout_numbers(model, 9, x[:, : HISTORY + 1], 40)
    monkeypatch.setattr(goals, "NUMBERS_AT_ONCE", -(-3 * held // 64))  # there is memory for three sequences
    whole, gradients = accumulate(goal, model, x, n_particles=1)
    # Three at a time, then one; sequences with gaps have their densities apart from the others of their chunk.
    assert {3, 1} <= set(model.observation.asked) <= {3, 2, 1}
    singles = [accumulate(goal, model, row, n_particles=1) for row in x.split(1)]
    assert whole.n_terms == sum(report.n_terms for report, _ in singles)
    assert whole.loss == pytest.approx(sum(report.loss for report, _ in singles))
    for name in model.gradient_parameters():
        expected = sum(report.n_terms * found[name] for report, found in singles) / whole.n_terms
        torch.testing.assert_close(gradients[name], expected)


def test_a_batch_has_the_loss_of_its_sequences_on_average(without_shape_checks):
    model, goal = small_model(), ForecastScore(0, n_paths=4)
    x = sequences(6, HORIZON, 2)
    reports = [accumulate(goal, model, x, seed=seed) for seed in range(60)]
    singles = [[accumulate(goal, model, row, seed=60 + seed) for row in x.split(1)] for seed in range(60)]
    bias = "readout.projection.bias"
    values = {
        "whole": [torch.tensor([report.loss, *found[bias]]) for report, found in reports],
        "singles": [
            torch.tensor([sum(report.loss for report, _ in rows), *sum(found[bias] for _, found in rows) / 6])
            for rows in singles
        ],
    }
    (one, other) = (torch.stack(part) for part in values.values())
    error = (one.var(dim=0) / 60 + other.var(dim=0) / 60).sqrt()
    assert ((one.mean(dim=0) - other.mean(dim=0)).abs() < LIMIT * error).all()


def test_the_loss_is_the_mean_score_of_observed_values_and_its_gradient():
    """History and horizon are those of the sequence's beginning; missing values are no terms."""
    model, goal = model_without_chance(), ForecastScore(HISTORY, n_paths=6)
    x = sequences_with_gaps()
    expected = {}
    for n_past in range(1, HISTORY + 2):
        truth = x[:, n_past : n_past + HORIZON, :2]
        known = x[:, n_past : n_past + HORIZON, 2:]
        paths = rollout(model, model.settings(1), x[:, :n_past], known, n_paths=6).targets
        loss, n_terms = fair_crps(paths, truth).nansum(), int((~truth.isnan()).sum())
        (gradient,) = torch.autograd.grad(loss / n_terms, model.readout.projection.bias)
        expected[n_past] = (n_terms, loss.item(), gradient)
    assert len({n_terms for n_terms, _, _ in expected.values()}) > 2
    lengths = set()
    for seed in range(12):
        report, gradients = accumulate(goal, model, x, seed=seed, n_particles=1)
        length = min(expected, key=lambda n_past: abs(expected[n_past][1] - report.loss))
        n_terms, loss, gradient = expected[length]
        assert (report.n_terms, report.loss) == (n_terms, pytest.approx(loss))
        torch.testing.assert_close(gradients["readout.projection.bias"], gradient)
        assert report.statistics.observation is None
        assert report.statistics.latent == {}
        lengths.add(length)
    assert len(lengths) > 2


def test_a_batch_has_its_number_of_paths():
    """The score of two of the same paths, at other levels, is another."""
    x = sequences(3, FULL - 1, 3)
    losses = [
        accumulate(ForecastScore(HISTORY, n_paths=n_paths, short_share=0.0), model_without_chance(), x)[0].loss
        for n_paths in (2, 3, 3)
    ]
    assert losses[1] == losses[2] != pytest.approx(losses[0])


@pytest.mark.parametrize(("short_share", "n_batches"), [(0.0, 40), (0.5, 250), (1.0, 120)])
def test_so_many_batches_have_a_shorter_history_of_any_length(without_shape_checks, short_share, n_batches):
    """The number of observed values of a horizon tells where it begins."""
    model, goal = small_model(window=1), ForecastScore(HISTORY, short_share=short_share, n_paths=2)
    x = sequences(1, FULL - 1, 2)
    x[0, 4:6, 1] = x[0, 6:] = math.nan
    observed = (~x[0].isnan()).sum(dim=-1)
    n_terms = [int(observed[n_past : n_past + HORIZON].sum()) for n_past in range(1, HISTORY + 2)]
    assert n_terms == [6, 5, 4, 2, 1]
    generator = seeded(0)
    found = [goal.accumulate(model, x, Sampling(1, generator=generator)).n_terms for _ in range(n_batches)]
    assert set(found) <= set(n_terms)
    shares = torch.tensor([found.count(number) / n_batches for number in n_terms])
    share = short_share / (HISTORY + 1)  # the full history is one of the lengths that are drawn
    expected = torch.tensor([share] * HISTORY + [1 - short_share + share])
    error = (expected * (1 - expected) / n_batches).clamp(min=0).sqrt()
    assert ((shares - expected).abs() <= LIMIT * error + 1e-6).all(), shares


def test_weights_multiply_the_scores_of_the_first_targets():
    """One step ahead: a path's second target has no part in its first one yet."""
    model, x = small_model(n_inputs=3), sequences(6, HISTORY + 1, 3)

    def loss(weights):
        report, gradients = accumulate(ForecastScore(HISTORY, weights, n_paths=4), model, x)
        return report.loss, report.n_terms, gradients["readout.projection.bias"]

    plain, n_terms, gradient = loss(None)
    assert loss((1.0, 1.0))[:2] == (pytest.approx(plain), n_terms)
    only_first, n_first, gradient_of_first = loss((1.0,))
    assert n_first == n_terms / 2
    assert gradient_of_first[1] == 0
    with_zero, _, gradient_with_zero = loss((1.0, 0.0))
    assert with_zero == pytest.approx(only_first)
    torch.testing.assert_close(gradient_with_zero, gradient_of_first / 2)
    assert loss((3.0, 0.5))[0] == pytest.approx(3 * only_first + 0.5 * (plain - only_first))
    torch.testing.assert_close(loss((2.0, 2.0))[2], 2 * gradient)


def test_weights_multiply_the_scores_of_validation_as_well():
    model, x = small_model(n_inputs=3), sequences(6, FULL - 1, 3)

    def score(weights):
        goal = ForecastScore(HISTORY, weights, validation_paths=20)
        return goal.validate(model, x, Sampling(5, generator=seeded(0)))

    first, both = score((1.0,)), score(None)
    second = 2 * both - first
    assert score((3.0, 0.5)) == pytest.approx((3 * first + 0.5 * second) / 2)


def test_more_weights_than_targets_are_refused(without_shape_checks):
    """A second weight must not silently score the first target's paths against a known input."""
    model, x = small_model(n_inputs=3, n_targets=1), sequences(6, FULL - 1, 3)
    goal = ForecastScore(HISTORY, (1.0, 1.0), n_paths=4)
    with pytest.raises(ValueError, match="weights"):
        accumulate(goal, model, x)
    with pytest.raises(ValueError, match="weights"):
        goal.validate(model, x, Sampling(5, generator=seeded(0)))


def test_a_batch_without_any_observation_has_no_gradient_and_no_loss():
    model = small_model()
    x = sequences(3, FULL - 1, 2)
    x[:, 1:] = math.nan
    report, gradients = accumulate(ForecastScore(HISTORY, n_paths=3), model, x)
    assert (report.loss, report.n_terms) == (0.0, 1)
    assert all((gradient == 0).all() for gradient in gradients.values())


@pytest.mark.parametrize("observation", ["gaussian", "heteroscedastic", "student_t"])
@pytest.mark.parametrize("encoder", ["linear", "gru"])
def test_gradients_of_a_batch_with_gaps_reach_every_parameter(observation, encoder):
    model = small_model(n_inputs=3, observation=observation, encoder=encoder)
    goal = ForecastScore(HISTORY, n_paths=4, short_share=0.0)
    _, gradients = accumulate(goal, model, sequences_with_gaps())
    assert set(gradients) == set(model.gradient_parameters())
    for name, gradient in gradients.items():
        assert gradient.isfinite().all(), name
        assert (gradient != 0).any(), name


def test_gradients_are_added_to_those_that_are_there():
    model, goal, x = small_model(), ForecastScore(HISTORY, n_paths=3), sequences(4, FULL - 1, 2)
    _, once = accumulate(goal, model, x)
    goal.accumulate(model, x, Sampling(5, generator=seeded(0)))
    for name, parameter in model.named_parameters():
        if name in once:
            torch.testing.assert_close(parameter.grad, 2 * once[name])


@pytest.mark.parametrize(("n_paths", "horizon", "chunks"), [(3, HORIZON, {7}), (900, 40, {3, 1})])
def test_a_collapse_names_the_sequence_of_the_batch(n_paths, horizon, chunks):
    model = give_observation(small_model(n_inputs=3, window=1), NotingObservation)
    goal = ForecastScore(HISTORY, n_paths=n_paths, short_share=0.0)
    x = long_sequences()[:, : HISTORY + 1 + horizon]
    x[6, 1] = 1e300
    with pytest.raises(WeightCollapseError) as caught:
        accumulate(goal, model, x)
    assert (caught.value.sequence, caught.value.step) == (6, 1)
    assert set(model.observation.asked) == chunks


@pytest.mark.parametrize("n_values", [1, HISTORY, HISTORY + 1])
def test_sequences_without_a_horizon_are_refused(n_values):
    model, goal, x = small_model(), ForecastScore(HISTORY), sequences(2, n_values - 1, 2)
    message = f"sequences of {n_values} values leave nothing to forecast after a history of 5"
    with pytest.raises(ValueError, match=message):
        accumulate(goal, model, x)
    with pytest.raises(ValueError, match=message):
        goal.validate(model, x, Sampling(5, generator=None))


IMPOSSIBLE = [{"history": -1}, {"n_paths": 1}, {"validation_paths": 1}, {"short_share": 1.5}, {"short_share": -0.1}]


@pytest.mark.parametrize("settings", IMPOSSIBLE, ids=str)
def test_impossible_settings_are_rejected(settings):
    with pytest.raises(ValueError, match=f"{next(iter(settings))} must be"):
        ForecastScore(**{"history": 2, **settings})


def test_settings_are_what_json_gives_back():
    """They are compared with those of a checkpoint."""
    for goal in (Likelihood(), ForecastScore(3), ForecastScore(3, n_paths=4), ForecastScore(3, (1.0, 0.5))):
        assert json.loads(json.dumps(goal.settings())) == goal.settings()
    assert ForecastScore(3).settings() != ForecastScore(4).settings()
    assert ForecastScore(3).settings() != ForecastScore(3, (2.0,)).settings()
    assert Likelihood().settings() != ForecastScore(3).settings()


def test_the_likelihood_is_that_of_the_training_step():
    model, x = small_model(), sequences_with_gaps()[..., :2]
    report, gradients = accumulate(Likelihood(), model, x)
    model.zero_grad()
    step = training_step(model, x, generator=seeded(0))
    n_terms = int((~x[:, 1:].isnan()).any(dim=-1).sum())
    (-step.objective.sum() / n_terms).backward()
    assert report.n_terms == n_terms
    assert report.loss == pytest.approx(-float(step.log_likelihood.sum()))
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, dict(model.named_parameters())[name].grad)
    found = Likelihood().validate(model, x, Sampling(7, generator=seeded(1)))
    assert found == negative_log_likelihood(model, x, n_particles=7, generator=seeded(1))


# --- a model whose distribution is known ---------------------------------------------------------------------


def true_model(variance=0.5, **settings):
    """Model I of the paper as an SMC Transformer: the attention says nothing, the read-out 0.8 X_t."""
    model = make_model(
        d_model=1,
        readout="linear",
        initial_latent_variance=0.0,
        initial_observation_variance=variance,
        spread_covariances=False,
        **settings,
    )
    with torch.no_grad():
        model.attention.output.weight.zero_()
        model.encoder.projection.weight.fill_(1.0)
        model.encoder.projection.bias.zero_()
        model.readout.projection.weight[0] = 0.8
        model.readout.projection.bias[0] = 0.0
        model.readout.projection.weight[1:] = 0.0
        model.readout.projection.bias[1:] = 0.5 * math.log(
            variance
        )  # the log-scale, where an observation model has one
    return model


def exact_scores(x, variance=0.5):
    """CRPS of N(0.8^h X_H, variance (1 + 0.64 + ...)) at X_{H+h}."""
    ahead = torch.arange(1, HORIZON + 1, dtype=torch.float64).view(1, -1, 1)
    deviation = (variance * (1 - 0.64**ahead) / (1 - 0.64)).sqrt()
    return closed_form_crps(x[:, HISTORY + 1 :], 0.8**ahead * x[:, HISTORY : HISTORY + 1], deviation), deviation


@pytest.mark.parametrize("observation", ["gaussian", "heteroscedastic"])
@pytest.mark.parametrize("variance", [0.5, 0.1, 2.0])
def test_validation_of_a_known_distribution_is_its_score(observation, variance):
    """0.5 is the truth; the score of one that is too narrow or too wide is known as well, and larger."""
    x = SYNTHETIC["model1"].sample(2000, FULL - 1, 0).double()
    model = true_model(variance, observation=observation)
    found = ForecastScore(HISTORY).validate(model, x, Sampling(2, generator=seeded(1)))
    scores, deviation = exact_scores(x, variance)
    # 100 paths for each of 2000 sequences; steps of one path go together.
    error = float(2 * deviation.max()) / (100 * 2000) ** 0.5
    assert found == pytest.approx(float(scores.mean()), abs=LIMIT * error)
    truth, true_deviation = exact_scores(x)
    if variance == 0.5:  # a perfect forecast has E CRPS = deviation / sqrt(pi)
        expected = float(true_deviation.mean()) / math.sqrt(math.pi)
        sequence_error = float(truth.mean(dim=(1, 2)).std()) / 2000**0.5
        assert found == pytest.approx(expected, abs=LIMIT * sequence_error)
    else:
        assert found > float(truth.mean()) + 0.02


def test_validation_leaves_out_what_is_missing():
    x = SYNTHETIC["model1"].sample(500, FULL - 1, 0).double()
    x[::2, HISTORY + 1] = math.nan
    x[::3, -1] = math.nan
    found = ForecastScore(HISTORY).validate(true_model(), x, Sampling(2, generator=seeded(1)))
    scores, _ = exact_scores(x)
    assert found == pytest.approx(float(scores.nanmean()), abs=0.01)


def test_the_training_loss_of_a_known_distribution_is_its_score(without_shape_checks):
    x = SYNTHETIC["model1"].sample(2000, FULL - 1, 0).double()
    goal = ForecastScore(HISTORY, n_paths=16, short_share=0.0)
    report = goal.accumulate(true_model(), x, Sampling(2, generator=seeded(0)))
    scores, deviation = exact_scores(x)
    assert report.n_terms == 2000 * HORIZON
    # The mean error of 16 paths is known to deviation / 4 in each of 2000 sequences, their spread to less.
    error = float(2 * deviation.max()) / (16 * 2000) ** 0.5
    assert report.loss / report.n_terms == pytest.approx(float(scores.mean()), abs=LIMIT * error)


def test_the_gradient_of_a_known_distribution_points_to_the_truth(without_shape_checks):
    """Too wide: narrower. Too narrow: wider. Too high: lower. At the truth: nothing but chance."""
    x = SYNTHETIC["model1"].sample(4000, HORIZON, 0).double()
    goal = ForecastScore(0, n_paths=8)

    def slopes(variance=0.5, shift=0.0):
        model = true_model(variance, observation="heteroscedastic")
        with torch.no_grad():
            model.readout.projection.bias[0] += shift
        _, gradients = accumulate(goal, model, x, n_particles=2)
        return gradients["readout.projection.bias"]

    assert slopes(2.0)[1] > 0.05
    assert slopes(0.1)[1] < -0.05
    assert slopes(shift=0.5)[0] > 0.05
    assert slopes(shift=-0.5)[0] < -0.05
    assert (slopes().abs() < 0.02).all()


# --- training -----------------------------------------------------------------------------------------------------


def train_forecasts(model, *, steps, learning_rate=2e-2, **settings):
    x = SYNTHETIC["model1"].sample(500, HORIZON + 2, 0).to(model.dtype)
    goal = ForecastScore(2, n_paths=8, validation_paths=50)
    options = {"epochs": 4, "steps_per_epoch": steps // 4, "batch_size": 50, "learning_rate": learning_rate}
    history = Trainer(model, goal=goal, progress=False, **{**options, **settings}).fit(x[:400], x[400:])
    return history, x[400:], goal


def too_wide(observation="heteroscedastic"):
    """Scales of 3 at every step, where the truth has 0.7."""
    model = make_model(d_model=4, d_ff=8, observation=observation, initial_latent_variance=0.1).float()
    with torch.no_grad():
        model.readout.projection.weight[1:] = 0.0
        model.readout.projection.bias[1:] = math.log(3.0)
    return model


def mean_deviation(model):
    x = SYNTHETIC["model1"].sample(100, HORIZON + 2, 5)
    return float(model.filter(x, 5, generator=0).predictive.variance.sqrt().mean())


@pytest.mark.parametrize("observation", ["heteroscedastic", "student_t"])
def test_training_lowers_the_score_and_a_distribution_too_wide_becomes_narrower(without_shape_checks, observation):
    model = too_wide(observation)
    x = SYNTHETIC["model1"].sample(1000, HORIZON + 2, 5)

    def score():
        return ForecastScore(2).validate(model, x, Sampling(5, generator=seeded(0)))

    before, start = mean_deviation(model), score()
    history, _, _ = train_forecasts(model, steps=160)
    end = score()
    assert history[-1].validation_loss < history[0].validation_loss
    assert end < 0.6 * start
    assert mean_deviation(model) < 0.5 * before
    # The truth: deviations 0.71, 0.91 and 1.01 at the three steps, over sqrt(pi).
    assert 0.98 * 0.494 < end < 1.2 * 0.494


def test_training_of_forecasts_leaves_em_at_rest():
    model = small_model(noise_learning="em")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    x = sequences(12, FULL - 1, 2)
    fit(model, x, goal=ForecastScore(HISTORY, n_paths=3), epochs=2, batch_size=6, progress=False)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]) == ("covariance" in name), name


def test_scales_learned_from_forecasts_are_the_scales_of_the_forecasts(without_shape_checks):
    """A likelihood stage has left bounds on the scales; what a later stage learns must not be cut off by them.

    Training mode has no bounds, evaluation mode those of EM, which rests while forecasts are scored: without an update
    of the bounds an observation model that was too wide can only learn to be narrower where nobody sees it.
    """
    model = too_wide()
    x = SYNTHETIC["model1"].sample(100, HORIZON + 2, 5)
    fit(model, x, goal=Likelihood(), epochs=1, batch_size=50, learning_rate=1e-4, progress=False)
    assert model.observation.lowest.isfinite().all()
    before = mean_deviation(model)
    train_forecasts(model, steps=160)
    in_evaluation, in_training = mean_deviation(model), mean_deviation(model.train())
    assert in_training < 0.5 * before
    assert in_evaluation == pytest.approx(in_training, rel=0.1)
