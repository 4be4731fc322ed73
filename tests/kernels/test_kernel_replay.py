"""The gradient of the replay, where trajectories share their past, part, and pass through the same particles again."""

import pytest
import torch
from helpers.agreement import assert_same, largest_of, random_model, seeded

from smc_transformer.inference.compiled import layer_tensors
from smc_transformer.kernels import disabled
from smc_transformer.kernels.replay import replay_outputs
from smc_transformer.nn.attention import Latents, Noise

SIZES = [(1, 1, 1, 1, 1), (2, 2, 9, 6, 8), (3, 3, 12, 17, 5), (1, 2, 20, 9, 33), (65, 2, 4, 3, 3)]
"""Batch, particles, trajectories, steps, d_model: of two or three particles, so that most beginnings are shared."""
SINGLE = 500 * torch.finfo(torch.float32).eps


def draw(*shape, seed=0):
    return torch.randn(shape, generator=seeded(seed), dtype=torch.float64)


def sharing_trajectories(batch, n_particles, n_trajectories, n_steps):
    """Each goes along with an earlier one, for some of the way or all of it, and then where chance leads it."""
    generator = seeded(5)
    found = torch.randint(n_particles, (batch, n_trajectories, n_steps), generator=generator)
    for sequence in found:
        for number in range(1, n_trajectories):
            other, same = (int(torch.randint(most, (), generator=generator)) for most in (number, n_steps + 1))
            sequence[number, :same] = sequence[other, :same]
    return found


def numbered_beginnings(trajectories):
    """A number for each trajectory and step, the same for those that have all steps up to it in common."""
    numbers, found = {}, torch.empty_like(trajectories)
    for sequence, rows in enumerate(trajectories.tolist()):
        for number, row in enumerate(rows):
            for step in range(len(row)):
                found[sequence, number, step] = numbers.setdefault((sequence, *row[: step + 1]), len(numbers))
    return found


def gradients_of(model, owners, sizes, *, in_c):
    """The read-outs, and the gradients of the means, the embedding and all parameters for a weighted sum of them.

    Each trajectory has weights of its own, of either sign, the first of several none.
    """
    batch, n_particles, n_trajectories, n_steps, d = sizes
    like = next(model.parameters())
    trajectories = sharing_trajectories(*sizes[:4])
    nodes = {
        "nodes": numbered_beginnings(trajectories),
        "own_nodes": torch.arange(trajectories.numel()).view(trajectories.shape),
    }.get(owners)
    shape = (batch, n_trajectories if owners == "own" else 1, n_steps, d)
    if nodes is not None:
        shape = (int(nodes.max()) + 1, d)
    means = [draw(*shape, seed=seed).to(like).requires_grad_() for seed in range(4)]  # the last is the embedding
    noise = Noise(*draw(4, batch, n_particles, n_steps, d, seed=4).to(like))
    if in_c:
        layer = layer_tensors(model, read_out=True)
        out = replay_outputs(layer, means[:3], means[3], noise, trajectories, model.config.window, None, nodes)
    else:
        at_nodes = means if nodes is None else [part[nodes] for part in means]
        factors = [covariance.factor for covariance in model.attention.covariances]
        deviations = [factor * eps for factor, eps in zip(factors, noise.along(trajectories), strict=True)]
        latents = Latents(*(mean + part for mean, part in zip(at_nodes[:3], deviations[:3], strict=True)))
        with disabled():
            context = model.attention.attend_all(latents)
        out = model.readout(context + deviations[3], at_nodes[3])
    weights = draw(*out.shape, seed=6).to(like)
    weights[:, 0] *= n_trajectories == 1
    model.zero_grad()
    (weights * out).sum().backward()
    named = {"query_mean": means[0], "key_mean": means[1], "value_mean": means[2], "embedding": means[3]}
    named |= {name: part for name, part in model.named_parameters() if name.startswith(("attention.", "readout."))}
    return out.detach(), {name: part.grad.clone() for name, part in named.items() if part.grad is not None}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("owners", ["one", "own", "nodes", "own_nodes"])
@pytest.mark.parametrize("window", [None, 1, 3, 50])
@pytest.mark.parametrize("sizes", SIZES)
def test_gradients_along_trajectories_that_share_their_past(sizes, window, owners, dtype, calls):
    d = sizes[-1]
    settings = {"d_model": d, "n_heads": 3 if d % 3 == 0 else 1, "d_ff": 7, "n_inputs": 2, "n_targets": 2}
    settings["readout"] = "linear" if d in (1, 8) else "transformer"
    model = random_model(3, window=window, initial_latent_variance=0.5, **settings).to(dtype)
    found, gradients = gradients_of(model, owners, sizes, in_c=True)
    expected, expected_gradients = gradients_of(model, owners, sizes, in_c=False)
    rounding = SINGLE if dtype == torch.float32 else 1e-12
    assert_same(found, expected, rounding)
    assert gradients.keys() == expected_gradients.keys()
    assert len(gradients) >= 10
    largest = largest_of(*expected_gradients.values())
    for name, wanted in expected_gradients.items():
        assert_same(gradients[name], wanted, rounding, name, largest)
    assert calls == {"replay_forward": 1, "replay_backward": 1}


@pytest.mark.parametrize("owners", ["one", "own", "nodes"])
def test_any_number_of_threads_finds_the_same_to_the_bit(owners, calls, set_threads):
    model = random_model(3, window=4, d_model=8, d_ff=7, n_inputs=2, n_targets=2).float()
    found = []
    for n_threads in (1, 2, 3):
        set_threads(n_threads)
        out, gradients = gradients_of(model, owners, (7, 2, 9, 6, 8), in_c=True)
        found.append([out, *gradients.values()])
    for others in found[1:]:
        assert all(torch.equal(one, other) for one, other in zip(found[0], others, strict=True))
    assert calls.threads == {1, 2, 3}
