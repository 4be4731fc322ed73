import dataclasses
import json
import math
import re

import numpy as np
import pytest
import torch

from smc_transformer import InferenceSettings, LearningSettings, SMCTransformer, SMCTransformerConfig
from smc_transformer.model import split_settings

pytestmark = pytest.mark.usefixtures("without_shape_checks")

COUNTS = (
    "n_inputs",
    "n_targets",
    "d_model",
    "d_ff",
    "window",
    "n_heads",
    "encoder_layers",
    "n_particles",
    "max_positions",
)
CHOICES = {
    "encoder": ("linear", "transformer", "lstm", "gru", "convolution"),
    "observation": ("gaussian", "heteroscedastic", "student_t", "zero_inflated", "negative_binomial", "categorical"),
    "covariance": ("isotropic", "diagonal", "full"),
    "observation_covariance": ("isotropic", "diagonal", "full"),
    "position_encoding": (None, "sinusoidal", "learned"),
    "resampling": ("multinomial", "residual", "stratified", "systematic"),
    "gradient": ("pathwise", "score"),
    "proposal": ("auxiliary", "bootstrap", "guided"),
    "smoother": ("backward", "fixed_lag", "genealogy"),
    "noise_learning": ("gradient", "em"),
    "readout": ("transformer", "linear"),
}
NEEDED = {"categorical": {"n_classes": 3}, "zero_inflated": {"predict_change": True}}
"""What a choice cannot do without."""
NUMBERS = ("ess_threshold", "initial_latent_variance", "initial_observation_variance")

OTHER_THAN_THE_DEFAULTS = {
    "n_inputs": 3,
    "n_targets": 2,
    "d_model": 4,
    "d_ff": 5,
    "window": 6,
    "n_heads": 2,
    "encoder": "gru",
    "encoder_layers": 3,
    "n_particles": 7,
    "covariance": "full",
    "observation": "student_t",
    "n_classes": None,
    "observation_covariance": "isotropic",
    "predict_change": True,
    "input_changes": True,
    "position_encoding": "learned",
    "max_positions": 8,
    "resampling": "multinomial",
    "ess_threshold": 0.5,
    "gradient": "score",
    "proposal": "guided",
    "smoother": "backward",
    "smoothing_lag": 3,
    "noise_learning": "em",
    "readout": "linear",
    "initial_latent_variance": 0.125,
    "initial_observation_variance": 0.75,
}
# Classes go with neither several targets nor predicted changes: a case of their own.
CLASSES = {"n_targets": 1, "predict_change": False, "observation": "categorical", "n_classes": 9}


KINDS = (SMCTransformerConfig, InferenceSettings, LearningSettings)
"""Architecture, inference and learning are three settings."""


def flat(settings):
    """All settings as one dictionary."""
    return {name: value for part in split_settings(settings) for name, value in part.to_dict().items()}


def test_no_setting_belongs_to_two_kinds():
    assert sum(len(kind.names()) for kind in KINDS) == len(set().union(*(kind.names() for kind in KINDS)))


def test_settings_of_the_inference_and_of_learning_change_no_weights():
    x = torch.randn(3, 7, 1, generator=torch.Generator().manual_seed(0))
    model = SMCTransformer(SMCTransformerConfig(d_model=4, d_ff=4), generator=0)
    other = InferenceSettings(n_particles=7, resampling="residual", ess_threshold=0.5)
    expected = SMCTransformer(SMCTransformerConfig(d_model=4, d_ff=4), generator=0, inference=other).filter(
        x, generator=1
    )
    found = model.filter(x, generator=1, inference=other)
    assert torch.equal(found.log_increments, expected.log_increments)
    assert found.log_weights.shape[1] == 7
    model.inference = other
    assert torch.equal(model.filter(x, generator=1).log_increments, expected.log_increments)
    model.learning = LearningSettings(noise_learning="em")
    assert not any(name.startswith("attention.query_cov") for name in model.gradient_parameters())
    model.learning = LearningSettings()
    assert any(name.startswith("attention.query_cov") for name in model.gradient_parameters())


def test_settings_cannot_be_changed():
    config = SMCTransformerConfig()
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.d_model = 64


