"""The GRU in C, over sequences and over trees of shared inputs: against torch's GRU, and against torch's gradients."""

import random

import pytest
import torch
from helpers.agreement import ROUNDING, assert_same, both, seeded
from helpers.models import make_model, sequences
from torch import nn

from smc_transformer.inference import compiled, engine
from smc_transformer.kernels import disabled
from smc_transformer.kernels.encoder import EncoderTensors
from smc_transformer.kernels.recurrent import encode_trees, straight_trees, trees
from smc_transformer.learning import Sampling, SquaredError, training_step
from smc_transformer.nn.encoders.recurrent import RecurrentEncoder

FLOAT32 = 2e-4
"""Allowed in float32, relative to the largest number."""


def random_encoder(seed, dtype):
    """A GRU of random size and weights, and inputs for it."""
    chance = random.Random(seed)
    width, d = chance.randint(1, 9), chance.choice([1, 3, 8, 17, 32])
    encoder = RecurrentEncoder("gru", width, d).to(dtype)
    for parameter in encoder.parameters():
        parameter.data = torch.randn(parameter.shape, generator=seeded(seed), dtype=dtype) / (1 + d) ** 0.5
    shape = (chance.choice([1, 7, 8, 9, 33, 70]), chance.randint(1, 12), width)
    return encoder, torch.randn(shape, generator=seeded(seed + 1), dtype=dtype)


def embedding_and_gradients(encoder, x, by):
    """With a gradient of its own for each embedding and for the state after the last."""
    encoder.zero_grad()
    embedding, (state,) = encoder.encode(x)
    ((embedding * by).sum() + (state[:, 0] * by[:, 0]).sum()).backward()
    return embedding.detach(), state.detach(), *(parameter.grad.clone() for parameter in encoder.parameters())


@pytest.mark.parametrize(("dtype", "rounding"), [(torch.float64, ROUNDING), (torch.float32, FLOAT32)])
@pytest.mark.parametrize("seed", range(20))
def test_sequences_have_the_states_and_gradients_of_torch(calls, seed, dtype, rounding):
    encoder, x = random_encoder(seed, dtype)
    by = torch.randn(*x.shape[:2], encoder.cell.hidden_size, generator=seeded(5), dtype=dtype)
    results, expected = both(lambda: embedding_and_gradients(encoder, x, by))
    assert calls["encode_trees"] == 2
    for result, other in zip(results, expected, strict=True):
        assert_same(result, other, rounding)


def test_the_result_does_not_depend_on_the_number_of_threads(set_threads):
    encoder, _ = random_encoder(3, torch.float32)
    x = torch.randn(70, 9, encoder.cell.input_size, generator=seeded(0))
    by = torch.randn(70, 9, encoder.cell.hidden_size, generator=seeded(1))
    results = []
    for n_threads in (1, 2, 4):
        set_threads(n_threads)
        results.append(embedding_and_gradients(encoder, x, by))
    for others in results[1:]:
        assert all(torch.equal(one, other) for one, other in zip(results[0], others, strict=True))


# --- trees --------------------------------------------------------------------------------------------------


def random_genealogy(seed, batch, n_trajectories, n_steps, n_particles):
    """Ancestral trajectories: those that meet, going back, stay together."""
    ancestors = torch.randint(n_particles, (batch, n_steps, n_particles), generator=seeded(seed))
    places = [torch.randint(n_particles, (batch, n_trajectories), generator=seeded(seed + 1))]
    for step in range(n_steps - 1, 0, -1):
        places.append(ancestors[:, step].gather(1, places[-1]))
    return torch.stack(places[::-1], dim=2)


