"""`smct demo`: a model beside the best possible one, and a small panel from table to report."""

import argparse
from pathlib import Path

from smc_transformer.cli.options import Commands, not_negative, positive
from smct_paper.commands import add_action


def add(commands: Commands) -> None:
    """Declare the command."""
    demo = add_action(
        commands,
        "demo",
        _run,
        help="a model beside the best possible one, and a small panel from table to report",
        description=(
            "First trains an SMC Transformer on a synthetic series whose distribution is known, and prints its scores "
            "beside the best possible ones, its intervals drawn against the true 95 % band. Then forecasts a small "
            "panel of simulated monthly series, nothing set but the horizon: prints what was chosen and "
            "the scores of the last year, held out, beside a seasonal naive "
            "forecast. Saves pictures, the panel, the model, and a report page."
        ),
        epilog="example: smct demo --dataset model2 --epochs 15 --out demo",
    )
    demo.add_argument("--out", type=Path, default=Path("demo"), help="folder for all that is written")
    demo.add_argument("--dataset", choices=("model1", "model2", "model3"), default="model1", help="synthetic series")
    demo.add_argument("--epochs", type=positive, default=10, help="passes over the training sequences")
    demo.add_argument("--particles", type=positive, default=10, help="particles in training")
    text = "batches of each stage of the panel's training (default: the forecaster's own)"
    demo.add_argument("--steps", type=positive, help=text)
    demo.add_argument("--seed", type=not_negative, default=0, help="seed of data, weights and training")


def _run(options: argparse.Namespace) -> int:
    from rich.console import Console

    from smct_paper.demo import run_demo

    run_demo(
        options.out,
        dataset=options.dataset,
        epochs=options.epochs,
        n_particles=options.particles,
        steps=options.steps,
        seed=options.seed,
        console=Console(),
    )
    return 0
