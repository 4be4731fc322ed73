"""Gaussian algebra with some coordinates unobserved, in batch: each row has its own mask.

A mask turns a covariance R into one with the identity in place of the unobserved coordinates. Its Cholesky factor then
serves all rows alike: unobserved residuals are zero and add nothing to norms or determinants.
"""

import functools

import torch
from jaxtyping import Bool, Float
from torch import Tensor

MOST_BY_NUMBER = 8
"""Coordinates up to which matrices are applied number by number: a library's product of many rows rounds each in a way
that depends on how many there are."""


def masked_root(
    covariance: Float[Tensor, "size size"], observed: Bool[Tensor, "*batch size"]
) -> Float[Tensor, "*batch size size"]:
    """Cholesky factor of the covariance with the identity in place of unobserved coordinates."""
    both = observed.unsqueeze(-1) & observed.unsqueeze(-2)
    identity = torch.eye(len(covariance), dtype=covariance.dtype, device=covariance.device)
    # In float64, as a thin covariance in float32 may have rounded to one that has no Cholesky factor.
    masked = torch.where(both, covariance, identity).double()
    return torch.linalg.cholesky(masked * (1 + 1e-9 * identity.double())).to(covariance.dtype)


def apply_root(root: Float[Tensor, "size size"], rows: Float[Tensor, "*batch size"]) -> Float[Tensor, "*batch size"]:
    """The matrix applied to each row; number by number for few coordinates, so that rows do not depend on others."""
    if len(root) > MOST_BY_NUMBER:
        return rows @ root.T
    products = [rows[..., place : place + 1] * root[:, place] for place in range(len(root))]
    return functools.reduce(torch.add, products)


def solve_root(root: Float[Tensor, "size size"], rows: Float[Tensor, "*batch size"]) -> Float[Tensor, "*batch size"]:
    """A lower triangular root^-1 applied to each row, likewise."""
    if len(root) > MOST_BY_NUMBER:
        # Not solve_rows: one matrix for all rows is much faster than one for each.
        flat = rows.reshape(-1, rows.shape[-1])
        return torch.linalg.solve_triangular(root.T, flat, upper=True, left=False).view_as(rows)
    found: list[Tensor] = []
    for place, column in enumerate(rows.unbind(dim=-1)):
        for before, value in enumerate(found):
            column = column - root[place, before] * value
        found.append(column / root[place, place])
    return torch.stack(found, dim=-1)


def squared_norm(
    residual: Float[Tensor, "*batch size"],
    root: Float[Tensor, "size size"],
    observed: Bool[Tensor, "*#batch size"] | None = None,
) -> tuple[Float[Tensor, "*batch"], Float[Tensor, "*_"]]:
    """r^T R^-1 r for R = root root^T, and log det R^(1/2), of the observed coordinates (None: all)."""
    if observed is None:
        whitened = solve_root(root, residual)
        log_determinant = root.diagonal().abs().log().sum()
    else:
        masked = masked_root(root @ root.T, observed)
        whitened = solve_rows(masked, torch.where(observed, residual, 0.0))
        log_determinant = masked.diagonal(dim1=-2, dim2=-1).log().sum(dim=-1)
    return whitened.square().sum(dim=-1), log_determinant


def observed_sum(
    values: Float[Tensor, "*batch size"], observed: Bool[Tensor, "*#batch size"] | None
) -> Float[Tensor, "*batch"]:
    """Sum over the observed coordinates (None: all)."""
    return (values if observed is None else torch.where(observed, values, 0.0)).sum(dim=-1)


def solve_rows(
    root: Float[Tensor, "*#batch size size"], rows: Float[Tensor, "*batch size"]
) -> Float[Tensor, "*batch size"]:
    """root^-1 applied to each row."""
    return torch.linalg.solve_triangular(root, rows.unsqueeze(-1), upper=False).squeeze(-1)


def condition(
    drawn: Float[Tensor, "*batch size"],
    residual: Float[Tensor, "*batch size"],
    observed: Bool[Tensor, "*#batch size"],
    covariance: Float[Tensor, "size size"],
) -> Float[Tensor, "*batch size"]:
    """A draw from N(0, covariance) moved to agree with what was observed (Matheron's rule): a conditional draw.

    `residual` is what was observed minus what was drawn; at unobserved coordinates it is not used.
    """
    root = masked_root(covariance, observed)
    whitened = solve_rows(root, torch.where(observed, residual, 0.0))
    solved = torch.linalg.solve_triangular(root.mT, whitened.unsqueeze(-1), upper=True).squeeze(-1)
    return drawn + apply_root(covariance, solved)
