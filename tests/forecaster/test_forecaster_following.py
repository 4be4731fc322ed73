"""Following series: the filter's numbers under the same noise, row by row, in batches, and in panels of any lengths."""

import numpy as np
import pandas as pd
import pytest
import torch
from helpers.forecaster_tables import TINY, head, make, rows_between, series, walks
from helpers.models import assert_same, make_model, mean_and_error, sequences
from helpers.oracles import masked_linear

from smc_transformer.forecaster.fleet import Fleet
from smc_transformer.forecaster.following import Follower, meet_known
from smc_transformer.forecaster.paths import draw_futures
from smc_transformer.forecaster.table import read_series
from smc_transformer.inference.filter import filter_state, particle_filter
from smc_transformer.inference.paths import continued_paths
from smc_transformer.inference.state import ParticleState
from smc_transformer.inference.step import begin, predict_step

NAN = float("nan")


@pytest.mark.usefixtures("drawn_by_turns")
@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("encoder", ["gru", "linear"])
@pytest.mark.parametrize("gaps", [False, True])
def test_steps_give_the_numbers_of_one_pass_under_the_same_noise(window, encoder, gaps):
    model = make_model(
        n_inputs=3, n_targets=2, d_model=4, window=window, encoder=encoder, input_changes=True, predict_change=True
    )
    x = sequences(3, 20, 3)
    if gaps:
        x[:, 4, :2] = NAN
        x[1, 9:12, 0] = NAN
    noise = model.attention.draw_noise(3, 6, 20, torch.Generator().manual_seed(1))
    whole = particle_filter(model, x, model.settings(6), torch.Generator().manual_seed(2), noise=noise)
    first_alone = x[:, 1:, :2].clone()
    first_alone[..., 1] = NAN
    densities = whole.predictive.log_prob(first_alone).where(~x[:, 1:, 0].isnan(), NAN)
    generator = torch.Generator().manual_seed(2)
    follower = Follower(model, model.settings(6))
    state = begin(model, x[:, 0], 6)
    for t in range(1, 21):
        # Apart and together again between any two rows.
        state = ParticleState.cat([state.take(slice(number, number + 1)) for number in range(3)])
        meet_known(model, state, x[:, t - 1, 2:])
        with torch.no_grad():
            prediction = predict_step(*follower, state, generator, noise.at(t - 1))
        judgement = follower.judge(prediction, x[:, t, :2], generator)
        follower.observe(state, prediction, x[:, t, :2], generator)
        torch.testing.assert_close(prediction.parameters, whole.predictive.parameters[:, :, t - 1])
        pit = whole.predictive.cdf(x[:, 1:, :2])[:, t - 1]
        torch.testing.assert_close(judgement.pit, pit, equal_nan=True)
        torch.testing.assert_close(judgement.log_density[:, 0], densities[:, t - 1], equal_nan=True)
        torch.testing.assert_close(state.log_weights, whole.log_weights[:, :, t - 1])
    assert whole.resampled.any()


def test_futures_are_those_of_the_model_under_the_same_randomness():
    model = make_model(n_inputs=2, n_targets=1, d_model=4, window=3, encoder="gru")
    x, known = sequences(2, 10, 2), sequences(2, 4, 1, seed=3)
    # The model's row of a time holds what is known of the next.
    state = filter_state(model, x, model.settings(5), torch.Generator().manual_seed(0))
    follower = Follower(model, model.settings(5))
    waiting = state.take(torch.tensor([1, 0]))
    waiting.last[..., 1] = 99.0  # what is known of the next time comes with the forecast
    ahead = torch.cat((x[:, -1:, 1:], known[:, :3]), dim=1)
    found = draw_futures(
        follower, Fleet([(["b", "a"], waiting)]), ["a", "b"], ahead, 50, torch.Generator().manual_seed(1)
    )
    later = torch.cat((known[:, :3], torch.zeros(2, 1, 1)), dim=1)
    expected = continued_paths(*follower, state, later, 50, torch.Generator().manual_seed(1))
    torch.testing.assert_close(found.paths, expected)
    # Law of total variance: the parts are those of the paths, up to the sampling error of 50 of them.
    total = found.between + found.within
    assert (total / found.paths.var(dim=1) - 1).abs().max() < 0.8


