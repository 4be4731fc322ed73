"""Encoders are causal, and go on step by step exactly as they encode whole sequences."""

import math

import numpy as np
import pytest
import torch
from helpers.models import make_model, sequences
from helpers.user_encoders import MovingAverages, SteppingAverages
from torch import nn

from smc_transformer.kernels import disabled
from smc_transformer.nn.encoders import ENCODERS as NAMED
from smc_transformer.nn.encoders import CausalEncoder, ChangesEncoder, as_encoder
from smc_transformer.nn.encoders.base import WholePastEncoder
from smc_transformer.nn.encoders.convolution import ConvolutionEncoder
from smc_transformer.nn.encoders.linear import LinearEncoder
from smc_transformer.nn.encoders.recurrent import RecurrentEncoder
from smc_transformer.nn.encoders.transformer import TransformerEncoder
from smc_transformer.smc import gather_trajectories

N_ROWS, N_STEPS, N_FEATURES, D_MODEL = 4, 9, 3, 6
EXACT = {"rtol": 1e-10, "atol": 1e-12}

ENCODERS = {
    "linear": lambda: LinearEncoder(N_FEATURES, D_MODEL),
    "linear, sinusoidal": lambda: LinearEncoder(N_FEATURES, D_MODEL, "sinusoidal"),
    "linear, learned": lambda: LinearEncoder(N_FEATURES, D_MODEL, "learned", max_positions=N_STEPS),
    "convolution 1": lambda: ConvolutionEncoder(N_FEATURES, D_MODEL, 1),
    "convolution 2": lambda: ConvolutionEncoder(N_FEATURES, D_MODEL, 2),
    "convolution 3": lambda: ConvolutionEncoder(N_FEATURES, D_MODEL, 3),
    "convolution of one tap": lambda: ConvolutionEncoder(N_FEATURES, D_MODEL, 2, kernel_size=1),
    "a user's module": lambda: as_encoder(MovingAverages(N_FEATURES, D_MODEL)),
    "a user's encoder": lambda: as_encoder(SteppingAverages(N_FEATURES, D_MODEL)),
}
for n_layers in (1, 2):
    for cell in ("lstm", "gru"):
        ENCODERS[f"{cell} {n_layers}"] = lambda cell=cell, n=n_layers: RecurrentEncoder(cell, N_FEATURES, D_MODEL, n)
    for n_heads in (1, 2):
        for position in (None, "sinusoidal", "learned"):
            ENCODERS[f"transformer {n_layers}, heads {n_heads}, position {position}"] = (
                lambda n=n_layers, heads=n_heads, position=position: TransformerEncoder(
                    N_FEATURES, D_MODEL, n, heads, 5, position, max_positions=N_STEPS
                )
            )
CHANGES = {
    "linear": lambda: LinearEncoder(2 * N_FEATURES, D_MODEL),
    "linear, learned": lambda: LinearEncoder(2 * N_FEATURES, D_MODEL, "learned", max_positions=N_STEPS),
    "convolution 2": lambda: ConvolutionEncoder(2 * N_FEATURES, D_MODEL, 2),
    "lstm 2": lambda: RecurrentEncoder("lstm", 2 * N_FEATURES, D_MODEL, 2),
    "gru 1": lambda: RecurrentEncoder("gru", 2 * N_FEATURES, D_MODEL, 1),
    "transformer 2": lambda: TransformerEncoder(2 * N_FEATURES, D_MODEL, 2, 2, 5, "sinusoidal"),
}
for name in CHANGES:
    ENCODERS[f"changes, {name}"] = lambda inner=name: ChangesEncoder(CHANGES[inner](), N_FEATURES)
WITHOUT_MEMORY = ("linear", "linear, sinusoidal", "linear, learned", "convolution of one tap")


def make(name):
    """That encoder in float64, all its parameters random."""
    encoder = ENCODERS[name]().double()
    generator = torch.Generator().manual_seed(0)
    for parameter in encoder.parameters():
        nn.init.normal_(parameter, std=0.4, generator=generator)
    if isinstance(encoder, ChangesEncoder):
        encoder.level_scale.copy_(torch.tensor([0.5, 2.0, 3.0]))
        encoder.change_scale.copy_(torch.tensor([4.0, 0.3, 1.5]))
    return encoder


