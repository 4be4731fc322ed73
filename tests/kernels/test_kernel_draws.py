"""Draws in proportion to masses: a table to begin at and a short search, against a walk from the first particle."""

import pytest
import torch
from helpers.agreement import both, random_model, seeded
from helpers.models import sequences

from smc_transformer.kernels.draws import invert_masses
from smc_transformer.smc.resampling import multinomial

DOUBLE = torch.empty(0, dtype=torch.float64)
LAST = 1 - 2.0**-53
"""The largest number below one."""


def walk(masses, uniforms):
    """The first particle whose cumulative mass exceeds the uniform's share of the total."""
    found = []
    for row, levels in zip(masses.tolist(), uniforms.tolist(), strict=True):
        total = sum(row)
        for level in levels:
            m, reached = 0, row[0]
            while reached <= level * total:
                m += 1
                reached += row[m]
            found.append(m)
    return torch.tensor(found).view(uniforms.shape)


@pytest.mark.parametrize("n_particles", [1, 2, 7, 100])
@pytest.mark.parametrize("power", [1, 30], ids=["even", "uneven"])
def test_draws_are_those_of_a_walk(n_particles, power, calls):
    masses = torch.rand(6, n_particles, generator=seeded(1), dtype=torch.float64) ** power
    masses[::2, n_particles // 2 :: 3] = 0.0
    masses[:, n_particles // 3] += 1e-3
    uniforms = torch.rand(6, 500, generator=seeded(2), dtype=torch.float64)
    uniforms[:, 0] = 0.0
    assert torch.equal(invert_masses(masses, uniforms, DOUBLE), walk(masses, uniforms))
    assert calls == {"invert_masses": 1}


@pytest.mark.parametrize("masses", [[0.0, 0.3, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1e-300], [0.1] * 10, [1 / 3] * 3])
def test_what_has_no_mass_is_never_drawn(masses, calls):
    uniforms = torch.tensor([[0.0, 2.0**-60, 0.5, LAST]], dtype=torch.float64)
    found = invert_masses(torch.tensor([masses], dtype=torch.float64), uniforms, DOUBLE)
    assert all(masses[m] > 0 for m in found[0].tolist())
    assert found[0, 0] == next(m for m, mass in enumerate(masses) if mass > 0)
    assert found[0, -1] == max(m for m, mass in enumerate(masses) if mass > 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_samples_of_a_mixture_are_those_of_torch(dtype, calls):
    """The particles are the same; float32 noise is drawn in another way, so its observations are left out."""
    model = random_model(d_model=4, d_ff=5).to(dtype)
    predictive = model.filter(sequences(3, 6).to(dtype), 9, generator=0).predictive
    found, expected = both(lambda: predictive.sample(200, seeded(1)))
    if dtype == torch.float64:
        assert torch.equal(found, expected)
    assert calls["invert_masses"] == 1


def test_any_number_of_threads_draws_the_same(calls, set_threads):
    log_weights = torch.randn(40, 30, generator=seeded(1), dtype=torch.float64).log_softmax(dim=-1)
    uniforms = torch.rand(40, 100, generator=seeded(2), dtype=torch.float64)
    expected = multinomial(log_weights, 100, seeded(2))
    for n_threads in (1, 2, 3):
        set_threads(n_threads)
        assert torch.equal(invert_masses(log_weights.exp(), uniforms, DOUBLE), expected)
    assert calls.threads == {1, 2, 3}
