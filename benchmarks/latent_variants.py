"""Latent noise of other kinds than the model's, beside it and beside none: scores of validation rows and their price.

    python -m benchmarks.latent_variants --task air_quality --steps 600     # all variants, three seeds
    python -m benchmarks.latent_variants report                             # what docs/results/latent_variants.json has

A variant changes the noise that the filter is given, or puts a stochastic layer below the attention:

    scales by the state   eps_t = s(e_t) xi_t, the scales s of each coordinate by a linear map, 1 at first
    noise that remembers  eps_t = rho eps_{t-1} + (1 - rho^2)^(1/2) xi_t along each particle's own ancestry
    noise by head         several heads; a variance for each coordinate, or one for all coordinates of a head
    two layers            the embeddings that the attention sees come from another stochastic attention

One network (a GRU below the attention), trained by the one-step likelihood alone; rows cut in time. `appliances` is the
task of `benchmarks.two_modes`; `air_quality` and `stock` are the windows of the experiments in units of a typical
change. Seconds are those of the processor for a training step. Every run is written as it finishes, and a run that is
in the file is not repeated.
"""

import argparse
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from rich.console import Console
from rich.table import Table
from torch import Generator, Tensor, nn

from benchmarks import two_modes
from smc_transformer import SMCTransformer
from smc_transformer.inference.filter import FilterResult, particle_filter
from smc_transformer.inference.mutation import mutate
from smc_transformer.inference.replay import TrajectoryInputs, replay, trajectory_inputs
from smc_transformer.inference.settings import InferenceSettings
from smc_transformer.inference.smoothing import smooth
from smc_transformer.inference.step import Prediction, begin, observe_step, select_particles
from smc_transformer.learning import Likelihood, Stage, evenly_spaced
from smc_transformer.learning.em import em_statistics
from smc_transformer.learning.goals import BatchReport, Sampling
from smc_transformer.learning.objective import Trajectories, pathwise_objective
from smc_transformer.nn.attention import Noise, StochasticSelfAttention
from smc_transformer.nn.encoders.changes import typical_size
from smc_transformer.nn.initialisation import initialise_weights
from smc_transformer.nn.readout import TransformerReadout
from smc_transformer.predictive import Mixture
from smc_transformer.scores import fair_crps
from smc_transformer.smc.genealogy import gather_trajectories
from smc_transformer.support.randomness import as_generator
from smct_paper.datasets import load_windows

KINDS = len(Noise._fields)
WIDEST = 3.0
"""Scales by the state lie between exp(-3) and exp(3)."""
TEST_PARTICLES = 256
DRAWS = 500
"""By which the CRPS is estimated: its closed form takes all pairs of particles."""


@dataclass(frozen=True)
class Variant:
    """How the noise differs from the model's own."""

    settings: dict[str, Any] = field(default_factory=dict)  # of the model
    scales: bool = False  # by the state
    same_scales: bool = False  # in all states: what the other way to learn a variance does by itself
    rho: float = 0.0  # what the noise keeps of itself from step to step
    learn_rho: bool = False
    tied: bool = False  # one variance for all coordinates of a head
    lower: float | None = (
        None  # a layer below, the first variance of its noise as a share of the upper one's; None: none
    )


VARIANTS: dict[str, Variant] = {
    "no latent noise": Variant({"initial_latent_variance": 0.0}),
    "latent noise": Variant(),
    "scales by the state": Variant(scales=True),
    "remembers, rho 0.5": Variant(rho=0.5),
    "remembers, rho 0.9": Variant(rho=0.9),
    "remembers, rho 0.98": Variant(rho=0.98),
    "remembers, rho learned from 0.5": Variant(rho=0.5, learn_rho=True),
    "four heads, a variance for each coordinate": Variant({"n_heads": 4}),
    "four heads, a variance for each head": Variant({"n_heads": 4}, tied=True),
    "four heads, one variance": Variant({"n_heads": 4, "covariance": "isotropic"}),
    "two layers, noise in the upper": Variant(lower=0.0),
    "two layers, noise in both": Variant(lower=1.0),
    "two layers, no latent noise": Variant({"initial_latent_variance": 0.0}, lower=0.0),
    "scales, the same in all states": Variant(scales=True, same_scales=True),
}


class Task(NamedTuple):
    """What is modelled: windows of training and of validation rows, and the settings of network and training."""

    train: Float[Tensor, "window time_plus_1 n_inputs"]
    validation: Float[Tensor, "held_out time_plus_1 n_inputs"]
    settings: dict[str, Any]
    stage: Stage


