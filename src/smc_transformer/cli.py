"""The command `smct`."""

import argparse
import os
import sys
from collections.abc import Sequence

from smc_transformer._version import __version__
from smc_transformer.commands import data, demo, experiment


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
    for command in (demo, data, experiment):
        command.add(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
