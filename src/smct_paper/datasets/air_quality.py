"""Air quality in an Italian city, hourly from March 2004 to April 2005 (UCI, data set 360)."""

from pathlib import Path

import numpy as np

from smct_paper.datasets.files import DataFile
from smct_paper.datasets.table import Table, read_table

TARGETS = ("PT08.S1(CO)", "PT08.S2(NMHC)", "PT08.S3(NOx)", "PT08.S4(NO2)", "PT08.S5(O3)")
COLUMNS = (*TARGETS, "C6H6(GT)", "T", "RH", "AH")

FILE = DataFile(
    names=("AirQualityUCI.csv", "AirQualityUCI.zip", "air+quality.zip"),
    publisher="UCI Machine Learning Repository",
    page="https://archive.ics.uci.edu/dataset/360/air+quality",
    licence="CC BY 4.0",
    csv="AirQualityUCI.csv",
    address="https://archive.ics.uci.edu/static/public/360/air+quality.zip",
    download="air+quality.zip",
    sha256="13277ae5d8581e80b7be09d47c7d3d06fe9b8e957078f2cf6e859f955e62f996",
)


def read_air_quality(path: Path) -> Table:
    """Five sensors, then benzene and the weather; -200 is missing."""
    return read_table(
        path,
        FILE.csv,
        COLUMNS,
        time_columns=("Date", "Time"),
        time_formats=("%d/%m/%Y %H.%M.%S",),
        separator=";",
        decimal=",",
        missing=-200.0,
        step=np.timedelta64(60, "m"),
    )