def test_settings_must_be_named():
    with pytest.raises(TypeError, match="positional"):
        SMCTransformerConfig(1, 1)


def test_unknown_settings_are_rejected():
    with pytest.raises(TypeError, match="n_layers"):
        SMCTransformerConfig(n_layers=2)


def test_unknown_settings_of_a_dictionary_are_named_and_so_are_the_known_ones():
    with pytest.raises(ValueError, match=r"unknown settings \['depth', 'n_layers'\]; known are .*'d_model'"):
        SMCTransformerConfig.from_dict({"n_layers": 2, "d_model": 8, "depth": 1})


@pytest.mark.parametrize(
    "settings",
    [{}, OTHER_THAN_THE_DEFAULTS, {**OTHER_THAN_THE_DEFAULTS, **CLASSES}],
    ids=["defaults", "others", "classes"],
)
def test_settings_survive_json(settings):
    for part in split_settings(settings):
        assert type(part).from_dict(json.loads(json.dumps(part.to_dict()))) == part


@pytest.mark.parametrize("special", [{}, CLASSES], ids=["others", "classes"])
def test_the_dictionary_holds_every_setting(special):
    settings = {**OTHER_THAN_THE_DEFAULTS, **special}
    assert set(settings) == set().union(*(kind.names() for kind in KINDS))  # or the round trip above misses some
    assert flat(settings) == settings


def test_the_round_trips_change_every_setting():
    changed = {**OTHER_THAN_THE_DEFAULTS, "n_classes": CLASSES["n_classes"]}
    assert not changed.items() & flat({}).items()


def test_a_dictionary_may_leave_settings_at_their_defaults():
    assert SMCTransformerConfig.from_dict({"d_model": 8}) == SMCTransformerConfig(d_model=8)


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("value", [0, -3])
def test_counts_below_one_are_rejected(name, value):
    with pytest.raises(ValueError, match=f"{name} must be at least 1, got {value}"):
        split_settings({name: value})


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("value", [2.0, "2", True])
def test_counts_that_are_not_whole_numbers_are_rejected(name, value):
    with pytest.raises(TypeError, match=f"{name} must be a whole number, got {value!r}"):
        split_settings({name: value})


def test_a_window_of_none_is_all_the_past():
    assert SMCTransformerConfig(window=None).window is None


def test_more_targets_than_inputs_are_rejected():
    with pytest.raises(ValueError, match=r"n_targets must be at most n_inputs .*got n_targets=3 and n_inputs=2"):
        SMCTransformerConfig(n_inputs=2, n_targets=3)


@pytest.mark.parametrize("name", CHOICES)
def test_unknown_choices_are_rejected_and_the_known_ones_listed(name):
    with pytest.raises(ValueError, match=f"{name} must be one of .*got 'nonsense'") as caught:
        split_settings({name: "nonsense"})
    assert all(repr(choice) in str(caught.value) for choice in CHOICES[name])


@pytest.mark.parametrize(("name", "choice"), [(name, choice) for name in CHOICES for choice in CHOICES[name]])
def test_every_choice_makes_a_model(name, choice):
    needed = NEEDED.get(choice, {})
    SMCTransformer.from_settings({"d_model": 4, "d_ff": 4, **needed, name: choice})


@pytest.mark.parametrize("value", [1, "yes", None])
def test_predict_change_must_be_true_or_false(value):
    with pytest.raises(TypeError, match=f"predict_change must be True or False, got {value!r}"):
        SMCTransformerConfig(predict_change=value)


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", ["0.5", None, True])
def test_numbers_that_are_none_are_rejected(name, value):
    with pytest.raises(TypeError, match=f"{name} must be a number, got {value!r}"):
        split_settings({name: value})


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [-0.1, math.nan, math.inf])
def test_impossible_numbers_are_rejected(name, value):
    bounds = "between 0 and 1" if name == "ess_threshold" else "between 0 and 1e+15"
    with pytest.raises(ValueError, match=re.escape(f"{name} must be {bounds}, got {value}")):
        split_settings({name: value})


