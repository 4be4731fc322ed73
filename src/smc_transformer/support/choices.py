"""Names that settings and the options of commands share: a command's help must not wait for pandas or torch."""

CYCLES = ("hour", "weekday", "month", "day_of_year")
"""Calendar features of a forecaster; what they are is in `forecaster/calendar.py`."""
SCALINGS = ("local", "standard", "robust", "none", "log1p")
"""Scalings of a column; what they do is in `forecaster/scaling.py`."""
