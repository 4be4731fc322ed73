"""Random numbers, drawn by all threads: normal ones, and for rows with streams of their own others too."""

import ctypes

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from smc_transformer.kernels.library import loaded, threads
from smc_transformer.kernels.structures import COUNT, POINTER


def fill_normal(out: Tensor, generator: Generator | None) -> Tensor:
    """Fill a contiguous tensor; the same seed gives the same numbers whatever the number of threads.

    In any type, the numbers have the precision of float32.
    """
    pointer, size, seed = POINTER(out.data_ptr()), COUNT(out.numel()), ctypes.c_uint64(int(draw_seed(generator)))
    loaded(out).fill_normal(pointer, size, seed, threads(8 * out.numel()))
    return out


def fill_normals(out: Float[Tensor, "row ..."], seeds: Int[Tensor, "row"]) -> Float[Tensor, "row ..."]:
    """Fill each row of a contiguous tensor from a seed of its own, with the numbers that `fill_normal` would make."""
    return fill_normal_rows(out, seeds, torch.zeros_like(seeds), 0)


def draw_seed(generator: Generator | None) -> Int[Tensor, ""]:
    """The seed of the next numbers: whoever makes them from it makes those that `fill_normal` would."""
    return torch.randint(2**63 - 1, (), generator=generator)


def fill_normal_rows(
    out: Float[Tensor, "row ..."], keys: Int[Tensor, "row"], steps: Int[Tensor, "row"], draw: int
) -> Float[Tensor, "row ..."]:
    """Fill each row of a contiguous tensor from a stream of its own: the numbered draw of (key, step)."""
    loaded(out).fill_normal_rows(*_of_rows(out, keys, steps, draw))
    return out


def fill_uniform_rows(
    out: Float[Tensor, "row ..."], keys: Int[Tensor, "row"], steps: Int[Tensor, "row"], draw: int
) -> Float[Tensor, "row ..."]:
    """The same with uniform numbers in [0, 1), in float64."""
    loaded(torch.empty(0)).fill_uniform_rows(*_of_rows(out, keys, steps, draw))
    return out


def gamma_rows(
    shapes: Float[Tensor, "row ..."], keys: Int[Tensor, "row"], steps: Int[Tensor, "row"], draw: int
) -> Float[Tensor, "row ..."]:
    """Numbers of the standard Gamma distributions of these shapes, in float64; NaN for a shape that has none."""
    return _drawn_rows("fill_gamma_rows", shapes, keys, steps, draw)


def poisson_rows(
    rates: Float[Tensor, "row ..."], keys: Int[Tensor, "row"], steps: Int[Tensor, "row"], draw: int
) -> Float[Tensor, "row ..."]:
    """The same with Poisson numbers of these rates."""
    return _drawn_rows("fill_poisson_rows", rates, keys, steps, draw)


def _drawn_rows(kind: str, parameters: Tensor, keys: Tensor, steps: Tensor, draw: int) -> Tensor:
    parameters = parameters.double().contiguous()
    out = torch.empty_like(parameters)
    fill = getattr(loaded(torch.empty(0)), kind)
    fill(*_of_rows(out, keys, steps, draw, cost=64), POINTER(parameters.data_ptr()))
    return out


def _of_rows(out: Tensor, keys: Tensor, steps: Tensor, draw: int, cost: int = 8) -> tuple[object, ...]:
    sizes = (COUNT(len(out)), COUNT(out[:1].numel()))
    pointers = (POINTER(keys.data_ptr()), POINTER(steps.data_ptr()))
    return (POINTER(out.data_ptr()), *sizes, *pointers, ctypes.c_uint32(draw), threads(cost * out.numel()))
