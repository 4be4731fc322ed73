"""What users get wrong, and what they are told. The checks of jaxtyping are off, as they are for users."""

import math
import re

import numpy as np
import pytest
import torch
from helpers.user_modules import NotingObservation, give_observation

from smc_transformer import SMCTransformer
from smc_transformer.learning import Trainer, fit, negative_log_likelihood, training_step
from smc_transformer.nn import Noise
from smc_transformer.smc import WeightCollapseError
from smc_transformer.support import memory

pytestmark = pytest.mark.usefixtures("without_shape_checks")

CALLS = {
    "filter": lambda model, x: model.filter(x, generator=0),
    "forecast": lambda model, x: model.forecast(x, horizon=1, n_samples=3, generator=0),
    "replay": lambda model, x: model.replay(x, some_noise()),
}
NAMES = {"filter": "x", "forecast": "history", "replay": "x"}


@pytest.fixture(params=CALLS)
def method(request):
    return request.param


def small_model(n_inputs=2, n_targets=1, **settings):
    sizes = {"d_model": 4, "d_ff": 4, "n_particles": 5}
    every = {"n_inputs": n_inputs, "n_targets": n_targets, **sizes, **settings}
    return SMCTransformer.from_settings(every, generator=0)


def some_noise(batch=3, n_steps=5):
    return Noise(*torch.randn(4, batch, 5, n_steps, 4, generator=torch.Generator().manual_seed(0)))


def good_sequences(n_inputs=2):
    return torch.randn(3, 6, n_inputs, generator=torch.Generator().manual_seed(1))


def assert_rejected(method, x, error, message):
    """The call raises this error with this message, in which {name} stands for the argument."""
    with pytest.raises(error, match=re.escape(message.format(name=NAMES[method]))):
        CALLS[method](small_model(), x)


# --- sequences ----------------------------------------------------------------------------------------------


def test_good_sequences_are_accepted(method):
    CALLS[method](small_model(), good_sequences())


def test_too_few_axes(method):
    message = "{name} must have 3 axes (batch, time, 2), got 2 axes: (6, 2)"
    assert_rejected(method, good_sequences()[0], ValueError, message)


def test_too_many_axes(method):
    message = "{name} must have 3 axes (batch, time, 2), got 4 axes: (1, 3, 6, 2)"
    assert_rejected(method, good_sequences().unsqueeze(0), ValueError, message)


@pytest.mark.parametrize("n_features", [0, 1, 3])
def test_wrong_number_of_features(method, n_features):
    message = f"{{name}} must have 2 features on its last axis, got {n_features}: (3, 6, {n_features})"
    assert_rejected(method, good_sequences(n_features), ValueError, message)


def test_no_sequences(method):
    message = "{name} must hold at least one sequence, got shape (0, 6, 2)"
    assert_rejected(method, good_sequences()[:0], ValueError, message)


@pytest.mark.parametrize(("method", "least"), [("filter", 2), ("replay", 2), ("forecast", 1)])
def test_no_time_steps(method, least):
    message = f"{{name}} must have at least {least} time steps, got 0: (3, 0, 2)"
    assert_rejected(method, good_sequences()[:, :0], ValueError, message)


@pytest.mark.parametrize("method", ["filter", "replay"])
def test_one_time_step_has_nothing_to_predict(method):
    message = "{name} must have at least 2 time steps, got 1: (3, 1, 2)"
    assert_rejected(method, good_sequences()[:, :1], ValueError, message)


def test_one_time_step_is_enough_to_forecast_from():
    paths = small_model().forecast(good_sequences()[:, :1], horizon=1, n_samples=4, generator=0)
    assert paths.shape == (3, 4, 1, 1)
    assert paths.isfinite().all()


@pytest.mark.parametrize("value", [math.inf, -math.inf])
def test_infinite_values_are_named_with_their_place(method, value):
    x = good_sequences()
    x[2, 4, 1] = value
    message = f"{{name}} holds {value} at [2, 4, 1] (batch, time, feature): all values must be finite"
    assert_rejected(method, x, ValueError, message)


