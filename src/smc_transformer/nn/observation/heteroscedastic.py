"""Gaussian observations whose scales depend on the state: X_t ~ N(mean, D R D)."""

from jaxtyping import Float
from torch import Tensor

from smc_transformer.kernels import elliptical
from smc_transformer.nn.observation.base import weighted_second_moment
from smc_transformer.nn.observation.gaussian import GaussianComponents, gaussian_crps
from smc_transformer.nn.observation.scaled import ScaledObservation, ScaleStatistics
from smc_transformer.predictive import Mixture


class HeteroscedasticMixture(Mixture):
    """A mixture of Gaussians of different scales, with its CRPS in closed form."""

    components: GaussianComponents

    def crps(self, x: Float[Tensor, "batch time target"]) -> Float[Tensor, "batch time target"]:
        self._check(x)
        return gaussian_crps(self.weights, self.components, x)


class HeteroscedasticObservation(ScaledObservation):
    """Means and scales from the read-out (by gradient), the correlation by EM.

    Args:
        n_targets: number of predicted coordinates.
        variance: initial variance.
    """

    def components(self, parameters: Float[Tensor, "*batch n_parameters"]) -> GaussianComponents:
        location, scale = self.location_and_scale(parameters)
        return GaussianComponents(location, self.root(), scale)

    def kernel_form(self) -> elliptical.Elliptical:
        return elliptical.gaussian(self.root(), self.bounds())

    def mixture(
        self,
        log_weights: Float[Tensor, "batch particle time"],
        parameters: Float[Tensor, "batch particle time n_parameters"],
    ) -> HeteroscedasticMixture:
        return HeteroscedasticMixture(log_weights, parameters, self.snapshot().components)

    def statistics(
        self,
        targets: Float[Tensor, "batch #trajectory time n_targets"],
        parameters: Float[Tensor, "batch trajectory time n_parameters"],
        weights: Float[Tensor, "batch trajectory"],
    ) -> ScaleStatistics:
        location, scale = self.location_and_scale(parameters)
        moment = weighted_second_moment((targets - location) / scale, weights)
        return ScaleStatistics(moment, *self.range_of_scales(parameters))
