"""Sequences that begin at different rows: groups of a batch, one sequence at a time, and training on them."""

import math
from collections import Counter

import pytest
import torch
from helpers.models import assert_same, make_model, sequences, weights
from helpers.user_modules import NotingObservation, QuantileObservation, give_observation
from helpers.watched_goals import WatchedGoal, interrupted_goal

from smc_transformer.inference.paths import rollout
from smc_transformer.learning import (
    ForecastScore,
    Likelihood,
    Recipe,
    Sampling,
    SquaredError,
    Stage,
    fit,
    negative_log_likelihood,
    training_step,
)
from smc_transformer.learning import step as step_module
from smc_transformer.learning.calibration import share_covered
from smc_transformer.learning.ragged import groups_by_start, starts
from smc_transformer.learning.step import accumulate_gradients
from smc_transformer.nn.encoders import ChangesEncoder
from smc_transformer.scores import fair_crps
from smc_transformer.smc import WeightCollapseError

N_STEPS = 9
STARTS = (0, 4, 0, 2, 4, 4, 0, 7)


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def small_model(**settings):
    return make_model(**{"d_model": 4, "d_ff": 4, "n_particles": 5, "n_inputs": 3, "n_targets": 2, **settings})


def ragged(begins=STARTS, n_steps=N_STEPS, *, gaps=0.15, seed=0):
    """Sequences of two targets and a known input, some of whose targets are missing."""
    x = sequences(len(begins), n_steps, 3, seed=seed)
    missing = torch.rand(x.shape, generator=seeded(seed + 1)) < gaps
    missing[..., 2] = False
    for sequence, start in enumerate(begins):
        missing[sequence, start] = False
        missing[sequence, :start] = True
    return x.masked_fill(missing, math.nan)


def one_at_a_time(x, begins=STARTS):
    return [x[number : number + 1, start:] for number, start in enumerate(begins)]


