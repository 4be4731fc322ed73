"""The second form of the local view: particles that carry a candidate of the bank each, weighted by the filter.

    python -m benchmarks.panels.hypotheses --only m3_quarterly hospital --out docs/results/hypotheses.json

The forecaster's view pools its candidates before the filter: one anchor for a row, their mixture by past errors over
the horizon. Here each particle has a label z instead, sees y_t = anchor_z + unit_z x, and the filter weighs it by
p(y_t | anchor_z). The labels can be summed out: particles with the same label are a filter of their own, whose
predictive densities are the likelihood of the label. So this is the filter over labels without its Monte Carlo error,

    log w_z(t) = forget log w_z(t - 1) + log p_z(y_t | y_<t),

begun with the pooled weights `rows` rows before the end; forget = 1 are labels that never change. Forecasts are paths
of the labels' own filters, as many of each as its weight says. The same fitted network, particles and paths for both
forms. Rows before the test rows only (`--validation` of the benchmark).
"""

import argparse
import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from benchmarks.panels.metrics import LEVELS, coverage, wql
from benchmarks.panels.panels import PANELS
from benchmarks.panels.running import load_split
from smc_transformer import Forecaster
from smc_transformer.forecaster.fitted import Fitted
from smc_transformer.forecaster.frequency import times_after
from smc_transformer.forecaster.table import Series
from smc_transformer.forecaster.view.bank import BankState
from smc_transformer.forecaster.view.local import LocalView
from smc_transformer.support.randomness import as_generator

FORGETTING = (1.0, 0.95, 0.9, 0.8)
LEAST_WEIGHT = 0.003
"""Candidates whose pooled weight is smaller on average over the series are left out."""


@dataclass(frozen=True)
class OneCandidate(LocalView):
    """A view that believes one candidate alone."""

    label: int = 0

    def weights(self, state: BankState) -> np.ndarray:
        found = np.zeros((len(state), self.bank.n_candidates))
        found[:, self.label] = 1.0
        return found


def compare(name: str, *, n_series: int, rows: int, n_particles: int, n_paths: int, seed: int = 0) -> dict:
    """WQL and coverage of both forms on the rows before the test rows of a panel."""
    split = load_split(name, 1, None)
    forecaster = Forecaster(horizon=split.panel.horizon, seed=seed, n_particles=n_particles)
    fitted = forecaster.fit(split.train, progress=False).fitted
    given = forecaster.read(split.train)
    chosen = np.unique(np.linspace(0, len(given) - 1, n_series).round().astype(int))
    truth, series = split.y[chosen], [given[number] for number in chosen]
    view = fitted.panel.view
    assert view is not None
    _, states, _ = fitted.panel.begin([one.rows(slice(0, max(1, len(one) - rows))) for one in series])
    prior = view.weights(BankState.cat(states))
    _, after, _ = fitted.panel.begin(series)
    pooled_now = view.weights(BankState.cat(after))
    labels = np.flatnonzero(np.maximum(prior.mean(axis=0), pooled_now.mean(axis=0)) >= LEAST_WEIGHT)
    results = {"pooled": _scores(truth, _run(fitted, series, rows, split.panel.horizon, n_paths)[1])}
    runs = []
    for number, label in enumerate(labels.tolist()):
        one = OneCandidate(view.bank, view.counts, view.prior, view.noise, view.floor, label)
        alone = replace(fitted, panel=replace(fitted.panel, view=one))
        runs.append(_run(alone, series, rows, split.panel.horizon, n_paths))
        print(f"{name}: {number + 1} of {len(labels)} labels", end="\r", flush=True)
    density = np.stack([run[0] for run in runs], axis=1)  # (series, label, row)
    paths = np.stack([run[1] for run in runs], axis=1)  # (series, label, path, step)
    begun = np.log(prior[:, labels] / prior[:, labels].sum(axis=1, keepdims=True))
    for forget in FORGETTING:
        logs = begun
        for row in range(density.shape[2]):
            logs = forget * logs + density[..., row]
            logs = logs - np.logaddexp.reduce(logs, axis=1, keepdims=True)
        results[f"labels, forget {forget:g}"] = _scores(truth, mixed(np.exp(logs), paths))
    linear = pooled_now[:, labels] / pooled_now[:, labels].sum(axis=1, keepdims=True)
    results["labels weighted as the pooled view weighs them"] = _scores(truth, mixed(linear, paths))
    return {"panel": name, "n_series": len(series), "n_labels": len(labels), "rows": rows, "results": results}


def _run(fitted: Fitted, series: list[Series], rows: int, horizon: int, n_paths: int) -> tuple[np.ndarray, np.ndarray]:
    """Log densities (series, row) of the last rows, in the table's units, and paths (series, path, step) after them."""
    generator = as_generator(0)
    viewed, states, _ = fitted.panel.begin([fitted.panel.beginning(one) for one in series])
    recent = [one.rows(slice(max(0, len(one.series) - rows), None)) for one in viewed]
    following, judged = fitted.follow_viewed(recent, states, generator, judging=True)
    density = np.zeros((len(series), rows))
    for place, (own, scaler, judgement) in enumerate(judged):
        found = judgement.log_density[:, 0].double().numpy() + scaler.log_slope(own.values)[:, 0]
        density[place, rows - len(found) :] = np.nan_to_num(found)
    future = {}
    for one in series:
        times = times_after(following.series[one.name].last_time, horizon, fitted.settings.freq)
        future[one.name] = Series.of_inputs(one.name, times, np.zeros((horizon, 0)))
    with torch.no_grad():
        forecast = fitted.forecast(following, future, n_paths, generator)
    return density, forecast.paths[..., 0]


def mixed(weights: np.ndarray, paths: np.ndarray) -> np.ndarray:
    """Paths of each series, as many of each label as its weight says, by systematic resampling."""
    n_paths, found = paths.shape[2], []
    for own, drawn in zip(weights, paths, strict=True):
        ends = np.cumsum(own) / own.sum()
        chosen = np.minimum(np.searchsorted(ends, (np.arange(n_paths) + 0.5) / n_paths), len(own) - 1)
        found.append(drawn[chosen, np.random.default_rng(0).permutation(n_paths)])
    return np.stack(found)


def _scores(truth: np.ndarray, paths: np.ndarray) -> dict[str, float]:
    quantiles = np.moveaxis(np.quantile(paths, LEVELS, axis=1), 0, -1)
    return {
        "wql": round(wql(truth, quantiles), 5),
        "coverage_80": round(coverage(truth, quantiles[..., 0], quantiles[..., -1]), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PANELS, default=["m3_quarterly", "hospital", "tourism_monthly"])
    parser.add_argument("--series", type=int, default=150)
    parser.add_argument("--rows", type=int, default=36, help="last rows that labels are weighted by")
    parser.add_argument("--particles", type=int, default=16)
    parser.add_argument("--paths", type=int, default=200)
    parser.add_argument("--out", type=Path, help="JSON file")
    options = parser.parse_args()
    found = []
    for name in options.only:
        one = compare(
            name,
            n_series=options.series,
            rows=options.rows,
            n_particles=options.particles,
            n_paths=options.paths,
        )
        print(json.dumps(one, indent=1), flush=True)
        found.append(one)
        if options.out is not None:
            options.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
