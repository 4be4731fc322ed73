"""Colours, labels and files that all figures share.

Colours are from the palette of Okabe and Ito, which people with any colour vision can tell apart. A method has the
same colour in every figure.
"""

import re
from collections.abc import Mapping, Sequence
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from smct_paper.experiments.report.names import BEST, PAPER
from smct_paper.experiments.report.results import MethodKey

INK, FAINT = "#1f2933", "#9aa5b1"
SMC = "#0072b2"
TRUTH = "#d55e00"
COLOURS = {
    "smc_transformer": SMC,
    "lstm": "#e69f00",
    "transformer": "#009e73",
    "bayesian_lstm": "#cc79a7",
    "autoregression": INK,
    "naive": "#7b8794",
}
DPI = 110
SHOWN = (
    BEST,
    PAPER,
    MethodKey("lstm_dropout_0.5", "paper"),
    MethodKey("transformer_dropout_0.5", "paper"),
    MethodKey("bayesian_lstm_10", "paper"),
    MethodKey("autoregression", "default"),
    MethodKey("naive", "default"),
)
"""One of each kind, as more would hide each other. Of the dropout rates, the one with the widest intervals."""


def colour(method: MethodKey) -> str:
    """A method's colour: that of its kind."""
    kind = re.sub(r"_dropout_.*|(?<=^bayesian_lstm)_.*", "", method.model)
    return COLOURS.get(kind, FAINT)


def short_title(method: MethodKey) -> str:
    """A name that fits beside a line."""
    if method.model == "smc_transformer":
        return f"SMC ({method.config.replace('-', ', ')})"
    short = {"lstm": "LSTM", "transformer": "Transf.", "autoregression": "autoregr."}
    network, _, rate = method.model.partition("_dropout_")
    if network.startswith("bayesian_lstm"):
        return "Bayes. LSTM"
    return f"{short.get(network, network)} drop {rate}" if rate else short.get(network, network)


def line(method: MethodKey) -> dict[str, Any]:
    """How a method's line is drawn; both configurations of the SMC Transformer have one colour, the paper's dashes."""
    dashed = method.model == PAPER.model and method.config.startswith(PAPER.config)
    return {"color": colour(method), "linestyle": "--" if dashed else "-"}


def new_figure(width: float, height: float) -> Figure:
    """An empty figure; nothing touches pyplot's global state."""
    return Figure(figsize=(width, height), layout="constrained", facecolor="white")


def tidy(axes: Axes) -> None:
    """Axes without the top and right border and other decoration."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FAINT)
    axes.tick_params(colors=INK, labelsize=8, length=3)


def panels(n_panels: int, n_columns: int, width: float, height: float, **options: Any) -> tuple[Figure, list[Axes]]:
    """A figure with so many panels in rows, each of this size in inches."""
    n_columns = min(n_columns, n_panels)
    n_rows = -(-n_panels // n_columns)
    figure = new_figure(width * n_columns, height * n_rows)
    every = figure.subplots(n_rows, n_columns, squeeze=False, **options).flatten()
    for axes in every[n_panels:]:
        axes.set_visible(False)
    return figure, list(every)


def explain(figure: Figure, *marks: Artist) -> None:
    """What the marks are, once for all panels."""
    figure.legend(handles=marks, loc="outside lower center", ncols=len(marks), frameon=False, fontsize=8)


def spread(positions: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places for labels near their lines, at least `gap` apart, within [low, high] if they fit."""
    order = sorted(range(len(positions)), key=lambda index: positions[index])
    places = [min(max(position, low), high) for position in positions]
    for below, above in pairwise(order):
        places[above] = max(places[above], places[below] + gap)
    if order and places[order[-1]] > high:
        places[order[-1]] = high
        for above, below in pairwise(reversed(order)):
            places[below] = min(places[below], places[above] - gap)
    return places


def label_lines(axes: Axes, ends: Mapping[MethodKey, float], last: float, height: float, *, size: float = 7.5) -> None:
    """Names at the right ends of the methods' lines, in a panel whose limits are set.

    Lines end at `last`, each in the height that `ends` gives; the panel has about this height in inches.
    """
    low, high = axes.get_ylim()
    places = spread(list(ends.values()), (high - low) * 1.25 * size / (72 * height), low, high)
    for (method, end), place in zip(ends.items(), places, strict=True):
        ink = colour(method)
        axes.annotate(
            short_title(method),
            (last, min(max(end, low), high)),
            xytext=(1.03, (place - low) / (high - low)),
            textcoords="axes fraction",
            color=ink,
            fontsize=size,
            va="center",
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": ink, "linewidth": 0.5, "alpha": 0.6, "shrinkA": 0, "shrinkB": 1},
        )


def save(figure: Figure, path: Path) -> Path:
    """Write a small PNG: a palette of 256 colours is enough for charts, and takes a third of the space."""
    buffer = BytesIO()
    figure.savefig(buffer, dpi=DPI, format="png")
    with Image.open(buffer) as image:
        # Of Pillow's ways, the one that keeps colours of small areas.
        palette = image.convert("RGB").quantize(256, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    palette.save(path, optimize=True)
    return path