def inputs():
    return sequences(N_ROWS, N_STEPS - 1, N_FEATURES)


def go_on(encoder, x, state, first):
    """Embeddings of x step by step, the first of them at position `first`."""
    embeddings = []
    for position in range(first, first + x.shape[1]):
        embedding, state = encoder.step(x[:, position - first], state, position)
        embeddings.append(embedding)
    return torch.stack(embeddings, dim=1), state


def assert_same_state(found, expected):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, **EXACT)


every_encoder = pytest.mark.parametrize("name", ENCODERS)


@every_encoder
@pytest.mark.parametrize("n_before", [1, 4, 8])
def test_steps_go_on_where_a_prefix_ends(name, n_before):
    encoder, x = make(name), inputs()
    whole, state_of_whole = encoder.encode(x)
    prefix, state = encoder.encode(x[:, :n_before])
    rest, state = go_on(encoder, x[:, n_before:], state, n_before)
    torch.testing.assert_close(torch.cat((prefix, rest), dim=1), whole, **EXACT)
    assert_same_state(state, state_of_whole)


@every_encoder
def test_steps_from_the_start_are_the_whole_sequence(name):
    encoder, x = make(name), inputs()
    whole, state_of_whole = encoder.encode(x)
    assert whole.shape == (N_ROWS, N_STEPS, D_MODEL)
    for like in (x, x[:, 0]):  # a start is asked for with sequences or with single inputs
        stepped, state = go_on(encoder, x, encoder.start(like), 0)
        torch.testing.assert_close(stepped, whole, **EXACT)
        assert_same_state(state, state_of_whole)
    torch.testing.assert_close(encoder(x), whole, rtol=0, atol=0)


@every_encoder
def test_an_input_changes_its_own_embedding_and_none_before(name):
    encoder, x = make(name), inputs()
    plain = encoder(x)
    for t in range(N_STEPS):
        changed = x.clone()
        changed[:, t] += 1.0
        differs = (encoder(changed) - plain).abs().amax(dim=-1) > 1e-9
        torch.testing.assert_close(encoder(changed)[:, :t], plain[:, :t], **EXACT)
        assert differs[:, t].all()
        if t + 1 < N_STEPS:
            assert differs[:, t + 1].all().item() == (name not in WITHOUT_MEMORY)


