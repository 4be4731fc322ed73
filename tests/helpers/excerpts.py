"""Small files in the publishers' layouts, with numbers that tests can compute again."""

import zipfile
from datetime import datetime, timedelta

import numpy as np

ENERGY_COLUMNS = [
    "Appliances",
    "lights",
    *(f"{kind}{room}" for room in range(1, 10) for kind in ("T", "RH_")),
    *("T_out", "Press_mm_hg", "RH_out", "Windspeed", "Visibility", "Tdewpoint", "rv1", "rv2"),
]
AIR_HEADER = (
    "Date;Time;CO(GT);PT08.S1(CO);NMHC(GT);C6H6(GT);PT08.S2(NMHC);NOx(GT);PT08.S3(NOx);NO2(GT);PT08.S4(NO2);"
    "PT08.S5(O3);T;RH;AH;;"
)
JENA_HEADER = (
    '"Date Time","p (mbar)","T (degC)","Tpot (K)","Tdew (degC)","rh (%)","VPmax (mbar)","VPact (mbar)",'
    '"VPdef (mbar)","sh (g/kg)","H2OC (mmol/mol)","rho (g/m**3)","wv (m/s)","max. wv (m/s)","wd (deg)"'
)
COVID_HEADER = [
    *("UID", "iso2", "iso3", "code3", "FIPS", "Admin2", "Province_State", "Country_Region", "Lat", "Long_"),
    *("Combined_Key", "Population"),
]


def random_values(n_rows, n_columns, seed=0):
    """Numbers with two decimals, so that text holds them exactly."""
    return np.random.default_rng(seed).normal(50.0, 9.0, (n_rows, n_columns)).round(2)


def hours(n_rows, first=datetime(2004, 3, 10, 18), step=timedelta(hours=1)):
    return [first + number * step for number in range(n_rows)]


def write_air_quality(path, values, times=None, n_blank=114):
    """`values`: PT08.S1 to S5, C6H6, T, RH, AH; NaN is written as -200, and blank lines follow as in the original."""
    lines = [AIR_HEADER]
    for time, row in zip(times or hours(len(values)), values, strict=True):
        s1, s2, s3, s4, s5, benzene, *weather = [_with_comma(value) for value in row]
        cells = [time.strftime("%d/%m/%Y"), time.strftime("%H.%M.%S"), "2,6", s1, "150", benzene, s2, "166", s3, "113"]
        lines.append(";".join([*cells, s4, s5, *weather, "", ""]))
    lines += [";" * 16] * n_blank
    path.write_text("\r\n".join(lines) + "\r\n")
    return path


def _with_comma(value):
    return "-200" if np.isnan(value) else str(value).replace(".", ",")


def write_jena(path, values, times=None):
    """The 10-minute record; `values`: p, T, rh, rho."""
    lines = [JENA_HEADER]
    for time, (p, t, rh, rho) in zip(
        times or hours(len(values), datetime(2009, 1, 1, 0, 10), timedelta(minutes=10)), values, strict=True
    ):
        cells = [time.strftime("%d.%m.%Y %H:%M:%S"), p, t, 265.4, -8.9, rh, 3.33, 3.11, 0.22, 1.94, 3.12, rho]
        lines.append(",".join(map(str, [*cells, 1.03, 1.75, 152.3])))
    path.write_text("\n".join(lines))
    return path


def hourly_jena_text(values, times=None):
    lines = ["Date Time,p (mbar),T (degC),rh (%),rho_derived (g/m**3)"]
    for time, row in zip(times or hours(len(values), datetime(2009, 1, 1, 0, 10)), values, strict=True):
        lines.append(",".join([str(time), *map(str, row)]))
    return "\n".join(lines) + "\n"


def write_energy(path, values, times=None):
    """`values`: the 28 columns; written in quotes and with blanks, as in the original."""
    lines = [",".join(f'"{name}"' for name in ["date", *ENERGY_COLUMNS])]
    for time, row in zip(times or hours(len(values), step=timedelta(minutes=10)), values, strict=True):
        lines.append(",".join([f'"{time}"', *(f'" {value}"' for value in row)]))
    path.write_text("\r\n".join(lines) + "\r\n")
    return path


def write_stock(path, values):
    """`values`: Open, High, Low, Close, Volume; one row for each weekday."""
    days = [day for day in hours(7 * len(values), datetime(2006, 1, 2), timedelta(days=1)) if day.weekday() < 5]
    lines = ["Date,Open,High,Low,Close,Volume,Name"]
    for day, row in zip(days, values, strict=False):
        lines.append(",".join([str(day.date()), *map(str, row), "GE"]))
    path.write_text("\n".join(lines) + "\n")
    return path


def covid_days(first=datetime(2020, 1, 22), last=datetime(2020, 6, 1)):
    days = hours((last - first).days + 1, first, timedelta(days=1))
    return [f"{day.month}/{day.day}/{day.year % 100}" for day in days]


def write_covid(path, deaths, days=None):
    """`deaths`: cumulative, a row for each county and a column for each of the 61 days; 7 on all the other days."""
    days = days or covid_days()
    first = days.index("3/21/20")
    lines = [",".join([*COVID_HEADER, *days])]
    for number, row in enumerate(deaths):
        values = ["7"] * len(days)
        values[first : first + len(row)] = map(str, row)
        lines.append(",".join(["1"] * 10 + [f'"County {number}, State, US"', "1000", *values]))
    path.write_text("\r\n".join(lines) + "\r\n")
    return path


def zipped(path, csv, inside=""):
    """An archive as a Mac makes it: with a second entry for each file."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"__MACOSX/._{csv.name}", b"not the data")
        archive.write(csv, inside + csv.name)
    return path
