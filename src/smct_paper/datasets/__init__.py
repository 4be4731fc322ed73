"""Data sets: synthetic ones, whose true conditional distributions are known, and the real ones of the paper."""

from smct_paper.datasets.contents import DataFileError as DataFileError
from smct_paper.datasets.files import DataFileNotFoundError as DataFileNotFoundError
from smct_paper.datasets.registry import DATASETS as DATASETS
from smct_paper.datasets.registry import Windows as Windows
from smct_paper.datasets.registry import load_windows as load_windows
from smct_paper.datasets.synthetic import SYNTHETIC as SYNTHETIC
from smct_paper.datasets.synthetic import MixtureAutoregression as MixtureAutoregression
from smct_paper.datasets.synthetic import split_sequences as split_sequences
