"""The eight data sets of the experiments, and their windows under a name.

windows = load_windows("weather")            # rows cut in time; finds or downloads the file
windows.train                                # (window, L + 1, n_inputs), scaled; NaN is missing
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from smc_transformer.support.checks import check_choice
from smc_transformer.support.randomness import check_seed
from smct_paper.datasets import air_quality, covid, energy, splits, stock, weather
from smct_paper.datasets.contents import DataFileError
from smct_paper.datasets.files import DataFile, locate_file
from smct_paper.datasets.splits import SPLITS, NoWindowsError, Parts
from smct_paper.datasets.synthetic import SYNTHETIC
from smct_paper.datasets.table import Table

N_FOLDS = 5
N_SEQUENCES = 1000


@dataclass(frozen=True)
class DatasetInfo:
    """What a data set is, and how the experiments cut it."""

    name: str  # its name here
    title: str  # a few words for people
    columns: tuple[str, ...]  # names of the inputs; the first `n_targets` are the targets
    n_targets: int  # how many of the columns are scored
    window: int  # L, the steps of a window of L + 1 values
    history: int  # H; X_0, ..., X_H are known when a path is forecast
    batch_size: int  # of the paper
    file: DataFile | None = None  # the publisher's file; None for generated data

    @property
    def n_inputs(self) -> int:
        """How many columns a model reads."""
        return len(self.columns)

    @property
    def horizon(self) -> int:
        """How many steps a path is forecast."""
        return self.window - self.history

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits it has, the default one first."""
        return ("folds",) if self.file is None else SPLITS

    @property
    def publisher(self) -> str:
        """Who publishes it."""
        return "generated" if self.file is None else self.file.publisher


Contents = Table | covid.CountyDeaths
"""What a publisher's file holds."""

DATASETS: dict[str, DatasetInfo] = {
    info.name: info
    for info in (
        DatasetInfo("model1", "Model I: an autoregression", ("x",), 1, 24, 12, 32),
        DatasetInfo("model2", "Model II: two coefficients", ("x",), 1, 24, 12, 32),
        DatasetInfo("model3", "Model III: two signs, bimodal", ("x",), 1, 24, 12, 32),
        DatasetInfo("covid", "covid-19 deaths in US counties", ("deaths",), 1, 60, 40, 32, covid.FILE),
        DatasetInfo(
            "air_quality", "air quality in an Italian city", air_quality.COLUMNS, 5, 12, 6, 64, air_quality.FILE
        ),
        DatasetInfo("weather", "the weather in Jena", weather.COLUMNS, 4, 24, 12, 256, weather.FILE),
        DatasetInfo("energy", "energy used in a house", energy.COLUMNS, 20, 12, 6, 128, energy.FILE),
        DatasetInfo("stock", "shares of General Electric", stock.COLUMNS, 5, 40, 20, 64, stock.FILE),
    )
}

READERS: dict[str, Callable[[Path], Contents]] = {
    "covid": covid.read_covid_deaths,
    "air_quality": air_quality.read_air_quality,
    "weather": weather.read_weather,
    "energy": energy.read_energy,
    "stock": stock.read_stock,
}


@dataclass(frozen=True, kw_only=True)
class Windows(Parts):
    """What every method is trained and scored on: windows X_0, ..., X_L of three parts, scaled; NaN is missing."""

    name: str  # of the data set
    split: str  # "chronological", "paper", or "folds" for generated data
    n_targets: int  # the first columns, which are scored
    # the first columns, which a model forecasts: all of them in "chronological", where nothing is known ahead;
    # the targets in "paper", where the other inputs are fed their true values
    n_modelled: int
    history: int  # H; X_0, ..., X_H are known when a path is forecast, X_{H+1}, ..., X_L are the horizon
    columns: tuple[str, ...]  # names of the columns, targets first

    @property
    def n_inputs(self) -> int:
        """Columns of a window."""
        return len(self.columns)

    @property
    def length(self) -> int:
        """L: steps of a window, which holds L + 1 values."""
        return int(self.train.shape[1]) - 1

    @property
    def horizon(self) -> int:
        """Steps of a forecast path."""
        return self.length - self.history


def load_windows(
    name: str, split: str | None = None, *, seed: int = 0, fold: int = 0, data_dir: Path | str | None = None
) -> Windows:
    """The windows of a data set, cut into training, validation and test parts, and scaled.

    Args:
        name: a name in `DATASETS`.
        split: "chronological" (the default) or "paper"; generated data have "folds".
        seed: of the generated data, and of shuffles (counties; the windows of the paper's split).
        fold: which fifth of the generated sequences is kept from training: half for validation, half for the test.
        data_dir: folder that is searched first for the publisher's file (see `smct_paper.datasets.files`).
    """
    return load(name, split, seed, fold, data_dir)[2]


def load(
    name: str, split: str | None, seed: int, fold: int, data_dir: Path | str | None
) -> tuple[Path | None, Contents | None, Windows]:
    """A data set's file, what it holds (None and None for generated data), and its windows; see `load_windows`."""
    check_choice(name, tuple(DATASETS), "name")
    info = DATASETS[name]
    split = info.splits[0] if split is None else split
    check_choice(split, info.splits, f"split of {name}")
    n_folds = N_FOLDS if split == "folds" else 1
    if not 0 <= fold < n_folds:
        raise ValueError(f"fold of {name} must be between 0 and {n_folds - 1}, got {fold}")
    path = None if info.file is None else locate_file(info.file, data_dir)
    contents = None if path is None else READERS[name](path)
    try:
        parts = _cut(info, contents, split, check_seed(seed), fold)
    except NoWindowsError as error:
        raise DataFileError(f"{path}: {error}") from error
    windows = Windows(
        **vars(parts),
        name=name,
        split=split,
        n_targets=info.n_targets,
        n_modelled=info.n_targets if split == "paper" else info.n_inputs,
        history=info.history,
        columns=info.columns,
    )
    return path, contents, windows


def _cut(info: DatasetInfo, contents: Contents | None, split: str, seed: int, fold: int) -> Parts:
    if contents is None:
        # Sequences are independent, so folds are stretches of them; they are not scaled.
        folds = list(SYNTHETIC[info.name].sample(N_SEQUENCES, info.window, seed).chunk(N_FOLDS))
        validation, test = folds.pop(fold).chunk(2)
        return Parts(torch.cat(folds), validation, test, torch.zeros(1), torch.ones(1))
    if isinstance(contents, covid.CountyDeaths):
        by_series = splits.series_by_log if split == "chronological" else splits.series_by_themselves
        return by_series(contents.cumulative, seed)
    if split == "chronological":
        return splits.chronological_windows(contents, info.window + 1)
    return splits.shuffled_windows(contents, info.window + 1, seed)
