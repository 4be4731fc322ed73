"""A series' numbers do not depend on its company: a panel, each series alone and two halves agree to the bit."""

import numpy as np
import pandas as pd
import pytest
from helpers.forecaster_tables import SHORT, TINY, autoregression, series, walks

from smc_transformer.forecaster import Forecaster

LENGTHS = (40, 43, 40, 31, 24)
HELD_BACK = 8


def continuous():
    """Series of unequal lengths, some with gaps."""
    table = walks(*LENGTHS)
    table.loc[[20, 21, 70, 120, 177], "y"] = np.nan
    return table


def counts():
    random = np.random.default_rng(1)
    parts = [
        series(name, random.poisson(np.exp(0.4 * autoregression(random, length) + number / 3)))
        for number, (name, length) in enumerate(zip("abcde", LENGTHS, strict=True))
    ]
    table = pd.concat(parts, ignore_index=True)
    table.loc[[20, 70, 71, 153], "y"] = np.nan
    return table


def two_columns():
    """With gaps in one column or both."""
    table = continuous()
    table["z"] = np.tile([1.0, 3.0, 2.0, 5.0], len(table))[: len(table)] + 0.1 * table["y"].fillna(0)
    table.loc[[15, 21, 90, 151], "z"] = np.nan
    return table


CASES = {
    "student_t": (continuous, {"scaling": "local"}),
    "counts": (counts, {"scaling": "local", "config": {**TINY, "observation": "negative_binomial"}}),
    "past_input": (two_columns, {"scaling": "local", "past_inputs": ["z"]}),
    "fixed_scaling": (continuous, {"scaling": "standard"}),
}


@pytest.fixture(scope="module", params=CASES)
def case(request):
    """A forecaster, the rows that it was fitted on, and rows that come after these, of one more series too."""
    make_table, options = CASES[request.param]
    table = make_table()
    place = table.groupby("unique_id", sort=False).cumcount(ascending=False)
    known, new = table[place >= HELD_BACK], table[place < HELD_BACK]
    late = series("late", np.arange(12) % 5, start=5, **({"z": 1.0} if "z" in table else {}))
    defaults = {"input_size": 10, "horizon": 4, "freq": 1, "training": SHORT, "n_particles": 13, "config": TINY}
    forecaster = Forecaster(**{**defaults, **options}).fit(known, progress=False)
    return forecaster, known, pd.concat((new, late), ignore_index=True)


def of(table, names):
    return table[table["unique_id"].isin(names)]


def partitions(names):
    """All at once, each alone, and two halves in another order."""
    names = list(names)
    return {"all": [names], "alone": [[name] for name in names], "halves": [names[::-2], names[-2::-2]]}


def in_order(table):
    keys = [column for column in ("unique_id", "ds", "target", "sample_id") if column in table]
    return table.sort_values(keys, kind="stable").reset_index(drop=True)


def check_partitions(names, ask):
    """What is asked of parts of a panel is what is asked of all of it."""
    found = {kind: in_order(pd.concat([ask(part) for part in parts])) for kind, parts in partitions(names).items()}
    for kind, table in found.items():
        pd.testing.assert_frame_equal(table, found["all"], check_exact=True, obj=kind)
    return found["all"]


def copy_of(forecaster, folder):
    forecaster.save(folder)
    return Forecaster.load(folder)


def test_forecasts_from_where_the_series_are(case):
    forecaster, names = case[0], case[0].series
    found = check_partitions(
        names, lambda part: forecaster.predict(series=part, n_paths=37, level=[80], quantiles=[0.1])
    )
    assert found["y"].nunique() > 12
    check_partitions(names, lambda part: forecaster.simulate(series=part, n_paths=11))
    check_partitions(names, lambda part: forecaster.forecast(series=part, n_paths=11).variance_parts())


def test_forecasts_from_histories(case):
    forecaster, known, _ = case
    for seed in (None, 5):
        check_partitions(
            forecaster.series, lambda part, seed=seed: forecaster.predict(of(known, part), n_paths=21, seed=seed)
        )
    # The same rows, followed by the fit or now.
    followed, now = forecaster.predict(n_paths=21), forecaster.predict(known, n_paths=21)
    if forecaster.settings.is_local:
        pd.testing.assert_frame_equal(now, followed, check_exact=True)


def test_scores(case):
    forecaster, known, _ = case
    found = check_partitions(forecaster.series, lambda part: forecaster.score(of(known, part)))
    assert found["pit"].nunique() > 50


def test_scenarios(case):
    forecaster, known, _ = case
    last = known.groupby("unique_id", sort=False).agg(ds=("ds", "max"), y=("y", "last")).reset_index()
    given = last.assign(ds=last["ds"] + 2)
    check_partitions(
        forecaster.series,
        lambda part: forecaster.scenario(of(given, part), series=part, n_paths=20).table([80]),
    )


@pytest.mark.parametrize("distrust", [None, 60])
def test_updates(case, tmp_path, distrust):
    forecaster, _, new = case
    names, answers, after = [*forecaster.series, "late"], {}, {}
    for kind, parts in partitions(names).items():
        own = copy_of(forecaster, tmp_path / kind)
        answers[kind] = in_order(pd.concat([own.update(of(new, part), distrust=distrust) for part in parts]))
        after[kind] = own.predict(series=names, n_paths=15)
    for kind in answers:
        pd.testing.assert_frame_equal(answers[kind], answers["all"], check_exact=True, obj=kind)
        pd.testing.assert_frame_equal(after[kind], after["all"], check_exact=True, obj=kind)
    if distrust is not None:
        assert answers["all"]["distrusted"].any()


def test_rows_one_by_one_or_all_at_once(case, tmp_path):
    forecaster, _, new = case
    new = of(new, forecaster.series)
    whole, single = (copy_of(forecaster, tmp_path / name) for name in ("whole", "single"))
    place = new.groupby("unique_id", sort=False).cumcount()
    steps = pd.concat([single.update(new[place == number]) for number in range(HELD_BACK)])
    pd.testing.assert_frame_equal(in_order(steps), in_order(whole.update(new)), check_exact=True)
    pd.testing.assert_frame_equal(whole.predict(n_paths=15), single.predict(n_paths=15), check_exact=True)


def test_updating_one_series_leaves_the_forecasts_of_others(case, tmp_path):
    forecaster, _, new = case
    own = copy_of(forecaster, tmp_path / "own")
    before = own.predict(n_paths=15)
    own.update(of(new, ["b"]))
    after, others = own.predict(n_paths=15), before["unique_id"] != "b"
    pd.testing.assert_frame_equal(after[others], before[others], check_exact=True)
    assert not np.allclose(after[~others]["y"], before[~others]["y"])


def test_seed_and_name_tell_the_numbers(case):
    forecaster, known, _ = case
    rows = of(known, ["a"])

    def paths(given, **options):
        return forecaster.forecast(given, n_paths=9, **options).paths

    assert not np.array_equal(paths(rows), paths(rows.assign(unique_id="another")))
    assert not np.array_equal(paths(rows), paths(rows, seed=99))
    np.testing.assert_array_equal(paths(rows, seed=99), paths(rows, seed=99))
    np.testing.assert_array_equal(paths(rows), paths(rows, seed=forecaster.settings.seed))
