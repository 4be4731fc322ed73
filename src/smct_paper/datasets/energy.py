"""Energy used by the appliances of a house in Belgium, every 10 minutes for 4.5 months of 2016 (UCI, data set 374)."""

from pathlib import Path

import numpy as np

from smct_paper.datasets.files import DataFile
from smct_paper.datasets.table import Table, read_table

TARGETS = ("Appliances", "lights", *(f"{kind}{room}" for room in range(1, 10) for kind in ("T", "RH_")))
COLUMNS = (*TARGETS, "T_out", "Press_mm_hg", "RH_out", "Windspeed", "Visibility", "Tdewpoint", "rv1", "rv2")

FILE = DataFile(
    names=("energydata_complete.csv", "energydata_complete.zip", "appliances+energy+prediction.zip"),
    publisher="UCI Machine Learning Repository",
    page="https://archive.ics.uci.edu/dataset/374/appliances+energy+prediction",
    licence="CC BY 4.0",
    csv="energydata_complete.csv",
    address="https://archive.ics.uci.edu/static/public/374/appliances+energy+prediction.zip",
    download="appliances+energy+prediction.zip",
    sha256="2820bf712ad0275cb18b85a05250926100d8e65ebb9f4d2d016ca91ea152a25d",
)


def read_energy(path: Path) -> Table:
    """Appliances, lights, temperature and humidity of nine rooms, then the weather and two random columns."""
    return read_table(
        path,
        FILE.csv,
        COLUMNS,
        time_columns=("date",),
        time_formats=("%Y-%m-%d %H:%M:%S",),
        step=np.timedelta64(10, "m"),
    )