def test_series_of_unequal_length_do_not_disturb_each_other():
    # Without latent noise nothing is random before a gap: batched and alone are the same numbers.
    model = make_model(d_model=4, window=3, encoder="gru", initial_latent_variance=0.0, spread_covariances=False)
    panel = [sequences(1, length, seed=length)[0] for length in (3, 11, 7, 11, 1)]
    follower = Follower(model, model.settings(4))

    def filtered(chosen, **options):
        parts, judgements = follower.filter_series(chosen, torch.Generator().manual_seed(0), **options)
        fleet = Fleet(parts)
        return [fleet.take([number]) for number in range(len(chosen))], judgements

    together = filtered(panel, judging=True)
    for rows, state, judgement in zip(panel, *together, strict=True):
        (alone,), (judged,) = filtered([rows], judging=True)
        n_slots = state.n_slots.item()
        torch.testing.assert_close(state.last, alone.last)
        torch.testing.assert_close(state.keys[:, :, :n_slots], alone.keys[:, :, :n_slots])
        torch.testing.assert_close(state.encoder_state, alone.encoder_state)
        torch.testing.assert_close(judgement, judged)
        # Nor does it matter whether the rows are filtered one by one or, where nothing is judged, by one call.
        (whole,), _ = filtered([rows])
        assert whole.layout == state.layout
        assert whole.n_slots.item() == n_slots == whole.position.item()
        torch.testing.assert_close(state.last, whole.last)
        torch.testing.assert_close(state.log_weights, whole.log_weights)
        for name in ("keys", "values"):
            one, other = (getattr(each, name)[:, :, :n_slots] for each in (state, whole))
            torch.testing.assert_close(one, other)
        torch.testing.assert_close(state.encoder_state, whole.encoder_state)
        assert state.position.item() == len(rows) - 1
        assert judgement.pit.shape == (len(rows) - 1, 1)


def linear_forecaster(n_particles):
    """Two targets of the linear window-1 model, for which all is known in closed form."""
    config = {
        "encoder": "linear",
        "window": 1,
        "readout": "linear",
        "d_model": 2,
        "observation": "gaussian",
        "input_changes": False,
        "predict_change": False,
        "initial_latent_variance": 0.2,
        "n_particles": 5,
    }
    table = walks(60, 60).assign(z=lambda df: df["y"].to_numpy()[::-1] + 3)
    forecaster = make(targets=["y", "z"], config=config, n_particles=n_particles, scaling="standard")
    return forecaster.fit(table, progress=False)


def test_forecasts_after_gaps_have_the_exact_distribution():
    forecaster, n_copies = linear_forecaster(n_particles=500), 60
    random = np.random.default_rng(1)
    history = series("a copy", random.normal(size=9), z=100 + 5 * random.normal(size=9))
    history.loc[3, ["y", "z"]] = NAN
    history.loc[5, "z"] = NAN
    history.loc[8, "y"] = NAN
    history = history.drop(index=4)  # a gap in time is a missing row too
    copies = pd.concat([history.assign(unique_id=f"copy {number}") for number in range(n_copies)])
    forecast = forecaster.forecast(copies, n_paths=500)

    panel = forecaster.fitted.panel
    (known,) = read_series(history, forecaster.settings)
    (viewed,), (scaler,), _ = panel.begin([known])
    x = torch.cat((panel.rows(viewed), torch.full((4, 2), NAN))).double()
    mean, covariance = masked_linear.conditional(forecaster.model.double(), x, n_known_steps=8)
    exact_mean = scaler.inverse(mean[-8:].view(4, 2).numpy())
    exact_variance = covariance.diagonal()[-8:].view(4, 2).numpy() * scaler.spread**2

    found, error = mean_and_error(torch.from_numpy(forecast.paths.mean(axis=1)))
    assert (np.abs(found.numpy() - exact_mean) < 4 * error.numpy()).all()
    found, error = mean_and_error(torch.from_numpy(forecast.paths.var(axis=1)))
    # The variance of M particles is low by a share of 1 / M.
    assert (np.abs(found.numpy() - exact_variance) < 4 * error.numpy() + exact_variance / 250).all()
    # The tolerances mean something: well below what a forecast without the observed partner would differ by.
    assert (error.numpy() < 0.05 * exact_variance).all()


