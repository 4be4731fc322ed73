"""What the proposals are worth: effective samples, variance of the log-likelihood, time; and how often to resample.

    python -m benchmarks.proposals --out docs/results/proposals.json

Three parts (--only): `proposals`, `resampling` by threshold, and `particles` for evaluation. Rows are written as they
come. Real data are those of SMC_TRANSFORMER_DATA; without them covid is left out. About five minutes on one core.
"""

import contextlib
import functools
import os
from copy import copy
from dataclasses import replace
from pathlib import Path

import torch

from benchmarks.running import Part, Rows, run_parts
from benchmarks.timing import median_seconds
from smc_transformer import SMCTransformer, SMCTransformerConfig, kernels
from smc_transformer.learning import fit, negative_log_likelihood, power_step_size
from smc_transformer.support.randomness import as_generator
from smct_paper.datasets import SYNTHETIC
from smct_paper.datasets.covid import daily_counts, read_covid_deaths

PROPOSALS = ("bootstrap", "guided", "auxiliary")
PARTICLES = (10, 30, 100)
CHUNK = 160
"""Sequences that are filtered at once, which bounds the memory."""


def changed(model: SMCTransformer, **settings) -> SMCTransformer:
    """A shallow copy: the same weights, with other settings of the inference."""
    other = copy(model)
    other.inference = replace(model.inference, **settings)
    return other


# --- the models, and sequences that they have not seen ------------------------------------------------------------


def linear(tiny: bool) -> tuple[SMCTransformer, torch.Tensor]:
    """Not trained: sequences of its own. The read-out is linear, and X_t says much about z(t)."""
    config = SMCTransformerConfig(readout="linear", initial_observation_variance=0.01, initial_latent_variance=0.25)
    model = SMCTransformer(config, generator=0)
    start = torch.randn(4 if tiny else 100, 1, 1, generator=as_generator(0))
    return model, torch.cat((start, model.forecast(start, 24, n_samples=1, generator=1)[:, 0]), dim=1)


def synthetic(tiny: bool, name: str) -> tuple[SMCTransformer, torch.Tensor]:
    """The default model after a short training; on Model III by the recipe of docs/learning.md."""
    bimodal = name == "model3"
    train, test = (SYNTHETIC[name].sample(4 if tiny else n, 24, generator=seed) for seed, n in ((0, 400), (1, 100)))
    config = SMCTransformerConfig(initial_observation_variance=0.1 if bimodal else 0.5)
    model = SMCTransformer(config, generator=0)
    eta = power_step_size(offset=200 if bimodal else 0)
    epochs = 1 if tiny else 12
    fit(model, train, epochs=epochs, batch_size=16, learning_rate=5e-3, em_step_size=eta, seed=0, progress=False)
    return model, test


def covid(tiny: bool) -> tuple[SMCTransformer, torch.Tensor] | None:
    """Daily deaths in US counties, logarithms of one more; counties without gaps."""
    path = Path(os.environ.get("SMC_TRANSFORMER_DATA", ".")) / "covid_deaths_US.csv"
    if not path.exists():
        return None
    x = torch.log1p(torch.from_numpy(daily_counts(read_covid_deaths(path).cumulative)).float()).unsqueeze(-1)
    x = x[~x.isnan().any(dim=(1, 2))]
    x = (x / x.std())[torch.randperm(len(x), generator=as_generator(0))]
    model = SMCTransformer(SMCTransformerConfig(predict_change=True), generator=0)
    train = x[100 : 104 if tiny else 420]
    fit(model, train, epochs=1 if tiny else 6, batch_size=16, learning_rate=3e-3, seed=0, progress=False)
    return model, x[: 4 if tiny else 100]


@functools.cache
def cases(tiny: bool) -> dict[str, tuple[SMCTransformer, torch.Tensor]]:
    found = {
        "linear": linear(tiny),
        "model1": synthetic(tiny, "model1"),
        "model3": synthetic(tiny, "model3"),
        "covid": covid(tiny),
    }
    return {name: case for name, case in found.items() if case is not None}


