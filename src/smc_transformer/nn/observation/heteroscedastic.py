"""Gaussian observations whose scales depend on the state: X_t ~ N(mean, D R D)."""

from jaxtyping import Float
from torch import Tensor

from smc_transformer.kernels import densities
from smc_transformer.nn.observation.gaussian import ClosedFormMixture, GaussianComponents
from smc_transformer.nn.observation.scaled import ScaledObservation


class HeteroscedasticObservation(ScaledObservation):
    """Means and scales from the read-out (by gradient), the correlation by EM."""

    mixture_type = ClosedFormMixture

    def components(self, parameters: Float[Tensor, "*batch n_parameters"]) -> GaussianComponents:
        location, scale = self.location_and_scale(parameters)
        return GaussianComponents(location, self.root(), scale)

    def kernel_form(self) -> densities.Elliptical:
        return densities.gaussian(self.root(), self.bounds())
