"""Progress of the grid, redrawn in place on a terminal, line by line elsewhere; and what cells are expected to cost."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from smct_paper.experiments.grid import BAYES_OPTIMAL, SMC_TRANSFORMER, Cell
from smct_paper.experiments.store import last_line

# Seconds of one core in the quick profile on a synthetic set, and how many times longer the other sets take: rounded
# from the runs behind docs/results.md. A wrong one changes the order of the work and the first estimates, nothing else.
_OF_MODEL = {
    BAYES_OPTIMAL: 1.0,
    "naive": 0.3,
    "autoregression": 0.5,
    "lstm": 0.7,
    "transformer": 1.2,
    "lstm_dropout": 2.0,
    "transformer_dropout": 3.5,
    "bayesian_lstm_3": 6.0,
    "bayesian_lstm": 12.0,
    SMC_TRANSFORMER: 20.0,
}
_OF_DATASET = {"covid": 4.0, "air_quality": 3.5, "weather": 17.0, "energy": 6.5, "stock": 4.0}
_OF_DATASET_WITH_PARTICLES = {"covid": 15.0, "air_quality": 5.0, "weather": 20.0, "energy": 12.0, "stock": 11.0}


def expected_cost(cell: Cell) -> float:
    """Expected time of a cell, in seconds of some core."""
    family = max((name for name in _OF_MODEL if cell.model.startswith(name)), key=len, default="lstm")
    longer = _OF_DATASET_WITH_PARTICLES if cell.model == SMC_TRANSFORMER else _OF_DATASET
    return _OF_MODEL[family] * longer.get(cell.dataset, 1.0)


class GridProgress:
    """What is running, done and failed, and how long the rest will take."""

    def __init__(self, cells: Sequence[Cell], jobs: int) -> None:
        self.total = len(cells)
        self.running: dict[Cell, float] = {}
        self.finished: list[Cell] = []
        self.failed: dict[Cell, str] = {}
        self._jobs = jobs
        self.started = monotonic()
        self._cost_left = self._cost = sum(expected_cost(cell) for cell in cells)
        self._seconds = 0.0

    @property
    def count(self) -> int:
        """Cells that need no more work in this run."""
        return len(self.finished) + len(self.failed)

    @property
    def share(self) -> float:
        """Share of the work that is done, by expected cost."""
        return 1.0 - self._cost_left / self._cost if self._cost else 1.0

    def begin(self, cell: Cell) -> None:
        """A worker took a cell."""
        self.running[cell] = monotonic()

    def end(self, cell: Cell, error: str | None = None) -> float:
        """A cell is finished, or failed; returns its seconds."""
        seconds = monotonic() - self.running.pop(cell)
        self._seconds += seconds
        self._cost_left -= expected_cost(cell)
        if error is None:
            self.finished.append(cell)
        else:
            self.failed[cell] = error
        return seconds

    def seconds_left(self) -> float | None:
        """An estimate from the cells that are done; None before the first."""
        if not self.count or not self._seconds:
            return None
        speed = (self._cost - self._cost_left) / self._seconds  # of one worker
        spent = sum(monotonic() - started for started in self.running.values())
        return max(0.0, (self._cost_left / speed - spent) / self._jobs)


class PlainDisplay:
    """A line for each cell: for files and pipes."""

    def __init__(self, progress: GridProgress, console: Console) -> None:
        self._progress = progress
        self._console = console

    def ended(self, cell: Cell, seconds: float, record: dict[str, Any]) -> None:
        """Say that a cell ended."""
        count, total, left = self._progress.count, self._progress.total, self._progress.seconds_left()
        rest = f", about {duration(left)} left" if left and count < total else ""
        outcome = f"failed: {last_line(record['error'])}" if "error" in record else summary(record)
        say(self._console, f"[{count}/{total}] {cell}: {outcome} ({duration(seconds)}{rest})")


class LiveDisplay(PlainDisplay):
    """A bar for the grid and a line for each running cell, redrawn in place; failures stay on the screen."""

    def ended(self, cell: Cell, seconds: float, record: dict[str, Any]) -> None:
        """Say that a cell failed; the bar shows the others."""
        if "error" in record:
            say(self._console, f"failed: {cell}: {last_line(record['error'])} ({duration(seconds)})", style="red")

    def render(self) -> RenderableType:
        """The bar and the running cells, as they are now."""
        progress, now = self._progress, monotonic()
        left = progress.seconds_left()
        rest = "..." if left is None else f"about {duration(left)} left"
        bar = Table.grid(padding=(0, 1))
        bar.add_row(
            Text(f"{progress.count}/{progress.total} cells"),
            ProgressBar(total=1.0, completed=progress.share, width=30),
            Text(f"{duration(now - progress.started)}, {rest}"),
            Text(f"{len(progress.failed)} failed" if progress.failed else "", style="red"),
        )
        running = Table.grid(padding=(0, 2))
        for cell, started in progress.running.items():
            method, repetition = f"{cell.model} {cell.config}", f"{cell.repetition} {cell.seed}"
            running.add_row(f"  {cell.dataset}", cell.split, method, repetition, duration(now - started), style="dim")
        return Group(bar, running)


@contextmanager
def display(progress: GridProgress, console: Console) -> Iterator[PlainDisplay]:
    """The display that suits where the output goes."""
    if not console.is_terminal:
        yield PlainDisplay(progress, console)
        return
    live = LiveDisplay(progress, console)
    with Live(get_renderable=live.render, console=console, refresh_per_second=4, transient=True):
        yield live


def say(console: Console, text: str, style: str | None = None) -> None:
    """Print a line as it is: not wrapped, not coloured by its numbers, brackets left alone."""
    console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def duration(seconds: float) -> str:
    """Time for people."""
    if seconds < 100:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02d} min"


def summary(record: dict[str, Any]) -> str:
    """One or two scores of each task."""
    parts = []
    for task, scores in record["tasks"].items():
        found = {name: scores["metrics"].get(name) for name in ("mse", "crps")}
        parts.append(" ".join((task, *(f"{name} {value:.4g}" for name, value in found.items() if value is not None))))
    return ", ".join(parts)
