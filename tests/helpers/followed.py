"""What two forecasters know of the series that they follow."""

import numpy as np


def assert_same_following(one, other):
    """All that is known of all series, to the bit."""
    assert one.series == other.series
    for name, expected in other.fitted.following.series.items():
        found = one.fitted.following.series[name]
        assert (found.last_time, found.runs) == (expected.last_time, expected.runs)
        np.testing.assert_array_equal(found.recent, expected.recent)
        for array, theirs in zip(found.view.arrays().values(), expected.view.arrays().values(), strict=True):
            np.testing.assert_array_equal(array, theirs)
        states = [each.fitted.following.fleet.take([name]).named_tensors() for each in (one, other)]
        for key, tensor in states[0].items():
            if key != "trajectories_are_own":  # of all series in a block: only says what need not be looked up
                np.testing.assert_array_equal(tensor, states[1][key], err_msg=key)
