"""Classes and tokens: one target that is one of n classes, given as its number 0, ..., n-1."""

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor
from torch.nn import functional as F

from smc_transformer.kernels import densities
from smc_transformer.nn.observation.base import ObservationModel, WholeNumbers
from smc_transformer.nn.observation.masked import observed_sum
from smc_transformer.predictive import Components, Mixture
from smc_transformer.smc.randomness import SequenceGenerator
from smc_transformer.smc.resampling.base import invert_masses


class CategoricalComponents(Components):
    """Distributions over classes.

    Mean, variance, cdf and quantile read the class numbers as an order, which means something for ordered classes
    only; density, samples and score need no order.
    """

    discrete = True

    def __init__(self, logits: Float[Tensor, "*batch class"]):
        self.log_probabilities = logits.log_softmax(dim=-1)

    @property
    def probabilities(self) -> Float[Tensor, "*batch class"]:
        """Probability of each class."""
        return self.log_probabilities.exp()

    @property
    def _classes(self) -> Float[Tensor, "class"]:
        return torch.arange(self.log_probabilities.shape[-1]).to(self.log_probabilities)

    @property
    def mean(self) -> Float[Tensor, "*batch 1"]:
        return (self.probabilities * self._classes).sum(dim=-1, keepdim=True)

    @property
    def variance(self) -> Float[Tensor, "*batch 1"]:
        return (self.probabilities * (self._classes - self.mean).square()).sum(dim=-1, keepdim=True)

    def log_prob(
        self, x: Float[Tensor, "*#batch 1"], observed: Bool[Tensor, "*#batch 1"] | None = None
    ) -> Float[Tensor, "*batch"]:
        known = x if observed is None else torch.where(observed, x, 0.0)
        rows = torch.broadcast_shapes(known.shape[:-1], self.log_probabilities.shape[:-1])
        table = self.log_probabilities.expand(*rows, -1)
        return observed_sum(table.gather(-1, known.long().expand(*rows, 1)), observed)

    def cdf(self, x: Float[Tensor, "*#batch 1"]) -> Float[Tensor, "*#batch 1"]:
        below = (self.probabilities * (self._classes <= x)).sum(dim=-1, keepdim=True)
        return torch.where(x.isnan(), x, below)

    def sample(self, generator: Generator | None = None) -> Float[Tensor, "*batch 1"]:
        rows = self.probabilities.reshape(-1, self.probabilities.shape[-1])
        if isinstance(generator, SequenceGenerator):  # by inversion
            shares = generator.uniforms((len(self.probabilities), len(rows) // len(self.probabilities)))
            drawn = invert_masses(rows.double(), shares.view(-1, 1))
        else:
            drawn = torch.multinomial(rows, 1, generator=generator)
        return drawn.view(*self.probabilities.shape[:-1], 1).to(self.probabilities)

    def complete(
        self, x: Float[Tensor, "*#batch 1"], observed: Bool[Tensor, "*#batch 1"], generator: Generator | None = None
    ) -> Float[Tensor, "*batch 1"]:
        return torch.where(observed, x, self.sample(generator))


class CategoricalMixture(Mixture):
    """A mixture of distributions over classes."""

    components: CategoricalComponents

    @property
    def probabilities(self) -> Float[Tensor, "batch time class"]:
        """Predictive probability of each class."""
        return (self.weights * self.components.probabilities).sum(dim=1)

    def crps(self, x: Float[Tensor, "batch time 1"]) -> Float[Tensor, "batch time 1"]:
        """Half the Brier score: the same E d(X, x) - E d(X, X') / 2, with distance 1 between any two classes."""
        self._check(x)
        probabilities = self.probabilities
        of_observed = probabilities.gather(-1, x.nan_to_num(0.0).long())
        score = 0.5 - of_observed + 0.5 * probabilities.square().sum(dim=-1, keepdim=True)
        return torch.where(x.isnan(), x, score)


class CategoricalObservation(ObservationModel):
    """Logits from the read-out, learned by gradient. The encoder sees the class as a one-hot vector."""

    can_shift = False
    mixture_type = CategoricalMixture

    def __init__(self, n_classes: int):
        super().__init__(n_targets=1, n_parameters=n_classes)
        self.n_classes = n_classes
        classes = f"the target of a categorical distribution is a class number: 0, ..., {n_classes - 1}"
        self.support = WholeNumbers(n_classes - 1.0, classes)

    def components(self, parameters: Float[Tensor, "*batch n_parameters"]) -> CategoricalComponents:
        return CategoricalComponents(parameters)

    def kernel_form(self) -> densities.Categorical:
        return densities.Categorical()

    def n_features(self, n_inputs: int) -> int:
        return self.n_classes + n_inputs - 1

    def features(self, x: Float[Tensor, "*batch n_inputs"]) -> Float[Tensor, "*batch n_features"]:
        one_hot = F.one_hot(x[..., 0].long(), self.n_classes).to(x)
        return torch.cat((one_hot, x[..., 1:]), dim=-1)
