"""What the smoothers are worth: errors of smoothed moments, degeneracy, variance of the gradient, training.

    python -m benchmarks.smoothers --out docs/results/smoothers.json

Four parts (--only): `moments` against quadrature, `unique` particles on covid (the paper's figure; Model I where the
data are not found), `gradient` and `training` on synthetic data. Rows are written as they come.
About five minutes on one core.
"""

import os
import sys
from copy import copy
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import torch

from benchmarks.running import Part, Rows, run_parts
from benchmarks.timing import median_seconds
from smc_transformer import SMCTransformer, SMCTransformerConfig
from smc_transformer.inference.smoothing import smooth
from smc_transformer.learning import fit, power_step_size, training_step
from smc_transformer.smc import gather_trajectories, unique_ancestors
from smc_transformer.support.randomness import as_generator
from smct_paper.datasets import SYNTHETIC
from smct_paper.datasets.covid import daily_counts, read_covid_deaths

ROOT = Path(__file__).parent.parent
SMOOTHERS = (
    ("genealogy", 1),
    *(("fixed_lag", lag) for lag in (1, 2, 5, 10)),
    *(("backward", lag) for lag in (1, 2, 5)),
)
DRAWN = {("genealogy", 1): "#1f2933", ("fixed_lag", 5): "#2166ac", ("backward", 2): "#b2182b"}
"""The smoothers of the figure, and their colours."""


def label(smoother: str, lag: int) -> str:
    return smoother if smoother == "genealogy" else f"{smoother}, lag {lag}"


def with_smoother(model: SMCTransformer, smoother: str, lag: int) -> SMCTransformer:
    """A shallow copy: the same weights, inferred with another smoother."""
    other = copy(model)
    other.inference = replace(model.inference, smoother=smoother, smoothing_lag=lag)
    return other


# --- smoothed second moments of the noises, against the exact ones ------------------------------------------------


def moments(tiny: bool, out: Path | None) -> Rows:
    """Relative to the exact moments; root mean squares over the noises of q, k, v and z."""
    sys.path.insert(0, str(ROOT / "tests"))
    from helpers.models import TINY_SEQUENCE, sequences, tiny_model
    from helpers.oracles import quadrature

    n_runs = 20 if tiny else 1000
    long = sequences(1, 24, seed=3)[0]
    cases = {"the past, 3 steps": (None, TINY_SEQUENCE), "window 1, 24 steps": (1, long)}
    for case, (window, x) in cases.items():
        model = tiny_model(window=window)
        # With a window of 1 every step is on its own.
        pieces = [x] if window is None else [x[t : t + 2] for t in range(len(x) - 1)]
        found = [torch.stack(quadrature.exact(model, piece).residual_squares[:4]) for piece in pieces]
        exact = torch.stack(found).mean(dim=0).detach()
        for n_particles in (10, 50):
            for smoother, lag in SMOOTHERS:
                if window is None and lag > len(x) - 1:
                    continue  # as lag 3: it reaches the start
                errors = smoothed_squares(with_smoother(model, smoother, lag), x, n_particles, n_runs) / exact - 1
                yield {
                    "case": case,
                    "particles": n_particles,
                    "smoother": label(smoother, lag),
                    "bias": float(errors.mean(dim=0).square().mean().sqrt()),
                    "deviation": float(errors.var(dim=0).mean().sqrt()),
                    "error": float(errors.square().mean().sqrt()),
                }


@torch.no_grad()
def smoothed_squares(model, x, n_particles, n_runs):
    """Second moments of the noises of q, k, v and z, averaged over the steps: (run, 4)."""
    runs = []
    for first in range(0, n_runs, 250):
        generator = as_generator(first)
        batch = x.expand(min(250, n_runs - first), -1, -1)
        result = model.filter(batch, n_particles, generator)
        trajectories, log_weights, _ = smooth(model, model.inference, batch, result, None, generator)
        covariances = model.latent_covariances().values()
        noises = (
            s.scale(gather_trajectories(eps, trajectories)) for s, eps in zip(covariances, result.noise, strict=True)
        )
        squares = torch.stack(
            [noise.square().mean(dim=(-1, -2)) for noise in noises], dim=-1
        )  # (run, trajectory, noise)
        runs.append((log_weights.exp().unsqueeze(-1) * squares).sum(dim=1))
    return torch.cat(runs)