@torch.no_grad()
def repeated(model, x, n_particles, n_repeats):
    """Log-likelihoods (repeat, sequence), share of effective samples, unique ancestors at the first step."""
    generator = as_generator(0)
    log_likelihood, ess, unique = [], [], []
    for part in x.repeat(n_repeats, 1, 1).split(CHUNK):
        result = model.filter(part, n_particles, generator)
        log_likelihood.append(result.log_likelihood)
        ess.append(result.ess.mean(dim=-1) / n_particles)
        unique.append(result.unique_ancestors[:, 0].double())
    return (
        torch.cat(log_likelihood).double().view(n_repeats, len(x)),
        float(torch.cat(ess).mean()),
        float(torch.cat(unique).mean()),
    )


def variance_of(log_likelihood):
    """Over the repeats: the mean of all sequences, its standard error, and the median."""
    by_sequence = log_likelihood.var(dim=0)
    quarters = torch.stack([part.var(dim=0).mean() for part in log_likelihood.chunk(4)])  # independent repeats
    error = quarters.std() / len(quarters) ** 0.5
    return {
        "variance": float(by_sequence.mean()),
        "error of variance": float(error),
        "median variance": float(by_sequence.median()),
    }


# --- proposals ----------------------------------------------------------------------------------------------------


def proposals(tiny: bool, out: Path | None) -> Rows:
    """Time and variance times time are relative to the bootstrap with the same number of particles."""
    n_sequences, n_repeats, n_timings = (2, 8, 1) if tiny else (16, 40, 5)
    for case, (model, x) in cases(tiny).items():
        x = x[:n_sequences]
        models = {name: changed(model, proposal=name) for name in PROPOSALS}
        for n_particles in (3,) if tiny else PARTICLES:
            runs = {
                name: functools.partial(other.filter, x, n_particles, generator=0) for name, other in models.items()
            }
            seconds = {}
            for how, context in {"torch": kernels.disabled, "kernels": contextlib.nullcontext}.items():
                with context():
                    found = median_seconds(runs, n_timings)
                seconds[how] = {name: found[name] / found["bootstrap"] for name in found}
            for name, other in models.items():
                log_likelihood, share, _ = repeated(other, x, n_particles, n_repeats)
                variance = variance_of(log_likelihood)
                if name == "bootstrap":
                    reference = variance["variance"]
                relative = variance["variance"] / reference
                yield {
                    "model": case,
                    "particles": n_particles,
                    "proposal": name,
                    "ESS / M": share,
                    "log-likelihood": float(log_likelihood.mean()),
                    **variance,
                    "time, torch": seconds["torch"][name],
                    "time, kernels": seconds["kernels"][name],
                    "variance x time, torch": relative * seconds["torch"][name],
                    "variance x time, kernels": relative * seconds["kernels"][name],
                }


# --- how often to resample ----------------------------------------------------------------------------------------


def resampling(tiny: bool, out: Path | None) -> Rows:
    n_sequences, n_repeats, n_particles = (2, 8, 3) if tiny else (16, 40, 30)
    for case, (model, x) in cases(tiny).items():
        for threshold in (1.0, 0.5, 0.25):
            other = changed(model, ess_threshold=threshold)
            log_likelihood, share, unique = repeated(other, x[:n_sequences], n_particles, n_repeats)
            yield {
                "model": case,
                "particles": n_particles,
                "threshold": threshold,
                "ESS / M": share,
                **variance_of(log_likelihood),
                "unique at step 1": unique,
            }


# --- particles for evaluation -------------------------------------------------------------------------------------


def particles(tiny: bool, out: Path | None) -> Rows:
    """Held-out NLL in nats a step of a model trained with 10 particles, as evaluated with others."""
    for case, (model, x) in cases(tiny).items():
        for name in ("bootstrap", "guided"):
            other = changed(model, proposal=name)
            for n_particles in (3,) if tiny else (10, 30, 100, 300):
                nll = [
                    negative_log_likelihood(other, x, n_particles=n_particles, batch_size=50, generator=seed)
                    for seed in range(2 if tiny else 3)
                ]
                values = torch.tensor(nll)
                yield {
                    "model": case,
                    "proposal": name,
                    "particles": n_particles,
                    "nll": float(values.mean()),
                    "deviation between seeds": float(values.std()),
                }


# ------------------------------------------------------------------------------------------------------------------

PARTS: dict[str, Part] = {"proposals": proposals, "resampling": resampling, "particles": particles}


if __name__ == "__main__":
    run_parts(__doc__, PARTS)