@pytest.mark.parametrize("place", [[1, 0, 0], [1, 0, 1], [2, 4, 1], [0, 5, 1]])
def test_missing_values_of_the_first_step_or_of_known_inputs_are_named_with_their_place(method, place):
    x = good_sequences()
    x[tuple(place)] = math.nan
    message = f"{{name}} holds nan at {place} (batch, time, feature): only targets may be missing, and not those of"
    assert_rejected(method, x, ValueError, message)


@pytest.mark.parametrize("method", ["filter", "forecast"])
@pytest.mark.parametrize("step", [1, 4, 5])
def test_missing_targets_after_the_first_step_are_accepted(method, step):
    x = good_sequences()
    x[1, step, 0] = math.nan
    CALLS[method](small_model(), x)


def test_replay_of_missing_values_needs_them_completed():
    x = good_sequences()
    x[1, 3, 0] = math.nan
    with pytest.raises(
        ValueError, match="x has missing values: replay needs the targets as completed by each trajectory"
    ):
        small_model().replay(x, some_noise())


def test_whole_numbers(method):
    message = "{name} must hold floating-point numbers, got torch.int64; convert it with {name}.float()"
    assert_rejected(method, good_sequences().long(), TypeError, message)


@pytest.mark.parametrize(
    ("convert", "got"),
    [(torch.Tensor.numpy, "ndarray"), (torch.Tensor.tolist, "list"), (lambda x: None, "NoneType")],
)
def test_what_is_not_a_tensor(method, convert, got):
    message = f"{{name}} must be a torch.Tensor of shape (batch, time, 2), got {got}"
    assert_rejected(method, convert(good_sequences()), TypeError, message)


@pytest.mark.parametrize(
    ("convert", "got"),
    [
        (torch.Tensor.to_sparse, "a torch.sparse_coo tensor"),
        (lambda x: x.to("meta"), "a tensor without values (meta)"),
        (lambda x: torch.nested.nested_tensor([x[0], x[1, :2]]), "a nested tensor"),
    ],
)
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_tensors_without_rows_of_numbers(method, convert, got):
    message = f"{{name}} must be a dense tensor with values, got {got}"
    assert_rejected(method, convert(good_sequences()), TypeError, message)


def test_sequences_of_another_type_than_the_model(method):
    message = "{name} is torch.float64 but the model is torch.float32; convert one of them"
    assert_rejected(method, good_sequences().double(), TypeError, message)


def test_a_model_of_another_type_than_the_sequences():
    with pytest.raises(TypeError, match=r"x is torch\.float32 but the model is torch\.float64"):
        small_model().double().filter(good_sequences())


def test_a_model_without_numbers():
    with pytest.raises(ValueError, match=r"x is on the device 'cpu', the model on 'meta': which holds no numbers"):
        small_model().to("meta").filter(good_sequences())


def test_sequences_beyond_the_learned_positions():
    model = small_model(position_encoding="learned", max_positions=4)
    with pytest.raises(ValueError, match=r"covers 4 positions .*got a sequence that reaches position 4"):
        model.filter(good_sequences())


# --- numbers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_particles", [0, -2])
def test_fewer_than_one_particle(n_particles):
    message = f"n_particles must be at least 1, got {n_particles}"
    with pytest.raises(ValueError, match=message):
        small_model().filter(good_sequences(), n_particles)
    with pytest.raises(ValueError, match=message):
        small_model().forecast(good_sequences(), 1, n_particles=n_particles)


@pytest.mark.parametrize("n_particles", [2.0, "10", True, [3], (1, {})])
def test_a_number_of_particles_that_is_not_whole(n_particles):
    message = re.escape(f"n_particles must be a whole number, got {n_particles!r}")
    with pytest.raises(TypeError, match=message):
        small_model().filter(good_sequences(), n_particles)
    with pytest.raises(TypeError, match=message):
        small_model().forecast(good_sequences(), 1, n_particles=n_particles)


@pytest.mark.parametrize("name", ["horizon", "n_samples"])
def test_a_forecast_of_nothing(name):
    with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
        small_model().forecast(good_sequences(), **{"horizon": 1, name: 0})


