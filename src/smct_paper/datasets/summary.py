"""What a data set holds, in a few numbers for people and for JSON."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from smct_paper.datasets.contents import DataFileError
from smct_paper.datasets.covid import CountyDeaths
from smct_paper.datasets.files import contents_sha256, locate_file
from smct_paper.datasets.registry import DATASETS, DatasetInfo, make_windows, read_dataset
from smct_paper.datasets.scaling import NoWindowsError
from smct_paper.datasets.table import Table
from smct_paper.datasets.windows import is_gap


@dataclass(frozen=True)
class Summary:
    """What was read from a file.

    Attributes:
        name: of the data set.
        path: the file; None for generated data, as the next five.
        sha256: of the csv, unpacked.
        tested: whether that is a version that the project was tested with.
        rows: of the table; for covid, counties.
        span: first and last time.
        gaps: how often rows are more than 1.5 regular steps apart.
        missing: share of missing values of each column.
        split: how windows were cut.
        windows: how many there are in each part.
    """

    name: str
    path: str | None
    sha256: str | None
    tested: bool | None
    rows: int | None
    span: tuple[str, str] | None
    gaps: int | None
    missing: dict[str, float] | None
    split: str
    windows: dict[str, int]

    def as_dict(self) -> dict[str, Any]:
        """The same for JSON."""
        return asdict(self)


def summarise(name: str, split: str | None = None, *, seed: int = 0, data_dir: Path | str | None = None) -> Summary:
    """Find or download a data set's file, read it and cut its windows; counts what came out."""
    info = DATASETS[name]
    if info.file is None:
        return Summary(name, None, None, None, None, None, None, None, *_count_windows(info, None, split, seed))
    path = locate_file(info.file, data_dir)
    data = read_dataset(info, path)
    sha256 = contents_sha256(path, info.file.csv)
    try:
        counts = _count_windows(info, data, split, seed)
    except NoWindowsError as error:
        raise DataFileError(f"{path}: {error}") from error
    rows, span, gaps, missing = _describe(info, data)
    return Summary(name, str(path), sha256, info.file.is_tested(sha256), rows, span, gaps, missing, *counts)


def _count_windows(
    info: DatasetInfo, data: Table | CountyDeaths | None, split: str | None, seed: int
) -> tuple[str, dict[str, int]]:
    windows = make_windows(info, data, split, seed=seed)
    parts = {"train": windows.train, "validation": windows.validation, "test": windows.test}
    return windows.split, {name: len(part) for name, part in parts.items()}


def _describe(info: DatasetInfo, data: Table | CountyDeaths) -> tuple[int, tuple[str, str], int, dict[str, float]]:
    if isinstance(data, CountyDeaths):
        return len(data.counties), (data.days[0], data.days[-1]), 0, {info.columns[0]: 0.0}
    first, last = (str(time).replace("T", " ") for time in (data.times[0], data.times[-1]))
    shares = np.isnan(data.values).mean(axis=0).tolist()
    gaps = int(is_gap(data.times, data.step).sum())
    return len(data.times), (first, last), gaps, dict(zip(data.columns, shares, strict=True))
