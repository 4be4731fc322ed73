"""What a forecaster is asked to do: columns, lengths, scaling, and the settings of its model and training."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from torch import Generator

from smc_transformer.config import SMCTransformerConfig
from smc_transformer.forecaster.frequency import LONGEST, Frequency, check_frequency
from smc_transformer.forecaster.view.local import n_features
from smc_transformer.inference.settings import MOST_PARTICLES
from smc_transformer.model import SMCTransformer, split_settings
from smc_transformer.network import make_observation
from smc_transformer.nn.observation.base import WholeNumbers
from smc_transformer.support.checks import check_choice, check_count, check_number, shown
from smc_transformer.support.choices import CYCLES, SCALINGS
from smc_transformer.support.randomness import LARGEST_SEED
from smc_transformer.support.settings import FrozenSettings, check_names


@dataclass(frozen=True, kw_only=True)
class TrainingSettings(FrozenSettings):
    """How the model of a forecaster is trained.

    Three stages, each of so many batches, make the squared error of the transformer without its noise small, the
    likelihood large, and the CRPS of free-running forecasts small; 0 skips the first or the last of them. Through the
    local view the network starts where simple forecasts are, and the first stage does not pay; the last one gains what
    it can in few steps, is kept only if it forecasts held-out windows better, and has a smaller rate the more steps it
    has.
    """

    squared_error_steps: int | None = None  # None: twice as many as those of the likelihood; none with a local view
    likelihood_steps: int = 200
    forecast_steps: int | None = None  # None: as many as those of the likelihood, half as many with a local view
    batch_size: int = 32  # windows
    learning_rate: float | None = None  # its peak; half of it in the third stage. None: 3e-3, 2e-3 with a local view
    validations: int = 6  # how often each stage looks at the validation windows; the last a third as often (local view)
    max_windows: int = 6_000  # training windows at most; more are thinned out evenly

    def __post_init__(self) -> None:
        self._check_counts("likelihood_steps", "batch_size", "validations", "max_windows")
        for name in ("squared_error_steps", "forecast_steps"):
            if getattr(self, name) is not None:
                check_count(getattr(self, name), name, at_least=0)
        if self.learning_rate is not None:
            check_number(self.learning_rate, "learning_rate", positive=True)


@dataclass(frozen=True, kw_only=True)
class Settings(FrozenSettings):
    """The settings of a forecaster, checked when made; see `Forecaster` for what they mean.

    Nothing is left open here: what a user has not set is chosen from the table (`automatic.py`).
    """

    input_size: int = 48
    horizon: int = 24
    targets: tuple[str, ...] = ("y",)
    future_inputs: tuple[str, ...] = ()
    past_inputs: tuple[str, ...] = ()
    freq: Frequency = "h"
    calendar: tuple[str, ...] = ()
    scaling: str | dict[str, str] = "standard"
    seasons: tuple[int, ...] = ()
    config: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    n_particles: int = 64
    seed: int = 0
    id_column: str = "unique_id"
    time_column: str = "ds"

    def __post_init__(self) -> None:
        self._check_counts("horizon", at_most=LONGEST)
        self._check_counts("n_particles", at_most=MOST_PARTICLES)
        self._set("input_size", check_count(self.input_size, "input_size", at_least=2, at_most=LONGEST))
        self._set("seed", check_count(self.seed, "seed", at_least=0, at_most=LARGEST_SEED))
        self._set("freq", check_frequency(self.freq))
        for name in ("config", "training"):
            if not isinstance(getattr(self, name), dict):
                raise TypeError(f"{name} must be a dictionary of settings, got {shown(getattr(self, name))}")
        for name in ("id_column", "time_column"):
            if not isinstance(getattr(self, name), str):
                raise TypeError(f"{name} must be the name of a column, got {shown(getattr(self, name))}")
        if not self.targets:
            raise ValueError("targets must name at least one column, got none")
        for name in self.calendar:
            check_choice(name, CYCLES, "calendar")
        if self.calendar and not isinstance(self.freq, str):
            raise ValueError(f"calendar features need timestamps, but freq={self.freq!r} means whole-number times")
        columns = (*self.modelled, *self.future_inputs, self.id_column, self.time_column)
        if twice := sorted({column for column in columns if columns.count(column) > 1}):
            raise ValueError(f"a column has one role only, but {twice} have several")
        self._set(
            "seasons", tuple(check_count(season, "seasons", at_least=2, at_most=LONGEST) for season in self.seasons)
        )
        if not isinstance(self.scaling, dict):
            check_choice(self.scaling, SCALINGS, "scaling")
        elif unknown := sorted(set(self.scaling) - set(self.modelled)):
            raise ValueError(f"scaling names columns that are neither targets nor past inputs: {unknown}")
        else:
            for column, kind in self.scaling.items():
                check_choice(kind, tuple(one for one in SCALINGS if one != "local"), f"scaling of {column!r}")
        self.training_settings()
        config = self.model_config()  # raises on settings that no model can have
        allowed = ("none",) if config.observation == "categorical" else ("none", "local")
        if self.support() is not None and not set(self.kinds()) <= set(allowed):
            raise ValueError(
                f'observation="{config.observation}" models whole numbers as they are: '
                f"use scaling={' or '.join(map(repr, allowed))}"
            )

    @classmethod
    def from_dict(cls, settings: dict[str, Any]) -> "Settings":
        """The settings as the arguments of `Forecaster` or as JSON hold them."""
        found: dict[str, Any] = {}
        for name, value in settings.items():
            if name in ("targets", "future_inputs", "past_inputs", "calendar"):
                found[name] = _names(value, name)
            elif name == "seasons":
                if not isinstance(value, (int, Iterable)):
                    raise TypeError(f"seasons must be whole numbers of rows, got {shown(value)}")
                found[name] = (value,) if isinstance(value, int) else tuple(value)
            elif value is None and name in ("config", "training"):
                found[name] = {}
            elif isinstance(value, Mapping):
                plain = {key: one.item() if isinstance(one, np.generic) else one for key, one in value.items()}
                found[name] = plain  # numbers of numpy became Python's, which JSON can hold
            else:
                found[name] = value
        return super().from_dict(found)

    @property
    def modelled(self) -> tuple[str, ...]:
        """The columns that the model predicts: targets, then past inputs."""
        return self.targets + self.past_inputs

    @property
    def window_length(self) -> int:
        """Rows of a training window: history and horizon."""
        return self.input_size + self.horizon

    def kinds(self) -> tuple[str, ...]:
        """The scaling of each modelled column."""
        if isinstance(self.scaling, str):
            return (self.scaling,) * len(self.modelled)
        return tuple(self.scaling.get(column, "standard") for column in self.modelled)

    @property
    def is_local(self) -> bool:
        """Whether columns are seen through the local view."""
        return self.scaling == "local"

    def support(self) -> WholeNumbers | None:
        """The values of a distribution of whole numbers, which no scaling may touch; None: all numbers."""
        return self._support

    @cached_property
    def _support(self) -> WholeNumbers | None:
        return make_observation(self.model_config()).support

    def training_settings(self) -> TrainingSettings:
        """The settings of the training."""
        check_names(self.training, TrainingSettings.names(), "training settings")
        return TrainingSettings(**self.training)

    def model_config(self) -> SMCTransformerConfig:
        """The architecture of the model."""
        return split_settings(self._model_settings())[0]

    def make_model(self, generator: Generator | int | None) -> SMCTransformer:
        """A model with random weights."""
        return SMCTransformer.from_settings(self._model_settings(), generator)

    def _model_settings(self) -> dict[str, Any]:
        """Architecture, inference and learning: defaults for forecasting, with what the user overrides."""
        for name in ("n_inputs", "n_targets"):
            if name in self.config:
                raise ValueError(f"config must not hold {name}: it follows from the columns")
        # A scale a little too large on a logarithm becomes an absurd count through the exponential
        # (docs/observation_models.md).
        distribution = "gaussian" if "log1p" in self.kinds() else "student_t"
        counts = self.config.get("observation") == "negative_binomial"
        features = len(self.modelled) * n_features(len(self.seasons), counts) if self.is_local else 0
        return {
            "d_model": 32,
            "d_ff": 32,
            "encoder": "gru",
            "window": min(self.input_size, 24),
            # The local view says where a series is and where it is going.
            "input_changes": not self.is_local,
            "predict_change": not self.is_local and self.config.get("observation") != "categorical",
            "observation": distribution,
            "initial_latent_variance": 0.05,
            "n_particles": 10,
            **self.config,
            "n_inputs": len(self.modelled) + len(self.future_inputs) + 2 * len(self.calendar) + features,
            "n_targets": len(self.modelled),
        }


def _names(value: Sequence[str] | str, name: str) -> tuple[str, ...]:
    """Column names as a tuple; one name alone is welcome."""
    if not isinstance(value, Iterable):
        raise TypeError(f"{name} must hold column names, got {shown(value)}")
    found = (value,) if isinstance(value, str) else tuple(value)
    for column in found:
        if not isinstance(column, str):
            raise TypeError(f"{name} must hold column names, got {shown(column)}")
    return found
