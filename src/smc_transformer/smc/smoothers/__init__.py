"""Smoothers, one in each file; a new file is found by itself."""

import importlib
import pkgutil

from smc_transformer.smc.smoothers.base import SMOOTHERS, History, Request, SmoothedTrajectories, Smoother, smoother

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["SMOOTHERS", "History", "Request", "SmoothedTrajectories", "Smoother", "smoother"]