@every_encoder
def test_later_inputs_do_not_reach_earlier_embeddings_by_any_gradient(name):
    """As above, for changes of any size and direction."""
    encoder = make(name)
    x = inputs().requires_grad_()
    direction = torch.randn(N_ROWS, D_MODEL, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for t in range(N_STEPS):
        (gradient,) = torch.autograd.grad((encoder(x)[:, t] * direction).sum(), x)
        assert (gradient[:, t + 1 :] == 0).all()
        assert (gradient[:, t] != 0).any(dim=-1).all()


@every_encoder
def test_rows_are_independent_so_particles_can_inherit_states(name):
    """Stepping with rows taken from others, some twice, gives what the others would give."""
    encoder, x = make(name), inputs()
    _, state = encoder.encode(x[:, :5])
    assert all(len(tensor) == N_ROWS for tensor in state)
    rest, _ = go_on(encoder, x[:, 5:], state, 5)
    for parents in ([2, 0, 3, 1], [3, 3, 0, 0], [1]):
        inherited = tuple(tensor[parents] for tensor in state)
        found, _ = go_on(encoder, x[parents, 5:], inherited, 5)
        torch.testing.assert_close(found, rest[parents], **EXACT)


@every_encoder
def test_a_row_goes_on_from_its_own_state_with_inputs_of_its_own(name):
    """Particles share the past up to a gap, then each has its own inputs."""
    encoder, x = make(name), inputs()
    own = x.clone()
    own[:, :4] = x[:1, :4]
    _, state = encoder.encode(x[:1, :4])
    repeated = tuple(tensor.repeat_interleave(N_ROWS, dim=0) for tensor in state)
    found, _ = go_on(encoder, own[:, 4:], repeated, 4)
    torch.testing.assert_close(found, encoder(own)[:, 4:], **EXACT)


@every_encoder
def test_a_step_leaves_the_state_it_came_from_alone(name):
    encoder, x = make(name), inputs()
    _, state = encoder.encode(x[:, :3])
    before = tuple(tensor.clone() for tensor in state)
    encoder.step(x[:, 3], state, 3)
    assert_same_state(state, before)


@every_encoder
def test_gradients_reach_every_parameter_and_are_the_same_by_steps(name):
    encoder, x = make(name), inputs()
    direction = torch.randn(N_ROWS, N_STEPS, D_MODEL, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    names, parameters = zip(*encoder.named_parameters(), strict=True)
    whole = torch.autograd.grad((encoder(x) * direction).sum(), parameters)
    stepped = torch.autograd.grad((go_on(encoder, x, encoder.start(x), 0)[0] * direction).sum(), parameters)
    for parameter, one, other in zip(names, whole, stepped, strict=True):
        assert one.abs().sum() > 0, parameter
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-10, msg=lambda text, of=parameter: f"{of}: {text}")


@pytest.mark.parametrize("name", ["linear, learned", "transformer 1, heads 2, position learned"])
def test_learned_positions_end_where_their_table_ends(name):
    encoder, x = make(name), inputs()
    _, state = encoder.encode(x)
    with pytest.raises(ValueError, match="max_positions"):
        encoder.step(x[:, 0], state, N_STEPS)


def test_as_encoder_wraps_only_what_cannot_step():
    stepping, whole = SteppingAverages(N_FEATURES, D_MODEL), MovingAverages(N_FEATURES, D_MODEL)
    assert as_encoder(stepping) is stepping
    wrapped = as_encoder(whole)
    assert isinstance(wrapped, CausalEncoder)
    assert isinstance(wrapped, WholePastEncoder)
    assert wrapped.module is whole
    torch.testing.assert_close(wrapped(inputs().float()), whole(inputs().float()), rtol=0, atol=0)


@pytest.mark.parametrize("n_layers", [1, 2])
@pytest.mark.parametrize("n_heads", [1, 2, 3])
def test_transformer_layers_are_those_of_the_textbook(n_layers, n_heads):
    encoder = TransformerEncoder(N_FEATURES, D_MODEL, n_layers, n_heads, 5).double()
    for parameter in encoder.parameters():
        nn.init.normal_(parameter, std=0.7, generator=torch.Generator().manual_seed(parameter.numel()))
    x = inputs()
    weights = {name: value.numpy() for name, value in encoder.state_dict().items()}
    expected = np.empty((N_ROWS, N_STEPS, D_MODEL))
    for b, row in enumerate(x.numpy()):
        hidden = [weights["embedding.projection.weight"] @ v + weights["embedding.projection.bias"] for v in row]
        for layer in range(n_layers):
            own = {name: weights[f"layers.{layer}.{name}"] for name in _names_of_layer(weights, layer)}
            hidden = [_textbook_layer(own, hidden[: t + 1], n_heads) for t in range(N_STEPS)]
        expected[b] = hidden
    torch.testing.assert_close(encoder(x), torch.from_numpy(expected), **EXACT)


def _names_of_layer(weights, layer):
    prefix = f"layers.{layer}."
    return [name.removeprefix(prefix) for name in weights if name.startswith(prefix)]


def _textbook_layer(weights, past, n_heads):
    """The output at the last of these positions."""
    projections = np.split(weights["query_key_value.weight"], 3)
    size = D_MODEL // n_heads
    context = []
    for head in range(n_heads):
        to_query, to_key, to_value = (matrix[head * size : (head + 1) * size] for matrix in projections)
        query = to_query @ past[-1]
        shares = np.array([math.exp(query @ (to_key @ h) / math.sqrt(size)) for h in past])
        context.append(sum(share * (to_value @ h) for share, h in zip(shares / shares.sum(), past, strict=True)))
    hidden = _layer_norm(weights, "attention_norm", past[-1] + weights["output.weight"] @ np.concatenate(context))
    inner = np.maximum(0, weights["feed_forward.0.weight"] @ hidden + weights["feed_forward.0.bias"])
    outer = weights["feed_forward.2.weight"] @ inner + weights["feed_forward.2.bias"]
    return _layer_norm(weights, "output_norm", hidden + outer)


def _layer_norm(weights, name, y):
    return weights[f"{name}.weight"] * (y - y.mean()) / np.sqrt(y.var() + 1e-5) + weights[f"{name}.bias"]


@pytest.mark.parametrize("n_layers", [1, 2, 3])
@pytest.mark.parametrize("kernel_size", [1, 2, 3])
def test_convolutions_are_residual_sums_over_dilated_taps(n_layers, kernel_size):
    encoder = ConvolutionEncoder(N_FEATURES, D_MODEL, n_layers, kernel_size).double()
    x = inputs()
    weights = {name: value.numpy() for name, value in encoder.state_dict().items()}
    expected = np.empty((N_ROWS, N_STEPS, D_MODEL))
    for b, row in enumerate(x.numpy()):
        hidden = [weights["projection.weight"] @ v + weights["projection.bias"] for v in row]
        for layer in range(n_layers):
            kernel, bias = weights[f"layers.{layer}.weight"], weights[f"layers.{layer}.bias"]
            following = []
            for t in range(N_STEPS):
                total = bias.copy()
                for tap in range(kernel_size):
                    s = t - (kernel_size - 1 - tap) * 2**layer
                    if s >= 0:
                        total += kernel[:, :, tap] @ hidden[s]
                gelu = [0.5 * y * (1 + math.erf(y / math.sqrt(2))) for y in total]
                following.append(hidden[t] + gelu)
            hidden = following
        expected[b] = hidden
    torch.testing.assert_close(encoder(x), torch.from_numpy(expected), **EXACT)


@pytest.mark.parametrize("n_layers", [1, 2])
def test_gru_cells_are_those_of_the_textbook(n_layers):
    encoder = make(f"gru {n_layers}")
    x = inputs()
    weights = encoder.cell.state_dict()
    hidden = x
    for layer in range(n_layers):
        cell = nn.GRUCell(hidden.shape[-1], D_MODEL).double()
        cell.load_state_dict({name: weights[f"{name}_l{layer}"] for name in cell.state_dict()})
        memory, outputs = torch.zeros(N_ROWS, D_MODEL).double(), []
        for t in range(N_STEPS):
            memory = cell(hidden[:, t], memory)
            outputs.append(memory)
        hidden = torch.stack(outputs, dim=1)
    torch.testing.assert_close(encoder(x), hidden, **EXACT)


# --- changes of the inputs ----------------------------------------------------------------------------------


@pytest.mark.parametrize("inner", CHANGES)
def test_levels_and_changes_are_scaled_and_given_side_by_side(inner):
    encoder, x = make(f"changes, {inner}"), inputs()
    level, change = encoder.level_scale.tolist(), encoder.change_scale.tolist()
    features = np.empty((N_ROWS, N_STEPS, 2 * N_FEATURES))
    for b, t, f in np.ndindex(N_ROWS, N_STEPS, N_FEATURES):
        difference = 0.0 if t == 0 else float(x[b, t, f] - x[b, t - 1, f])  # nothing has changed before the first
        features[b, t, f] = float(x[b, t, f]) / level[f]
        features[b, t, N_FEATURES + f] = math.asinh(difference / change[f])
    torch.testing.assert_close(encoder(x), encoder.inner(torch.from_numpy(features)), **EXACT)


def naive_scales(x):
    """Deviations of the levels and of the changes that are there, one column at a time; 1 if there is none."""
    scales = []
    for values in (x, np.diff(x, axis=1)):
        for column in range(x.shape[-1]):
            there = values[..., column][~np.isnan(values[..., column])]
            scales.append(there.std() if len(there) and there.std() > 0 else 1.0)
    return torch.tensor(scales, dtype=torch.float64).view(2, -1)


def with_scales(x):
    encoder = ChangesEncoder(LinearEncoder(2 * x.shape[-1], D_MODEL), x.shape[-1]).to(x.dtype)
    encoder.set_scales_(x)
    return encoder


def test_scales_are_the_deviations_of_training_sequences():
    x = sequences(50, 12, 3) * torch.tensor([1.0, 100.0, 0.01]).double() + torch.tensor([0.0, 7.0, -3.0]).double()
    encoder = with_scales(x)
    levels, changes = naive_scales(x.numpy())
    torch.testing.assert_close(encoder.level_scale, levels)
    torch.testing.assert_close(encoder.change_scale, changes)
    assert (levels[1:] != changes[1:]).all()


def test_changes_do_not_reach_from_one_sequence_to_the_next():
    x = torch.zeros(4, 5, 1).double() + 1000.0 * torch.arange(4.0).double().view(-1, 1, 1)
    assert with_scales(x).change_scale == 1.0


def test_missing_values_have_no_part_in_the_scales():
    x = sequences(50, 12, 3)
    missing = torch.rand(x.shape, generator=torch.Generator().manual_seed(1)) < 0.3
    missing[..., 2] = False
    x = x.masked_fill(missing, math.nan)
    encoder = with_scales(x)
    levels, changes = naive_scales(x.numpy())
    torch.testing.assert_close(encoder.level_scale, levels)
    torch.testing.assert_close(encoder.change_scale, changes)


def test_columns_that_are_never_seen_and_single_steps_have_scales_of_one():
    x = sequences(5, 4, 2)
    x[..., 1] = math.nan
    encoder = with_scales(x)
    assert encoder.level_scale[1] == encoder.change_scale[1] == 1.0
    single = with_scales(sequences(5, 0, 2))
    assert (single.change_scale == 1.0).all()
    assert (single.level_scale != 1.0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("value", [0.0, 1.0, 0.3, -2.7, 1234.5])
def test_constant_columns_have_scales_of_one(value, dtype):
    """Whatever the rounding of their mean: otherwise it is the rounding that the level is divided by."""
    x = sequences(622, 60, 2).to(dtype)
    x[..., 1] = value
    encoder = with_scales(x)
    assert encoder.level_scale[1] == 1.0
    assert encoder.change_scale[1] == 1.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_columns_that_change_evenly_have_changes_of_scale_one(dtype):
    """A clock: its changes are the same but for rounding."""
    x = sequences(100, 60, 2).to(dtype)
    x[..., 1] = 0.1 * torch.arange(61.0, dtype=dtype)
    assert with_scales(x).change_scale[1] == 1.0


@pytest.mark.parametrize("name", NAMED)
def test_settings_make_the_encoder_they_name(name):
    plain = make_model(d_model=4, n_inputs=2, encoder=name)
    changes = make_model(d_model=4, n_inputs=2, encoder=name, input_changes=True)
    assert type(changes.encoder) is ChangesEncoder
    assert type(changes.encoder.inner) is type(plain.encoder)
    assert type(plain.encoder).__name__.lower().startswith({"lstm": "recurrent", "gru": "recurrent"}.get(name, name))
    assert not any(isinstance(part, ChangesEncoder) for part in plain.modules())


def test_input_changes_are_on_or_off(without_shape_checks):
    with pytest.raises(TypeError, match="input_changes must be True or False, got 1"):
        make_model(input_changes=1)


@pytest.mark.usefixtures("drawn_by_turns")
@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("name", NAMED)
def test_replay_of_a_model_that_sees_changes_is_what_its_filter_saw(name, gaps):
    model = model_that_sees_changes(name)
    x = sequences(3, 9, 3)
    if gaps:
        x[0, 3:5, :2] = x[1, 6, 1] = math.nan
    result = model.filter(x, 6, generator=3)
    completed = gather_trajectories(result.completed, result.trajectories) if gaps else None
    replayed = model.replay(x, result.noise.along(result.trajectories), completed)
    torch.testing.assert_close(replayed.attention, gather_trajectories(result.attention, result.trajectories))
    torch.testing.assert_close(replayed.parameters, gather_trajectories(result.read_outs, result.trajectories))
    with disabled():
        torch.testing.assert_close(model.filter(x, 6, generator=3).log_increments, result.log_increments)


@pytest.mark.parametrize("name", NAMED)
def test_a_stream_of_changes_is_what_the_filter_sees(name):
    """One particle without noise: nothing is left to chance."""
    model = model_that_sees_changes(name, initial_latent_variance=0.0)
    x = sequences(2, 7, 3)
    expected = model.filter(x, 1, generator=0)
    state = model.init_state(2, 1, generator=0)
    means = []
    for t in range(8):
        if t > 0:
            means.append(model.predictive(state).mean)
        state, _ = model.observe(state, x[:, t])
    torch.testing.assert_close(torch.cat(means, dim=1), expected.predictive.mean)


def model_that_sees_changes(name, **settings):
    settings = {"initial_latent_variance": 0.4, **settings}
    model = make_model(d_model=4, n_inputs=3, n_targets=2, encoder=name, input_changes=True, **settings)
    model.encoder.set_scales_(3 * sequences(20, 9, 3, seed=5))
    return model