@pytest.mark.parametrize("name", ["horizon", "n_samples"])
def test_a_forecast_of_half_a_step_or_sample(name):
    with pytest.raises(TypeError, match=rf"{name} must be a whole number, got 1\.5"):
        small_model().forecast(good_sequences(), **{"horizon": 1, name: 1.5})


def test_an_unknown_way_to_handle_collapse():
    with pytest.raises(ValueError, match=r"on_collapse must be one of 'error', 'uniform', got 'ignore'"):
        small_model().filter(good_sequences(), on_collapse="ignore")


# --- future inputs ------------------------------------------------------------------------------------------


def forecast_with(future_inputs):
    return small_model().forecast(good_sequences(), 3, n_samples=4, future_inputs=future_inputs, generator=0)


def test_good_future_inputs_are_accepted():
    assert forecast_with(torch.zeros(3, 3, 1)).shape == (3, 4, 3, 1)


def test_missing_future_inputs():
    message = r"1 of the 2 inputs are not targets: a forecast of 3 steps needs .*future_inputs of shape \(3, 3, 1\)"
    with pytest.raises(ValueError, match=message):
        forecast_with(None)


def test_one_step_ahead_needs_no_future_inputs():
    assert small_model().forecast(good_sequences(), 1, n_samples=4, generator=0).shape == (3, 4, 1, 1)


def test_no_known_inputs_need_no_future_inputs():
    paths = small_model(n_targets=2).forecast(good_sequences(), 3, n_samples=4, generator=0)
    assert paths.shape == (3, 4, 3, 2)


@pytest.mark.parametrize("shape", [(2, 3, 1), (3, 2, 1), (3, 3, 2), (3, 3)])
def test_future_inputs_of_another_shape(shape):
    with pytest.raises(ValueError, match=re.escape(f"future_inputs must have shape (3, 3, 1), got {shape}")):
        forecast_with(torch.zeros(shape))


def test_future_inputs_for_a_model_without_known_inputs():
    with pytest.raises(ValueError, match=re.escape("future_inputs must have shape (3, 3, 0), got (3, 3, 1)")):
        small_model(n_targets=2).forecast(good_sequences(), 3, future_inputs=torch.zeros(3, 3, 1))


@pytest.mark.parametrize(
    ("future_inputs", "error", "message"),
    [
        (torch.full((3, 3, 1), math.nan), ValueError, "future_inputs holds nan at [0, 0, 0]"),
        (
            torch.zeros(3, 3, 1).double(),
            TypeError,
            "future_inputs is torch.float64 but the model is torch.float32",
        ),
        (
            torch.zeros(3, 3, 1).long(),
            TypeError,
            "future_inputs must hold floating-point numbers, got torch.int64",
        ),
        (
            np.zeros((3, 3, 1)),
            TypeError,
            "future_inputs must be a torch.Tensor of shape (batch, time, 1), got ndarray",
        ),
    ],
    ids=["missing", "type", "whole numbers", "array"],
)
def test_bad_values_of_future_inputs(future_inputs, error, message):
    with pytest.raises(error, match=re.escape(message)):
        forecast_with(future_inputs)


# --- sizes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("horizon", [100_001, 10**9, 10**400])
def test_a_forecast_has_a_length_that_can_be_computed(horizon):
    with pytest.raises(ValueError, match="horizon must be at most 100000, got 10"):
        small_model(1).forecast(good_sequences(1), horizon, 2, generator=0)


@pytest.mark.parametrize("horizon", [np.timedelta64(3), np.timedelta64(3, "D"), np.timedelta64("NaT"), True, 3.0])
def test_durations_are_no_whole_numbers(horizon):
    """Those of numpy are counted among them by Python."""
    with pytest.raises(TypeError, match="horizon must be a whole number, got"):
        small_model(1).forecast(good_sequences(1), horizon, 2, generator=0)


@pytest.mark.parametrize("stream", [False, True])
def test_paths_that_no_memory_can_hold_are_refused_before_they_are_drawn(stream):
    model, x = small_model(1), good_sequences(1)
    history = x
    if stream:
        history, _ = model.observe(model.init_state(3, generator=0), x[:, 0])
    message = r"a forecast of 3 sequences, 2147483647 paths each, 1 steps ahead would need at least [\d.]+ GiB"
    with pytest.raises(MemoryError, match=message):
        model.forecast(history, 1, 2**31 - 1, generator=0)


