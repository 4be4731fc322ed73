"""Results made up for the tests of the report: plausible in shape, true of nothing."""

import json
import math
import random

REAL = ("covid", "air_quality", "weather", "energy", "stock")
SYNTHETIC = ("model1", "model2", "model3")
RATES = ("0.1", "0.2", "0.5")
POINTS = ("lstm", "transformer")
BASELINES = (
    *POINTS,
    *(f"{network}_dropout_{rate}" for network in POINTS for rate in RATES),
    "bayesian_lstm_10",
    "naive",
    "autoregression",
)
HORIZON = {"covid": 20, "air_quality": 6, "weather": 12, "energy": 6, "stock": 20}
OPTIMUM = {"model1": (0.5, 0.5, 1.0724), "model2": (0.324, 0.348, 0.8526), "model3": (0.393, 0.736, 0.3824)}
SMC_PICP = {"unistep": 0.97, "multistep": 0.955}


def config_of(model):
    return "default" if model in ("naive", "autoregression", "bayes_optimal") else "paper"


def make_row(dataset, model, config, split, task, number, metrics, *, picp=None, steps=6, **changes):
    """A row as the runner writes it."""
    bins = None
    coverage = None
    if picp is not None:
        spread = max(0.15, (picp - 0.2) / 0.75)  # below 1: intervals too narrow, the histogram is a U
        edges = [0.5 + 0.5 * math.erf((i / 20 - 0.5) * 4 / spread) for i in range(21)]
        bins = [
            round(1000 * (edges[i + 1] - edges[i])) + round(400 * (1 - spread) * (i in (0, 19))) + 20 for i in range(20)
        ]
        levels = [round(0.05 * i, 2) for i in range(1, 20)]
        coverage = {"levels": levels, "shares": [level * picp / 0.95 for level in levels]}
    per_step = {"mse": [0.1] * steps}
    if picp is not None:
        per_step["picp"] = [min(1.0, picp + 0.02 - 0.04 * i / steps) for i in range(steps)]
    row = {
        "dataset": dataset,
        "model": model,
        "config": config,
        "split": split,
        "task": task,
        "fold" if split == "folds" else "seed": number,
        "profile": "quick",
        "metrics": metrics,
        "per_step": per_step,
        "pit": bins,
        "coverage": coverage,
        "settings": None,  # nobody knows what made them
        "training": {},
        "n_windows": 100 if split == "folds" else 500,
        "seconds": {"fit": 12.5 + number, "evaluate": 1.0},
        "versions": {},
    }
    return row | changes


def synthetic_rows():
    rows, noise = [], random.Random(0)
    methods = [("bayes_optimal", "default"), *((model, config_of(model)) for model in (*BASELINES, "bayesian_lstm_3"))]
    methods += [("smc_transformer", f"{config}-{size}") for config in ("paper", "best") for size in (10, 30)]
    for dataset, (mse, dist_mse, nll) in OPTIMUM.items():
        for fold in range(5):
            shift = noise.gauss(0, 0.01)  # what all methods share on a fold
            for model, config in methods:
                ours = model in ("smc_transformer", "bayes_optimal", "autoregression", "naive")
                worse = 0.0 if model == "bayes_optimal" else 0.003
                metrics = {
                    "mse": mse + shift + worse,
                    "dist_mse": None if model in POINTS else (dist_mse if ours else 0.1 * dist_mse) + worse,
                    "nll": nll + shift + worse if model in ("smc_transformer", "bayes_optimal") else None,
                    "picp": None if model in POINTS else 0.95 if ours else 0.3,
                    "mpiw": None if model in POINTS else 2.0,
                    "crps": 0.4,
                }
                picp = metrics["picp"]
                rows += [
                    make_row(dataset, model, config, "folds", task, fold, metrics, picp=picp, steps=24)
                    for task in ("unistep", "multistep")
                ]
    return rows


def real_rows(split, n_seeds=3, ablations=True):
    rows, noise = [], random.Random(1)
    methods = [(model, config_of(model)) for model in BASELINES]
    methods += [("smc_transformer", "best"), ("smc_transformer", "paper")]
    if split == "chronological" and ablations:
        methods += [("smc_transformer", f"best-without_{what}") for what in ("latent_noise", "linear_path")]
    for place, dataset in enumerate(REAL):
        for task in ("unistep", "multistep"):
            for model, config in methods:
                best = model == "smc_transformer" and config == "best"
                size = 0.03 if best else 0.1 + 0.01 * BASELINES.index(model) if model in BASELINES else 0.05
                picp = SMC_PICP[task] if model == "smc_transformer" else 0.45 + 0.04 * BASELINES.index(model)
                picp = None if model in POINTS else min(picp + 0.005 * place, 0.99)
                for seed in range(n_seeds):
                    value = size + noise.gauss(0, 0.001)
                    metrics = {
                        "mse": value,
                        "picp": picp,
                        "mpiw": None if picp is None else 6 * value + 0.1,
                        "crps": value / 2,
                        "winkler": None if picp is None else 9 * value,
                        "nll": value - 1 if task == "unistep" and model == "smc_transformer" else None,
                        "energy_score": value * 2 if task == "multistep" else None,
                    }
                    if task == "unistep":
                        del metrics["energy_score"]
                    else:
                        del metrics["nll"]
                    steps = HORIZON[dataset]
                    rows.append(make_row(dataset, model, config, split, task, seed, metrics, picp=picp, steps=steps))
    return rows


def all_rows():
    return [*synthetic_rows(), *real_rows("paper"), *real_rows("chronological")]


def write_rows(folder, rows):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(json.dumps(rows))
    return folder


def predictive_bands():
    steps = range(24)
    observed = [math.sin(t / 3) for t in steps]
    band = {"lower": [x - 1.39 for x in observed], "upper": [x + 1.39 for x in observed]}
    methods = [
        {
            "model": model,
            "config": config_of(model),
            "mean": [0.9 * x for x in observed],
            "lower": None if model in POINTS else [x - 0.4 for x in observed],
            "upper": None if model in POINTS else [x + 0.4 for x in observed],
        }
        for model in BASELINES
    ]
    ours = {"model": "smc_transformer", "config": "paper-10", "mean": observed, **band}
    return {"dataset": "model1", "observed": observed, "true": band, "methods": [ours, *methods]}


def unique_particles():
    falling = [16 + 44 * (t / 59) ** 3 for t in range(60)]
    curves = []
    for smoother, lag, mean in (("genealogy", 1, falling), ("fixed_lag", 5, [40.0] * 60), ("backward", 2, [35.0] * 60)):
        lower, upper = [x - 10 for x in mean], [min(60, x + 10) for x in mean]
        curves.append({"smoother": smoother, "lag": lag, "mean": mean, "lower": lower, "upper": upper})
    return {"dataset": "covid", "particles": 60, "sequences": 24, "epochs": 5, "curves": curves}


def write_caches(folder):
    """What the two figures that train would keep."""
    from smct_paper.experiments.report.figures.predictive import settings_of_bands
    from smct_paper.experiments.report.figures.unique import settings_of_counts

    bands = {"settings": settings_of_bands(), **predictive_bands()}
    counts = {"settings": settings_of_counts(), **unique_particles()}
    (folder / "predictive_bands.json").write_text(json.dumps(bands))
    (folder / "unique_particles.json").write_text(json.dumps(counts))
