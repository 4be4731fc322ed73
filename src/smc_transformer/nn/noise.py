"""Standard normal noise."""

from torch import Generator, Tensor

from smc_transformer.kernels.choice import in_c
from smc_transformer.kernels.noise import fill_normal
from smc_transformer.nn.conditions import explain_draws


def standard_normal(shape: tuple[int, ...], like: Tensor, generator: Generator | None) -> Tensor:
    """Standard normal numbers like `like`."""
    return fill_standard_normal_(like.new_empty(shape), generator)


def fill_standard_normal_(out: Tensor, generator: Generator | None) -> Tensor:
    """The same numbers in a contiguous tensor that is there already."""
    if in_c(explain_draws(out)):
        return fill_normal(out, generator)
    return out.normal_(generator=generator)
