"""LSTM and transformer baselines: training, fast passes against slow ones, paths, missing values."""

import json

import pytest
import torch
from helpers.baselines import make_windows, synthetic_windows, vector_sequences, with_gaps

from smc_transformer.empirical import Point, Samples
from smc_transformer.nn.initialisation import initialise_weights
from smct_paper.baselines import BASELINES, LSTM, Autoregression, BayesianLSTM, Method, Transformer
from smct_paper.baselines.base import fill_forward
from smct_paper.baselines.bayesian_lstm import BayesianLSTMNetwork
from smct_paper.baselines.lstm import LSTMNetwork
from smct_paper.baselines.network import draw_masks, observed_mse
from smct_paper.baselines.neural import NeuralMethod
from smct_paper.baselines.transformer import TransformerNetwork
from smct_paper.evaluation import evaluate


def make_network(kind, n_inputs=3, n_modelled=2, dropout=0.3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    if kind == "bayesian_lstm":
        settings = BayesianLSTM(hidden_size=8, elbo_samples=2, initial_deviation=0.2)
        return BayesianLSTMNetwork(n_inputs, n_modelled, 100, settings, generator).eval()
    network = (
        LSTMNetwork(n_inputs, n_modelled, 8, dropout)
        if kind == "lstm"
        else TransformerNetwork(n_inputs, n_modelled, 8, 6, dropout)
    )
    initialise_weights(network, generator)
    return network.eval()


def slow_pass(network, x, mask):
    """One full pass over the sequence with one mask (or weight draw), written out plainly."""
    if isinstance(network, LSTMNetwork):
        hidden, _ = network.lstm(x)
        return network.output(hidden * mask)
    if isinstance(network, TransformerNetwork):
        embedding = network.encoder.projection(x) + network.encoder.position(0, x.shape[1]).float()
        query, key, value = network.query_key_value(embedding).split(network.d_model, dim=-1)
        logits = query @ key.transpose(1, 2) / network.d_model**0.5
        future = torch.ones(x.shape[1], x.shape[1]).triu(1).bool()
        weights = logits.masked_fill(future, -torch.inf).softmax(dim=-1)
        attention = network.attention_output(weights @ value) * mask[0]
        hidden = network.readout.attention_norm(attention + embedding)
        hidden = network.readout.output_norm(hidden + network.readout.feed_forward(hidden) * mask[1])
        return network.readout.projection(hidden)
    weights = network.weights(mask.unsqueeze(0))
    hidden = cell = x.new_zeros(len(x), network.hidden_size)
    outputs = []
    for t in range(x.shape[1]):
        gates = x[:, t] @ weights.inputs[0].T + hidden @ weights.recurrent[0].T + weights.bias[0]
        enter, keep, new, show = gates.split(network.hidden_size, dim=-1)
        cell = keep.sigmoid() * cell + enter.sigmoid() * new.tanh()
        hidden = show.sigmoid() * cell.tanh()
        outputs.append(hidden @ weights.output[0].T + weights.output_bias[0])
    return torch.stack(outputs, dim=1)


KINDS = ("lstm", "transformer", "bayesian_lstm")


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_fast_passes_are_the_slow_ones(kind):
    network = make_network(kind)
    x = torch.randn(4, 7, 3, generator=torch.Generator().manual_seed(1))
    passes = network.draw_passes(6, torch.Generator().manual_seed(2))
    found = network.all_steps(x, passes)
    expected = torch.stack([slow_pass(network, x, mask) for mask in passes], dim=1)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
    assert found.std(dim=1).min() > 0  # the passes do differ


@pytest.mark.parametrize(
    "method",
    [
        LSTM(epochs=1, hidden_size=8, dropout=0.3),
        Transformer(epochs=1, hidden_size=8, dropout=0.3),
        BayesianLSTM(epochs=1, hidden_size=8, elbo_samples=2, initial_deviation=0.2),
    ],
    ids=KINDS,
)
def test_paths_are_slow_passes_fed_back(method):
    """Each path has one mask or weight draw, reads its own predictions, and true side inputs."""
    data = make_windows(vector_sequences(n_sequences=55)[0], n_targets=2, history=4)  # the third is a known input
    method.fit(data, seed=0)
    history, known = data.test[:, :5], data.test[:, 5:9, 2:]
    found, network = method.paths(history, 4, 6, known, generator=7), method.network
    assert found.std(dim=1).min() > 0
    passes = network.draw_passes(6, torch.Generator().manual_seed(7))
    for number, mask in enumerate(passes):
        x = history
        for ahead in range(4):
            prediction = slow_pass(network, x, mask)[:, -1].detach()
            torch.testing.assert_close(found[:, number, ahead], prediction, atol=1e-5, rtol=1e-4)
            x = torch.cat((x, torch.cat((prediction, known[:, ahead]), dim=-1).unsqueeze(1)), dim=1)


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_predictions_do_not_see_the_future(kind):
    network = make_network(kind)
    x = torch.randn(2, 6, 3, generator=torch.Generator().manual_seed(1))
    passes = network.draw_passes(3, torch.Generator().manual_seed(2))
    changed = x.clone()
    changed[:, 4:] += 1.0
    before, after = network.all_steps(x, passes), network.all_steps(changed, passes)
    torch.testing.assert_close(before[:, :, :4], after[:, :, :4])
    assert (before[:, :, 4:] - after[:, :, 4:]).abs().min() > 0


@torch.no_grad()
def test_the_transformer_knows_the_order_of_the_past():
    network = make_network("transformer", dropout=0.0)
    network.query_key_value.weight *= 5  # fresh weights hardly tell the past apart
    x = torch.randn(1, 5, 3, generator=torch.Generator().manual_seed(1))
    swapped = x[:, [1, 0, 2, 3, 4]]
    passes = network.draw_passes(1, None)
    assert (network.all_steps(x, passes) - network.all_steps(swapped, passes))[:, :, -1].abs().max() > 1e-3


def test_masks_have_mean_one_and_the_rate():
    masks = draw_masks((1000, 50), 0.2, torch.Generator().manual_seed(0))
    assert set(masks.unique().tolist()) == {0.0, 1.25}
    assert (masks == 0).float().mean().item() == pytest.approx(0.2, abs=0.01)
    assert torch.equal(draw_masks((3,), 0.0, None), torch.ones(3))


@pytest.mark.parametrize("name", ["lstm", "transformer"])
def test_point_forecasts_have_one_path(name):
    data = synthetic_windows()
    method = BASELINES[name](epochs=1)
    method.fit(data, seed=0)
    assert method.is_point
    distribution, paths = method.one_step(data.test), method.paths(data.test[:, :5], 3, 10)
    assert isinstance(distribution, Point)
    assert paths.shape == (len(data.test), 10, 3, 1)
    assert (paths == paths[:, :1]).all()
    torch.testing.assert_close(paths[:, 0, 0], distribution.mean[:, 4], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("name", ["lstm_dropout_0.5", "transformer_dropout_0.5", "bayesian_lstm_3"])
def test_the_first_step_of_paths_has_the_one_step_distribution(name):
    data = synthetic_windows()
    method = BASELINES[name](epochs=2)
    method.fit(data, seed=0)
    distribution, paths = method.one_step(data.test[:3], 0), method.paths(data.test[:3, :5], 2, 1000, None, 1)
    assert isinstance(distribution, Samples)
    assert distribution.draws.shape == (3, 1000, 12, 1)
    deviation = distribution.draws[:, :, 4].std(dim=1)
    assert ((paths[:, :, 0].mean(dim=1) - distribution.mean[:, 4]).abs() < 5 * deviation * (2 / 1000) ** 0.5).all()
    torch.testing.assert_close(paths[:, :, 0].std(dim=1), deviation, rtol=0.15, atol=0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "dist_mse"),
    [
        (LSTM(epochs=15, learning_rate=5e-3), None),
        (Transformer(epochs=15, warmup_steps=300), None),
        (LSTM(epochs=15, learning_rate=5e-3, dropout=0.2), 0.2),
        (Transformer(epochs=15, warmup_steps=300, dropout=0.2), 0.2),
        (BayesianLSTM(epochs=15, learning_rate=5e-3), 0.2),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Method) else "",
)
def test_they_learn_the_mean_of_model1_and_underestimate_its_spread(method, dist_mse):
    data = synthetic_windows("model1", n_sequences=1000, n_steps=24, shares=(0.6, 0.1))
    facts = method.fit(data, seed=0)
    scores = evaluate(method, data, n_windows=None, n_samples=200, seed=0)["unistep"].metrics
    truth = (data.test[:, 1:] - 0.8 * data.test[:, :-1]).square().mean().item()
    assert facts["validation_losses"][0] > 1.1 * facts["validation_loss"]
    assert scores["mse"] == pytest.approx(truth, rel=0.05)
    assert data.test[:, 1:].square().mean() > 1.5 * scores["mse"]
    if dist_mse is None:
        assert scores["dist_mse"] is None
    else:
        assert 0 < scores["dist_mse"] < dist_mse  # the truth has 0.5
        assert scores["picp"] < 0.6


@pytest.mark.parametrize("name", ["lstm", "transformer_dropout_0.1", "bayesian_lstm_3"])
def test_the_same_seed_gives_the_same_method_and_leaves_no_trace(name):
    data = synthetic_windows(n_sequences=100)
    before = torch.random.get_rng_state()
    methods = [BASELINES[name](epochs=2) for _ in range(3)]
    losses = [method.fit(data, seed=seed)["validation_losses"] for method, seed in zip(methods, (0, 0, 1), strict=True)]
    assert losses[0] == losses[1] != losses[2]
    assert torch.equal(methods[0].paths(data.test, 2, 5, None, 3), methods[1].paths(data.test, 2, 5, None, 3))
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("name", ["lstm_dropout_0.1", "transformer", "bayesian_lstm_3"])
def test_missing_values_are_read_as_the_last_observed(name):
    x, _ = vector_sequences(n_sequences=60)
    data = make_windows(with_gaps(x), n_targets=2, n_modelled=3)
    method = BASELINES[name](epochs=1)
    method.fit(data, seed=0)
    filled = fill_forward(data.test)
    assert torch.equal(method.one_step(data.test, 0).mean, method.one_step(filled, 0).mean)
    found = method.paths(data.test[:, :6], 4, 7, None, 0)
    assert torch.equal(found, method.paths(filled[:, :6], 4, 7, None, 0))
    assert found.isfinite().all()


def test_fill_forward():
    nan = float("nan")
    x = torch.tensor([[1.0, nan], [nan, nan], [nan, 5.0], [4.0, nan]]).unsqueeze(0)
    assert fill_forward(x)[0].T.tolist() == [[1.0, 1.0, 1.0, 4.0], [0.0, 0.0, 5.0, 5.0]]


def test_missing_targets_are_left_out_of_the_loss():
    x = torch.tensor([[[0.0], [1.0], [float("nan")], [3.0]]])
    prediction = torch.tensor([[[0.5], [100.0], [1.0]]]).requires_grad_()
    loss = observed_mse(prediction, x)
    assert loss.item() == pytest.approx((0.25 + 4.0) / 2)
    loss.backward()
    assert prediction.grad.flatten().tolist() == [-0.5, 0.0, -2.0]
    several = torch.stack((prediction, prediction + 1)).detach()
    assert observed_mse(several, x).item() == pytest.approx((0.25 + 4.0 + 0.25 + 1.0) / 4)


class Scripted(torch.nn.Module):
    """A network whose validation losses are given; its weight falls with every step of the training."""

    def __init__(self, losses):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.losses = iter(losses)
        self.seen = []

    def loss(self, x, generator):
        self.seen.append(x[:, 0, 0].tolist())
        return self.weight

    def validation_loss(self, x):
        return next(self.losses)


def train_scripted(network, n_windows, schedule=None, **settings):
    """Train this network on windows that hold their numbers."""

    class Method(NeuralMethod):
        def build(self, data, generator):
            return network

        def schedule(self):
            return schedule or super().schedule()

    numbers = torch.arange(n_windows + 2.0).view(-1, 1, 1)
    return Method(**settings).fit(make_windows(numbers, shares=((n_windows + 0.5) / (n_windows + 2), 0.1)), seed=0)


def test_the_best_epoch_is_restored_and_patience_stops():
    network = Scripted([3.0, 1.0, 2.0, 2.0, 0.5])
    facts = train_scripted(network, 10, epochs=9, batch_size=4, learning_rate=0.1, patience=2)
    assert facts["epochs"] == 4
    assert facts["best_epoch"] == 2
    assert facts["validation_loss"] == 1.0
    assert network.weight.item() == pytest.approx(-0.1 * 6, rel=1e-4)  # Adam goes 0.1 a step; 3 batches an epoch
    assert [len(rows) for rows in network.seen[:3]] == [4, 4, 2]
    assert sorted(row for rows in network.seen[:3] for row in rows) == list(range(10))  # every window once an epoch
    assert network.seen[:3] != network.seen[3:6]  # in another order


def test_the_schedule_sets_the_learning_rate():
    network = Scripted([1.0])
    train_scripted(network, 3, lambda step: 0.1 * step, epochs=1, batch_size=1, learning_rate=2.0)
    assert network.weight.item() == pytest.approx(-2.0 * (0.1 + 0.2 + 0.3), rel=1e-4)


def test_training_that_never_works_is_an_error():
    with pytest.raises(ArithmeticError, match="finite validation loss"):
        train_scripted(Scripted([float("nan")]), 3, epochs=1, batch_size=1, learning_rate=1.0)


def test_the_registry_has_the_papers_settings():
    assert list(BASELINES) == [
        "lstm",
        "transformer",
        *(f"lstm_dropout_{rate}" for rate in (0.1, 0.2, 0.5)),
        *(f"transformer_dropout_{rate}" for rate in (0.1, 0.2, 0.5)),
        "bayesian_lstm_3",
        "bayesian_lstm_10",
        "naive",
        "autoregression",
    ]
    settings = {name: make().settings() for name, make in BASELINES.items()}
    json.dumps(settings)
    assert settings["lstm_dropout_0.2"]["dropout"] == 0.2
    assert settings["lstm"]["epochs"] == settings["transformer"]["epochs"] == 50
    assert settings["bayesian_lstm_10"]["elbo_samples"] == 10
    assert settings["bayesian_lstm_10"]["epochs"] == 150
    assert settings["transformer"]["warmup_steps"] == 4000
    assert BASELINES["lstm"](epochs=3).settings()["epochs"] == 3
    assert LSTM().batch_size_for("weather") == 256
    assert LSTM(batch_size=5).batch_size_for("weather") == 5
    assert Autoregression(orders=(1,)).settings()["orders"] == [1]


def test_a_method_must_be_fitted():
    for make in BASELINES.values():
        with pytest.raises(RuntimeError, match="has to be fitted first"):
            make().one_step(torch.zeros(1, 3, 1))


def test_side_inputs_must_be_given():
    x, _ = vector_sequences(n_sequences=40)
    data = make_windows(x, n_targets=2)
    for method in (LSTM(epochs=1), Autoregression()):
        method.fit(data, seed=0)
        with pytest.raises(ValueError, match="future_inputs must have shape"):
            method.paths(data.test[:, :4], 3, 5)
