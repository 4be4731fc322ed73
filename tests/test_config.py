import dataclasses
import json
import math
import re

import pytest

from smc_transformer import SMCTransformer, SMCTransformerConfig

pytestmark = pytest.mark.usefixtures("without_shape_checks")

COUNTS = ("n_inputs", "n_targets", "d_model", "d_ff", "window", "n_particles", "max_positions")
CHOICES = {
    "covariance": ("isotropic", "diagonal", "full"),
    "observation_covariance": ("isotropic", "diagonal", "full"),
    "position_encoding": (None, "sinusoidal", "learned"),
    "resampling": ("multinomial", "residual", "stratified", "systematic"),
    "gradient": ("pathwise", "score"),
    "noise_learning": ("gradient", "em"),
    "readout": ("transformer", "linear"),
}
NUMBERS = ("ess_threshold", "initial_latent_variance", "initial_observation_variance")

OTHER_THAN_THE_DEFAULTS = {
    "n_inputs": 3,
    "n_targets": 2,
    "d_model": 4,
    "d_ff": 5,
    "window": 6,
    "n_particles": 7,
    "covariance": "full",
    "observation_covariance": "isotropic",
    "predict_change": True,
    "position_encoding": "learned",
    "max_positions": 8,
    "resampling": "multinomial",
    "ess_threshold": 0.5,
    "gradient": "score",
    "noise_learning": "em",
    "readout": "linear",
    "initial_latent_variance": 0.125,
    "initial_observation_variance": 0.75,
}


def test_settings_cannot_be_changed():
    config = SMCTransformerConfig()
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.d_model = 64


def test_settings_must_be_named():
    with pytest.raises(TypeError, match="positional"):
        SMCTransformerConfig(1, 1)


def test_unknown_settings_are_rejected():
    with pytest.raises(TypeError, match="n_heads"):
        SMCTransformerConfig(n_heads=2)


def test_unknown_settings_of_a_dictionary_are_named_and_so_are_the_known_ones():
    with pytest.raises(ValueError, match=r"unknown settings \['depth', 'n_heads'\]; known are .*'d_model'"):
        SMCTransformerConfig.from_dict({"n_heads": 2, "d_model": 8, "depth": 1})


@pytest.mark.parametrize("settings", [{}, OTHER_THAN_THE_DEFAULTS], ids=["defaults", "others"])
def test_settings_survive_json(settings):
    config = SMCTransformerConfig(**settings)
    assert SMCTransformerConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_the_dictionary_holds_every_setting():
    names = {field.name for field in dataclasses.fields(SMCTransformerConfig)}
    assert set(OTHER_THAN_THE_DEFAULTS) == names  # or the round trip above misses some
    assert SMCTransformerConfig(**OTHER_THAN_THE_DEFAULTS).to_dict() == OTHER_THAN_THE_DEFAULTS


def test_a_dictionary_may_leave_settings_at_their_defaults():
    assert SMCTransformerConfig.from_dict({"d_model": 8}) == SMCTransformerConfig(d_model=8)


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("value", [0, -3])
def test_counts_below_one_are_rejected(name, value):
    with pytest.raises(ValueError, match=f"{name} must be at least 1, got {value}"):
        SMCTransformerConfig(**{name: value})


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("value", [2.0, "2", True])
def test_counts_that_are_not_whole_numbers_are_rejected(name, value):
    with pytest.raises(TypeError, match=f"{name} must be a whole number, got {value!r}"):
        SMCTransformerConfig(**{name: value})


def test_a_window_of_none_is_all_the_past():
    assert SMCTransformerConfig(window=None).window is None


def test_more_targets_than_inputs_are_rejected():
    with pytest.raises(ValueError, match=r"n_targets must be at most n_inputs .*got n_targets=3 and n_inputs=2"):
        SMCTransformerConfig(n_inputs=2, n_targets=3)


@pytest.mark.parametrize("name", CHOICES)
def test_unknown_choices_are_rejected_and_the_known_ones_listed(name):
    with pytest.raises(ValueError, match=f"{name} must be one of .*got 'nonsense'") as caught:
        SMCTransformerConfig(**{name: "nonsense"})
    assert all(repr(choice) in str(caught.value) for choice in CHOICES[name])


@pytest.mark.parametrize(("name", "choice"), [(name, choice) for name in CHOICES for choice in CHOICES[name]])
def test_every_choice_makes_a_model(name, choice):
    SMCTransformer(SMCTransformerConfig(d_model=4, d_ff=4, **{name: choice}))


@pytest.mark.parametrize("value", [1, "yes", None])
def test_predict_change_must_be_true_or_false(value):
    with pytest.raises(TypeError, match=f"predict_change must be True or False, got {value!r}"):
        SMCTransformerConfig(predict_change=value)


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", ["0.5", None, True])
def test_numbers_that_are_none_are_rejected(name, value):
    with pytest.raises(TypeError, match=f"{name} must be a number, got {value!r}"):
        SMCTransformerConfig(**{name: value})


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [-0.1, math.nan, math.inf])
def test_impossible_numbers_are_rejected(name, value):
    bounds = "between 0 and 1" if name == "ess_threshold" else "at least 0 and finite"
    with pytest.raises(ValueError, match=re.escape(f"{name} must be {bounds}, got {value}")):
        SMCTransformerConfig(**{name: value})


def test_a_threshold_above_one_is_rejected():
    with pytest.raises(ValueError, match=r"ess_threshold must be between 0 and 1, got 1\.5"):
        SMCTransformerConfig(ess_threshold=1.5)


@pytest.mark.parametrize("value", [0, 0.0, 1, 1.0])
def test_the_ends_of_the_threshold_are_allowed_as_whole_numbers_too(value):
    assert SMCTransformerConfig(ess_threshold=value).ess_threshold == value


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
        SMCTransformerConfig(gradient="score", initial_latent_variance=0.0)
