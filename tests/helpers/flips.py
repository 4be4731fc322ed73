"""Files in which a bit has flipped."""

import pandas as pd

from smc_transformer.forecaster import Forecaster, SavedForecasterError


def refused_after_flips(path, saved, value, n_places):
    """How often a folder is refused after a bit of its file has flipped; if not, it must forecast as `saved` does.

    The flips are at evenly spaced places, at both ends and in the `value` of a row.
    """
    whole, n_refused = path.read_bytes(), 0
    expected = Forecaster.load(saved).predict()
    places = {0, whole.index(value) + len(value) - 3, len(whole) - 1, *range(5, len(whole), len(whole) // n_places)}
    for number, place in enumerate(sorted(places)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << (number % 7)
        path.write_bytes(damaged)
        try:
            loaded = Forecaster.load(path.parent)
        except SavedForecasterError:
            n_refused += 1
            continue
        pd.testing.assert_frame_equal(loaded.predict(), expected, obj=f"after a flip at {place}")
    return n_refused