def test_a_threshold_above_one_is_rejected():
    with pytest.raises(ValueError, match=r"ess_threshold must be between 0 and 1, got 1\.5"):
        InferenceSettings(ess_threshold=1.5)


@pytest.mark.parametrize("value", [0, 0.0, 1, 1.0])
def test_the_ends_of_the_threshold_are_allowed_as_whole_numbers_too(value):
    assert InferenceSettings(ess_threshold=value).ess_threshold == value


@pytest.mark.parametrize("zero", [0, 0.0])
def test_zero_latent_variance_is_allowed(zero):
    model = SMCTransformer(SMCTransformerConfig(d_model=4, d_ff=4, initial_latent_variance=zero))
    assert all(covariance.is_zero for covariance in model.latent_covariances().values())


@pytest.mark.parametrize("zero", [0, 0.0])
def test_zero_observation_variance_is_rejected(zero):
    with pytest.raises(ValueError, match="initial_observation_variance must be positive"):
        SMCTransformerConfig(initial_observation_variance=zero)


def test_the_score_of_latents_without_variance_is_rejected():
    with pytest.raises(ValueError, match=r'gradient="score" .*initial_latent_variance=0.*gradient="pathwise"'):
        SMCTransformer.from_settings({"gradient": "score", "initial_latent_variance": 0.0})


@pytest.mark.parametrize("kind", [np.int32, np.int64, np.uint8])
@pytest.mark.parametrize("name", COUNTS)
def test_whole_numbers_of_numpy_become_plain_ones(name, kind):
    settings = flat({"n_inputs": 2, name: kind(2)})
    assert type(settings[name]) is int
    assert json.loads(json.dumps(settings))[name] == 2


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int64])
@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_of_numpy_become_plain_ones(name, kind):
    settings = flat({name: kind(1)})
    assert type(settings[name]) is float
    assert json.loads(json.dumps(settings))[name] == 1.0


def test_heads_that_do_not_divide_the_size_are_rejected():
    with pytest.raises(ValueError, match="n_heads must divide d_model=8, got 3"):
        SMCTransformerConfig(d_model=8, n_heads=3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, 'observation="categorical" needs n_classes'),
        ({"n_classes": 1}, "n_classes must be at least 2, got 1"),
        ({"n_classes": 3, "n_inputs": 2, "n_targets": 2}, 'observation="categorical" has one target'),
        ({"n_classes": 3, "predict_change": True}, "predict_change has no meaning for classes"),
    ],
)
def test_impossible_settings_for_classes_are_rejected(settings, message):
    with pytest.raises(ValueError, match=message):
        SMCTransformerConfig(observation="categorical", **settings)


def test_a_number_of_classes_that_is_not_whole_is_rejected():
    with pytest.raises(TypeError, match=r"n_classes must be a whole number, got 3\.0"):
        SMCTransformerConfig(observation="categorical", n_classes=3.0)


def test_a_number_of_classes_without_classes_is_rejected():
    with pytest.raises(ValueError, match="n_classes goes with observation=\"categorical\" only, got 'gaussian'"):
        SMCTransformerConfig(n_classes=3)


@pytest.mark.parametrize(
    "settings",
    [
        *({"encoder": encoder} for encoder in CHOICES["encoder"]),
        *({"observation": distribution} for distribution in CHOICES["observation"]),
    ],
    ids=lambda settings: next(iter(settings.values())),
)
def test_a_seeded_model_leaves_the_global_random_state_alone(settings):
    needed = NEEDED.get(settings.get("observation"), {})
    config = SMCTransformerConfig(d_model=4, d_ff=4, position_encoding="learned", **needed, **settings)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    SMCTransformer(config, generator=7)
    SMCTransformer(config, generator=torch.Generator().manual_seed(7))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_model_without_a_seed_uses_the_global_random_state():
    torch.manual_seed(1)
    first, second = (SMCTransformer(SMCTransformerConfig(d_model=4, d_ff=4)) for _ in range(2))
    assert not torch.equal(first.attention.query.weight, second.attention.query.weight)
    torch.manual_seed(1)
    again = SMCTransformer(SMCTransformerConfig(d_model=4, d_ff=4))
    assert torch.equal(first.attention.query.weight, again.attention.query.weight)