@pytest.mark.parametrize("scaling", ["local", "standard"])
def test_an_update_has_the_distribution_of_a_pass_over_all_rows(scaling):
    table = pd.concat([walks(40, seed=3).assign(unique_id=f"copy {number}") for number in range(80)])
    table.loc[table["ds"] == 33, "y"] = NAN
    forecaster = make(n_particles=40, scaling=scaling).fit(head(table, 30), progress=False)
    whole = forecaster.forecast(table, n_paths=200, seed=1).paths[..., 0].mean(axis=1)
    spread = table["y"].std()
    for first in range(30, 40, 2):
        forecaster.update(rows_between(table, first, first + 2))
    stepwise = forecaster.forecast(n_paths=200, seed=2).paths[..., 0].mean(axis=1)
    one, one_error = mean_and_error(torch.from_numpy(whole))
    other, other_error = mean_and_error(torch.from_numpy(stepwise))
    assert ((one - other).abs() < 4 * (one_error.square() + other_error.square()).sqrt()).all()
    assert (one_error < 0.05 * spread * 5).all()


def test_an_update_may_skip_rows_and_bring_new_series():
    table = walks(60, 60)
    forecaster = make().fit(table, progress=False)
    untouched = forecaster.fitted.following.fleet.take(["b"]).named_tensors()
    new = pd.concat((series("a", [1.0, 2.0], start=63), series("c", [5.0, 6.0, 5.5, 6.5])))
    surprise = forecaster.update(new, level=95)
    assert surprise[["unique_id", "ds"]].to_numpy().tolist() == [["a", 63], ["a", 64], ["c", 1], ["c", 2], ["c", 3]]
    fleet = forecaster.fitted.following.fleet
    assert_same(fleet.take(["b"]).named_tensors(), untouched)
    assert fleet.take(["a"]).position.item() == 64  # three missing rows, two observed ones
    predicted = forecaster.predict(level=[])
    assert predicted.groupby("unique_id")["ds"].min().to_dict() == {"a": 65, "b": 60, "c": 4}


def test_series_of_all_lengths_take_their_steps_together(monkeypatch):
    """One state is stepped where it stands, whatever each series has seen; several new rows are stepped in a copy."""
    lengths = [15 + number for number in range(30)]  # the window is 6; some begin to fill it, see below
    forecaster = make().fit(walks(*lengths), progress=False)
    names = forecaster.series
    short = [series(f"short {number}", np.sin(np.arange(3 + number))) for number in range(3)]
    forecaster.update(pd.concat(short))
    seen = dict(zip(names, lengths, strict=True)) | {f"short {number}": 3 + number for number in range(3)}
    rows = []

    def counting(name, whole):
        def counted(*arguments):
            found = whole(*arguments)
            rows.append((name, len(arguments[-1]) if found is None else len(found)))
            return found

        return counted

    for name in ("take", "put", "lend", "give_back"):
        monkeypatch.setattr(ParticleState, name, counting(name, getattr(ParticleState, name)))
    monkeypatch.setattr(ParticleState, "cat", staticmethod(counting("cat", ParticleState.cat)))
    forecaster.update(pd.concat([series(name, [0.1], start=length) for name, length in seen.items()]))
    assert rows == [("lend", 33), ("give_back", 33)]
    rows.clear()
    new = [series(name, [0.1] * (1 + length % 2), start=1 + length) for name, length in seen.items()]
    forecaster.update(pd.concat(new))
    assert rows == [("take", 17), ("take", 17), ("take", 0), ("lend", 16), ("give_back", 16), ("put", 17)]
    rows.clear()
    forecaster.predict()
    assert rows == [("take", 33)]