def test_particles_that_no_memory_can_hold_are_refused_before_they_are_drawn(monkeypatch):
    monkeypatch.setattr(memory, "machine_memory", lambda: 10_000.0)
    with pytest.raises(MemoryError, match="a filter of 1000 particles over 3 sequences of 6 steps would need at least"):
        small_model(1).filter(good_sequences(1), n_particles=1000, generator=0)
    small_model(1).filter(good_sequences(1), n_particles=10, generator=0)


# --- collapse of all weights --------------------------------------------------------------------------------

SEQUENCE, STEP = 1, 3


def nearly_noiseless_model():
    model = small_model(n_inputs=1)
    model.observation.covariance.assign_(1e-6)
    return model


def with_outlier(size, sequence=SEQUENCE):
    x = good_sequences(n_inputs=1)
    x[sequence, STEP] = size
    return x


@pytest.mark.parametrize("size", [1e18, -1e18, 1e30])
def test_an_impossible_observation_is_named_by_sequence_and_step(size):
    message = r"weights of sequence 1 are zero or not finite at step 3: .*x\[1, 3\].*on_collapse=\"uniform\""
    with pytest.raises(WeightCollapseError, match=message) as caught:
        nearly_noiseless_model().filter(with_outlier(size), generator=0)
    assert (caught.value.sequence, caught.value.step) == (SEQUENCE, STEP)


def test_an_unlikely_observation_is_no_collapse():
    result = nearly_noiseless_model().filter(with_outlier(1e6), generator=0)
    assert result.log_increments.isfinite().all()
    assert result.log_increments[SEQUENCE, STEP - 1] < -1e15


def test_an_impossible_observation_in_the_history_of_a_forecast_is_named():
    with pytest.raises(WeightCollapseError) as caught:
        nearly_noiseless_model().forecast(with_outlier(1e18), 2, generator=0)
    assert (caught.value.sequence, caught.value.step) == (SEQUENCE, STEP)


def test_uniform_on_collapse_goes_on_with_equal_weights():
    result = nearly_noiseless_model().filter(with_outlier(1e18), generator=0, on_collapse="uniform")
    impossible = result.log_increments.isneginf()
    assert impossible.nonzero().tolist() == [[SEQUENCE, STEP - 1]]
    assert result.log_weights[SEQUENCE, :, STEP - 1].tolist() == pytest.approx([-math.log(5)] * 5)
    assert result.log_weights.isfinite().all()
    assert result.predictive.mean.isfinite().all()


def test_uniform_on_collapse_counts_the_impossible_observation_in_the_likelihood():
    result = nearly_noiseless_model().filter(with_outlier(1e18), generator=0, on_collapse="uniform")
    assert result.log_likelihood.isneginf().tolist() == [False, True, False]


def test_uniform_on_collapse_leaves_other_sequences_alone():
    model = nearly_noiseless_model()
    expected = model.filter(good_sequences(n_inputs=1), generator=0)
    result = model.filter(with_outlier(1e18), generator=0, on_collapse="uniform")
    assert torch.equal(result.log_increments[[0, 2]], expected.log_increments[[0, 2]])
    assert torch.equal(result.ancestors[[0, 2]], expected.ancestors[[0, 2]])


@pytest.mark.parametrize("sequence", range(3))
def test_a_forecast_in_chunks_names_the_sequence_among_all(sequence):
    model = give_observation(nearly_noiseless_model(), NotingObservation)
    n_samples = 400_000  # one sequence at a time
    with pytest.raises(WeightCollapseError, match=rf"x\[{sequence}, {STEP}\]") as caught:
        model.forecast(with_outlier(1e18, sequence), 2, n_samples=n_samples, n_particles=2, generator=0)
    assert set(model.observation.asked) == {1}
    assert (caught.value.sequence, caught.value.step) == (sequence, STEP)


@pytest.mark.parametrize("batch_size", [1, 2, 3])
@pytest.mark.parametrize("sequence", range(3))
def test_a_likelihood_in_batches_names_the_sequence_among_all(sequence, batch_size):
    x = with_outlier(1e18, sequence)
    with pytest.raises(WeightCollapseError) as caught:
        negative_log_likelihood(nearly_noiseless_model(), x, batch_size=batch_size, generator=0)
    assert (caught.value.sequence, caught.value.step) == (sequence, STEP)