def gradients_of(goal, model, x, seed=0, n_particles=5):
    model.zero_grad()
    report = goal.accumulate(model, x, Sampling(n_particles, generator=seeded(seed)))
    return report, {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


# --- groups -------------------------------------------------------------------------------------------------------


def test_a_sequence_begins_with_its_first_row_that_is_not_missing_throughout():
    x = ragged()
    assert starts(x).tolist() == list(STARTS)
    x[0, 3] = math.nan  # a gap is no beginning
    x[3] = math.nan
    assert starts(x).tolist() == [0, 4, 0, N_STEPS + 1, 4, 4, 0, 7]


def test_sequences_with_the_same_start_are_one_group_from_their_start_on():
    x = ragged()
    groups = groups_by_start(x)
    assert [(group.start, group.sequences.tolist()) for group in groups] == [
        (0, [0, 2, 6]),
        (2, [3]),
        (4, [1, 4, 5]),
        (7, [7]),
    ]
    for group in groups:
        torch.testing.assert_close(group.x, x[list(group.sequences), group.start :], equal_nan=True)
        assert group.n_steps == len(group.sequences) * (N_STEPS - group.start)


def test_sequences_that_have_all_begun_are_passed_on_as_they_are():
    x = sequences(3, 4)
    (group,) = groups_by_start(x)
    assert group.x is x


# --- the likelihood -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{}, {"noise_learning": "em"}, {"observation": "heteroscedastic"}], ids=str)
@pytest.mark.parametrize("in_chunks", [False, True])
def test_a_batch_is_the_sum_of_its_groups_and_their_statistics_average_by_steps(monkeypatch, settings, in_chunks):
    model, x = small_model(**settings), ragged()
    parts = [[0, 2, 6], [3], [1, 4, 5], [7]]
    if in_chunks:  # two of the longest at a time, three of those of six steps
        monkeypatch.setattr(step_module, "NUMBERS_AT_ONCE", 2 * 5 * N_STEPS * 4)
        parts = [[0, 2], [6], [3], [1, 4, 5], [7]]
    statistics, log_likelihood, _ = accumulate_gradients(model, x, 10, generator=seeded(1))
    gradients = {name: parameter.grad.clone() for name, parameter in model.gradient_parameters().items()}

    model.zero_grad()
    generator = seeded(1)
    steps = [training_step(model, x[part, STARTS[part[0]] :], generator=generator) for part in parts]
    for step in steps:
        (-step.objective.sum() / 10).backward()
    for name, parameter in model.gradient_parameters().items():
        torch.testing.assert_close(gradients[name], parameter.grad)
    for part, step in zip(parts, steps, strict=True):
        torch.testing.assert_close(log_likelihood[part], step.log_likelihood)

    counts = [len(part) * (N_STEPS - STARTS[part[0]]) for part in parts]
    shares = [count / sum(counts) for count in counts]
    assert sum(counts) == sum(N_STEPS - start for start in STARTS)
    for name, moment in statistics.latent.items():
        by_hand = sum(share * step.statistics.latent[name] for share, step in zip(shares, steps, strict=True))
        torch.testing.assert_close(moment, by_hand)
    assert (len(statistics.latent) > 0) == ("noise_learning" in settings)
    if "observation" not in settings:
        by_hand = sum(share * step.statistics.observation for share, step in zip(shares, steps, strict=True))
        torch.testing.assert_close(statistics.observation, by_hand)


def without_chance(**settings):
    """Without latent noise all particles are the same, and so is the likelihood of every run."""
    return small_model(initial_latent_variance=0.0, **settings)


@pytest.mark.parametrize("encoder", ["linear", "gru", "transformer"])
def test_without_latent_noise_a_sequence_has_the_likelihood_it_has_alone(encoder):
    model, x = without_chance(encoder=encoder), ragged(gaps=0.0)
    alone = [model.filter(row, generator=7) for row in one_at_a_time(x)]
    report, gradients = gradients_of(Likelihood(), model, x)
    n_terms = sum(N_STEPS - start for start in STARTS)
    total = sum(result.log_likelihood.item() for result in alone)
    assert (report.n_terms, report.loss) == (n_terms, pytest.approx(-total, rel=1e-12))
    assert negative_log_likelihood(model, x, generator=3) == pytest.approx(-total / n_terms, rel=1e-12)
    _, each, _ = accumulate_gradients(model, x, 1, generator=seeded(5))
    torch.testing.assert_close(each, torch.cat([result.log_likelihood for result in alone]), rtol=1e-12, atol=0)

    singles = [gradients_of(Likelihood(), model, row) for row in one_at_a_time(x)]
    for name, gradient in gradients.items():
        if "covariance" not in name:  # the slope at no noise still depends on which noise it would have been
            expected = sum(single.n_terms * found[name] for single, found in singles) / n_terms
            torch.testing.assert_close(gradient, expected, rtol=1e-9, atol=1e-12)


def test_missing_steps_instead_of_rows_that_have_not_begun_would_be_noticed():
    """With the zero row that an older filling would begin with, the likelihood is another."""
    model, x = without_chance(), ragged(gaps=0.0)
    filled = x.clone()
    for number, start in enumerate(STARTS):
        filled[number, :start, 2] = 0.0
        filled[number, 0] = filled[number, 0].nan_to_num(0.0)
    assert negative_log_likelihood(model, filled, generator=0) != pytest.approx(
        negative_log_likelihood(model, x, generator=0), rel=1e-3
    )


def test_steps_with_an_observation_are_counted_without_the_first_row_of_a_sequence():
    model, x = small_model(), ragged(gaps=0.6)
    observed = sum(int((~row[0, 1:, :2].isnan()).any(dim=-1).sum()) for row in one_at_a_time(x))
    assert observed < sum(N_STEPS - start for start in STARTS)
    assert gradients_of(Likelihood(), model, x)[0].n_terms == observed


# --- the other goals ----------------------------------------------------------------------------------------------


def test_the_squared_error_is_that_of_one_sequence_after_the_other():
    model, x, goal = small_model(), ragged(gaps=0.0), SquaredError((1.0, 2.0))
    report, gradients = gradients_of(goal, model, x)
    singles = [gradients_of(goal, model, row) for row in one_at_a_time(x)]
    assert report.n_terms == sum(single.n_terms for single, _ in singles)
    assert report.loss == pytest.approx(sum(single.loss for single, _ in singles), rel=1e-12)
    assert goal.validate(model, x, Sampling(5)) == pytest.approx(report.loss / report.n_terms, rel=1e-12)
    for name, gradient in gradients.items():
        expected = sum(single.n_terms * found[name] for single, found in singles) / report.n_terms
        torch.testing.assert_close(gradient, expected)


def test_the_squared_error_counts_what_was_observed_after_the_first_row():
    x = ragged(gaps=0.3)
    report, gradients = gradients_of(SquaredError(), small_model(), x)
    assert report.n_terms == sum(int((~row[0, 1:, :2].isnan()).sum()) for row in one_at_a_time(x))
    assert all(gradient.isfinite().all() for gradient in gradients.values())


HISTORY, HORIZON = 5, 4


def path_model():
    """Paths depend on their sequence and nothing else, if there is one particle."""
    return give_observation(without_chance(), QuantileObservation)


def score_by_hand(model, row, start, n_past=None):
    """Loss and terms of one sequence after so many rows; as many as lie before the horizon unless told."""
    n_past = max(1, HISTORY + 1 - start) if n_past is None else n_past
    future = row[:, n_past : n_past + HORIZON]
    paths = rollout(model, model.settings(1), row[:, :n_past], future[..., 2:], n_paths=6).targets
    return fair_crps(paths, future[..., :2]).nansum(), int((~future[..., :2].isnan()).sum())


def test_the_horizon_of_forecasts_is_counted_from_the_end():
    """The last sequence begins within the horizon: what follows its first row is forecast."""
    model, x = path_model(), ragged()
    goal = ForecastScore(HISTORY, n_paths=6, validation_paths=6, short_share=0.0)
    report, gradients = gradients_of(goal, model, x, n_particles=1)
    found = [score_by_hand(model, row, start) for row, start in zip(one_at_a_time(x), STARTS, strict=True)]
    n_terms = sum(count for _, count in found)
    loss = sum(one for one, _ in found)
    assert (report.n_terms, report.loss) == (n_terms, pytest.approx(loss.item(), rel=1e-10))
    (expected,) = torch.autograd.grad(loss / n_terms, model.readout.projection.bias)
    torch.testing.assert_close(gradients["readout.projection.bias"], expected)
    assert goal.validate(model, x, Sampling(1, generator=seeded(0))) == pytest.approx(loss.item() / n_terms, rel=1e-10)


def test_each_group_has_its_own_shorter_history_of_any_length(without_shape_checks):
    """The number of observed values of a horizon tells where it begins."""
    x = ragged((0, 3), gaps=0.0)
    for row, unseen in ((0, (5, 7)), (1, (8, 9))):
        x[row, list(unseen), :2] = math.nan
    observed = [(~row[0, :, :2].isnan()).sum(dim=-1) for row in one_at_a_time(x, (0, 3))]
    possible = [
        [int(seen[n_past : n_past + HORIZON].sum()) for n_past in range(1, HISTORY + 2 - start)]
        for seen, start in zip(observed, (0, 3), strict=True)
    ]
    sums = Counter(one + other for one in possible[0] for other in possible[1])
    goal, model, generator = ForecastScore(HISTORY, n_paths=2, short_share=1.0), small_model(window=1), seeded(0)
    n_batches = 200
    found = Counter(goal.accumulate(model, x, Sampling(1, generator=generator)).n_terms for _ in range(n_batches))
    assert set(found) == set(sums)
    for number, count in sums.items():
        share = count / 18
        assert abs(found[number] / n_batches - share) < 4.5 * (share * (1 - share) / n_batches) ** 0.5


def test_forecast_statistics_of_groups_average_by_the_steps_that_were_forecast():
    model, x = small_model(observation="student_t"), ragged(gaps=0.0)
    asked = []
    forecast_statistics, merge = model.observation.forecast_statistics, model.observation.merge
    model.observation.forecast_statistics = lambda p: asked.append(tuple(p.shape)) or forecast_statistics(p)
    shares = []
    model.observation.merge = lambda parts, given: shares.extend(given) or merge(parts, given)
    gradients_of(ForecastScore(HISTORY, n_paths=3, short_share=0.0), model, x)
    assert [(shape[0], shape[2]) for shape in asked] == [(3, 4), (1, 4), (3, 4), (1, 2)]
    assert shares == pytest.approx([12 / 30, 4 / 30, 12 / 30, 2 / 30])


# --- what is said of wrong sequences ------------------------------------------------------------------------------


def wrong(change):
    x = ragged(gaps=0.0)
    change(x)
    return x


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (wrong(lambda x: x[1, 4:].fill_(math.nan)), "sequence 1 of train has 0 time steps .* at least 2"),
        (wrong(lambda x: x[1, 4:9].fill_(math.nan)), "sequence 1 of train has 1 time steps .* at least 2"),
        (wrong(lambda x: x[3, 2, 1].fill_(math.nan)), r"train holds nan at \[3, 2, 1\].*first time step of a sequence"),
        (wrong(lambda x: x[3, 2, 2].fill_(math.nan)), r"train holds nan at \[3, 2, 2\].*first time step of a sequence"),
        (wrong(lambda x: x[3, 5, 2].fill_(math.nan)), r"train holds nan at \[3, 5, 2\].*only targets may be missing"),
        (wrong(lambda x: x[3, 5, 1].fill_(math.inf)), r"train holds inf at \[3, 5, 1\].*must be finite"),
        (wrong(lambda x: x[3, 2, 1].fill_(math.inf)), r"train holds inf at \[3, 2, 1\]"),
    ],
)
def test_sequences_that_cannot_be_read_are_refused_with_their_place(x, message):
    with pytest.raises(ValueError, match=message):
        fit(small_model(), x, progress=False)


