"""Some failures of the disk under fit, save, update and stream (`faults.py` tries every operation of each)."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FAULTS = Path(__file__).parent / "faults.py"


@pytest.mark.skipif(
    shutil.which("cc") is None or not sys.platform.startswith("linux"), reason="needs Linux and a C compiler"
)
def test_nothing_is_lost_when_the_disk_fails():
    done = subprocess.run([sys.executable, str(FAULTS), "--most", "6"], capture_output=True, text=True)
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    assert {name: kind["bad"] for name, kind in found.items()} == {name: [] for name in found}
    for name, kind in found.items():  # the faults were there
        assert kind["operations"] >= 10, name
        assert kind["errors"] >= 2, name