@pytest.mark.parametrize("seed", range(6))
def test_trees_number_every_shared_input_once_and_in_order(seed):
    batch, n_steps = (3, 8, 9, 70, 200, 1)[seed], (5, 1, 4, 3, 2, 7)[seed]
    branches = random_genealogy(seed, batch, 4, n_steps, 6)
    found = trees(branches)
    groups = {}
    size = max(8, -(-batch // 64))
    for b in range(batch):
        for t in range(n_steps):
            for branch in branches[b, :, t].tolist():
                groups.setdefault((b // size, t, b, branch), None)
    numbers = {place: number for number, place in enumerate(sorted(groups))}
    for b in range(batch):
        for k in range(4):
            path = [numbers[b // size, t, b, int(branches[b, k, t])] for t in range(n_steps)]
            assert found.nodes[b, k].tolist() == path
            assert [int(found.parents[node]) for node in path] == [-1, *path[:-1]]
    assert torch.equal(found.nodes.flatten()[found.rows], torch.arange(len(numbers)))
    assert len(found.parents) == len(numbers)
    expected = [
        [sum(place[:2] < (group, t) for place in numbers) for t in range(n_steps + 1)]
        for group in range(-(-batch // size))
    ]
    assert found.levels.tolist() == expected


@pytest.mark.parametrize("seed", range(8))
def test_nodes_have_the_states_of_the_trajectories_that_pass_through_them(calls, seed):
    encoder, _ = random_encoder(seed, torch.float64)
    batch, n_steps = 11, 9
    branches = random_genealogy(seed, batch, 5, n_steps, 7)
    among = trees(branches)
    x = torch.randn(len(among.parents), encoder.cell.input_size, generator=seeded(seed), dtype=torch.float64)
    by = torch.randn(batch, 5, n_steps, encoder.cell.hidden_size, generator=seeded(1), dtype=torch.float64)

    embedding = encode_trees(encoder.kernel_form(), x, among)[among.nodes]
    (embedding * by).sum().backward()
    found = [parameter.grad.clone() for parameter in encoder.parameters()]
    assert calls["encode_trees"] == 2
    assert len(among.parents) < 0.9 * branches.numel()

    encoder.zero_grad()
    with disabled():
        each, _ = encoder.encode(x[among.nodes].flatten(0, 1))
    (each.unflatten(0, (batch, 5)) * by).sum().backward()
    assert_same(embedding.detach(), each.detach().unflatten(0, (batch, 5)))
    for gradient, parameter in zip(found, encoder.parameters(), strict=True):
        assert_same(gradient, parameter.grad)


def test_branches_below_zero_are_refused():
    branches = random_genealogy(0, 3, 4, 5, 6)
    branches[1, 2, 3] = -1
    with pytest.raises(IndexError, match="from 0 on"):
        trees(branches)


def test_straight_trees_are_those_of_sequences_alone():
    for one, other in zip(straight_trees(9, 4), trees(torch.zeros(9, 1, 4, dtype=torch.long)), strict=True):
        assert torch.equal(one, other)


# --- in training --------------------------------------------------------------------------------------------


def gappy(batch, n_steps, share=0.2):
    x = sequences(batch, n_steps, 3)
    missing = torch.rand(x.shape, generator=seeded(3)) < share
    missing[:, 0] = missing[..., 2] = False
    return x.masked_fill(missing, float("nan"))


def gradients(model, x):
    model.zero_grad()
    training_step(model, x, generator=seeded(1)).objective.sum().backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


SETTINGS = [
    {"encoder": "gru"},
    {"encoder": "gru", "input_changes": True, "predict_change": True, "window": 3},
    {"encoder": "linear"},
    {"encoder": "linear", "input_changes": True},
    {"encoder": "linear", "position_encoding": "learned"},
    {"encoder": "linear", "position_encoding": "sinusoidal", "input_changes": True},
]


@pytest.mark.parametrize("smoother", ["genealogy", "fixed_lag"])
@pytest.mark.parametrize("gradient", ["pathwise", "score"])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_shared_inputs_have_the_gradients_of_trajectories_encoded_one_by_one(monkeypatch, settings, gradient, smoother):
    options = {"d_model": 5, "d_ff": 6, "n_particles": 6, "n_inputs": 3, "n_targets": 2, "observation": "student_t"}
    model = make_model(**options, **settings, gradient=gradient, smoother=smoother, smoothing_lag=2)
    if settings.get("position_encoding") == "learned":
        model.encoder.position.table.data = torch.randn_like(model.encoder.position.table)
    x = gappy(10, 9)
    sizes = []
    run = compiled.run_embedding

    def watched(*arguments):
        sizes.append(len((found := run(*arguments)).embedding))
        return found

    monkeypatch.setattr(compiled, "run_embedding", watched)
    found = gradients(model, x)
    assert len(sizes) == 1
    assert sizes[0] < 0.8 * 10 * 6 * 9  # embeddings were shared
    monkeypatch.setattr(engine, "can_embed", lambda *_: False)
    monkeypatch.setattr(RecurrentEncoder, "explain", lambda *_: ["for comparison"])
    expected = gradients(model, x)
    assert found.keys() == expected.keys()
    for name, gradient_of in expected.items():
        assert_same(found[name], gradient_of, name=name)


@pytest.mark.parametrize(
    ("settings", "reach"), [(SETTINGS[0], 99), (SETTINGS[1], 99), (SETTINGS[2], 0), (SETTINGS[3], 1)]
)
def test_each_of_the_inputs_that_differ_is_embedded_once(monkeypatch, settings, reach):
    """Draws are never the same, so that trajectories differ where their numbers do."""
    model = make_model(d_model=5, d_ff=6, n_particles=6, n_inputs=3, n_targets=2, **settings)
    found = []
    run = compiled.run_embedding

    def watched(network, inputs, observed, particles):
        found.append((inputs, run(network, inputs, observed, particles)))
        return found[0][1]

    monkeypatch.setattr(compiled, "run_embedding", watched)
    training_step(model, gappy(10, 9, share=0.1), generator=seeded(1))
    ((inputs, shared),) = found
    batch, _, n_steps, _ = inputs.shape
    seen = [inputs[b, :, max(0, t - reach) : t + 1].flatten(1) for b in range(batch) for t in range(n_steps)]
    assert len(shared.embedding) == sum(len(rows.unique(dim=0)) for rows in seen)


def test_the_squared_error_is_that_of_torch(calls):
    model = make_model(d_model=5, d_ff=6, n_inputs=3, n_targets=2, encoder="gru", input_changes=True)
    x = sequences(9, 7, 3)
    one, other = both(lambda: SquaredError().validate(model, x, Sampling(5, generator=seeded(0))))
    assert calls["encode_trees"] > 0
    assert one == pytest.approx(other, rel=1e-12)


# --- parts that C does not know -----------------------------------------------------------------------------


def hook(encoder):
    encoder.cell.register_forward_hook(lambda module, inputs, output: (2 * output[0], output[1]))


def replace_forward(encoder):
    forward = encoder.cell.forward
    encoder.cell.forward = lambda *inputs: tuple(2 * part for part in forward(*inputs))


def replace_resume(encoder):
    resume = encoder.resume
    encoder.resume = lambda *inputs: (2 * resume(*inputs)[0], resume(*inputs)[1])


def another_class(encoder):
    class Doubled(nn.GRU):
        def forward(self, *inputs):
            embedding, state = super().forward(*inputs)
            return 2 * embedding, state

    encoder.cell.__class__ = Doubled


@pytest.mark.parametrize("change", [hook, replace_forward, replace_resume, another_class])
def test_a_changed_cell_is_asked_itself(calls, change):
    encoder, x = random_encoder(1, torch.float64)
    before = encoder.encode(x)[0]
    change(encoder)
    calls.clear()
    torch.testing.assert_close(encoder.encode(x)[0], 2 * before)
    assert calls["encode_trees"] == 0


@pytest.mark.parametrize("cell", [("lstm", 1), ("gru", 2)])
def test_other_cells_are_those_of_torch(calls, cell):
    encoder = RecurrentEncoder(cell[0], 3, 4, cell[1])
    encoder.encode(torch.randn(2, 5, 3, generator=seeded(0)))
    assert calls["encode_trees"] == 0


def test_gradients_of_the_inputs_are_those_of_torch(calls):
    encoder, x = random_encoder(2, torch.float64)
    encoder.encode(x.requires_grad_())[0].sum().backward()
    assert calls["encode_trees"] == 0
    assert x.grad.abs().max() > 0


def test_the_form_of_the_kernel_is_that_of_the_cell():
    encoder, _ = random_encoder(4, torch.float64)
    form = encoder.kernel_form()
    assert isinstance(form, EncoderTensors)
    assert form.recurrent is encoder.cell.weight_hh_l0
