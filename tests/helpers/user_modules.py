"""Read-outs and observation models as a user would write them."""

import math

import torch
from torch import nn
from torch.distributions import Laplace

from smc_transformer.nn.observation import GaussianObservation, HeteroscedasticObservation
from smc_transformer.nn.observation.gaussian import GaussianComponents
from smc_transformer.nn.readout import TransformerReadout


class OwnReadout(nn.Module):
    """Nothing like the known ones."""

    def __init__(self, d_model, d_ff, n_outputs):
        super().__init__()
        self.hidden = nn.Linear(2 * d_model, d_ff)
        self.projection = nn.Linear(d_ff, n_outputs)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(torch.linspace(-1, 1, parameter.numel()).view_as(parameter))

    def forward(self, attention, embedding):
        both = torch.cat((attention, embedding.expand_as(attention)), dim=-1)
        return self.projection(self.hidden(both).tanh())


class SteeperReadout(TransformerReadout):
    """The parameters of a known read-out, used in another way."""

    def forward(self, attention, embedding):
        return super().forward(2 * attention, embedding)


class LaplaceComponents(GaussianComponents):
    """Another density around the same locations."""

    def log_prob(self, x, observed=None):
        return Laplace(self.mean, 0.7).log_prob(x).sum(dim=-1)


class LaplaceObservation(GaussianObservation):
    """Overrides the distributions of an observation model that the kernel knows."""

    def components(self, parameters):
        return LaplaceComponents(parameters, self.covariance.root())


class MisjudgedComponents(GaussianComponents):
    """Components that say their means wrongly and know their density."""

    def __init__(self, mean, root):
        super().__init__(0.7 * mean - 0.3, root)
        self.true = GaussianComponents(mean, root)

    def log_prob(self, x, observed=None):
        return self.true.log_prob(x, observed)


class MisjudgedObservation(GaussianObservation):
    """Its means and their slopes, taken for true, mislead about X_t."""

    def components(self, parameters):
        return MisjudgedComponents(parameters, self.covariance.root())


class QuantileComponents(GaussianComponents):
    """Draws without chance: the paths or particles of a sequence are at evenly spaced levels."""

    def sample(self, generator=None):
        n_draws = self.mean.shape[1]
        levels = (torch.arange(n_draws, dtype=self.mean.dtype) + 0.5) / n_draws
        deviation = self.root.square().sum(dim=-1).sqrt()
        return self.mean + deviation * torch.special.ndtri(levels).view(1, -1, *[1] * (self.mean.ndim - 2))


class NotingObservation(GaussianObservation):
    """Notes of how many sequences it is asked at a time."""

    kind = GaussianComponents

    def components(self, parameters):
        self.asked = [*getattr(self, "asked", []), len(parameters)]
        return self.kind(parameters, self.covariance.root())


class QuantileObservation(NotingObservation):
    """Notes the same, and draws without chance."""

    kind = QuantileComponents


def give_observation(model, observation):
    """Another observation model for a model, with the same covariance."""
    covariance = model.observation.covariance
    model.observation = observation(model.config.n_targets).to(model.dtype)
    model.observation.covariance = covariance
    return model


class WiderObservation(LaplaceObservation):
    """A grandchild of such an observation model, which inherits what the child overrides."""


class ShiftedTwiceObservation(GaussianObservation):
    """Overrides what `predict_change` means."""

    def shift(self, parameters, last_targets):
        return super().shift(parameters, 2 * last_targets)


class DampedObservation(GaussianObservation):
    """Overrides what `predict_change` means, by more than adding something."""

    def shift(self, parameters, last_targets):
        return 0.5 * parameters + last_targets


class SoftplusObservation(HeteroscedasticObservation):
    """Overrides how scales come from parameters, on which the distributions depend."""

    def location_and_scale(self, parameters):
        location, raw = parameters.split(self.n_targets, dim=-1)
        return location, 0.1 + nn.functional.softplus(raw)


class MirroredObservation(GaussianObservation):
    """Overrides the distributions, and says so to the kernel: a root three times as wide."""

    def components(self, parameters):
        return GaussianComponents(parameters, 3 * self.covariance.root())

    def kernel_form(self):
        known = super().kernel_form()
        wide = 3 * known.root
        return known._replace(root=wide, constant=known.constant - self.n_targets * math.log(3))


class BoundedObservation(HeteroscedasticObservation):
    """Overrides a part that the kernel asks for: bounds of the log-scales."""

    def kernel_form(self):
        return super().kernel_form()

    def bounds(self):
        return self.lowest.new_full((self.n_targets,), -0.1), self.highest.new_full((self.n_targets,), 0.1)