@pytest.mark.parametrize("sequence", range(3))
def test_training_names_the_sequence_of_the_training_data_not_of_the_shuffled_batch(sequence):
    x = with_outlier(1e18, sequence)
    for seed in range(4):  # several shuffles
        with pytest.raises(WeightCollapseError) as caught:
            fit(nearly_noiseless_model(), x, batch_size=2, em_step_size=None, seed=seed, progress=False)
        assert (caught.value.sequence, caught.value.step) == (sequence, STEP)


# --- predictive distributions -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["log_prob", "cdf", "crps", "pit"])
@pytest.mark.parametrize("shape", [(3, 6, 1), (3, 5, 2), (1, 5, 1), (3, 1, 1), (5, 1), (3, 5), (5, 3, 1)])
def test_values_of_another_shape_than_the_predictive_distribution(name, shape):
    predictive = small_model().filter(good_sequences(), generator=0).predictive
    message = f"expected values of shape (batch=3, time=5, target=1), got {shape}"
    with pytest.raises(ValueError, match=re.escape(message)):
        getattr(predictive, name)(torch.zeros(shape))


# --- seeds --------------------------------------------------------------------------------------------------

SEEDED = {
    "filter": lambda model, x, seed: model.filter(x, generator=seed).log_likelihood,
    "forecast": lambda model, x, seed: model.forecast(x, 1, n_samples=3, generator=seed),
    "training_step": lambda model, x, seed: training_step(model, x, generator=seed).log_likelihood,
    "likelihood": lambda model, x, seed: torch.tensor(negative_log_likelihood(model, x, generator=seed)),
    "sample": lambda model, x, seed: model.filter(x, generator=0).predictive.sample(4, seed),
}


@pytest.mark.parametrize("call", SEEDED.values(), ids=SEEDED)
def test_a_seed_stands_for_a_generator(call):
    model, x = small_model(), good_sequences()
    expected = call(model, x, torch.Generator().manual_seed(11))
    for seed in (11, np.int64(11), np.int32(11)):
        assert torch.equal(call(model, x, seed), expected)
    assert not torch.equal(call(model, x, 12), expected)


@pytest.mark.parametrize("call", SEEDED.values(), ids=SEEDED)
@pytest.mark.parametrize("seed", [1.0, "1", True, np.random.default_rng(0)], ids=["float", "text", "bool", "numpy"])
def test_what_is_neither_a_generator_nor_a_seed(call, seed):
    with pytest.raises(TypeError, match=r"expected a torch\.Generator, a seed \(whole number\) or None, got"):
        call(small_model(), good_sequences(), seed)


@pytest.mark.parametrize(
    ("seed", "error", "message"),
    [
        (-1, ValueError, "seed must be at least 0, got -1"),
        (np.int64(-5), ValueError, "seed must be at least 0, got -5"),
        (1.5, TypeError, "seed must be a whole number, got 1.5"),
        (None, TypeError, "seed must be a whole number, got None"),
    ],
)
def test_impossible_seeds_of_a_trainer(seed, error, message):
    with pytest.raises(error, match=re.escape(message)):
        Trainer(small_model(), seed=seed)


def test_a_trainer_takes_a_seed_of_numpy():
    assert type(Trainer(small_model(), seed=np.int64(3)).seed) is int


@pytest.mark.parametrize("state", [None, 3, torch.zeros(2, 1)], ids=str)
def test_what_is_no_state_is_named(state):
    for call in (lambda: small_model().observe(state, torch.zeros(2, 1)), lambda: small_model().predictive(state)):
        with pytest.raises(TypeError, match="state must be a StreamState, as init_state makes it, got "):
            call()


@pytest.mark.parametrize("settings", [None, 3, [1], "d_model"], ids=str)
def test_settings_of_a_model_are_a_dictionary(settings):
    with pytest.raises(TypeError, match="settings must be a dictionary, got "):
        SMCTransformer.from_settings(settings)
