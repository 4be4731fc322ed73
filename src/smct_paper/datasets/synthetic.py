"""Synthetic series whose distribution is known, so that a model can be compared with the best possible one.

All three are autoregressions with a random coefficient, X_0 ~ N(0, 1) and

    X_{t+1} = A X_t + sqrt(variance) e,    A = coefficients[j] with probability probabilities[j].

    model1   0.8, variance 0.5                        (the paper's Model I)
    model2   0.9 or, with probability 0.3, 0.54; variance 0.3   (the paper's Model II)
    model3   0.9 or -0.9, each half of the time; variance 0.05   (ours: truly bimodal)
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from smc_transformer.nn.observation import GaussianMixture
from smc_transformer.support.randomness import as_generator


@dataclass(frozen=True)
class MixtureAutoregression:
    """An autoregression of order one whose coefficient is drawn anew at each step."""

    coefficients: tuple[float, ...]
    probabilities: tuple[float, ...]
    variance: float

    def sample(
        self, n_sequences: int = 1000, n_steps: int = 24, generator: Generator | int | None = None
    ) -> Float[Tensor, "sequence time_plus_1 1"]:
        """Draw sequences X_0, ..., X_{n_steps}."""
        generator = as_generator(generator)
        noise = torch.randn(n_sequences, n_steps + 1, generator=generator)
        later = self.simulate(noise[:, 0], noise[:, 1:], generator)
        return torch.cat((noise[:, :1], later), dim=1).unsqueeze(-1)

    def simulate(
        self, last: Float[Tensor, "*#batch"], noise: Float[Tensor, "*batch time"], generator: Generator | None
    ) -> Float[Tensor, "*batch time"]:
        """The values that follow the last ones, from standard normal noise and coefficients that are drawn."""
        probabilities = torch.tensor(self.probabilities)
        which = torch.multinomial(probabilities, noise.numel(), replacement=True, generator=generator)
        coefficients = torch.tensor(self.coefficients)[which.view(noise.shape)]
        x = torch.empty_like(noise)
        for t in range(noise.shape[-1]):
            last = x[..., t] = coefficients[..., t] * last + self.variance**0.5 * noise[..., t]
        return x

    def predictive(self, x: Float[Tensor, "batch time_plus_1 1"]) -> GaussianMixture:
        """The true distribution of X_1, ..., X_T, each given the past: what a perfect model would predict."""
        coefficients = torch.tensor(self.coefficients).to(x).view(1, -1, 1, 1)
        means = coefficients * x[:, None, :-1]
        log_probabilities = torch.tensor(self.probabilities).to(x).log().view(1, -1, 1)
        return GaussianMixture(
            log_probabilities.expand(means.shape[:-1]), means, torch.tensor([[self.variance]]).to(x).sqrt()
        )

    def distribution_mse(
        self, samples: Float[Tensor, "batch sample time 1"], x: Float[Tensor, "batch time_plus_1 1"]
    ) -> float:
        """The paper's dist-mse: E (x' - a X_t)^2 over predictive samples x' of X_{t+1}, averaged over the modes.

        For the true distribution it is `variance` for Model I, and with several coefficients `variance` plus twice the
        variance of the coefficient times E[X^2].
        """
        modes = zip(self.coefficients, self.probabilities, strict=True)
        return sum(p * float((samples - a * x[:, None, :-1]).square().mean()) for a, p in modes)


SYNTHETIC = {
    "model1": MixtureAutoregression((0.8,), (1.0,), 0.5),
    "model2": MixtureAutoregression((0.9, 0.54), (0.7, 0.3), 0.3),
    "model3": MixtureAutoregression((0.9, -0.9), (0.5, 0.5), 0.05),
}


class Split(NamedTuple):
    """Sequences for training, validation and test."""

    train: Float[Tensor, "train time features"]
    validation: Float[Tensor, "validation time features"]
    test: Float[Tensor, "test time features"]


def split_sequences(x: Float[Tensor, "sequence time features"], shares: tuple[float, float] = (0.8, 0.1)) -> Split:
    """Cut independent sequences, in their order, into training, validation and test parts."""
    first, second = round(shares[0] * len(x)), round((shares[0] + shares[1]) * len(x))
    return Split(x[:first], x[first:second], x[second:])