# --- how many different particles stand for a past step -----------------------------------------------------------


def unique(tiny: bool, out: Path | None) -> Rows:
    """The paper's figure: 60 particles on 60 steps, after a short training."""
    n_particles, n_sequences = (6, 4) if tiny else (60, 24)
    name, x = covid_or_model_one()
    x = x[torch.randperm(len(x), generator=as_generator(0))]
    train, test = x[n_sequences : n_sequences + (16 if tiny else 320)], x[:n_sequences]
    model = SMCTransformer(SMCTransformerConfig(predict_change=name == "covid"), generator=0)
    fit(model, train, epochs=1 if tiny else 5, batch_size=16, progress=False, seed=0)
    counts = {}
    for smoother, lag in SMOOTHERS:
        chosen, parts = with_smoother(model, smoother, lag), []
        generator = as_generator(1)
        # Backward simulation needs (trajectories x particles x steps) numbers for each sequence.
        for part in test.split(8):
            result = chosen.filter(part, n_particles, generator)
            parts.append(unique_ancestors(smooth(chosen, chosen.inference, part, result, None, generator).trajectories))
        counts[smoother, lag] = torch.cat(parts)
        mean = counts[smoother, lag].double().mean(dim=0)
        past = {str(age): round(float(mean[-age]), 2) for age in (1, 2, 5, 10, 20, 50) if age <= len(mean)}
        yield {"data": name, "particles": n_particles, "smoother": label(smoother, lag), "steps back": past}
    if out is not None:
        draw_unique(out.with_name("unique_particles.png"), counts, n_particles, name)


def covid_or_model_one() -> tuple[str, torch.Tensor]:
    path = Path(os.environ.get("SMC_TRANSFORMER_DATA", ".")) / "covid_deaths_US.csv"
    if not path.exists():
        return "model1", SYNTHETIC["model1"].sample(400, 60, generator=0)
    x = torch.log1p(torch.from_numpy(daily_counts(read_covid_deaths(path).cumulative)).float()).unsqueeze(-1)
    x = x[~x.isnan().any(dim=(1, 2))]  # backward simulation needs whole sequences
    return "covid", x / x.std()