def test_counts_that_have_not_begun_are_no_wrong_counts():
    model = make_model(observation="negative_binomial", d_model=4, n_particles=5)
    x = sequences(4, 6).abs().round()
    x[1, :3] = math.nan
    assert math.isfinite(fit(model, x, x, epochs=1, progress=False)[0].validation_loss)
    x[1, 3] = -1.0
    with pytest.raises(ValueError, match="holds -1"):
        fit(model, x, progress=False)


def test_the_filter_and_forecasts_of_users_still_need_a_known_first_step():
    model, x = small_model(), ragged()
    for call in (lambda: model.filter(x), lambda: model.forecast(x, 2), lambda: training_step(model, x)):
        with pytest.raises(ValueError, match=r"holds nan at \[1, 0, 0\].*not those of the first time step"):
            call()


@pytest.mark.parametrize("goal", [Likelihood(), ForecastScore(8, n_paths=3, short_share=0.0)], ids=["nll", "crps"])
def test_a_collapse_names_the_sequence_of_the_data_and_its_row(goal):
    model, x = give_observation(small_model(), NotingObservation), ragged(gaps=0.0)
    x[5, 6, 0] = 1e300
    with pytest.raises(WeightCollapseError) as caught:
        goal.accumulate(model, x, Sampling(5, generator=seeded(0)))
    assert (caught.value.sequence, caught.value.step) == (5, 6)
    with pytest.raises(WeightCollapseError) as caught:
        goal.validate(model, x, Sampling(5, generator=seeded(0)))
    assert (caught.value.sequence, caught.value.step) == (5, 6)


