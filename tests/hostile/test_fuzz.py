"""A few hundred hostile inputs (`fuzz.py` has the generators; `make fuzz` tries many more)."""

import json
import subprocess
import sys
from pathlib import Path

FUZZ = Path(__file__).parent / "fuzz.py"


def test_every_outcome_is_success_or_an_error_of_ours():
    done = subprocess.run([sys.executable, str(FUZZ), "--cases", "25"], capture_output=True, text=True)
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    assert found["bad"] == []
    assert done.returncode == 0
    assert found["cases"] == 25 * 7
    for kind, counts in found["counts"].items():  # the generators are neither too tame nor too wild
        assert counts.get("refused", 0) or kind == "lines", kind
    assert sum(counts.get("ok", 0) for counts in found["counts"].values()) > 30