def load_task(name: str, steps: int) -> Task:
    if name == "appliances":
        windows, _, _ = two_modes.load()
        settings = {**two_modes.NETWORK, **two_modes.COMPETING, "observation": "heteroscedastic"}
        stage = Stage(steps, validations=15, batch_size=32, learning_rate=4e-3, warmup=0.3, em_offset=200, patience=5)
        return Task(windows["train"], windows["validation"], settings, stage)
    data = load_windows(name)
    train, validation = (part[~part.isnan().flatten(1).any(dim=1)] for part in (data.train, data.validation))
    units = typical_size(train.diff(dim=1), train)
    validation = validation[evenly_spaced(len(validation), 250)]
    settings = {
        **two_modes.NETWORK,
        "n_inputs": data.n_inputs,
        "n_targets": data.n_modelled,
        "observation": "student_t",
        "initial_latent_variance": 0.05,
        "n_particles": 10,
    }
    stage = Stage(steps, validations=15, batch_size=32, learning_rate=3e-3, patience=5)
    return Task(train / units, validation / units, settings, stage)


class LatentNoise(nn.Module):
    """What a variant has beside the model's own parts; registered in the model, so that it is trained with it."""

    def __init__(self, variant: Variant, model: SMCTransformer, generator: Generator | None):
        super().__init__()
        d_model, config = model.config.d_model, model.config
        self.variant = variant
        if variant.scales:
            self.scale = nn.Linear(d_model, KINDS * d_model)
            nn.init.zeros_(self.scale.weight)
            nn.init.zeros_(self.scale.bias)
            self.scale.weight.requires_grad_(not variant.same_scales)
        if variant.learn_rho:
            self.rho_logit = nn.Parameter(torch.full((KINDS, d_model), variant.rho).logit())
        if variant.lower is not None:
            variance = variant.lower * config.initial_latent_variance
            self.attention = StochasticSelfAttention(d_model, config.window, "diagonal", variance, config.n_heads)
            self.block = TransformerReadout(d_model, config.d_ff, d_model)
            initialise_weights(self.attention, generator)
            initialise_weights(self.block, generator)

    def scales(self, embedding: Float[Tensor, "*batch d_model"]) -> list[Tensor]:
        """The scales of the four kinds of noise."""
        exponent = WIDEST * torch.tanh(self.scale(embedding) / WIDEST)
        return list(exponent.exp().unflatten(-1, (KINDS, -1)).unbind(-2))

    def rho(self) -> list[Tensor]:
        """What each coordinate of each kind of noise keeps of itself."""
        if self.variant.learn_rho:
            return list(self.rho_logit.sigmoid())
        return list(torch.full((KINDS, 1), self.variant.rho))

    def remembered(self, before: Noise, fresh: Noise) -> Noise:
        """The noise of the next step."""
        parts = zip(self.rho(), before, fresh, strict=True)
        return Noise(*(rho * old + (1 - rho**2).sqrt() * xi for rho, old, xi in parts))

    def along(self, fresh: Noise) -> Noise:
        """The noise of trajectories, from their fresh parts (batch, trajectory, time, d_model)."""
        steps = [fresh.at(0)]
        for step in range(1, fresh.query.shape[2]):
            steps.append(self.remembered(steps[-1], fresh.at(step)))
        return Noise(*(torch.stack(parts, dim=2) for parts in zip(*steps, strict=True)))


class Found(NamedTuple):
    """What the filter of a variant found."""

    result: FilterResult  # its noise is that which the attention was given
    fresh: Noise  # the independent noise behind it
    lower: Noise | None  # the noise of the layer below


def make_model(task: Task, variant: Variant, seed: int) -> SMCTransformer:
    model = SMCTransformer.from_settings({**task.settings, **variant.settings}, generator=seed)
    model.encoder.set_scales_(task.train)  # type: ignore[operator]
    model.latent_noise = LatentNoise(variant, model, as_generator(seed))
    if variant.tied:
        for covariance in model.attention.covariances:
            covariance.factor.register_hook(lambda gradient: _mean_by_head(gradient, model.config.n_heads))
    return model


def _mean_by_head(gradient: Tensor, n_heads: int) -> Tensor:
    """Coordinates that begin equal and always move by the same gradient stay equal."""
    by_head = gradient.unflatten(0, (n_heads, -1))
    return by_head.mean(dim=-1, keepdim=True).expand_as(by_head).flatten()


