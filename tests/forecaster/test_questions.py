"""Questions about whole paths: counted again by loops, and against closed forms of paths whose law is known."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from helpers.forecaster_tables import make, walks

from smc_transformer.forecaster.forecast import Forecast

RANDOM_WALK = 20_000


def known(paths, targets=("y",), start=(5, 5), worth=None):
    """A forecast with these paths (series, path, step, target), without a model behind it."""
    names = tuple("abcdef"[: len(paths)])
    return Forecast(
        names=names,
        times=tuple(pd.RangeIndex(first, first + paths.shape[2]) for first in itertools.islice(start, len(paths))),
        targets=targets,
        paths=paths,
        id_column="unique_id",
        time_column="ds",
        scalers=(),
        first=None,
        parts=None,
        worth=worth,
    )


@pytest.fixture(scope="module")
def walk():
    """Two random walks of six steps, with steps of deviation 1 and 2; the second target is minus the first."""
    steps = np.random.default_rng(0).normal(size=(2, RANDOM_WALK, 6)) * np.array([1.0, 2.0])[:, None, None]
    y = steps.cumsum(axis=2)
    return known(np.stack((y, -y), axis=-1), ("y", "z"))


def normal_cdf(x):
    return 0.5 * math.erfc(-x / math.sqrt(2))


def test_probabilities_of_a_random_walk(walk):
    found = walk.probability("sum(y) > 5")
    assert found.columns.tolist() == ["unique_id", "probability", "standard_error"]
    assert found["unique_id"].tolist() == ["a", "b"]
    deviation = math.sqrt(sum(k**2 for k in range(1, 7)))  # of the sum of a walk: step s counts 7 - s times
    for row, scale in zip(found.itertuples(), (1, 2), strict=True):
        exact = 1 - normal_cdf(5 / (scale * deviation))
        assert abs(row.probability - exact) < 4 * row.standard_error
        assert row.standard_error == pytest.approx(math.sqrt(exact * (1 - exact) / RANDOM_WALK), rel=0.05)
    # Two steps of a path belong together: both up is 1/4 + arcsin(correlation) / (2 pi), not 1/4.
    both = walk.probability("y > 0 at step 2 and y > 0 at step 6")["probability"]
    exact = 0.25 + math.asin(math.sqrt(2 / 6)) / (2 * math.pi)
    assert (abs(both - exact) < 4 * math.sqrt(0.25 / RANDOM_WALK)).all()


def test_a_function_sees_all_paths_of_a_series_as_a_table(walk):
    seen = []

    def event(paths):
        seen.append(paths)
        return (paths["y"] > 3).any(axis=1) & (paths["z"][6] < paths["z"][1])

    found = walk.probability(event)
    assert len(seen) == 2  # once for each series
    assert seen[1].columns.tolist() == [(target, step) for target in ("y", "z") for step in range(1, 7)]
    np.testing.assert_array_equal(seen[1]["z"][4], walk.paths[1, :, 3, 1])
    loop = [
        np.mean([max(path[:, 0]) > 3 and path[5, 1] < path[0, 1] for path in walk.paths[number]]) for number in (0, 1)
    ]
    np.testing.assert_allclose(found["probability"], loop)
    words = walk.probability("y > 3 at any step")
    pd.testing.assert_frame_equal(words, walk.probability(lambda paths: (paths["y"] > 3).any(axis=1).to_numpy()))


@pytest.mark.parametrize(
    ("event", "error", "message"),
    [
        (lambda paths: paths["y"] > 3, ValueError, r"each of the 20000 paths .* the shape \(20000, 6\)"),
        (lambda paths: True, ValueError, r"the shape \(\)"),
        (lambda paths: paths["y"][1], TypeError, "True or False for each path, got values of type float64"),
        (7, TypeError, "text or a function of a table of paths, got int"),
    ],
)
def test_wrong_events_are_named(walk, event, error, message, without_shape_checks):
    with pytest.raises(error, match=message):
        walk.probability(event)


def test_fewer_independent_paths_have_a_larger_error():
    paths = np.random.default_rng(0).normal(size=(2, 400, 3, 1))
    all_of_them, few = known(paths), known(paths, worth=np.array([400.0, 25.0]))
    one, other = (forecast.probability("y > 0 at step 1")["standard_error"] for forecast in (all_of_them, few))
    np.testing.assert_allclose(other, one * [1, 4])
    assert few.effective_paths == {"a": 400.0, "b": 25.0}
    assert all_of_them.effective_paths == {"a": 400.0, "b": 400.0}


def test_first_passages_are_those_of_a_loop(walk):
    for level, above, target in ((1.5, True, None), (-0.5, False, "y"), (1.0, True, "z")):
        found = walk.first_passage(level, above, target=target)
        assert found.columns.tolist() == [
            *("unique_id", "ds", "step", "probability", "standard_error", "cumulative", "never")
        ]
        assert found["ds"].tolist() == [5, 6, 7, 8, 9, 10] * 2
        assert found["step"].tolist() == [1, 2, 3, 4, 5, 6] * 2
        for number, name in enumerate(walk.names):
            counts = [0] * 7
            for path in walk.paths[number, :, :, walk.targets.index(target or "y")]:
                there = [step for step, y in enumerate(path) if (y >= level if above else y <= level)]
                counts[there[0] if there else 6] += 1
            own = found[found["unique_id"] == name]
            shares = np.array(counts) / RANDOM_WALK
            np.testing.assert_allclose(own["probability"], shares[:6])
            np.testing.assert_allclose(own["cumulative"], shares[:6].cumsum())
            np.testing.assert_allclose(own["never"], shares[6], atol=1e-15)
            np.testing.assert_allclose(own["standard_error"], np.sqrt(shares[:6] * (1 - shares[:6]) / RANDOM_WALK))


def test_a_walk_returns_to_zero_by_sparre_andersen(walk):
    """P(no value above 0 in n steps) = C(2n, n) / 4^n, whatever the symmetric law of the steps."""
    found = walk.first_passage(0.0)
    for n in range(1, 7):
        exact = 1 - math.comb(2 * n, n) / 4**n
        own = found[found["step"] == n]["cumulative"]
        assert (abs(own - exact) < 4 * math.sqrt(exact * (1 - exact) / RANDOM_WALK)).all()


def test_a_level_is_reached_where_it_is_met(without_shape_checks):
    forecast = known(np.array([[[1.0, 2.0], [3.0, 4.0], [0.0, 1.0], [2.0, 2.0]]])[..., None])
    assert forecast.first_passage(2)["probability"].tolist() == [0.5, 0.25]
    assert forecast.first_passage(0, above=False)["never"].tolist() == [0.75, 0.75]
    with pytest.raises(ValueError, match="has no target 'x'"):
        forecast.first_passage(2, target="x")
    for level in (math.nan, "high", None):
        with pytest.raises(ValueError, match="level must be a finite number, got"):
            forecast.first_passage(level)


def test_sums_over_the_horizon(walk):
    found = walk.total(level=[80, 95])
    ends = ["", "-lo-80", "-hi-80", "-lo-95", "-hi-95"]
    assert found.columns.tolist() == ["unique_id", *("y" + end for end in ends), *("z" + end for end in ends)]
    sums = walk.paths.sum(axis=2)
    np.testing.assert_allclose(found["z"], sums[..., 1].mean(axis=1))
    np.testing.assert_allclose(found["y-lo-80"], np.quantile(sums[..., 0], 0.1, axis=1))
    np.testing.assert_allclose(found["y-hi-95"], np.quantile(sums[..., 0], 0.975, axis=1))
    # Normal, of variance 1 + 4 + ... + 36: not the sum of the ends of intervals. The density at the quantile is 0.058.
    deviation = math.sqrt(91)
    error = math.sqrt(0.975 * 0.025 / RANDOM_WALK) / (0.0585 / deviation)
    assert abs(found["y-hi-95"][0] - 1.96 * deviation) < 4 * error


def test_sums_over_series(walk):
    found = walk.total_over_series(level=90)
    assert found.columns.tolist() == ["ds", "y", "y-lo-90", "y-hi-90", "z", "z-lo-90", "z-hi-90"]
    assert found["ds"].tolist() == [5, 6, 7, 8, 9, 10]
    both = walk.paths.sum(axis=0)
    np.testing.assert_allclose(found["y"], both[..., 0].mean(axis=0))
    np.testing.assert_allclose(found["z-hi-90"], np.quantile(both[..., 1], 0.95, axis=0))
    whole = walk.total_over_series(level=90, whole_horizon=True)
    assert whole.columns.tolist() == found.columns.tolist()[1:]
    np.testing.assert_allclose(whole["y-lo-90"], np.quantile(both[..., 0].sum(axis=1), 0.05))
    apart = known(walk.paths, walk.targets, start=(5, 6))
    with pytest.raises(ValueError, match="those of series 'a' begin at 5 and those of series 'b' at 6"):
        apart.total_over_series()
    apart.total()  # needs no common times


def test_paths_of_different_series_are_independent():
    forecast = make(scaling="standard").fit(walks(60, 60, 60), progress=False).forecast(n_paths=4000)
    assert forecast.paths[..., 0].std(axis=1).min() > 0
    totals = forecast.paths.sum(axis=(2, 3))  # (series, path)
    correlations = np.corrcoef(totals)[np.triu_indices(3, k=1)]
    # Of independent pairs: a deviation of 1 / sqrt(n) = 0.016. Student's t has heavy tails: ranks would be the same.
    assert (abs(correlations) < 4 / math.sqrt(4000)).all()
    whole = forecast.total_over_series([80], whole_horizon=True)
    np.testing.assert_allclose(whole["y"], forecast.total()["y"].sum())
    variance = totals.sum(axis=0).var()
    assert variance == pytest.approx(totals.var(axis=1).sum(), rel=0.12)
    # Steps of a series hang together: there the same sum would be wrong.
    own = forecast.paths[0, :, :, 0]
    assert own.sum(axis=1).var() > 1.5 * own.var(axis=0).sum()
