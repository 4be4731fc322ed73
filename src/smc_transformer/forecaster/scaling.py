"""Scaling of columns: monotone maps to numbers of the order of one, inverted exactly.

    "local"      relative to what simple forecasts say about each row (`view/local.py`): a map for each row
    "none"       as they are
    "standard"   minus the mean, by the standard deviation
    "robust"     minus the median, by the interquartile range over 1.349 (that of a unit normal)
    "log1p"      log(1 + y), then "standard"; for counts and other values of at least 0

Statistics come from the rows that are given; missing values do not count. A column that never changes is not stretched,
or, where it is to have intervals in proportion, by a small share of its size.
"""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

_NORMAL_RANGE = 1.3489795003921634
"""Interquartile range of a standard normal."""
_ROUNDING = 1e-12
"""What rounding leaves of a constant column, relative to its value, is less."""
SHARE_OF_CONSTANT = 0.01
"""Spread of a series that never changes, relative to its size: it may still jump."""


@dataclass(frozen=True)
class Scaler:
    """Maps for the columns of a series: the same for all rows, or one for each row."""

    kinds: tuple[str, ...]
    shift: Float[np.ndarray, "*row column"]  # what is taken away (after the logarithm, if there is one)
    spread: Float[np.ndarray, "*row column"]  # what it is divided by then

    @classmethod
    def fit(
        cls, values: Float[np.ndarray, "row column"], kinds: tuple[str, ...], *, constants: float | None = None
    ) -> "Scaler":
        """The map that the statistics of these rows ask for; NaN is missing.

        A column that never changes is divided by 1, or with `constants` by that share of its size, if it has any: one
        that is always 0 then has the spread NaN.
        """
        shift, spread = np.zeros(len(kinds)), np.ones(len(kinds))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of columns without any value, which stay as they are
            for number, kind in enumerate(kinds):
                if kind == "none":
                    continue
                column = np.log1p(values[:, number]) if kind == "log1p" else values[:, number]
                middle, width = np.nanmean(column), np.nanstd(column)
                if kind == "robust":
                    low, middle, high = np.nanquantile(column, [0.25, 0.5, 0.75])
                    # More than half of the values may be the same: then the deviation has to do.
                    width = (high - low) / _NORMAL_RANGE if high > low else width
                shift[number], spread[number] = middle, width
        return cls._of(kinds, shift, spread, constants)

    @classmethod
    def standard(cls, mean: Float[np.ndarray, "column"], deviation: Float[np.ndarray, "column"]) -> "Scaler":
        """The map "standard" of columns with these moments; NaN for those without any value."""
        return cls._of(("standard",) * len(mean), mean, deviation)

    @classmethod
    def _of(
        cls,
        kinds: tuple[str, ...],
        middle: Float[np.ndarray, "column"],
        width: Float[np.ndarray, "column"],
        constants: float | None = None,
    ) -> "Scaler":
        shift = np.where(np.isfinite(middle), middle, 0.0)
        size = np.abs(shift)
        instead = np.ones(len(kinds)) if constants is None else np.where(size > 0, constants * size, np.nan)
        # What rounding leaves of a constant column is no spread.
        changes = (width > _ROUNDING * size) | (np.array(kinds) == "none")
        return cls(kinds, shift, np.where(changes, width, instead))

    def with_spread(self, of_zeros: Float[np.ndarray, "column"]) -> "Scaler":
        """The same map, with these spreads where it has none."""
        return Scaler(self.kinds, self.shift, np.where(np.isnan(self.spread), of_zeros, self.spread))

    def in_units(self, units: Float[np.ndarray, "column"]) -> "Scaler":
        """The same map, followed by a division."""
        return Scaler(self.kinds, self.shift, self.spread * units)

    def first(self, n_columns: int) -> "Scaler":
        """The map of the first columns alone."""
        return Scaler(self.kinds[:n_columns], self.shift[..., :n_columns], self.spread[..., :n_columns])

    def rows(self, chosen: slice) -> "Scaler":
        """The maps of some rows."""
        if self.shift.ndim == 1:
            return self
        return Scaler(self.kinds, self.shift[chosen], self.spread[chosen])

    def row(self, number: int) -> "Scaler":
        """The map of one row."""
        if self.shift.ndim == 1:
            return self
        return Scaler(self.kinds, self.shift[number], self.spread[number])

    @property
    def logarithmic(self) -> Bool[np.ndarray, "column"]:
        """Which columns go through a logarithm."""
        return np.array([kind == "log1p" for kind in self.kinds], dtype=bool)

    def transform(self, values: Float[np.ndarray, "*row column"]) -> Float[np.ndarray, "*row column"]:
        """Values as the model sees them."""
        return (np.where(self.logarithmic, self._log1p(values), values) - self.shift) / self.spread

    def inverse(self, scaled: Float[np.ndarray, "*row column"]) -> Float[np.ndarray, "*row column"]:
        """Values as the user sees them; below 0, where a logarithm means that no value can be, they are 0."""
        values = scaled * self.spread + self.shift
        return np.where(self.logarithmic, np.expm1(np.where(self.logarithmic, values, 0.0).clip(min=0.0)), values)

    def log_slope(self, values: Float[np.ndarray, "*row column"]) -> Float[np.ndarray, "*row column"]:
        """The logarithm of d(scaled) / d(value): what a log density gains on the way back to the user's units."""
        return -np.log(self.spread) - self._log1p(values)

    def _log1p(self, values: Float[np.ndarray, "*row column"]) -> Float[np.ndarray, "*row column"]:
        """The logarithm in the columns that have one, 0 in the others."""
        return np.log1p(np.where(self.logarithmic, values, 0.0))

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {"kinds": list(self.kinds), "shift": self.shift.tolist(), "spread": self.spread.tolist()}

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> "Scaler":
        """The inverse of `to_dict`."""
        return cls(tuple(stored["kinds"]), np.array(stored["shift"], float), np.array(stored["spread"], float))