@torch.no_grad()
def filter_variant(
    model: SMCTransformer, x: Float[Tensor, "batch time_plus_1 n_inputs"], n_particles: int, generator: Generator | None
) -> Found:
    """The filter with the noise of the model's variant; nothing may be missing."""
    extra, settings = model.latent_noise, model.settings(n_particles)
    fresh = model.attention.draw_noise(len(x), n_particles, x.shape[1] - 1, generator)
    if extra.variant.lower is not None or extra.variant.rho > 0:
        return _walk(model, x, settings, fresh, generator)
    noise = fresh
    if extra.variant.scales:
        scales = extra.scales(trajectory_inputs(model, x).embedding_of_each)
        noise = Noise(*(scale * eps for scale, eps in zip(scales, fresh, strict=True)))
    return Found(particle_filter(model, x, settings, generator, noise=noise), fresh, None)


def _walk(
    model: SMCTransformer, x: Tensor, settings: InferenceSettings, fresh: Noise, generator: Generator | None
) -> Found:
    """The filter step by step, for noise that depends on a particle's own past."""
    extra, embedding = model.latent_noise, trajectory_inputs(model, x).embedding_of_each
    batch, n_particles, n_steps, d_model = fresh.query.shape
    state = begin(model, x[:, 0], n_particles, n_steps)
    lower = (
        extra.attention.draw_noise(batch, n_particles, n_steps, generator) if extra.variant.lower is not None else None
    )
    keys = values = embedding.new_empty(batch, n_particles, 0, d_model)
    trace: dict[str, list[Tensor]] = {}
    eps, given = fresh.at(0), []
    for step in range(n_steps):
        selection = select_particles(model, settings, state, generator)
        index, shared = selection.ancestors.unsqueeze(-1), embedding[:, :, step]
        if step > 0:
            eps = extra.remembered(Noise(*(part.take_along_dim(index, 1) for part in eps)), fresh.at(step))
        if lower is not None:
            latents = extra.attention.latents(shared, lower.at(step))
            held = step - extra.attention.first_slot(step)  # what the window still sees of earlier slots
            keys, values = (
                part[:, :, part.shape[2] - held :].take_along_dim(index.unsqueeze(-1), 1) for part in (keys, values)
            )
            keys = torch.cat((keys, latents.key.unsqueeze(2)), dim=2)
            values = torch.cat((values, latents.value.unsqueeze(2)), dim=2)
            z = extra.attention.attend_one(latents.query, keys, values)
            shared = extra.block(z + extra.attention.deviation(lower.at(step)), shared)
        moved = mutate(model, state, shared, eps)
        prediction = Prediction(state.log_weights, moved, selection)
        observed = observe_step(model, settings, state, prediction, x[:, step + 1], generator)
        given.append(eps)
        found = {
            "ancestors": selection.ancestors,
            "resampled": selection.resampled,
            "prior_log_weights": prediction.log_weights,
            "parameters": moved.parameters,
            "log_increments": observed.log_increments,
            "log_weights": state.log_weights,
        }
        for name, value in found.items():
            trace.setdefault(name, []).append(value)
    stacked = {name: torch.stack(parts, dim=2 if parts[0].ndim > 1 else 1) for name, parts in trace.items()}
    noise = Noise(*(torch.stack(parts, dim=2) for parts in zip(*given, strict=True)))
    parameters = stacked.pop("parameters")
    predictive = model.observation.mixture(stacked.pop("prior_log_weights"), parameters)
    result = FilterResult(
        **stacked, noise=noise, read_outs=parameters, attention=None, completed=None, predictive=predictive
    )
    return Found(result, fresh, lower)


class VariantLikelihood(Likelihood):
    """The likelihood of a model with a variant's noise: Fisher's identity with the fresh noise as the latent."""

    def accumulate(self, model: SMCTransformer, x: Tensor, sampling: Sampling) -> BatchReport:
        found = filter_variant(model, x, sampling.n_particles, sampling.generator)
        result, n_terms = found.result, len(x) * (x.shape[1] - 1)
        particles, log_weights, _ = smooth(
            model, model.settings(sampling.n_particles), x, result, None, sampling.generator
        )
        inputs = trajectory_inputs(model, x)
        log_density, trajectories, parameters = objective(model, inputs, found, particles, log_weights)
        (-(log_weights.exp() * log_density.sum(dim=-1)).sum() / n_terms).backward()
        statistics = em_statistics(model, trajectories, parameters)
        return BatchReport(-float(result.log_likelihood.sum()), n_terms, statistics, n_terms)

    def validate(self, model: SMCTransformer, x: Tensor, sampling: Sampling) -> float:
        found = filter_variant(model, x, sampling.n_particles, sampling.generator)
        return -float(found.result.log_increments.mean())


