"""The command `smct`."""

import argparse
import os
import sys
from collections.abc import Sequence

from smc_transformer._version import __version__
from smc_transformer.commands import backtest, data, demo, experiment, fit, predict, report, score, stream
from smc_transformer.commands.errors import CommandError, UsageError

COMMANDS = (fit, predict, backtest, score, report, stream, demo, data, experiment)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code (0 done, 1 failed, 2 wrong usage, 130 interrupted)."""
    # Idle OpenMP threads spin; on a busy machine that steals the cores they wait for (measured: 4 times slower).
    # A short spin costs nothing elsewhere. Must be set before torch is imported; the user's own setting wins.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    options = _parser().parse_args(arguments)
    try:
        code = int(options.run(options))
        sys.stdout.flush()  # a reader that has gone away is noticed here, not while Python ends
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except UsageError as error:
        sys.stderr.write(f"smct: {error}\n")
        return 2
    except (OSError, CommandError) as error:
        sys.stderr.write(f"smct: {error}\n")
        return 1
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="smct",
        description="SMC Transformer: forecasts with a distribution, by sequential Monte Carlo in self-attention.",
        epilog="exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted",
    )
    parser.add_argument("--version", action="version", version=f"smct {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
