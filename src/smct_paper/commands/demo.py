"""`smct demo`: train on synthetic data whose distribution is known."""

import argparse
from pathlib import Path

from smc_transformer.cli.options import Commands, positive, seed
from smct_paper.commands import add_action


def add(commands: Commands) -> None:
    """Declare the command."""
    demo = add_action(
        commands,
        "demo",
        _run,
        help="train on synthetic data whose distribution is known, print the scores, draw the pictures",
        description=(
            "Trains an SMC Transformer on a synthetic series whose distribution is known, prints its scores beside the "
            "best possible ones, and saves two pictures: a predictive distribution against the true 95 % band, "
            "and the genealogy of the particles."
        ),
        epilog="example: smct demo --dataset model2 --epochs 15 --out demo",
    )
    demo.add_argument("--out", type=Path, default=Path("demo"), help="folder for scores.json and the pictures")
    demo.add_argument("--dataset", choices=("model1", "model2", "model3"), default="model1", help="synthetic series")
    demo.add_argument("--epochs", type=positive, default=10, help="passes over the training sequences")
    demo.add_argument("--particles", type=positive, default=10, help="particles in training")
    demo.add_argument("--seed", type=seed, default=0, help="seed of data, weights and training")


def _run(options: argparse.Namespace) -> int:
    from rich.console import Console

    from smct_paper.demo import run_demo

    run_demo(
        options.out,
        dataset=options.dataset,
        epochs=options.epochs,
        n_particles=options.particles,
        seed=options.seed,
        console=Console(),
    )
    return 0
