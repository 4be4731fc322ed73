"""A few kills -9 of fit, save, update and stream (`kills.py` has the kinds, and tries as many as one likes)."""

import json
import subprocess
import sys
from pathlib import Path

KILLS = Path(__file__).parent / "kills.py"


def test_nothing_is_lost_when_work_is_killed():
    done = subprocess.run([sys.executable, str(KILLS), "--kills", "2"], capture_output=True, text=True)
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    assert {name: kind["bad"] for name, kind in found.items()} == {name: [] for name in found}
    assert done.returncode == 0
    for name, kind in found.items():  # it is the work that was killed, not its end
        assert kind["kills"] >= 1, name
    assert sum(kind["kills"] for kind in found.values()) >= 8
