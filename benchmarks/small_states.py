"""What small states cost: bytes of a series, and the CRPS of forecasts from them beside that from exact states.

    python -m benchmarks.small_states --out docs/results/small_states.json [--only hospital nn5] [--series 200]

For each panel one fit with default settings, on the rows before those of validation (test rows are not read). Then the
same states are kept in several ways and read again, and the horizon is forecast from each: `small` is what
`Forecaster.save(path, states="small")` keeps, the others keep so many particles, with keys and values in 16 bits.
Differences are to be compared with that of the exact states under another seed of the paths. Two scores: the mean CRPS
as a share of the mean |y|, where large series decide, and the mean over series of each one's own such share. Every
panel is written as it comes, and one that is in the file is not run again.
"""

import argparse
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from torch import Tensor

from benchmarks.panels.panels import PANELS, Split, read_panel, split_panel
from smc_transformer import Forecaster
from smc_transformer.forecaster.folder.files import particles_kept
from smc_transformer.inference.small_state import from_small_tensors, small_tensors

KEPT = (32, 16, 8, 4, 1)
"""Numbers of particles that are kept, beside that of `states="small"`."""
SEEDS = (0, 1)
"""Of the paths; scores are means over them."""
EXACT, SMALL = "exact", "small"


def fewer(split: Split, n_series: int) -> Split:
    """So many of the series, evenly."""
    names = split.train["unique_id"].unique()
    chosen = set(names[np.unique(np.linspace(0, len(names) - 1, n_series).round().astype(int))])
    train, test = (table[table["unique_id"].isin(chosen)].reset_index(drop=True) for table in (split.train, split.test))
    return Split(split.panel, train, test)


def kept_in_turn(forecaster: Forecaster) -> Iterator[tuple[str, float]]:
    """Ways to keep the states, and the bytes that a series then takes; meanwhile the forecaster has read them again."""
    fitted = forecaster.fitted
    exact, n_particles = fitted.following, fitted.settings.n_particles
    blocks = exact.fleet.blocks()

    def n_bytes(kept: Iterable[dict[str, Tensor]]) -> float:
        return sum(tensor.nbytes for tensors in kept for tensor in tensors.values()) / len(exact.series)

    yield EXACT, n_bytes(state.named_tensors() for _, state in blocks)
    for n_kept in (None, *(number for number in KEPT if number < n_particles)):
        numbers = [n_kept or particles_kept(state, exact.series[names[0]]) for names, state in blocks]
        kept = [small_tensors(state, number) for (_, state), number in zip(blocks, numbers, strict=True)]
        parts = [(names, from_small_tensors(one, n_particles)) for (names, _), one in zip(blocks, kept, strict=True)]
        fitted.following = exact._replace(fleet=exact.fleet.replaced(parts))
        yield SMALL if n_kept is None else f"{n_kept} of {n_particles}", n_bytes(kept)
    fitted.following = exact


def scores(forecaster: Forecaster, split: Split, seed: int) -> tuple[float, float]:
    """Mean CRPS as a share of mean |y|, and the mean of each series' own share."""
    forecast = forecaster.forecast(seed=seed)
    order = [forecast.names.index(name) for name in split.test["unique_id"].unique()]
    ordered, n = np.sort(forecast.paths[order, :, :, 0], axis=1), forecast.paths.shape[1]
    # E|X - y| - E|X - X'| / 2, of each series and step.
    ranks = (2 * np.arange(1, n + 1) - n - 1)[:, None]
    crps = np.abs(ordered - split.y[:, None]).mean(axis=1) - (ordered * ranks).sum(axis=1) / n**2
    own, size = np.nanmean(crps, axis=1), np.nanmean(np.abs(split.y), axis=1)
    return float(np.nanmean(crps) / np.nanmean(np.abs(split.y))), float(np.mean(own[size > 0] / size[size > 0]))


def compare(split: Split) -> dict[str, Any]:
    """All ways of keeping states of one panel."""
    forecaster = Forecaster(horizon=split.panel.horizon).fit(split.train, progress=False)
    rows = []
    for way, n_bytes in kept_in_turn(forecaster):
        rows.append({"kept": way, "bytes": n_bytes, "crps": [scores(forecaster, split, seed) for seed in SEEDS]})
    window = forecaster.fitted.model.config.window
    return {"panel": split.panel.name, "series": len(split.y), "window": window, "rows": rows}


def show(found: list[dict[str, Any]], console: Console) -> None:
    table = Table("panel", "kept", "kB a series", "CRPS / |y|", "of each series", "exact, seed 0 against 1")
    for one in found:
        exact = np.array(one["rows"][0]["crps"])
        noise = 100 * (exact[0] / exact[1] - 1)
        for row in one["rows"]:
            change = 100 * (np.mean(row["crps"], axis=0) / exact.mean(axis=0) - 1)
            is_first = row is one["rows"][0]
            shown = ("", "") if is_first else (f"{change[0]:+.2f} %", f"{change[1]:+.2f} %")
            beside = f"{noise[0]:+.2f} %, {noise[1]:+.2f} %" if is_first else ""
            table.add_row(one["panel"] if is_first else "", row["kept"], f"{row['bytes'] / 1000:.1f}", *shown, beside)
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(PANELS), default=list(PANELS))
    parser.add_argument("--series", type=int, default=200, help="of each panel, at most")
    parser.add_argument("--data", type=Path, help="folder with panels/ (default: that of SMC_TRANSFORMER_DATA)")
    parser.add_argument("--out", type=Path, default=Path("docs/results/small_states.json"))
    options = parser.parse_args()
    found = json.loads(options.out.read_text()) if options.out.exists() else []
    for name in options.only:
        if name in [one["panel"] for one in found]:
            continue
        split = split_panel(PANELS[name], read_panel(PANELS[name], options.data), horizons_back=1)
        found.append(compare(fewer(split, options.series)))
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(found, indent=1) + "\n")
        print(f"{name}: done", flush=True)
    show(found, Console(width=140))


if __name__ == "__main__":
    main()
