"""The shapes in signatures are checked while the tests run, however often a function was called before."""

import beartype
import jaxtyping
import numpy as np
import pytest
import torch
from helpers.shapes import SOME
from jaxtyping import Float
from torch import Tensor

from smc_transformer.smc.genealogy import gather_trajectories

shaped = jaxtyping.jaxtyped(typechecker=beartype.beartype)
FITS = torch.zeros(2, 3), torch.zeros(3)


@shaped
def product(
    a: Float[Tensor, "row column"], b: Float[Tensor, "column"], results: list | None = None
) -> Float[Tensor, "row"]:
    return a @ b if results is None else results.pop()


@shaped
def total(parts: tuple[Float[Tensor, "n"], Float[Tensor, "n"]], names: dict[str, int], n: int = 0) -> float:
    return float(parts[0].sum() + parts[1].sum())


def test_what_fits_is_called_each_time():
    assert [product(a, FITS[1] + 1).tolist() for a in (FITS[0], FITS[0] + 1)] == [[0, 0], [3, 3]]


@pytest.mark.parametrize(
    "arguments",
    [
        (torch.zeros(2, 4), FITS[1]),
        (FITS[0], torch.zeros(3, 1)),
        (FITS[0], torch.zeros(3, dtype=torch.int64)),
        (FITS[0], [0.0, 0.0, 0.0]),
        (FITS[0], np.zeros(3)),
    ],
    ids=["size", "axes", "dtype", "list", "array"],
)
def test_arguments_that_do_not_fit_are_noticed_after_ones_that_do(arguments):
    for _ in range(2):
        product(*FITS)
        with pytest.raises(jaxtyping.TypeCheckError):
            product(*arguments)


def test_results_that_do_not_fit_are_noticed_after_ones_that_do():
    for _ in range(2):
        product(*FITS, [torch.zeros(2)])
        for wrong in (torch.zeros(3), torch.zeros(2, 1), torch.zeros(2).int(), None):
            with pytest.raises(jaxtyping.TypeCheckError):
                product(*FITS, [wrong])


def test_what_lies_in_containers_is_looked_at():
    pair = (torch.zeros(2), torch.zeros(2))
    for _ in range(2):
        assert total(pair, {"one": 1}) == 0
        for parts, names in (
            (pair[:1], {}),
            ((torch.zeros(2), torch.zeros(3)), {}),
            (pair, {1: 1}),
            (pair, {"one": "1"}),
        ):
            with pytest.raises(jaxtyping.TypeCheckError):
                total(parts, names)
        with pytest.raises(jaxtyping.TypeCheckError):
            total(pair, {}, n="0")


def test_functions_made_time_after_time_are_checked():
    def count(width):
        @shaped
        def inner(a: Float[Tensor, "2"], b: "Float[Tensor, 'n n']") -> "Float[Tensor, 'n']":
            return b.new_zeros(width)

        return inner(torch.zeros(2), torch.zeros(3, 3))

    for _ in range(2):
        assert len(count(3)) == 3
        with pytest.raises(jaxtyping.TypeCheckError):
            count(4)


def test_the_package_is_checked():
    values, trajectories = torch.zeros(2, 3, 4, 1), torch.zeros(2, 5, 4, dtype=torch.int64)

    def wrong():
        for _ in range(SOME):  # other tests may have called it often
            gather_trajectories(values, trajectories[:1])

    for _ in range(2):
        assert gather_trajectories(values, trajectories).shape == (2, 5, 4, 1)
        with pytest.raises(jaxtyping.TypeCheckError):
            wrong()
