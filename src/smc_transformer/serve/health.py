"""The health of a series' particles."""

from smc_transformer.forecaster.fitted import Fitted
from smc_transformer.forecaster.table import Name


def particle_health(fitted: Fitted, name: Name) -> dict[str, int | float]:
    """Effective sample size, and how many particles still have a trajectory of their own at the oldest slot."""
    state = fitted.following.fleet.take([name])
    weights = state.log_weights[0].double().exp()
    n_slots = int(state.n_slots[0])
    oldest = n_slots % state.capacity if n_slots >= state.capacity else 0  # a ring: written over next
    return {
        "particles": state.n_particles,
        "effective": float(weights.sum() ** 2 / (weights**2).sum()),
        "distinct": int(state.trajectories[0, :, oldest].unique().numel()) if n_slots else state.n_particles,
        "steps": int(state.position[0]),
    }