# --- training -----------------------------------------------------------------------------------------------------

TRAIN_STARTS = tuple(torch.randint(4, (40,), generator=seeded(8)).mul(2).tolist())
TRAIN = ragged(TRAIN_STARTS, seed=1)
VALIDATION = ragged((0, 0, 3, 5, 5), seed=2)
SETTINGS = {"epochs": 3, "batch_size": 6, "validation_particles": 8, "seed": 3, "progress": False}
GOALS = {
    "likelihood": Likelihood(),
    "squared error": SquaredError(),
    "forecasts": ForecastScore(HISTORY, n_paths=3, validation_paths=6),
}


@pytest.mark.parametrize("goal", GOALS)
@pytest.mark.parametrize("at", [3, 9])
def test_training_resumes_to_the_same_result(tmp_path, goal, at):
    straight, fresh = small_model(), small_model(seed=99)
    expected = fit(straight, TRAIN, VALIDATION, goal=GOALS[goal], **SETTINGS)
    assert all(math.isfinite(epoch.training_loss + epoch.validation_loss) for epoch in expected)
    path = tmp_path / "run.safetensors"
    stopped = interrupted_goal("accumulate", at=at, goal=GOALS[goal])
    with pytest.raises(KeyboardInterrupt):
        fit(small_model(), TRAIN, VALIDATION, goal=stopped, checkpoint=path, **SETTINGS)
    assert fit(fresh, TRAIN, VALIDATION, goal=GOALS[goal], checkpoint=path, **SETTINGS) == expected
    assert_same(weights(fresh), weights(straight))


def batches_of_fit(x, **settings):
    goal = WatchedGoal()
    fit(small_model(), x, goal=goal, **{**SETTINGS, **settings})
    return [call.x for call in goal.batches]


def test_a_pass_has_every_sequence_once_and_batches_few_starts():
    batches = batches_of_fit(TRAIN, epochs=4)
    n_starts = len(set(TRAIN_STARTS))
    passes = [batches[first : first + 7] for first in range(0, 28, 7)]
    for batches in passes:
        rows = torch.cat(batches)
        found, expected = (one[one[:, -1, 2].argsort()] for one in (rows, TRAIN))
        torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
        # Every boundary between two starts lies in one batch, and so does the place where the order was rolled.
        assert sum(len(starts(batch).unique()) for batch in batches) <= len(batches) + n_starts
    firsts = {tuple(starts(batches[0]).unique().tolist()) for batches in passes}
    assert len(firsts) > 1  # lengths do not come in the same order every time


