"""The eight data sets of the experiments, and their windows under a name.

windows = load_windows("weather")            # rows cut in time; finds or downloads the file
windows.train                                # (window, L + 1, n_inputs), scaled; NaN is missing
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from smc_transformer.support.checks import check_choice
from smc_transformer.support.randomness import check_seed
from smct_paper.datasets import air_quality, covid, energy, stock, weather
from smct_paper.datasets.contents import DataFileError
from smct_paper.datasets.files import DataFile, locate_file
from smct_paper.datasets.scaling import NoWindowsError
from smct_paper.datasets.splits import (
    SPLITS,
    Parts,
    chronological_windows,
    series_by_log,
    series_by_themselves,
    shuffled_windows,
)
from smct_paper.datasets.synthetic import SYNTHETIC
from smct_paper.datasets.table import Table

N_FOLDS = 5
N_SEQUENCES = 1000


@dataclass(frozen=True)
class DatasetInfo:
    """What a data set is, and how the experiments cut it.

    Attributes:
        name: its name here.
        title: a few words for people.
        columns: names of the inputs; the first `n_targets` are the targets.
        n_targets: how many of the columns are scored.
        window: L, the steps of a window of L + 1 values.
        history: H; X_0, ..., X_H are known when a path is forecast.
        batch_size: of the paper.
        step: the time between two values, in words.
        file: the publisher's file; None for generated data.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    n_targets: int
    window: int
    history: int
    batch_size: int
    step: str
    file: DataFile | None = None

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


_AIR_COLUMNS = air_quality.TARGETS + air_quality.SIDE_INPUTS
_ENERGY_COLUMNS = energy.TARGETS + energy.SIDE_INPUTS

DATASETS: dict[str, DatasetInfo] = {
    info.name: info
    for info in (
        DatasetInfo("model1", "Model I: an autoregression", ("x",), 1, 24, 12, 32, "step"),
        DatasetInfo("model2", "Model II: two coefficients", ("x",), 1, 24, 12, 32, "step"),
        DatasetInfo("model3", "Model III: two signs, bimodal", ("x",), 1, 24, 12, 32, "step"),
        DatasetInfo("covid", "covid-19 deaths in US counties", ("deaths",), 1, 60, 40, 32, "day", covid.FILE),
        DatasetInfo(
            "air_quality", "air quality in an Italian city", _AIR_COLUMNS, 5, 12, 6, 64, "hour", air_quality.FILE
        ),
        DatasetInfo("weather", "the weather in Jena", weather.COLUMNS, 4, 24, 12, 256, "hour", weather.FILE),
        DatasetInfo("energy", "energy used in a house", _ENERGY_COLUMNS, 20, 12, 6, 128, "10 minutes", energy.FILE),
        DatasetInfo("stock", "shares of General Electric", stock.COLUMNS, 5, 40, 20, 64, "day of trade", stock.FILE),
    )
}

_READERS = {
    "air_quality": air_quality.read_air_quality,
    "weather": weather.read_weather,
    "energy": energy.read_energy,
    "stock": stock.read_stock,
}


@dataclass(frozen=True)
class Windows:
    """What every method is trained and scored on.

    Attributes:
        name: of the data set.
        split: "chronological", "paper", or "folds" for generated data.
        train: windows X_0, ..., X_L, scaled; NaN is missing.
        validation: the same.
        test: the same.
        n_targets: the first columns, which are scored.
        n_modelled: the first columns, which a model forecasts: all of them in "chronological", where nothing is known
            ahead; the targets in "paper", where the other inputs are fed their true values.
        history: H; X_0, ..., X_H are known when a path is forecast, X_{H+1}, ..., X_L are the horizon.
        columns: names of the columns, targets first.
        mean: what was taken from each column; None where each series has its own scaling.
        deviation: what each column was then divided by; None likewise.
    """

    name: str
    split: str
    train: Float[Tensor, "train time_plus_1 n_inputs"]
    validation: Float[Tensor, "validation time_plus_1 n_inputs"]
    test: Float[Tensor, "test time_plus_1 n_inputs"]
    n_targets: int
    n_modelled: int
    history: int
    columns: tuple[str, ...]
    mean: Float[Tensor, "n_inputs"] | None
    deviation: Float[Tensor, "n_inputs"] | None

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
    name: str,
    split: str | None = None,
    *,
    seed: int = 0,
    fold: int = 0,
    data_dir: Path | str | None = None,
) -> Windows:
    """The windows of a data set, cut into training, validation and test parts, and scaled.

    Args:
        name: a name in `DATASETS`.
        split: "chronological" (the default) or "paper"; generated data have "folds".
        seed: of the generated data, and of shuffles (counties; the windows of the paper's split).
        fold: which fifth of the generated sequences is kept from training: half for validation, half for the test.
        data_dir: folder that is searched first for the publisher's file (see `smct_paper.datasets.files`).
    """
    check_choice(name, tuple(DATASETS), "name")
    info = DATASETS[name]
    if info.file is None:
        return make_windows(info, None, split, seed=seed, fold=fold)
    path = locate_file(info.file, data_dir)
    data = read_dataset(info, path)
    try:
        return make_windows(info, data, split, seed=seed, fold=fold)
    except NoWindowsError as error:
        raise DataFileError(f"{path}: {error}") from error


def read_dataset(info: DatasetInfo, path: Path) -> Table | covid.CountyDeaths:
    """What the publisher's file holds."""
    return covid.read_covid_deaths(path) if info.name == "covid" else _READERS[info.name](path)


def make_windows(
    info: DatasetInfo,
    data: Table | covid.CountyDeaths | None,
    split: str | None = None,
    *,
    seed: int = 0,
    fold: int = 0,
) -> Windows:
    """The windows of what `read_dataset` gave (None for generated data); see `load_windows`."""
    split = info.splits[0] if split is None else split
    check_choice(split, info.splits, f"split of {info.name}")
    n_folds = N_FOLDS if split == "folds" else 1
    if not 0 <= fold < n_folds:
        raise ValueError(f"fold of {info.name} must be between 0 and {n_folds - 1}, got {fold}")
    parts = _cut(info, data, split, check_seed(seed), fold)
    return Windows(
        name=info.name,
        split=split,
        train=parts.train,
        validation=parts.validation,
        test=parts.test,
        n_targets=info.n_targets,
        n_modelled=info.n_targets if split == "paper" else info.n_inputs,
        history=info.history,
        columns=info.columns,
        mean=parts.mean,
        deviation=parts.deviation,
    )


def _cut(info: DatasetInfo, data: Table | covid.CountyDeaths | None, split: str, seed: int, fold: int) -> Parts:
    if data is None:
        return _folds(info.name, info.window, fold, seed)
    if isinstance(data, covid.CountyDeaths):
        by_series = series_by_log if split == "chronological" else series_by_themselves
        return by_series(data.cumulative, seed)
    if split == "chronological":
        return chronological_windows(data, info.window + 1)
    return shuffled_windows(data, info.window + 1, seed)


def _folds(name: str, n_steps: int, fold: int, seed: int) -> Parts:
    """Sequences are independent, so folds are stretches of them; they are not scaled."""
    sequences = SYNTHETIC[name].sample(N_SEQUENCES, n_steps, seed)
    folds = list(sequences.chunk(N_FOLDS))
    validation, test = folds.pop(fold).chunk(2)
    return Parts(torch.cat(folds), validation, test, torch.zeros(1), torch.ones(1))
