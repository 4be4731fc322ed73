"""A proposal for z(t) that knows X_t: the read-out is taken as linear around the mean of z(t).

With z = mean + Sz^(1/2) eps, A = d E[X_t | z] / d eps at eps = 0, y = X_t - E[X_t | z = mean] and S the covariance of
X_t given z,

    y = A eps + noise,    q(eps) = p(eps | y) = N(A^T G^-1 y, I - A^T G^-1 A),    G = A A^T + S,

which is drawn from as eps + A^T G^-1 (y - A eps - e), with eps ~ N(0, I) and e ~ N(0, S). By Bayes' rule

    p(eps) / q(eps) = N(y; 0, G) / N(y; A eps, S),

so that for a linear read-out with Gaussian noise the weight N(y; 0, G) does not depend on eps at all: the best there
is. Elsewhere one particle in ten is drawn from the model, and q is the mixture of both: then no weight can be large
because the linear read-out was wrong.
"""

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor

from smc_transformer.inference.proposals.base import Proposal, Proposed, proposal
from smc_transformer.inference.state import Moved, ParticleState
from smc_transformer.network import Network
from smc_transformer.nn.observation.gaussian import GaussianObservation
from smc_transformer.nn.readout import LinearReadout

DEFENSIVE_SHARE = 0.1
"""Share of the particles that are drawn from the model, where the read-out is not linear."""


@proposal
class Guided(Proposal):
    """Draws from the linearised posterior."""

    def propose(
        self,
        network: Network,
        state: ParticleState,
        moved: Moved,
        target: Float[Tensor, "batch n_targets"],
        generator: Generator | None,
    ) -> Proposed | None:
        covariance = network.attention.attention_covariance
        eps, z, embedding, _ = moved
        if covariance.is_zero:
            return None
        last = state.last[..., : network.config.n_targets]
        mean = z - covariance.scale(eps)
        linear = Linearised(network, mean, embedding, last, target)
        # Where there is no such posterior (an observation or weights out of all bounds) the model's draw is kept.
        usable = linear.usable()
        drawn = torch.where(usable.unsqueeze(-1), linear.posterior_draw(eps, generator), eps)
        share = 0.0 if is_linear(network) else DEFENSIVE_SHARE
        if share:
            uniforms = torch.rand(eps.shape[:2], generator=generator, dtype=torch.float64, device=eps.device)
            drawn = torch.where((uniforms < share).unsqueeze(-1), eps, drawn)
        log_ratio = linear.log_ratio(drawn)  # log q(eps) / p(eps) without the share of the model
        if share:
            own = torch.full_like(log_ratio, share).log()
            log_ratio = torch.logaddexp(log_ratio + torch.full_like(log_ratio, 1 - share).log(), own)
        z = mean + covariance.scale(drawn)
        parameters = network.read_out(z, embedding, last)
        return Proposed(Moved(drawn, z, embedding, parameters), -torch.where(usable, log_ratio, 0.0))


class Linearised:
    """y = A eps + noise, for every particle.

    Args:
        network: the network.
        mean: the mean of z, around which the read-out is taken as linear.
        embedding: e_{t-1}.
        last: targets of X_{t-1}.
        target: X_t.
    """

    def __init__(
        self,
        network: Network,
        mean: Float[Tensor, "batch particle d_model"],
        embedding: Float[Tensor, "batch _ d_model"],
        last: Float[Tensor, "batch _ n_targets"],
        target: Float[Tensor, "batch n_targets"],
    ):
        with torch.inference_mode(False), torch.enable_grad():
            at = mean.detach().clone().requires_grad_()
            components = network.observation.components(network.read_out(at, embedding.detach().clone(), last.clone()))
            expected = components.mean
            rows = [
                torch.autograd.grad(expected[..., i].sum(), at, retain_graph=True)[0] for i in range(expected.shape[-1])
            ]
        jacobian = torch.stack(rows, dim=-2)  # (batch, particle, target, d_model)
        self.residual = target.unsqueeze(1) - expected.detach()
        self.slope = jacobian @ network.attention.attention_covariance.root().detach()
        noise_root, noise_failed = torch.linalg.cholesky_ex(components.covariance.detach())
        self.noise_root = noise_root.expand(*self.residual.shape, self.residual.shape[-1])
        noise = self.noise_root @ self.noise_root.mT
        self.root, failed = torch.linalg.cholesky_ex(self.slope @ self.slope.mT + noise)
        self.failed = (failed > 0) | (noise_failed > 0)

    def usable(self) -> Bool[Tensor, "batch particle"]:
        """Where the numbers make sense."""
        finite = self.residual.isfinite().all(dim=-1) & self.log_evidence().isfinite()
        return finite & ~self.failed

    def posterior_draw(
        self, eps: Float[Tensor, "batch particle d_model"], generator: Generator | None
    ) -> Float[Tensor, "batch particle d_model"]:
        """A draw of eps given y, from a draw of eps."""
        shape, like = self.residual.shape, self.residual
        noise = torch.randn(shape, generator=generator, dtype=like.dtype, device=like.device)
        simulated = _times(self.slope, eps) + _times(self.noise_root, noise)
        gain = torch.cholesky_solve((self.residual - simulated).unsqueeze(-1), self.root)
        return eps + (self.slope.mT @ gain).squeeze(-1)

    def log_evidence(self) -> Float[Tensor, "batch particle"]:
        """Log N(y; 0, G)."""
        return _log_gaussian(self.residual, self.root)

    def log_ratio(self, eps: Float[Tensor, "batch particle d_model"]) -> Float[Tensor, "batch particle"]:
        """Log q(eps) / p(eps)."""
        return _log_gaussian(self.residual - _times(self.slope, eps), self.noise_root) - self.log_evidence()


def is_linear(network: Network) -> bool:
    """Whether nothing is approximated: a linear read-out and Gaussian noise."""
    return type(network.readout) is LinearReadout and type(network.observation) is GaussianObservation


def _times(
    matrix: Float[Tensor, "*batch row column"], x: Float[Tensor, "*batch column"]
) -> Float[Tensor, "*batch row"]:
    return (matrix @ x.unsqueeze(-1)).squeeze(-1)


def _log_gaussian(x: Float[Tensor, "*batch size"], root: Float[Tensor, "*batch size size"]) -> Float[Tensor, "*batch"]:
    """Log N(x; 0, root root^T)."""
    return torch.distributions.MultivariateNormal(torch.zeros_like(x), scale_tril=root, validate_args=False).log_prob(x)
