"""What a data set holds, in a few numbers for people and for JSON."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from smct_paper.datasets.covid import CountyDeaths
from smct_paper.datasets.files import contents_sha256
from smct_paper.datasets.registry import DATASETS, load
from smct_paper.datasets.splits import is_gap


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What was read from a file."""

    name: str  # of the data set
    path: str | None = None  # the file; None for generated data, as the next six
    sha256: str | None = None  # of the csv, unpacked
    tested: bool | None = None  # whether that is a version that the project was tested with
    rows: int | None = None  # of the table; for covid, counties
    span: tuple[str, str] | None = None  # first and last time
    gaps: int | None = None  # how often rows are more than 1.5 regular steps apart
    missing: dict[str, float] | None = None  # share of missing values of each column
    split: str  # how windows were cut
    windows: dict[str, int]  # how many there are in each part


def summarise(name: str, split: str | None = None, *, seed: int = 0, data_dir: Path | str | None = None) -> Summary:
    """Find or download a data set's file, read it and cut its windows; counts what came out."""
    path, contents, windows = load(name, split, seed, 0, data_dir)
    counts = {part: len(getattr(windows, part)) for part in ("train", "validation", "test")}
    summary = Summary(name=name, split=windows.split, windows=counts)
    file = DATASETS[name].file
    if file is None or path is None or contents is None:
        return summary
    sha256 = contents_sha256(path, file.csv)
    summary = replace(summary, path=str(path), sha256=sha256, tested=file.is_tested(sha256))
    if isinstance(contents, CountyDeaths):
        span = (contents.days[0], contents.days[-1])
        return replace(summary, rows=len(contents.counties), span=span, gaps=0, missing={windows.columns[0]: 0.0})
    first, last = (str(time).replace("T", " ") for time in (contents.times[0], contents.times[-1]))
    missing = dict(zip(contents.columns, np.isnan(contents.values).mean(axis=0).tolist(), strict=True))
    gaps = int(is_gap(contents.times, contents.step).sum())
    return replace(summary, rows=len(contents.times), span=(first, last), gaps=gaps, missing=missing)
