"""Train on Model I, whose true distribution is known, and compare the learned one with it."""

from pathlib import Path
from time import monotonic
from typing import Any

from jaxtyping import Float
from rich.console import Console
from rich.table import Table
from torch import Tensor

from smc_transformer.inference.filter import FilterResult
from smc_transformer.learning import EpochReport, Trainer, warmup_cosine
from smc_transformer.model import SMCTransformer
from smc_transformer.predictive import Mixture
from smc_transformer.scores import one_step_scores
from smc_transformer.support.randomness import derived_generator
from smct_paper.datasets.synthetic import SYNTHETIC, MixtureAutoregression, split_sequences

N_SEQUENCES, N_STEPS, BATCH_SIZE = 1000, 24, 32
TEST_PARTICLES = 256
GENEALOGY_PARTICLES, DEGENERACY_PARTICLES = 12, 60
COLUMNS = {"mse": "mse", "dist_mse": "dist-mse", "picp": "PICP", "mpiw": "MPIW", "crps": "CRPS", "nll": "NLL"}


def run_known_distribution(
    out: Path, *, dataset: str = "model1", epochs: int = 10, n_particles: int = 10, seed: int = 0, console: Console
) -> dict[str, dict[str, float]]:
    """Train on synthetic data ("model1", "model2" or "model3"), score against the Bayes-optimal forecast, and draw.

    The pictures go to the folder `out`; the seed is that of data, weights and training. Returns the scores by model.
    """
    source = SYNTHETIC[dataset]
    split = split_sequences(source.sample(N_SEQUENCES, N_STEPS, generator=seed))
    model = SMCTransformer.from_settings({"n_particles": n_particles}, generator=seed)
    console.print(
        f"[bold]SMC Transformer[/bold] on {dataset}: {len(split.train)} training sequences of {N_STEPS} steps, "
        f"{n_particles} particles, {sum(p.numel() for p in model.parameters())} parameters"
    )

    def report(epoch: EpochReport) -> None:
        if not console.is_terminal:  # a terminal has the progress bar
            losses = f"nll {epoch.training_loss:.4f}, validation {epoch.validation_loss:.4f}"
            console.print(f"epoch {epoch.epoch}/{epochs}: {losses}")

    started = monotonic()
    n_steps = epochs * -(-len(split.train) // BATCH_SIZE)
    schedule = warmup_cosine(n_steps, n_warmup=n_steps // 10)
    trainer = Trainer(model, epochs=epochs, batch_size=BATCH_SIZE, schedule=schedule, seed=seed, on_epoch=report)
    history = trainer.fit(split.train, split.validation)
    console.print(f"trained {len(history)} epochs in {monotonic() - started:.0f} s")

    result = model.filter(split.test, TEST_PARTICLES, generator=derived_generator(seed, 1))
    truth = source.predictive(split.test)
    predictives = {"SMC Transformer": result.predictive, "Bayes-optimal": truth}
    scores = {name: _scores(source, predictive, split.test, seed) for name, predictive in predictives.items()}
    table = Table(title=f"One-step forecasts of {len(split.test)} test sequences (95 % intervals, NLL in nats)")
    table.add_column("model")
    for title in COLUMNS.values():
        table.add_column(title, justify="right")
    for name, row in scores.items():
        table.add_row(name, *(f"{row[metric]:.4f}" for metric in COLUMNS))
    console.print(table)
    parts = result.predictive.variance_parts()
    share = float((parts.between / (parts.between + parts.within)).mean())
    console.print(f"share of the predictive variance between particles: {share:.1%}")

    try:
        pictures = _pictures(model, split.test, result, truth, seed)
    except ImportError:
        console.print("no pictures: they need matplotlib (pip install 'smc-transformer[plots]')", markup=False)
        return scores
    for name, figure in pictures.items():
        figure.savefig(out / name, dpi=140, bbox_inches="tight")
        console.print(f"picture: {out / name}")
    return scores


def _scores(source: MixtureAutoregression, predictive: Mixture, x: Tensor, seed: int) -> dict[str, float]:
    scores = one_step_scores(predictive, x[:, 1:])
    samples = predictive.sample(1000, generator=derived_generator(seed, 2))
    return {**scores._asdict(), "dist_mse": source.distribution_mse(samples, x)}


def _pictures(
    model: SMCTransformer, test: Float[Tensor, "batch time_plus_1 1"], result: FilterResult, truth: Mixture, seed: int
) -> dict[str, Any]:
    """Figures by the names of their files."""
    from matplotlib.figure import Figure

    from smc_transformer.charts.particles import draw_genealogy, draw_predictive, draw_unique_ancestors

    predictive = Figure(figsize=(9, 4.5))
    axes = predictive.add_subplot()
    draw_predictive(axes, result.predictive, test[:, 1:], true_interval=truth.interval(0.95))
    axes.set_title("One-step predictive distribution of a test sequence")

    genealogy = Figure(figsize=(11, 4.5), layout="constrained")
    left, right = genealogy.subplots(1, 2, width_ratios=(3, 2))
    few = model.filter(test[:1], GENEALOGY_PARTICLES, generator=derived_generator(seed, 3))
    draw_genealogy(left, few.ancestors, few.log_weights)
    left.set_title(f"Genealogy of {GENEALOGY_PARTICLES} particles on that sequence")
    many = model.filter(test, DEGENERACY_PARTICLES, generator=derived_generator(seed, 4))
    draw_unique_ancestors(right, many.unique_ancestors, DEGENERACY_PARTICLES)
    right.set_title(f"Ancestors left, {len(test)} test sequences")
    return {"predictive.png": predictive, "genealogy.png": genealogy}
