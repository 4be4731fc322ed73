"""What the forecaster loads: the library below it, and nothing of the paper, the charts or the commands."""

import subprocess
import sys


def test_the_forecaster_loads_only_what_it_needs():
    code = "import smc_transformer, sys; smc_transformer.Forecaster; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "smc_transformer.forecaster.facade" in loaded
    needless = ("smct_paper", "matplotlib", "scipy", "rich", "polars", "smc_transformer.report", "smc_transformer.cli")
    assert [name for name in loaded if name.startswith(needless)] == []
