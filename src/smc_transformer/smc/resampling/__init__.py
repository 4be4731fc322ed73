"""Resampling schemes, one in each file; a new file is found by itself."""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

# After the modules of the same names have been imported, the names stand for the functions.
from smc_transformer.smc.resampling.base import RESAMPLERS, Resampler, resampler  # noqa: E402
from smc_transformer.smc.resampling.multinomial import multinomial  # noqa: E402
from smc_transformer.smc.resampling.residual import residual  # noqa: E402
from smc_transformer.smc.resampling.stratified import stratified  # noqa: E402
from smc_transformer.smc.resampling.systematic import systematic  # noqa: E402

__all__ = ["RESAMPLERS", "Resampler", "multinomial", "resampler", "residual", "stratified", "systematic"]
