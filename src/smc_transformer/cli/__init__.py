"""The command `smct`: one file in commands/ for each command, and what they share."""

from smc_transformer.cli.app import main

__all__ = ["main"]
