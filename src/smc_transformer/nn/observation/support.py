"""Values that a distribution of whole numbers can have."""

from typing import NamedTuple

from jaxtyping import Bool, Float
from torch import Tensor


class WholeNumbers(NamedTuple):
    """0, 1, 2, ... up to the highest."""

    highest: float  # infinite if there is none
    description: str  # what an error says of them

    def denies(self, x: Float[Tensor, "*shape"]) -> Bool[Tensor, "*shape"]:
        """Which values are none of them; NaN is missing, and allowed."""
        return ((x < 0) | (x > self.highest) | (x != x.round())) & ~x.isnan()
