"""Data sets: synthetic ones, whose true conditional laws are known, and the real ones of the paper."""

from smc_transformer.datasets.contents import DataFileError
from smc_transformer.datasets.files import DataFileNotFoundError
from smc_transformer.datasets.registry import DATASETS, DatasetInfo, Windows, load_windows
from smc_transformer.datasets.synthetic import SYNTHETIC, MixtureAutoregression, Split, split_sequences

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
