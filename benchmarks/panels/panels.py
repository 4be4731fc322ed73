"""The seven panels: how each is cut and scored, and what others published for it.

Files are panels/NAME.csv.gz (unique_id, ds, y) in a folder that is given or that SMC_TRANSFORMER_DATA names.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd


@dataclass(frozen=True)
class Published:
    """Scores of the public Chronos evaluation."""

    wql: float
    mase: float


@dataclass(frozen=True)
class Panel:
    """A panel of series of one frequency."""

    name: str
    frequency: str  # of pandas
    horizon: int  # the last rows of each series, which are forecast
    season: int  # of MASE and of the seasonal naive forecast, as in the published evaluation
    published: dict[str, Published]

    @property
    def file(self) -> str:
        return f"panels/{self.name}.csv.gz"


PUBLISHED_METHODS = ("Seasonal naive", "Chronos-Bolt-base", "Chronos-T5-large")


def _panel(name: str, frequency: str, horizon: int, season: int, *scores: tuple[float, float]) -> Panel:
    published = {method: Published(*pair) for method, pair in zip(PUBLISHED_METHODS, scores, strict=True)}
    return Panel(name, frequency, horizon, season, published)


PANELS = {
    panel.name: panel
    for panel in (
        _panel("hospital", "MS", 12, 12, (0.0726, 0.921), (0.0570, 0.688), (0.0552, 0.706)),
        _panel("tourism_monthly", "MS", 24, 12, (0.1042, 1.631), (0.0903, 1.528), (0.0998, 1.730)),
        _panel("m3_quarterly", "QS", 8, 4, (0.1013, 1.425), (0.0762, 1.289), (0.0745, 1.187)),
        _panel("car_parts", "MS", 12, 12, (1.600, 1.201), (0.9945, 0.855), (1.0467, 0.902)),
        _panel("nn5", "D", 56, 1, (0.4246, 1.292), (0.1501, 0.576), (0.1573, 0.576)),
        _panel("m4_hourly", "h", 48, 24, (0.0483, 1.193), (0.0254, 0.835), (0.0209, 0.698)),
        _panel("exchange_rate", "B", 30, 5, (0.0130, 1.740), (0.0120, 1.710), (0.0148, 2.344)),
    )
}


class PanelFileNotFoundError(FileNotFoundError):
    """A panel is not where it was looked for."""


def panel_path(panel: Panel, folder: Path | str | None = None) -> Path:
    """The panel's file in the folder, or else in that of SMC_TRANSFORMER_DATA."""
    named = folder or os.environ.get("SMC_TRANSFORMER_DATA")
    if not named:
        raise PanelFileNotFoundError(f"{panel.file}: name its folder by --data or by SMC_TRANSFORMER_DATA")
    path = Path(named) / panel.file
    if not path.is_file():
        raise PanelFileNotFoundError(f"{panel.file} is not in {named}")
    return path


def read_panel(panel: Panel, folder: Path | str | None = None) -> pd.DataFrame:
    """The long table: unique_id, ds, y, the rows of a series together and in the order of time."""
    table = pd.read_csv(panel_path(panel, folder), parse_dates=["ds"], dtype={"unique_id": str})
    return table.sort_values(["unique_id", "ds"], ignore_index=True)


@dataclass(frozen=True)
class Split:
    """A panel, cut: what a method may see, and the rows that it is scored on."""

    panel: Panel
    train: pd.DataFrame
    test: pd.DataFrame  # the rows of each series together, `horizon` of each, series in the order of `train`

    @property
    def y(self) -> np.ndarray:
        """Test values (series, step), NaN where missing."""
        return self.test["y"].to_numpy(float).reshape(-1, self.panel.horizon)


def split_panel(panel: Panel, table: pd.DataFrame, *, horizons_back: int = 0) -> Split:
    """The last `horizon` rows of each series are the test.

    For validation as many times `horizon` rows are dropped as `horizons_back` says, and the last `horizon` rows before
    them take their place: what is chosen there has not seen the test. Series that have no more than `horizon` rows
    before an earlier place than the first are left out there.
    """
    horizon, dropped = panel.horizon, horizons_back * panel.horizon
    rows = table.groupby("unique_id", sort=False)
    length, from_end = rows["ds"].transform("size") - dropped, rows.cumcount(ascending=False) - dropped
    if horizons_back > 1:
        table = table[length > 2 * horizon]
    table = table[from_end.reindex(table.index) >= 0]
    if table.empty or (shortest := length[table.index].min()) <= horizon:
        rows_left = "no series is long enough" if table.empty else f"a series of {shortest} rows has none"
        raise ValueError(f"{panel.name}: {rows_left} before its last {horizon} rows, {dropped} dropped")
    from_end = from_end[table.index]
    is_test = from_end < horizon
    return Split(panel, table[~is_test].reset_index(drop=True), table[is_test].reset_index(drop=True))
