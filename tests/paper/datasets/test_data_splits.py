"""Windows, scaling and splits against naive loops over rows."""

import itertools
import math
from datetime import datetime

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from smct_paper.datasets.splits import (
    NoWindowsError,
    chronological_windows,
    cut_windows,
    cuts,
    fit_scaling,
    series_by_log,
    series_by_themselves,
    shuffled_windows,
    window_starts,
)
from smct_paper.datasets.table import Table

HOUR = np.timedelta64(1, "h")


def table_with_gaps(n_rows=200, n_columns=3, seed=0, missing=0.02):
    random = np.random.default_rng(seed)
    minutes = np.cumsum(random.choice([60, 60, 60, 60, 60, 70, 80, 90, 100, 600], n_rows))
    times = np.datetime64("2009-01-01T00:10", "s") + minutes * np.timedelta64(1, "m")
    values = random.normal(3.0, 2.0, (n_rows, n_columns)) * [1.0, 10.0, 100.0]
    values[random.uniform(size=values.shape) < missing] = np.nan
    return Table(times, values, ("a", "b", "c"), HOUR)


def naive_windows(times, values, length):
    """One window after the other, by python's own dates: none with rows more than 90 minutes apart."""
    windows = []
    for start in range(len(values) - length + 1):
        moments = [time.astype(datetime) for time in times[start : start + length]]
        if all((b - a).total_seconds() <= 90 * 60 for a, b in itertools.pairwise(moments)):
            windows.append([list(row) for row in values[start : start + length]])
    return windows


def naive_scaling(values):
    means, deviations = [], []
    for column in zip(*values, strict=True):
        known = [value for value in column if not math.isnan(value)]
        mean = sum(known) / len(known)
        deviation = math.sqrt(sum((value - mean) ** 2 for value in known) / len(known))
        means.append(mean)
        deviations.append(deviation or 1.0)
    return means, deviations


def naive_scaled(values, means, deviations):
    return [[(x - m) / d for x, m, d in zip(row, means, deviations, strict=True)] for row in values]


def as_tensor(windows):
    return torch.tensor(windows, dtype=torch.float32)


def assert_same(windows, expected):
    torch.testing.assert_close(windows, as_tensor(expected), rtol=1e-5, atol=1e-6, equal_nan=True)


@given(st.lists(st.sampled_from([10, 60, 89, 90, 91, 120]), max_size=30), st.integers(1, 6))
def test_windows_start_where_no_gap_follows(minutes, length):
    times = np.datetime64("2020-01-01", "s") + np.cumsum([0, *minutes]) * np.timedelta64(1, "m")
    values = np.arange(len(times), dtype=np.float64)[:, None]
    windows = cut_windows(values, window_starts(times, length, HOUR), length)
    assert windows.tolist() == naive_windows(times, values, length)


def test_without_a_regular_step_nothing_is_a_gap():
    times = np.array(["2020-01-03", "2020-01-06", "2020-02-01"], dtype="datetime64[s]")
    assert window_starts(times, 2, None).tolist() == [0, 1]
    assert window_starts(times, 4, None).tolist() == []


def test_cuts_are_rounded_down():
    assert [cuts(n) for n in (889, 70038, 3020, 10)] == [(622, 755), (49026, 59532), (2114, 2567), (7, 8)]


def test_scaling_leaves_out_what_is_missing_and_constant_columns_keep_their_unit():
    values = np.array([[1.0, 0.1, np.nan], [3.0, 0.1, 5.0], [np.nan, 0.1, 7.0]])
    scaling = fit_scaling(values, ("a", "b", "c"))
    np.testing.assert_array_equal(scaling.mean, [2.0, 0.1, 6.0])
    np.testing.assert_array_equal(scaling.deviation, [1.0, 1.0, 1.0])
    np.testing.assert_array_equal(scaling(values)[:, 1], 0.0)
    with pytest.raises(NoWindowsError, match="column 'b' has no value to scale by"):
        fit_scaling(np.array([[1.0, np.nan]]), ("a", "b"))


def test_chronological_windows_as_a_loop_makes_them():
    table, length = table_with_gaps(), 4
    parts = chronological_windows(table, length)
    first, second = 140, 170
    means, deviations = naive_scaling(table.values[:first])
    scaled = naive_scaled(table.values, means, deviations)
    for part, (start, end) in zip(
        (parts.train, parts.validation, parts.test), ((0, first), (first, second), (second, 200)), strict=True
    ):
        windows = naive_windows(table.times[start:end], scaled[start:end], length)
        expected = [window for window in windows if not any(math.isnan(value) for value in window[0])]
        assert_same(part, expected)
        assert len(expected) < len(windows) or start > 0
    assert parts.train.isnan().any()  # values that miss later in a window stay missing
    torch.testing.assert_close(parts.mean, torch.tensor(means, dtype=torch.float32), rtol=1e-6, atol=0)
    torch.testing.assert_close(parts.deviation, torch.tensor(deviations, dtype=torch.float32), rtol=1e-6, atol=0)


