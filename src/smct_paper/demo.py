"""The demonstration: train on Model I, whose true distribution is known, and compare the learned one with it."""

import json
from pathlib import Path
from time import monotonic
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from smc_transformer.inference.filter import FilterResult
from smc_transformer.learning import EpochReport, Trainer, warmup_cosine
from smc_transformer.model import SMCTransformer
from smc_transformer.predictive import Mixture
from smc_transformer.scores import one_step_scores
from smc_transformer.support.randomness import derived_generator
from smct_paper.datasets.synthetic import SYNTHETIC, MixtureAutoregression, split_sequences

N_SEQUENCES, N_STEPS = 1000, 24
TEST_PARTICLES = 256
GENEALOGY_PARTICLES, DEGENERACY_PARTICLES = 12, 60


def run_demo(
    out: Path,
    *,
    dataset: str = "model1",
    epochs: int = 10,
    n_particles: int = 10,
    seed: int = 0,
    console: Console,
) -> dict[str, dict[str, float]]:
    """Train, score against the Bayes-optimal forecast, and draw.

    Args:
        out: folder for scores.json and the pictures.
        dataset: a synthetic data set: "model1", "model2" or "model3".
        epochs: passes over the 800 training sequences.
        n_particles: particles in training.
        seed: of data, weights and training.
        console: where the table goes.

    Returns:
        The scores by model.
    """
    out.mkdir(parents=True, exist_ok=True)
    source = SYNTHETIC[dataset]
    split = split_sequences(source.sample(N_SEQUENCES, N_STEPS, generator=seed))
    model = SMCTransformer.from_settings({"n_particles": n_particles}, generator=seed)
    console.print(
        f"[bold]SMC Transformer[/bold] on {dataset}: {len(split.train)} training sequences of {N_STEPS} steps, "
        f"{n_particles} particles, {sum(p.numel() for p in model.parameters())} parameters"
    )
    started = monotonic()
    history = _train(model, split.train, split.validation, epochs, seed, console)
    console.print(f"trained {len(history)} epochs in {monotonic() - started:.0f} s")

    result = model.filter(split.test, TEST_PARTICLES, generator=derived_generator(seed, 1))
    truth = source.predictive(split.test)
    scores = {
        "SMC Transformer": _scores(source, result.predictive, split.test, seed),
        "Bayes-optimal": _scores(source, truth, split.test, seed),
    }
    console.print(_table(scores, len(split.test)))
    parts = result.predictive.variance_parts()
    share = float((parts.between / (parts.between + parts.within)).mean())
    console.print(f"share of the predictive variance between particles: {share:.1%}")

    (out / "scores.json").write_text(json.dumps(scores, indent=2) + "\n")
    _draw(out, model, split.test, result, truth, seed, console)
    return scores


def _train(
    model: SMCTransformer,
    train: torch.Tensor,
    validation: torch.Tensor,
    epochs: int,
    seed: int,
    console: Console,
) -> list[EpochReport]:
    batch_size = 32
    n_steps = epochs * -(-len(train) // batch_size)

    def report(epoch: EpochReport) -> None:
        if not console.is_terminal:  # a terminal has the progress bar
            console.print(
                f"epoch {epoch.epoch}/{epochs}: nll {epoch.training_loss:.4f}, validation {epoch.validation_loss:.4f}"
            )

    trainer = Trainer(
        model,
        epochs=epochs,
        batch_size=batch_size,
        schedule=warmup_cosine(n_steps, n_warmup=n_steps // 10),
        seed=seed,
        on_epoch=report,
    )
    return trainer.fit(train, validation)


def _scores(source: MixtureAutoregression, predictive: Mixture, x: torch.Tensor, seed: int) -> dict[str, float]:
    scores = one_step_scores(predictive, x[:, 1:])
    samples = predictive.sample(1000, generator=derived_generator(seed, 2))
    return {**scores._asdict(), "dist_mse": source.distribution_mse(samples, x)}


def _table(scores: dict[str, dict[str, float]], n_sequences: int) -> Table:
    columns = {
        "mse": "mse",
        "dist_mse": "dist-mse",
        "picp": "PICP",
        "mpiw": "MPIW",
        "crps": "CRPS",
        "nll": "NLL",
    }
    table = Table(title=f"One-step forecasts of {n_sequences} test sequences (95 % intervals, NLL in nats)")
    table.add_column("model")
    for title in columns.values():
        table.add_column(title, justify="right")
    for model, row in scores.items():
        table.add_row(model, *(f"{row[name]:.4f}" for name in columns))
    return table


def _draw(
    out: Path,
    model: SMCTransformer,
    test: torch.Tensor,
    result: FilterResult,
    truth: Mixture,
    seed: int,
    console: Console,
) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        console.print("no pictures: they need matplotlib (pip install 'smc-transformer[plots]')")
        return
    from smc_transformer import plots

    def save(figure: Any, name: str) -> None:
        figure.savefig(out / name, dpi=140, bbox_inches="tight")
        console.print(f"picture: {out / name}")

    figure = Figure(figsize=(9, 4.5))
    axes = figure.add_subplot()
    plots.draw_predictive(axes, result.predictive, test[:, 1:], true_interval=truth.interval(0.95))
    axes.set_title("One-step predictive distribution of a test sequence")
    save(figure, "predictive.png")

    figure = Figure(figsize=(11, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    few = model.filter(test[:1], GENEALOGY_PARTICLES, generator=derived_generator(seed, 3))
    plots.draw_genealogy(left, few.ancestors, few.log_weights)
    left.set_title(f"Genealogy of {GENEALOGY_PARTICLES} particles on that sequence")
    many = model.filter(test, DEGENERACY_PARTICLES, generator=derived_generator(seed, 4))
    plots.draw_unique_ancestors(right, many.unique_ancestors, DEGENERACY_PARTICLES)
    right.set_title(f"Ancestors left, {len(test)} test sequences")
    save(figure, "genealogy.png")
