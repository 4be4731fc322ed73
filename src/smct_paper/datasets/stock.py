"""Shares of General Electric, each day of trade from 2006 to 2017 (Kaggle, "DJIA 30 Stock Time Series")."""

from pathlib import Path

from smct_paper.datasets.files import DataFile
from smct_paper.datasets.table import Table, read_table

COLUMNS = ("Open", "High", "Low", "Close", "Volume")

FILE = DataFile(
    names=("stock_GE.csv", "GE_2006-01-01_to_2018-01-01.csv"),
    publisher="Kaggle, DJIA 30 Stock Time Series",
    page="https://www.kaggle.com/datasets/szrlee/stock-time-series-20050101-to-20171231",
    licence="CC0",
    csv="stock_GE.csv",
    address=None,  # Kaggle wants a login
    sha256="86f6e36f4a7e2f18ccc4f2775754fa7e14694b2eee512adfbcf758e4fc5cb9d0",
)


def read_stock(path: Path) -> Table:
    """Prices and volume. Days without trade do not count as gaps: Monday follows Friday."""
    return read_table(path, FILE.csv, COLUMNS, time_columns=("Date",), time_formats=("%Y-%m-%d",))
