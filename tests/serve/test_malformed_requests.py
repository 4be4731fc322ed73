"""Some hundred malformed requests of all kinds (`tests/hostile/malformed.py` sends as many as one likes)."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "hostile"))
from malformed import Malformed, run


def test_nothing_breaks_and_nothing_is_lost(saved, tmp_path):
    found = run(saved, tmp_path, 500, seed=1)
    assert found["bad"] == []
    assert set(found["kinds"]) == set(Malformed(0).kinds)
    assert found["good"] == 20
    # They got as far as the routes, and were not all stopped at the door.
    assert {"400", "401", "404", "405", "413", "415", "422"} <= set(found["statuses"])