def draw_unique(path: Path, counts: dict, n_particles: int, name: str) -> None:
    """A panel for each smoother, as their bands overlap."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.4), layout="constrained")
    panels = figure.subplots(1, len(DRAWN), sharey=True)
    for axes, (key, colour) in zip(panels, DRAWN.items(), strict=True):
        ages = range(-counts[key].shape[1], 0)
        lower, upper = counts[key].double().quantile(torch.tensor([0.025, 0.975]).double(), dim=0)
        axes.fill_between(ages, lower, upper, color=colour, alpha=0.18, linewidth=0, label="95 % of the sequences")
        axes.plot(ages, counts[key].double().mean(dim=0), color=colour, linewidth=1.8, label="mean")
        axes.set_title(label(*key), fontsize=11)
        axes.set_xlabel("past time step (-1: the last)")
        axes.set_xlim(ages[0], ages[-1])
        axes.set_ylim(0, n_particles * 1.03)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8, loc="lower left")
    panels[0].set_ylabel(f"unique particles of {n_particles} ({name})")
    figure.savefig(path, dpi=150)


# --- the gradient of one batch ------------------------------------------------------------------------------------


def gradient(tiny: bool, out: Path | None) -> Rows:
    """Variance and squared bias of the gradient over the squared norm of the exact one, and the time of a step."""
    n_sequences, n_repeats, n_reference, n_many = (4, 3, 2, 20) if tiny else (32, 30, 12, 500)
    x = SYNTHETIC["model1"].sample(n_sequences, 24, generator=0)
    fresh = SMCTransformer(SMCTransformerConfig(), generator=0)
    trained = SMCTransformer(SMCTransformerConfig(), generator=0)
    train = SYNTHETIC["model1"].sample(16 if tiny else 320, 24, generator=1)
    fit(trained, train, epochs=1 if tiny else 5, progress=False, seed=0)
    models = {key: with_smoother(fresh, *key) for key in SMOOTHERS}
    steps = {
        key: lambda model=model: training_step(model, x).objective.mean().backward() for key, model in models.items()
    }
    seconds = median_seconds(steps, 2 if tiny else 5)
    for state, model in {"fresh": fresh, "trained": trained}.items():
        reference = gradients(model, x, n_reference, seed=1000, n_particles=n_many)
        size = reference.mean(dim=0).square().sum() - reference.var(dim=0).sum() / n_reference
        for key in SMOOTHERS:
            found = gradients(with_smoother(model, *key), x, n_repeats, seed=0)
            variance = found.var(dim=0).sum()
            bias, error = squared_bias(found, reference)
            yield {
                "model": state,
                "smoother": label(*key),
                "variance": float(variance / size),
                "variance over squared mean": float(variance / found.mean(dim=0).square().sum()),
                "squared bias": float(bias / size),
                "its error": float(error / size),
                "time": seconds[key] / seconds["genealogy", 1],
            }


def squared_bias(found, reference):
    """|E found - E reference|^2 without the part that finite samples add, and its standard error (jackknife)."""

    def estimate(one, other):
        noise = one.var(dim=0).sum() / len(one) + other.var(dim=0).sum() / len(other)
        return (one.mean(dim=0) - other.mean(dim=0)).square().sum() - noise

    def error(sample, value_without):
        values = torch.stack([value_without(torch.cat((sample[:i], sample[i + 1 :]))) for i in range(len(sample))])
        return (len(sample) - 1) * values.var(correction=0)

    variance = error(found, lambda part: estimate(part, reference))
    variance += error(reference, lambda part: estimate(found, part))
    return estimate(found, reference), variance.sqrt()


def take_step(model, x):
    training_step(model, x, generator=as_generator(0)).objective.mean().backward()


def gradients(model, x, n_repeats, seed, n_particles=None):
    """Gradients of the mean log-likelihood of a batch, (repeat, parameter)."""
    rows = []
    for repeat in range(n_repeats):
        model.zero_grad()
        step = training_step(model, x, n_particles=n_particles, generator=as_generator(seed + repeat))
        step.objective.mean().backward()
        rows.append(torch.cat([p.grad.flatten() for p in model.gradient_parameters().values() if p.grad is not None]))
    return torch.stack(rows).double()


# --- what training comes to ---------------------------------------------------------------------------------------

TRAINED = (("genealogy", 1, 10), ("fixed_lag", 5, 10), ("backward", 2, 10), ("genealogy", 1, 50))
"""(smoother, lag, particles)."""


def training(tiny: bool, out: Path | None) -> Rows:
    """Held-out NLL after a short training, above that of the true distribution, in nats a step."""
    n_train, n_test, epochs = (16, 8, 1) if tiny else (256, 200, 8)
    for data in ("model1", "model3"):
        source = SYNTHETIC[data]
        for smoother, lag, n_particles in TRAINED:
            for seed in range(1 if tiny else 4):
                train, test = (source.sample(n, 24, generator=s) for n, s in ((n_train, seed), (n_test, 1000)))
                settings = {"smoother": smoother, "smoothing_lag": lag, "n_particles": n_particles}
                settings["initial_observation_variance"] = 0.1 if data == "model3" else 0.5
                model = SMCTransformer.from_settings(settings, generator=seed)
                eta = power_step_size(offset=200 if data == "model3" else 0)
                started = perf_counter()
                fit(
                    model,
                    train,
                    epochs=epochs,
                    batch_size=16,
                    learning_rate=5e-3,
                    em_step_size=eta,
                    seed=seed,
                    progress=False,
                )
                seconds = perf_counter() - started
                nll = -model.filter(test, 128, generator=0).log_increments.mean()
                exact = -source.predictive(test).log_prob(test[:, 1:]).mean()
                yield {
                    "data": data,
                    "smoother": label(smoother, lag),
                    "particles": n_particles,
                    "seed": seed,
                    "nll": float(nll),
                    "above exact": float(nll - exact),
                    "seconds": round(seconds, 1),
                }


# ------------------------------------------------------------------------------------------------------------------

PARTS: dict[str, Part] = {
    "moments": moments,
    "unique": unique,
    "gradient": gradient,
    "training": training,
}


if __name__ == "__main__":
    run_parts(__doc__, PARTS)