def test_nothing_leaks_from_later_rows_into_earlier_parts():
    table = table_with_gaps()
    parts = chronological_windows(table, 4)
    changed = table.values.copy()
    changed[170:] = changed[170:] * -7.0 + 1000.0
    after = chronological_windows(Table(table.times, changed, table.columns, HOUR), 4)
    torch.testing.assert_close(after.train, parts.train, rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(after.validation, parts.validation, rtol=0, atol=0, equal_nan=True)
    assert after.mean.equal(parts.mean)
    assert after.deviation.equal(parts.deviation)
    assert not after.test.nan_to_num().equal(parts.test.nan_to_num())
    # Rows are distinct numbers, so a shared row would show.
    rows = [set(part[..., 0].flatten().tolist()) for part in (parts.train, parts.validation, parts.test)]
    for one, other in itertools.combinations(rows, 2):
        assert one.isdisjoint(other)


def test_shuffled_windows_are_all_whole_windows_in_another_order():
    table, length = table_with_gaps(400), 3
    parts = shuffled_windows(table, length, seed=1)
    scaled = naive_scaled(table.values, *naive_scaling(table.values))
    windows = [
        window
        for window in naive_windows(table.times, scaled, length)
        if not any(math.isnan(value) for row in window for value in row)
    ]
    n = len(windows)
    assert [len(parts.train), len(parts.validation), len(parts.test)] == [
        int(0.7 * n),
        int(0.85 * n) - int(0.7 * n),
        n - int(0.85 * n),
    ]
    mixed = torch.cat([parts.train, parts.validation, parts.test])
    order = mixed[:, 0, 0].argsort()
    expected = as_tensor(windows)
    torch.testing.assert_close(mixed[order], expected[expected[:, 0, 0].argsort()], rtol=1e-5, atol=1e-6)
    assert not torch.allclose(mixed[:, 0, 0], expected[:, 0, 0])
    assert shuffled_windows(table, length, seed=1).test.equal(parts.test)
    assert not shuffled_windows(table, length, seed=2).test.equal(parts.test)


def test_series_on_the_log_scale_are_scaled_by_the_training_series():
    cumulative = np.random.default_rng(0).integers(0, 500, (20, 6)).cumsum(axis=1).astype(np.float64)
    parts = series_by_log(cumulative, seed=3)
    assert [len(part) for part in (parts.train, parts.validation, parts.test)] == [14, 3, 3]
    back = torch.cat([parts.train, parts.validation, parts.test]).squeeze(-1).double() * parts.deviation + parts.mean
    order = np.lexsort(back.numpy().round(3).T)
    np.testing.assert_allclose(
        np.expm1(back.numpy())[order], cumulative[np.lexsort(np.log1p(cumulative).round(3).T)], rtol=1e-4, atol=1e-4
    )
    logs = [[math.log(1 + value)] for row in np.expm1(back.numpy()[:14]).round() for value in row]
    means, deviations = naive_scaling(logs)
    assert float(parts.mean) == pytest.approx(means[0], rel=1e-5)
    assert float(parts.deviation) == pytest.approx(deviations[0], rel=1e-5)


def test_test_series_do_not_change_the_scale_of_training_series():
    cumulative = np.random.default_rng(0).integers(0, 500, (20, 6)).cumsum(axis=1).astype(np.float64)
    order = torch.randperm(20, generator=torch.Generator().manual_seed(3))
    changed = cumulative.copy()
    changed[order[14:].numpy()] += 1e6
    before, after = series_by_log(cumulative, seed=3), series_by_log(changed, seed=3)
    assert after.train.equal(before.train)
    assert not after.test.equal(before.test)


def test_series_by_themselves_have_mean_0_and_deviation_1_each():
    cumulative = np.random.default_rng(0).integers(0, 500, (20, 6)).cumsum(axis=1).astype(np.float64)
    cumulative[4] = 5.0  # a county without a change
    parts = series_by_themselves(cumulative, seed=3)
    series = torch.cat([parts.train, parts.validation, parts.test]).squeeze(-1)
    expected = []
    for row in cumulative:
        means, deviations = naive_scaling([[value] for value in row])
        expected.append([(value - means[0]) / deviations[0] for value in row])
    assert (parts.mean, parts.deviation) == (None, None)
    key = series.double().numpy().round(4)
    expected = np.array(expected)
    np.testing.assert_allclose(
        series.numpy()[np.lexsort(key.T)], expected[np.lexsort(expected.round(4).T)], rtol=1e-4, atol=1e-5
    )


def test_too_few_rows_are_named_by_the_part_that_is_empty():
    table = table_with_gaps(30, missing=0.0)
    with pytest.raises(NoWindowsError, match="the validation part has no windows"):
        chronological_windows(Table(table.times, table.values, table.columns, None), 6)
