"""States of fewer particles in 16 bits: who is kept, what it remembers, and what is made of it again."""

import pytest
import torch

from smc_transformer import SMCTransformer, SMCTransformerConfig
from smc_transformer.inference.small_state import from_small_tensors, small_tensors
from smc_transformer.inference.step import begin, observe_step, predict_step
from smc_transformer.smc.genealogy import gather_trajectories

M = 12


@pytest.fixture(scope="module", params=[False, True], ids=["complete", "gaps"])
def filtered(request):
    """A network and the particles of three sequences after some steps, maybe with inputs of their own."""
    network = SMCTransformer(SMCTransformerConfig(d_model=8, window=5, encoder="gru"), generator=0)
    generator = torch.Generator().manual_seed(1)
    state = begin(network, torch.randn(3, 1, generator=generator), M)
    settings = network.settings(M)
    with torch.no_grad():
        for step in range(8):
            x = torch.randn(3, 1, generator=generator)
            if request.param and step == 4:
                x[1] = float("nan")
            prediction = predict_step(network, settings, state, generator)
            observe_step(network, settings, state, prediction, x, generator)
    return network, state


@pytest.mark.parametrize("n_kept", [1, 4, 5, M])
def test_kept_particles_remember_what_they_did(filtered, n_kept):
    network, state = filtered
    small = small_tensors(state, n_kept)
    again = from_small_tensors(small, M)
    again.check(network, M)
    assert small["keys"].dtype == torch.float16
    assert small["keys"].shape == (3, n_kept, 5, 8)
    before, after = (gather_trajectories(one.values, one.trajectories) for one in (state, again))
    for row in range(3):
        # Every line of the new state is one of the old state, but for the rounding to 16 bits.
        distance = (after[row][:, None] - before[row][None]).abs().amax(dim=(-2, -1))
        nearest = distance.min(dim=1)
        assert nearest.values.max() < 2e-3
        assert len(set(nearest.indices.tolist())) <= n_kept
        if state.has_own_inputs and n_kept > 1:
            torch.testing.assert_close(again.last[row], state.last[row][nearest.indices])
            rows = [one.encoder_state[0].unflatten(0, (3, M))[row] for one in (again, state)]
            torch.testing.assert_close(rows[0], rows[1][nearest.indices])


def test_particles_are_kept_by_their_weights(filtered):
    _, state = filtered
    weights = torch.full((M,), 1e-4)
    weights[[2, 7]] = torch.tensor([0.75, 0.25])
    state = state.take(torch.arange(3))
    state.log_weights = (weights / weights.sum()).log().expand(3, -1)
    again = from_small_tensors(small_tensors(state, 4), M)
    before, after = (gather_trajectories(one.keys, one.trajectories) for one in (state, again))
    distance = (after[0][:, None] - before[0][None]).abs().amax(dim=(-2, -1))
    assert (distance[:, 2] < 2e-3).sum() == 9
    assert (distance[:, 7] < 2e-3).sum() == 3
    torch.testing.assert_close(again.log_weights.exp().sum(dim=1), torch.ones(3))


def test_the_state_stays_as_it_was(filtered):
    _, state = filtered
    before = {name: tensor.clone() for name, tensor in state.named_tensors().items()}
    small_tensors(state, 4)
    for name, tensor in state.named_tensors().items():
        assert torch.equal(tensor, before[name]), name


def test_numbers_beyond_16_bits_are_kept(filtered):
    _, state = filtered
    state = state.take(torch.arange(3))
    state.keys = state.keys * 1e6
    small = small_tensors(state, 4)
    assert small["keys"].dtype == torch.float32
    assert small["keys"].isfinite().all()
    assert small["values"].dtype == torch.float16


def test_more_than_there_can_be(filtered):
    _, state = filtered
    with pytest.raises(ValueError, match="between 1 and 4 particles"):
        from_small_tensors(small_tensors(state, 5), 4)
