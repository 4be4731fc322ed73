"""Colours, labels and files that all figures share.

Colours are from the palette of Okabe and Ito, which people with any colour vision can tell apart. A method has the
same colour in every figure.
"""

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from smct_paper.experiments.report.names import BEST, PAPER
from smct_paper.experiments.report.results import MethodKey

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
    kind = method.model.split("_dropout_")[0]
    kind = "bayesian_lstm" if kind.startswith("bayesian_lstm") else kind
    return COLOURS.get(kind, FAINT)


def short_title(method: MethodKey) -> str:
    """A name that fits beside a line."""
    if method.model == "smc_transformer":
        return f"SMC ({method.config.replace('-', ', ')})"
    short = {"lstm": "LSTM", "transformer": "Transf.", "bayesian_lstm": "Bayes. LSTM"}
    network, _, rate = method.model.partition("_dropout_")
    if rate:
        return f"{short[network]} drop {rate}"
    if network.startswith("bayesian_lstm"):
        return short["bayesian_lstm"]
    return {**short, "autoregression": "autoregr.", "naive": "naive"}.get(network, network)


def dashes(method: MethodKey) -> str:
    """The two configurations of the SMC Transformer share a colour, so that one is dashed."""
    return "--" if method.model == PAPER.model and method.config.startswith(PAPER.config) else "-"


def new_figure(width: float, height: float) -> "Figure":
    """An empty figure; nothing touches pyplot's global state."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained", facecolor="white")


def tidy(axes: "Axes") -> None:
    """Axes without the top and right border and other decoration."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FAINT)
    axes.tick_params(colors=INK, labelsize=8, length=3)


def spread(positions: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places for labels near their lines, at least `gap` apart, within [low, high] if they fit."""
    order = sorted(range(len(positions)), key=lambda index: positions[index])
    placed = [min(max(positions[index], low), high) for index in order]
    for index in range(1, len(placed)):
        placed[index] = max(placed[index], placed[index - 1] + gap)
    if placed and placed[-1] > high:
        placed[-1] = high
        for index in range(len(placed) - 2, -1, -1):
            placed[index] = min(placed[index], placed[index + 1] - gap)
    places = [0.0] * len(placed)
    for index, place in zip(order, placed, strict=True):
        places[index] = place
    return places


def label_lines(
    axes: "Axes", ends: Sequence[tuple[float, str, str]], last: float, height: float, *, size: float = 7.5
) -> None:
    """Names at the right ends of lines.

    Args:
        axes: the panel, its limits already set.
        ends: of each line, the height of its end, its name and its colour.
        last: where lines end.
        height: of the panel, about, in inches.
        size: of the letters.
    """
    low, high = axes.get_ylim()
    places = spread([end for end, _, _ in ends], (high - low) * 1.25 * size / (72 * height), low, high)
    for (end, name, ink), place in zip(ends, places, strict=True):
        axes.annotate(
            name,
            (last, min(max(end, low), high)),
            xytext=(1.03, (place - low) / (high - low)),
            textcoords="axes fraction",
            color=ink,
            fontsize=size,
            va="center",
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": ink, "linewidth": 0.5, "alpha": 0.6, "shrinkA": 0, "shrinkB": 1},
        )


def save(figure: "Figure", path: Path) -> Path:
    """Write a small PNG: a palette of 256 colours is enough for charts, and takes a third of the space."""
    from PIL import Image

    buffer = BytesIO()
    figure.savefig(buffer, dpi=DPI, format="png")
    with Image.open(buffer) as image:
        # Of Pillow's ways, the one that keeps colours of small areas.
        palette = image.convert("RGB").quantize(256, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    palette.save(path, optimize=True)
    return path
