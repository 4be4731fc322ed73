"""Gaussian algebra with some coordinates unobserved, in batch: each row has its own mask.

A mask turns a covariance R into one with the identity in place of the unobserved coordinates. Its Cholesky factor then
serves all rows alike: unobserved residuals are zero and add nothing to norms or determinants.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def masked_root(
    covariance: Float[Tensor, "size size"], observed: Bool[Tensor, "*batch size"]
) -> Float[Tensor, "*batch size size"]:
    """Cholesky factor of the covariance with the identity in place of unobserved coordinates."""
    both = observed.unsqueeze(-1) & observed.unsqueeze(-2)
    identity = torch.eye(len(covariance), dtype=covariance.dtype, device=covariance.device)
    # In float64, as a thin covariance in float32 may have rounded to one that has no Cholesky factor.
    masked = torch.where(both, covariance, identity).double()
    jitter = 1e-9 * covariance.diagonal().mean().double()
    return torch.linalg.cholesky(masked + jitter * identity.double()).to(covariance.dtype)


def solve_rows(
    root: Float[Tensor, "*#batch size size"], rows: Float[Tensor, "*batch size"]
) -> Float[Tensor, "*batch size"]:
    """root^-1 applied to each row."""
    return torch.linalg.solve_triangular(root, rows.unsqueeze(-1), upper=False).squeeze(-1)


def condition(
    drawn: Float[Tensor, "*batch size"],
    observed_residual: Float[Tensor, "*batch size"],
    root: Float[Tensor, "*#batch size size"],
    covariance: Float[Tensor, "size size"],
) -> Float[Tensor, "*batch size"]:
    """A joint draw moved to agree with what was observed (Matheron's rule): a draw of the conditional law.

    Args:
        drawn: draws from N(0, covariance).
        observed_residual: observed values minus drawn ones; zero at unobserved coordinates.
        root: `masked_root` of the covariance.
        covariance: the covariance.
    """
    whitened = solve_rows(root, observed_residual)
    solved = torch.linalg.solve_triangular(root.mT, whitened.unsqueeze(-1), upper=True).squeeze(-1)
    return drawn + solved @ covariance
