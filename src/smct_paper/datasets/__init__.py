"""Data sets: synthetic ones, whose true conditional distributions are known, and the real ones of the paper."""

from smct_paper.datasets.contents import DataFileError
from smct_paper.datasets.files import DataFileNotFoundError
from smct_paper.datasets.registry import DATASETS, DatasetInfo, Windows, load_windows
from smct_paper.datasets.synthetic import SYNTHETIC, MixtureAutoregression, Split, split_sequences

__all__ = [
    "DATASETS",
    "SYNTHETIC",
    "DataFileError",
    "DataFileNotFoundError",
    "DatasetInfo",
    "MixtureAutoregression",
    "Split",
    "Windows",
    "load_windows",
    "split_sequences",
]
