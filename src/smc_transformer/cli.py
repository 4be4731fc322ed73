"""The command `smct`."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from smc_transformer._version import __version__

# Heavy modules are imported inside the commands, so that --help answers at once.


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code (0 done, 1 failed, 2 wrong usage, 130 interrupted)."""
    # Idle OpenMP threads spin; on a busy machine that steals the cores they wait for (measured: 4 times slower).
    # A short spin costs nothing elsewhere. Must be set before torch is imported; the user's own setting wins.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return 130
    except OSError as error:
        sys.stderr.write(f"smct: {error}\n")
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="smct",
        description="SMC Transformer: forecasts with a distribution, by sequential Monte Carlo in self-attention.",
    )
    parser.add_argument("--version", action="version", version=f"smct {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_demo(commands)
    return parser


def _add_demo(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    demo = commands.add_parser(
        "demo",
        help="train on synthetic data whose law is known, print the scores, draw the pictures",
        description=(
            "Trains an SMC Transformer on a synthetic series whose true law is known, prints its scores beside the "
            "best possible ones, and saves two pictures: a predictive distribution against the true 95 % band, "
            "and the genealogy of the particles."
        ),
        epilog="example: smct demo --dataset model2 --epochs 15 --out demo",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    demo.add_argument("--out", type=Path, default=Path("demo"), help="folder for scores.json and the pictures")
    demo.add_argument("--dataset", choices=("model1", "model2", "model3"), default="model1", help="synthetic series")
    demo.add_argument("--epochs", type=_positive, default=10, help="passes over the training sequences")
    demo.add_argument("--particles", type=_positive, default=10, help="particles in training")
    demo.add_argument("--seed", type=_seed, default=0, help="seed of data, weights and training")
    demo.set_defaults(run=_run_demo)


def _run_demo(options: argparse.Namespace) -> int:
    from rich.console import Console

    from smc_transformer.demo import run_demo

    run_demo(
        options.out,
        dataset=options.dataset,
        epochs=options.epochs,
        n_particles=options.particles,
        seed=options.seed,
        console=Console(),
    )
    return 0


def _positive(text: str) -> int:
    return _at_least(1, text)


def _seed(text: str) -> int:
    return _at_least(0, text)


def _at_least(least: int, text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least {least}, got {text!r}")
    return value


if __name__ == "__main__":
    sys.exit(main())
