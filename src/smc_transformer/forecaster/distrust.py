"""Values that are not believed: what lies outside the interval predicted for it is treated as missing.

An outlier that is believed drags the state, and the return to normal is then a second surprise. One that is not
believed leaves the particles where they were. But a series may really have moved: after as many values outside in a
row as the patience allows, all are believed, until one lies inside again. Without that, a model of a series that keeps
returning to its mean (whose intervals stop growing, however long nothing is observed) would never look again.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def is_outside(pit: Float[Tensor, "*row"], percent: int | float) -> Bool[Tensor, "*row"]:
    """Whether values lie outside the central interval that holds `percent` of their distribution; NaN does not."""
    return (2 * pit.double() - 1).abs() > percent / 100


@dataclass(frozen=True)
class Distrust:
    """Which values are not believed."""

    percent: int | float  # the level of the central interval outside which a value is not believed
    n_targets: int  # the first columns of a row, which can be doubted; the others are always believed
    patience: int  # how many values of a column are not believed in a row

    def runs(
        self, before: Int[Tensor, "batch column"], pit: Float[Tensor, "batch column"]
    ) -> Int[Tensor, "batch column"]:
        """How many values in a row lay outside, the new ones included; a missing one changes nothing."""
        outside = is_outside(pit, self.percent)
        outside[:, self.n_targets :] = False
        return torch.where(pit.isnan(), before, torch.where(outside, before + 1, 0))

    def denies(self, runs: Int[Tensor, "*row column"]) -> Bool[Tensor, "*row column"]:
        """Whether the last values of such runs are not believed."""
        return (runs > 0) & (runs <= self.patience)
