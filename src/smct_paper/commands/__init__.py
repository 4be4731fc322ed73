"""The commands of the reproduction, which `smct` finds through the entry points of this package."""

import argparse
from collections.abc import Callable
from typing import Any

from smc_transformer.cli.options import Commands


class Defaults(argparse.ArgumentDefaultsHelpFormatter):
    """Says the default of an option that has one."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        return action.help if action.default in (None, False) else super()._get_help_string(action)


def add_action(
    commands: Commands, name: str, run: Callable[[argparse.Namespace], int], **texts: Any
) -> argparse.ArgumentParser:
    """The parser of something that is run, whose help says the defaults of its options."""
    parser = commands.add_parser(name, formatter_class=Defaults, **texts)
    parser.set_defaults(run=run, parser=parser)
    return parser