def objective(
    model: SMCTransformer, inputs: TrajectoryInputs, found: Found, particles: Tensor, log_weights: Tensor
) -> tuple[Tensor, Trajectories, Tensor]:
    """Log p(X_t | fresh noise) along trajectories, with gradients of all that makes noise of it."""
    extra, result = model.latent_noise, found.result
    embedding = inputs.embedding_of_each
    if found.lower is not None:
        latents = extra.attention.latents(embedding, found.lower, particles)
        z = extra.attention.attend_all(latents) + extra.attention.deviation(found.lower, particles)
        inputs = inputs._replace(embedding=extra.block(z, embedding))
    read_outs = gather_trajectories(result.read_outs, particles)
    trajectories = Trajectories(inputs, result.noise, particles, log_weights, read_outs)
    if not extra.variant.scales and not extra.variant.learn_rho:
        log_density, parameters = pathwise_objective(model, trajectories)
        return log_density, trajectories, parameters
    noise = found.fresh.along(particles)
    if extra.variant.scales:
        noise = Noise(*(scale * eps for scale, eps in zip(extra.scales(embedding), noise, strict=True)))
    else:
        noise = extra.along(noise)
    replayed = replay(model, inputs, noise)
    return replayed.log_density, trajectories, replayed.parameters


def run(task: Task, variant: Variant, seed: int) -> dict[str, float]:
    """Train a variant: scores of validation rows, and what a training step costs."""
    model = make_model(task, variant, seed)
    trainer = task.stage.trainer(model, VariantLikelihood(), seed)
    before = time.process_time()
    reports = trainer.fit(task.train, task.validation)
    seconds = time.process_time() - before
    mixture = filter_variant(model, task.validation, TEST_PARTICLES, as_generator(0)).result.predictive
    found = scores(mixture, task.validation[:, 1:, : model.config.n_targets])
    found["milliseconds_a_step"] = 1000 * seconds / (len(reports) * task.stage.steps_per_validation)
    if variant.learn_rho:
        found["rho"] = float(torch.stack(model.latent_noise.rho()).detach().mean())
    return found


@torch.no_grad()
def scores(mixture: Mixture, observed: Float[Tensor, "window time target"]) -> dict[str, float]:
    parts = mixture.variance_parts()
    return {
        "nll": -float(mixture.log_prob(observed).mean()),
        "crps": float(fair_crps(mixture.sample(DRAWS, as_generator(0)), observed).mean()),
        "between_particles": float((parts.between / (parts.between + parts.within)).mean()),
    }


def show(rows: list[dict[str, Any]]) -> None:
    """All seeds of each variant, side by side."""
    keys = {"nll": 3, "crps": 4, "between_particles": 3, "milliseconds_a_step": 0}
    for task, steps in dict.fromkeys((row["task"], row["steps"]) for row in rows):
        table = Table("variant", *keys, title=f"{task}, {steps} steps")
        for name in VARIANTS:
            mine = [row for row in rows if (row["variant"], row["task"], row["steps"]) == (name, task, steps)]
            mine.sort(key=lambda row: row["seed"])
            if mine:
                table.add_row(name, *(" ".join(f"{row[key]:.{n}f}" for row in mine) for key, n in keys.items()))
        Console(width=160).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", nargs="?", choices=("run", "report"), default="run")
    parser.add_argument("--task", choices=("appliances", "air_quality", "stock"), default="appliances")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--only", nargs="+", type=int, help="numbers of the variants to run, from 0")
    parser.add_argument("--out", type=Path, default=Path("docs/results/latent_variants.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = json.loads(options.out.read_text()) if options.out.exists() else []
    if options.command == "run":
        task = load_task(options.task, options.steps)
        for seed in options.seeds:
            for number, (name, variant) in enumerate(VARIANTS.items()):
                asked = {"task": options.task, "variant": name, "seed": seed, "steps": options.steps}
                known = any(asked.items() <= row.items() for row in rows)
                if known or number not in (options.only or range(len(VARIANTS))):
                    continue
                rows.append({**asked, **run(task, variant, seed)})
                options.out.parent.mkdir(parents=True, exist_ok=True)
                options.out.write_text(json.dumps(rows, indent=1) + "\n")
    show(rows)


if __name__ == "__main__":
    main()
