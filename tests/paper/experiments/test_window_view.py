"""The local view of windows: exactly invertible, and blind to what comes after the cutoff."""

import math

import pytest
import torch

from smct_paper.experiments.window_view import WindowView

HISTORY, HORIZON = 5, 4


def windows(n=600, seed=0):
    """A random walk with heavy tails, a white noise around 0, and a column that hardly ever changes."""
    generator = torch.Generator().manual_seed(seed)
    shape = (n, HISTORY + HORIZON + 1)
    normal = torch.randn(3, *shape, generator=generator)
    walk = (normal[0] * normal[1].exp()).cumsum(dim=1) + 50
    jumps = torch.where(normal[2].abs() > 2, normal[2], 0.0).cumsum(dim=1)
    return torch.stack((walk, normal[1], jumps), dim=-1)


@pytest.fixture(scope="module")
def view():
    return WindowView.fit(windows(), windows(seed=1), HISTORY)


def test_paths_go_back_to_the_values_they_came_from(view):
    x = windows(20, seed=2)
    rows = view.rows(x, HISTORY)
    assert rows.shape == (20, HISTORY + HORIZON + 1, 3 + view.n_features)
    assert rows.isfinite().all()
    seen = view.look(x[:, : HISTORY + 1], HORIZON)
    back = view.paths_back(rows[:, None, HISTORY + 1 :, :3].clone(), seen)
    torch.testing.assert_close(back[:, 0], x[:, HISTORY + 1 :], rtol=1e-4, atol=1e-3)


def test_one_step_rows_go_back_and_know_nothing_of_later_ones(view):
    x = windows(20, seed=2)
    rows = view.rows(x)
    seen = view.look(x, 0)
    torch.testing.assert_close(
        seen.anchor + seen.unit * view.from_normal(rows[:, 1:, :3]), x[:, 1:], rtol=1e-4, atol=1e-3
    )
    other = x.clone()
    other[:, 4:] += 100.0
    changed = view.rows(other)
    torch.testing.assert_close(changed[:, :3], rows[:, :3], rtol=0, atol=0)
    # Row 3 holds its own value and the features of row 4, which are known before row 4.
    torch.testing.assert_close(changed[:, 3], rows[:, 3], rtol=0, atol=0)
    assert not torch.equal(changed[:, 4], rows[:, 4])


def test_the_horizon_is_seen_from_the_cutoff(view):
    x = windows(20, seed=2)
    other = x.clone()
    other[:, HISTORY + 1 :] += 100.0
    for part in ("anchor", "unit", "features", "rho"):
        one, two = (getattr(view.look(values[:, : HISTORY + 1], HORIZON), part) for values in (x, other))
        torch.testing.assert_close(one, two, rtol=0, atol=0)
    assert torch.equal(view.rows(x, HISTORY)[:, HISTORY:, 3:], view.rows(other, HISTORY)[:, HISTORY:, 3:])


def test_heavy_tails_become_normal_and_the_slope_is_the_derivative(view):
    rows = view.rows(windows(1000, seed=3))[:, 1:, 0]
    assert 0.9 < rows.std() < 1.1
    kurtosis = ((rows - rows.mean()) / rows.std()).pow(4).mean()
    assert 2.4 < kurtosis < 5  # of the changes themselves it is above 30
    errors = torch.linspace(-3.0, 3.0, 50).view(-1, 1).expand(-1, 3) + 0.0123
    step = 1e-4
    slope = (view.to_normal(errors.double() + step) - view.to_normal(errors.double() - step)) / (2 * step)
    close = (view.log_slope(errors).exp() / slope - 1).abs() < 0.02
    assert close.float().mean() > 0.97  # but for a knot between the two


def test_missing_values_stay_missing_and_are_not_needed(view):
    x = windows(20, seed=2)
    x[:, 2, 0] = math.nan
    x[:, HISTORY, 1] = math.nan
    rows = view.rows(x, HISTORY)
    assert torch.equal(rows[..., :3].isnan(), x.isnan())
    assert rows[..., 3:].isfinite().all()
