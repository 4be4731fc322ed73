"""Proposals, one in each file; a new file is found by itself."""

import importlib
import pkgutil

from smc_transformer.inference.proposals.base import PROPOSALS, Proposal, Proposed, proposal

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["PROPOSALS", "Proposal", "Proposed", "proposal"]