def test_sequences_that_have_all_begun_come_in_the_order_they_always_had():
    x = sequences(20, 4, 3)
    generator = torch.Generator().manual_seed(0)
    batches = batches_of_fit(x, epochs=1)
    late = torch.cat((torch.full_like(x[:, :2], math.nan), x), dim=1)  # later, but all at the same row
    for batch, other in zip(batches, batches_of_fit(late, epochs=1), strict=True):
        assert torch.equal(batch, other[:, 2:])
    places = [int((x == row).all(dim=(1, 2)).nonzero()) for row in torch.cat(batches)]
    assert sorted(places) == list(range(20))
    assert places != list(range(20)) != torch.randperm(20, generator=generator).tolist()


def test_short_sequences_are_learned_from(without_shape_checks):
    """Only short ones tell the mean; long ones are white noise of another."""
    generator = seeded(4)
    x = torch.randn(60, 13, 1, generator=generator, dtype=torch.float64)
    x[30:] = 0.1 * x[30:] + 5.0
    x[30:, :9] = math.nan
    model = make_model(d_model=4, d_ff=4, n_particles=4, spread_covariances=False)
    history = fit(model, x, x, epochs=12, learning_rate=5e-2, batch_size=10, progress=False)
    assert history[-1].validation_loss < 0.6 * history[0].validation_loss
    short = model.filter(x[30:, 9:], 16, generator=0).predictive.mean
    assert (short - 5.0).abs().mean() < 0.5


# --- scales and widths --------------------------------------------------------------------------------------------


def test_scales_of_changes_are_those_of_the_sequences_alone():
    encoder = small_model(input_changes=True).encoder
    assert isinstance(encoder, ChangesEncoder)
    x = ragged(gaps=0.1)
    encoder.set_scales_(x)
    rows = [row[0] for row in one_at_a_time(x)]
    for scale, values in (
        (encoder.level_scale, torch.cat(rows)),
        (encoder.change_scale, torch.cat([row.diff(dim=0) for row in rows])),
    ):
        for feature in range(3):
            seen = values[:, feature][~values[:, feature].isnan()]
            assert scale[feature].item() == pytest.approx(seen.std(correction=0).item())


@pytest.mark.parametrize("history", [None, HISTORY])
def test_coverage_counts_every_observation_after_a_first_row_once(monkeypatch, history):
    """A stand-in that covers positive values: the share is known."""
    monkeypatch.setattr("smc_transformer.learning.calibration.covered", lambda interval, observed: observed > 0)
    model, x = small_model(), ragged(gaps=0.2)
    rows = one_at_a_time(x)
    if history is not None:
        rows = [
            row[:, max(0, history - start) :] for row, start in zip(rows, STARTS, strict=True)
        ]  # the last known one first
    seen = torch.cat([row[0, 1:, :2].flatten() for row in rows])
    share = (seen[~seen.isnan()] > 0).double().mean().item()
    assert 0.1 < share < 0.9
    assert share_covered(model, x, 2, history=history) == pytest.approx(share, rel=1e-12)
    # Blocks are of the sequences as they are given.
    blocks = [torch.cat([row[0, 1:, :2].flatten() for row in part]) for part in (rows[:3], rows[3:6], rows[6:])]
    shares = sorted((block[~block.isnan()] > 0).double().mean().item() for block in blocks)
    assert share_covered(model, x, 2, history=history, n_blocks=3) == pytest.approx(shares[1], rel=1e-12)


def test_noise_is_widened_by_sequences_of_any_length():
    """White noise of deviation two, of which the model thinks that it is one."""
    model = make_model(n_inputs=1, d_model=4, spread_covariances=False, initial_observation_variance=1.0)
    with torch.no_grad():
        model.readout.projection.weight.zero_()
        model.readout.projection.bias.zero_()
    x = 2.0 * torch.randn(400, 8, 1, generator=seeded(0), dtype=torch.float64)
    x[::2, :4] = math.nan
    factor = Recipe(likelihood=Stage(1)).widen(model, x, histories=(4, None), n_scored=1, n_halvings=6)
    # 95 % of 1200 observations scatter by 0.0063, which a factor of 1.03 makes good; 200 draws miss as much.
    assert factor == pytest.approx(2.0, rel=0.15)


def test_a_recipe_trains_on_sequences_of_any_length():
    stages = {name: Stage(2, 1, batch_size=8) for name in ("squared_error", "likelihood", "forecast")}
    model = small_model(input_changes=True, encoder="gru", observation="student_t")
    recipe = Recipe(**stages, forecast_paths=3, validation_paths=4)
    losses = recipe.train(model, TRAIN, VALIDATION, history=HISTORY, units=(1.0,))
    assert {name: len(found) for name, found in losses.items()} == dict.fromkeys(stages, 1)
    assert all(math.isfinite(found[0]) for found in losses.values())
