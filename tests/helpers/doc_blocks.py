"""Python of a document, run as its reader would, with trainings of a few steps."""

import inspect
import re
from pathlib import Path

import numpy as np
import pandas as pd

from smc_transformer.forecaster.settings import TrainingSettings

DOCS = Path(__file__).parents[2] / "docs"


def python_of(page, heading, level=2):
    """The Python blocks below a heading, in order, up to the next of its level or above."""
    text, marks = (DOCS / page).read_text(encoding="utf-8"), "#" * level
    pattern = rf"^{marks} {re.escape(heading)}\n(.*?)(?=^#{{2,{level}}} |\Z)"
    (section,) = re.findall(pattern, text, re.DOTALL | re.MULTILINE)
    blocks = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    assert blocks
    return "\n".join(blocks)


def train_shortly(monkeypatch):
    for name in ("likelihood_steps", "forecast_steps"):
        monkeypatch.setitem(inspect.unwrap(TrainingSettings.__init__).__kwdefaults__, name, 2)


def monthly_sales():
    """What docs/other_libraries.md assumes its reader to have."""
    random, months = np.random.default_rng(0), pd.date_range("2018-01-01", periods=73, freq="MS")
    parts = []
    for shop in "ab":
        price = 2 + random.random(73)
        y = 20 - 2 * price + np.sin(np.arange(73) * np.pi / 6) + 0.3 * random.normal(size=73)
        parts.append(pd.DataFrame({"unique_id": shop, "ds": months, "y": y, "price": price}))
    whole = pd.concat(parts, ignore_index=True)
    place = whole.groupby("unique_id").cumcount()
    return {
        "sales": whole[place < 72].reset_index(drop=True),
        "prices": _prices_from("2024-01-01"),
        "new_month": whole[place == 72],
        "later_prices": _prices_from("2024-02-01"),
    }


def _prices_from(month):
    ahead = pd.date_range(month, periods=12, freq="MS")
    return pd.DataFrame({"unique_id": np.repeat(["a", "b"], 12), "ds": np.tile(ahead, 2), "price": 2.5})
