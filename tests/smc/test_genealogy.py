import pytest
import torch

from smc_transformer.smc import gather_trajectories, multinomial, systematic, trace_trajectories, unique_ancestors
from smc_transformer.smc.smoothers import SMOOTHERS, History, Request
from smc_transformer.support.randomness import as_generator

# The paper's figure: 3 particles, steps 0 to 4. Parents of particles 1, 2, 3 (counted from 1) at each step.
PARENTS_IN_THE_FIGURE = [
    [1, 2, 3],  # the first step has no parents: each is its own
    [3, 3, 2],
    [3, 2, 1],
    [2, 3, 2],
    [3, 2, 3],
]
TRAJECTORIES_IN_THE_FIGURE = [
    [3, 2, 2, 3, 1],
    [3, 1, 3, 2, 2],
    [3, 2, 2, 3, 3],
]


def genealogy(ancestors, log_weights, n_trajectories, resample, generator=None):
    """By the weights of the last step, which are all that this smoother looks at."""
    history = History(ancestors, log_weights.unsqueeze(-1).expand_as(ancestors))
    return SMOOTHERS["genealogy"](history, Request(n_trajectories, 1, resample, None, generator))


def ancestors_of_the_figure():
    return (torch.tensor(PARENTS_IN_THE_FIGURE).T - 1).unsqueeze(0)


def random_ancestors(seed, batch=3, n_particles=5, n_steps=7):
    ancestors = torch.randint(n_particles, (batch, n_particles, n_steps), generator=as_generator(seed))
    ancestors[:, :, 0] = torch.arange(n_particles)
    return ancestors


def traced_by_hand(ancestors, ends):
    """Follow each trajectory back, one parent at a time."""
    trajectories = torch.empty(*ends.shape, ancestors.shape[-1], dtype=torch.long)
    for sequence, row in enumerate(ends.tolist()):
        for trajectory, end in enumerate(row):
            particle = end
            for step in reversed(range(ancestors.shape[-1])):
                trajectories[sequence, trajectory, step] = particle
                particle = int(ancestors[sequence, particle, step])
    return trajectories


def all_particles(ancestors):
    batch, n_particles, _ = ancestors.shape
    return torch.arange(n_particles).repeat(batch, 1)


def test_trajectories_of_the_papers_figure():
    trajectories = trace_trajectories(ancestors_of_the_figure())
    assert (trajectories[0] + 1).tolist() == TRAJECTORIES_IN_THE_FIGURE


def test_unique_ancestors_of_the_papers_figure():
    trajectories = trace_trajectories(ancestors_of_the_figure())
    assert unique_ancestors(trajectories).tolist() == [[1, 2, 2, 2, 3]]


@pytest.mark.parametrize("seed", range(10))
def test_trajectories_agree_with_following_the_parents_one_by_one(seed):
    ancestors = random_ancestors(seed)
    assert torch.equal(trace_trajectories(ancestors), traced_by_hand(ancestors, all_particles(ancestors)))


@pytest.mark.parametrize("n_trajectories", [1, 4, 9])
def test_trajectories_from_given_ends_agree_with_following_the_parents(n_trajectories):
    ancestors = random_ancestors(seed=n_trajectories)
    ends = torch.randint(5, (3, n_trajectories), generator=as_generator(20))
    trajectories = trace_trajectories(ancestors, ends)
    assert torch.equal(trajectories, traced_by_hand(ancestors, ends))
    assert torch.equal(trajectories[:, :, -1], ends)


def test_trajectories_without_resampling_stay_with_one_particle():
    ancestors = torch.arange(4).view(1, 4, 1).expand(2, 4, 6)
    assert torch.equal(trace_trajectories(ancestors), ancestors)


def test_trajectories_of_a_single_step_are_the_particles():
    ancestors = torch.arange(3).view(1, 3, 1)
    assert torch.equal(trace_trajectories(ancestors), ancestors)


@pytest.mark.parametrize("seed", range(5))
def test_unique_ancestors_agree_with_sets(seed):
    trajectories = trace_trajectories(random_ancestors(seed))
    counted = [
        [len(set(trajectories[row, :, step].tolist())) for step in range(trajectories.shape[2])]
        for row in range(len(trajectories))
    ]
    assert unique_ancestors(trajectories).tolist() == counted


def test_unique_ancestors_never_decrease_towards_the_present():
    counts = unique_ancestors(trace_trajectories(random_ancestors(seed=3, n_steps=20)))
    assert (counts.diff(dim=1) >= 0).all()
    assert (counts[:, -1] == 5).all()


def test_gathered_values_are_those_of_the_particles_on_the_line():
    trajectories = trace_trajectories(random_ancestors(seed=1), ends=torch.tensor([[0, 4], [2, 2], [1, 3]]))
    values = torch.randn(3, 5, 7, 2, generator=as_generator(1))
    gathered = gather_trajectories(values, trajectories)
    assert gathered.shape == (3, 2, 7, 2)
    for sequence in range(3):
        for trajectory in range(2):
            for step in range(7):
                particle = trajectories[sequence, trajectory, step]
                assert torch.equal(gathered[sequence, trajectory, step], values[sequence, particle, step])


def random_log_weights(seed, batch=3, n_particles=5):
    return torch.randn(batch, n_particles, generator=as_generator(seed)).log_softmax(dim=-1)


def test_smoothing_by_all_trajectories_keeps_the_weights():
    ancestors, log_weights = random_ancestors(seed=2), random_log_weights(seed=2)
    smoothing = genealogy(ancestors, log_weights, None, systematic)
    assert torch.equal(smoothing.trajectories, trace_trajectories(ancestors))
    assert torch.equal(smoothing.log_weights, log_weights)


@pytest.mark.parametrize("n_trajectories", [1, 5, 12])
@pytest.mark.parametrize("resample", [systematic, multinomial])
def test_smoothing_by_drawn_trajectories_gives_them_equal_weights(n_trajectories, resample):
    ancestors, log_weights = random_ancestors(seed=2), random_log_weights(seed=2)
    smoothing = genealogy(ancestors, log_weights, n_trajectories, resample, as_generator(4))
    drawn = resample(log_weights, n_trajectories, as_generator(4))
    assert torch.equal(smoothing.trajectories, traced_by_hand(ancestors, drawn))
    torch.testing.assert_close(smoothing.log_weights.exp(), torch.full((3, n_trajectories), 1 / n_trajectories))


def test_smoothing_draws_trajectories_by_the_weight_of_their_end():
    ancestors = random_ancestors(seed=2)
    log_weights = torch.tensor([0.0, 0.0, 0.0, 1.0, 0.0]).log().repeat(3, 1)
    smoothing = genealogy(ancestors, log_weights, 4, systematic, as_generator(0))
    assert torch.equal(smoothing.trajectories, trace_trajectories(ancestors)[:, [3, 3, 3, 3]])
