"""Draws in proportion to masses: the kernel finds the particles that torch finds."""

import pytest
import torch
from helpers.agreement import both, seeded

from smc_transformer.kernels.draws import invert_cumulative
from smc_transformer.smc import RESAMPLERS

ALMOST_ONE = 1 - 2.0**-53
"""The largest number below one: more than any uniform that torch draws."""


def by_torch(masses, uniforms):
    cumulative = masses.cumsum(dim=-1)
    total = cumulative[:, -1:]
    levels = torch.minimum(uniforms * total, torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(cumulative, levels, right=True).clamp_(max=masses.shape[-1] - 1)


def random_masses(batch, n_particles, seed=0):
    """Of very different sizes, a third of them zero."""
    normal = torch.randn(batch, n_particles, generator=seeded(seed), dtype=torch.float64)
    masses = torch.where(normal.abs() < 0.43, 0.0, (4 * normal).exp())
    masses[:, n_particles // 2] = 1.0
    return masses


@pytest.mark.parametrize("n_particles", [1, 2, 3, 10, 64, 1000])
@pytest.mark.parametrize("n_samples", [1, 7, 1000])
def test_particles_are_found_as_torch_finds_them(n_particles, n_samples, calls):
    masses = random_masses(5, n_particles)
    uniforms = torch.rand(5, n_samples, generator=seeded(1), dtype=torch.float64)
    uniforms[:, 0], uniforms[:, -1] = 0.0, ALMOST_ONE
    found = invert_cumulative(masses, uniforms)
    assert torch.equal(found, by_torch(masses, uniforms))
    assert (masses.gather(1, found) > 0).all()


def test_a_uniform_on_a_boundary_belongs_to_the_next_particle_that_has_mass(calls):
    """Masses of 1/8, 0, 1/4, 0, 5/8, 0: all sums are exact. The last stratum's uniform may round up to one."""
    masses = torch.tensor([[1.0, 0.0, 2.0, 0.0, 5.0, 0.0]], dtype=torch.float64)
    uniforms = torch.tensor([[0.0, 0.124, 0.125, 0.374, 0.375, 0.376, ALMOST_ONE, 1.0]], dtype=torch.float64)
    assert invert_cumulative(masses, uniforms).tolist() == [[0, 0, 2, 2, 4, 4, 4, 4]]
    assert invert_cumulative(masses / 1e300, uniforms).tolist() == [[0, 0, 2, 2, 4, 4, 4, 4]]


def test_a_uniform_just_below_a_boundary_belongs_to_the_particle_before_it(calls):
    """Where u n rounds up to a whole number and u times the mass, 3 n, does not reach the boundary."""
    n_found = 0
    for n in range(2, 100):
        starts = torch.arange(1, n, dtype=torch.float64)
        uniforms = torch.nextafter(starts / n, torch.zeros(())).unsqueeze(0)
        masses = torch.full((1, n), 3.0, dtype=torch.float64)
        assert torch.equal(invert_cumulative(masses, uniforms), by_torch(masses, uniforms))
        n_found += int(((uniforms * n >= starts) & (uniforms * 3 * n < 3 * starts)).sum())
    assert n_found > 100


def test_one_particle_may_have_all_the_mass(calls):
    uniforms = torch.rand(1, 50, generator=seeded(1), dtype=torch.float64)
    for particle in range(9):
        masses = torch.zeros(1, 9, dtype=torch.float64)
        masses[0, particle] = 0.3
        assert (invert_cumulative(masses, uniforms) == particle).all()


def test_masses_and_uniforms_may_lie_in_memory_as_they_like(calls):
    masses, uniforms = random_masses(5, 9), torch.rand(5, 7, generator=seeded(1), dtype=torch.float64)
    scattered = (part.T.contiguous().T for part in (masses, uniforms))
    assert torch.equal(invert_cumulative(*scattered), by_torch(masses, uniforms))


def test_any_number_of_threads_finds_the_same(calls, set_threads):
    masses, uniforms = random_masses(50, 30), torch.rand(50, 20, generator=seeded(1), dtype=torch.float64)
    for n_threads in (2, 3):
        set_threads(n_threads)
        assert torch.equal(invert_cumulative(masses, uniforms), by_torch(masses, uniforms))


@pytest.mark.parametrize("scheme", sorted(RESAMPLERS))
@pytest.mark.parametrize("n_particles", [1, 9, 200])
def test_every_scheme_draws_what_it_draws_in_torch(scheme, n_particles, calls):
    log_weights = random_masses(6, n_particles).log().log_softmax(dim=-1)
    for n_samples in (1, n_particles, 500):
        found, expected = both(lambda: RESAMPLERS[scheme](log_weights, n_samples, seeded(2)))  # noqa: B023
        assert torch.equal(found, expected)
