"""How charts look: colours, shades of bands, a quiet frame, a legend that covers nothing (needs matplotlib)."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, num2date

INK = "#1f2933"
BLUE = "#2166ac"
RED = "#b2182b"
PINK = "#f4a6b0"
GREY = "#c9ced6"

LIGHTEST, DARKEST = 0.16, 0.55
"""Shares of blue in the shades of the widest and the narrowest band."""


def band_shades(levels: Sequence[int | float]) -> dict[int | float, tuple[float, float, float]]:
    """A colour for the band of each level, the widest first: opaque, so that the legend shows what the chart does."""
    ordered = sorted(set(levels), reverse=True)
    shades = {}
    for place, level in enumerate(ordered):
        share = LIGHTEST + (DARKEST - LIGHTEST) * place / max(1, len(ordered) - 1)
        red, green, blue = (1 - share * (1 - part) for part in to_rgb(BLUE))
        shades[level] = (red, green, blue)
    return shades


def draw_band(axes: Axes, times: Any, lower: Any, upper: Any, colour: Any, label: Any) -> None:
    """A band between two lines; a single step, between which there is no area, is a bar."""
    if len(times) == 1:
        axes.vlines(times, lower, upper, color=colour, linewidth=9, label=label)
    else:
        axes.fill_between(times, lower, upper, color=colour, linewidth=0, label=label)


def draw_observed(axes: Axes, times: Any, values: Any, *, width: float = 1.1) -> None:
    """Observed values as a line with gaps where they are missing (NaN); one between two gaps is a dot."""
    axes.plot(times, values, color=INK, linewidth=width, label="observed")
    seen = np.concatenate(([False], np.isfinite(values), [False]))
    alone = seen[1:-1] & ~seen[:-2] & ~seen[2:]
    if alone.any():
        axes.plot(times[alone], values[alone], ".", color=INK, markersize=3 * width)


def quiet_frame(axes: Axes, times: Any) -> None:
    """Only the lines that are read: two sides, a light grid, and short dates if the times (of pandas) are some."""
    two_sides(axes)
    axes.grid(axis="y", color=GREY, alpha=0.5, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.margins(x=0.01)
    if times.dtype.kind == "M":
        zone = getattr(times.dtype, "tz", None)
        locator = AutoDateLocator(tz=zone)
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(_ShortDates(locator, tz=zone, show_offset=False))


class _ShortDates(ConciseDateFormatter):
    """Short dates, the first of which tells the day, month and year that all leave out."""

    def format_ticks(self, values: Any) -> list[str]:
        labels = list(super().format_ticks(values))
        low = self.axis.get_view_interval()[0] if self.axis is not None else -np.inf
        place = next((place for place, value in enumerate(values) if value >= low), None)
        if place is None:
            return labels
        first, label = num2date(values[place], tz=self._tz), labels[place]
        if f"{first:%Y}" not in label:
            has_month = any(character.isalpha() for character in label)
            missing = "%Y" if has_month else "%d %b %Y" if ":" in label else "%b %Y"
            labels[place] = f"{label}\n{first:{missing}}"
        return labels


def two_sides(axes: Axes) -> None:
    """The frame without its top and right sides."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GREY)
    axes.tick_params(color=GREY, labelcolor=INK, labelsize="small")


def legend_above(axes: Axes, title: str) -> None:
    """The title, a row of the legend below it, and then the chart: nothing is covered."""
    axes.set_title(title, loc="left", pad=24, color=INK, fontweight="bold")
    handles, labels = axes.get_legend_handles_labels()
    place: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0, 1), "borderaxespad": 0.2}
    look: dict[str, Any] = {"frameon": False, "fontsize": "small", "handlelength": 1.5, "columnspacing": 1.4}
    axes.legend(handles, labels, ncols=max(1, len(labels)), **place, **look)
