"""How a network is inferred: particles, resampling, proposal, smoother."""

from dataclasses import dataclass, replace
from functools import lru_cache

from smc_transformer.inference.proposals import PROPOSALS, Proposal
from smc_transformer.smc.resampling import RESAMPLERS, Resampler
from smc_transformer.smc.smoothers import SMOOTHERS
from smc_transformer.support.checks import check_choice, check_count, check_number
from smc_transformer.support.settings import FrozenSettings

MOST_PARTICLES = 2**20
"""Of a sequence: more would need indices and memory that no machine has."""
LONGEST_FORECAST = 100_000
"""Steps: each is drawn after the one before, and a mistaken number would be computed for ever."""


@dataclass(frozen=True, kw_only=True)
class InferenceSettings(FrozenSettings):
    """How the particle filter and the smoother run. Frozen, checked when made.

    Attributes:
        n_particles: particles of the filter, unless a call asks for another number.
        resampling: "multinomial" (the paper), "stratified", "systematic" or "residual".
        ess_threshold: resample when the effective sample size falls below this share of the particles.
            1: at every step (the paper). 0: never.
        proposal: how z(t) is drawn once X_t is known: "bootstrap" (from the model; the paper), "guided" (by a
            linearised read-out) or "auxiliary" (guided, and particles selected by how well they will predict X_t).
        smoother: trajectories that gradients and EM are taken along: "genealogy" (the paper), "fixed_lag" or
            "backward".
        smoothing_lag: how many observations tell about a step, its own included for "fixed_lag", only later ones for
            "backward".
    """

    n_particles: int = 10
    resampling: str = "systematic"
    ess_threshold: float = 1.0
    proposal: str = "bootstrap"
    smoother: str = "genealogy"
    smoothing_lag: int = 5

    def __post_init__(self) -> None:
        self._check_counts("n_particles", at_most=MOST_PARTICLES)
        self._check_counts("smoothing_lag")
        check_choice(self.resampling, tuple(RESAMPLERS), "resampling")
        check_choice(self.proposal, tuple(PROPOSALS), "proposal")
        check_choice(self.smoother, tuple(SMOOTHERS), "smoother")
        self._set("ess_threshold", check_number(self.ess_threshold, "ess_threshold", at_most=1.0))

    @property
    def resample(self) -> Resampler:
        """The resampling scheme."""
        return RESAMPLERS[self.resampling]

    @property
    def propose(self) -> Proposal:
        """The proposal."""
        return PROPOSALS[self.proposal]

    def with_particles(self, n_particles: int | None) -> "InferenceSettings":
        """The same with another number of particles; None: as it is."""
        if n_particles is None:
            return self
        # Not left to the cache, which could not look up a list, and would find 1 for True.
        return _with_particles(self, check_count(n_particles, "n_particles", at_most=MOST_PARTICLES))


@lru_cache(64)
def _with_particles(settings: InferenceSettings, n_particles: int) -> InferenceSettings:
    return replace(settings, n_particles=n_particles)
