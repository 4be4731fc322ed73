"""The weather in Jena, 2009 to 2016, one row an hour (Max Planck Institute for Biogeochemistry)."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from smct_paper.datasets.files import DataFile
from smct_paper.datasets.table import Table, read_table

COLUMNS = ("p (mbar)", "T (degC)", "rh (%)", "rho (g/m**3)")
ROWS_PER_HOUR = 6

FILE = DataFile(
    names=(
        "jena_hourly_2009_2016_5col.csv.gz",
        "jena_climate_2009_2016.csv",
        "jena_climate_2009_2016.csv.zip",
        "jena_climate_2009_2016.zip",
    ),
    publisher="Max Planck Institute for Biogeochemistry, Jena",
    page="https://www.bgc-jena.mpg.de/wetter/",
    licence="see the station's page",
    csv="jena_climate_2009_2016.csv",
    # The institute gives one file for each half year; Keras keeps all of them together, as they were.
    address="https://storage.googleapis.com/tensorflow/tf-keras-datasets/jena_climate_2009_2016.csv.zip",
    download="jena_climate_2009_2016.csv.zip",
    sha256=None,  # only the hourly extract was tested, not the whole record
    first_line="Date Time",
    tested_sha256=("16ff586603c59f316aedd102aca088c2bb357deca1aba32021f327a57f61234c",),
)


def read_weather(path: Path) -> Table:
    """Pressure, temperature, humidity and air density, from the 10-minute record or from its hourly extract.

    The 10-minute record repeats some rows word for word; these are left out before every sixth row is taken.
    -9999 is how the station writes a missing value.
    """
    table = read_table(
        path,
        FILE.csv,
        COLUMNS,
        time_columns=("Date Time",),
        time_formats=("%d.%m.%Y %H:%M:%S", "%Y-%m-%d %H:%M:%S"),
        missing=-9999.0,
        other_names={"rho_derived (g/m**3)": "rho (g/m**3)"},
        skip_repeated_rows=True,
        step=np.timedelta64(60, "m"),
    )
    if np.median(np.diff(table.times)) > np.timedelta64(30, "m"):
        return table
    return replace(table, times=table.times[::ROWS_PER_HOUR], values=table.values[::ROWS_PER_HOUR])