def test_a_gap_costs_its_own_series_only():
    forecaster = make().fit(walks(20, 30, 30), progress=False)
    forecaster.update(pd.concat((series("a", [NAN, 0.1], start=20), series("b", [0.1], start=30))))
    fleet = forecaster.fitted.following.fleet
    assert [fleet.take([name]).has_own_inputs for name in "abc"] == [True, False, False]


def test_a_series_that_needs_more_room_does_not_enlarge_the_others():
    forecaster = make(config={**TINY, "window": None}).fit(walks(20, 32), progress=False)
    fleet = forecaster.fitted.following.fleet
    assert [fleet.take([name]).capacity for name in "ab"] == [32, 32]
    forecaster.update(pd.concat((series("a", [0.1, 0.2], start=20), series("b", [0.1, 0.2], start=32))))
    assert [fleet.take([name]).capacity for name in "ab"] == [32, 64]
    assert [fleet.take([name]).n_slots.item() for name in "ab"] == [21, 33]


def test_a_failed_update_changes_nothing():
    forecaster = make(scaling="standard").fit(walks(60, 60), progress=False)
    before = forecaster.predict()
    for bad in (series("c", [1.0]), series("b", [0.0], start=10)):
        with pytest.raises(ValueError, match=r"too short|not after the last row known"):
            forecaster.update(pd.concat((series("a", [1.0], start=60), bad)))
    pd.testing.assert_frame_equal(forecaster.predict(), before)


def test_forecasts_leave_no_trace():
    table = walks(60, 50)
    one, other = (make().fit(table, progress=False) for _ in range(2))
    one.predict()
    one.predict(walks(30, seed=4))
    one.score(table)
    new = series("a", [0.3, 0.2], start=60)
    pd.testing.assert_frame_equal(one.update(new), other.update(new))
    pd.testing.assert_frame_equal(one.predict(), other.predict())
    pd.testing.assert_frame_equal(one.predict(), one.predict())
    assert not one.predict(seed=1).equals(one.predict(seed=2))


def test_scores_are_those_of_the_one_step_distribution():
    table = walks(60, 40)
    table.loc[10, "y"] = NAN
    forecaster = make(n_particles=5000).fit(table, progress=False)
    scores = forecaster.score(table)
    assert scores.columns.tolist() == [
        *("unique_id", "ds", "target", "value", "log_density", "pit"),
        *("outside-95", "outside-99"),
    ]
    assert len(scores) == 59 - 1 + 39  # neither the first rows, which nothing predicts, nor the missing one
    assert ((scores["pit"] - 0.5).abs() > 0.475).equals(scores["outside-95"])
    # The density is in the user's units: it must agree with an independent one-step distribution, up to 5000 particles
    # and 2000 paths, which leave a standard error of 0.04 between the two (measured over seeds).
    one_step = forecaster.forecast(head(table[table["unique_id"] == "b"], 39), h=1, n_paths=2000)
    last = table[table["unique_id"] == "b"].tail(1)
    exact = one_step.log_prob(last)["log_density"].item()
    assert abs(exact - scores["log_density"].iloc[-1]) < 0.2
    assert abs(one_step.cdf(last)["y"].item() - scores["pit"].iloc[-1]) < 0.1


def test_a_surprise_is_flagged():
    table = walks(60)
    forecaster = make().fit(table, progress=False)
    surprise = forecaster.update(series("a", [1000.0], start=60))
    assert surprise["outside-95"].item()
    assert surprise["pit"].item() > 0.99
    assert surprise["log_density"].item() < forecaster.score(table)["log_density"].min()
    assert np.isfinite(forecaster.predict()["y"]).all()


def test_the_state_of_a_stream_does_not_grow():
    forecaster = make().fit(walks(60), progress=False)

    def held():
        return forecaster.fitted.following.fleet.take(["a"]).layout

    before = held()
    forecaster.update(series("a", np.sin(np.arange(100)), start=60))
    assert held() == before
