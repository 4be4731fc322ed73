"""Where files that can be made again are kept."""

import os
from pathlib import Path

import platformdirs


def cache_folder() -> Path:
    """SMC_TRANSFORMER_CACHE if it is set, else a folder of ours where the system keeps its caches."""
    chosen = os.environ.get("SMC_TRANSFORMER_CACHE")
    return Path(chosen) if chosen else platformdirs.user_cache_path("smc-transformer")
