"""A plugin of pytest: every test of the kernels, but only the first, the last and some middle cases of each.

What a sanitizer looks for is in the code that runs, not in the numbers that come out: tests of distributions, which
draw millions, are left out. CASES says how many cases of a test there are (0: all of them).
"""

import os

CASES = int(os.environ.get("CASES", "3"))
LARGE = ("numbers", "quantiles")  # fixtures
LARGE_TESTS = (
    "test_gamma_numbers_have_their_distribution",
    "test_poisson_numbers_have_their_distribution",
    "test_seeds_know_nothing_of_each_other",
)


def pytest_collection_modifyitems(config, items):
    tests = {}
    for item in items:
        if not set(LARGE) & set(item.fixturenames) and item.originalname not in LARGE_TESTS:
            tests.setdefault((item.path, item.originalname), []).append(item)
    chosen = [item for cases in tests.values() for item in evenly(cases, CASES)]
    left_out = set(items) - set(chosen)
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = chosen


def evenly(cases, n):
    """So many of them, the first and the last among them."""
    if n == 0 or len(cases) <= n:
        return cases
    return [cases[round(number * (len(cases) - 1) / max(1, n - 1))] for number in range(n)]
