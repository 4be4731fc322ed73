"""A forecaster fitted by several processes, each with series of its own."""

import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from helpers.forecaster_tables import SHORT, TINY, walks
from helpers.models import assert_same, weights
from helpers.process_groups import in_processes

from smc_transformer.cli.shards import read_shard
from smc_transformer.forecaster import Forecaster, TableError
from smc_transformer.support import processes
from smc_transformer.support.processes import ProcessError

LENGTHS = (30, 24, 40, 26, 33, 28, 21)
SCALINGS = ("local", "standard")


def panel():
    """Seven series with an input that is known ahead, and a gap."""
    table = walks(*LENGTHS)
    table["price"] = np.random.default_rng(1).normal(3.0, 2.0, len(table))
    table.loc[[50, 51], "y"] = np.nan
    return table


def forecaster(scaling):
    settings = {"scaling": scaling, "config": TINY, "training": {**SHORT, "max_windows": 40, "squared_error_steps": 1}}
    return Forecaster(8, horizon=3, future_inputs="price", n_particles=4, **settings)


def own_series(table):
    names = table["unique_id"].unique()
    return table[table["unique_id"].isin(names[processes.share(len(names))])].reset_index(drop=True)


def described(fitted):
    return fitted.settings, fitted.panel.to_dict(), weights(fitted.model)


def resumed_here(folder, scaling):
    """A training that is over, resumed by this group; what the process has then, and the first after `gather`."""
    found = forecaster(scaling).fit(own_series(panel()), 0, checkpoint=f"{folder}/{scaling}")
    own = found.series
    if found.gather():
        found.save(f"{folder}/{scaling}-saved")
    return described(found.fitted), own, found.series, found.report


def failed_here():
    """A mistake in the table of the last process, and a series that two of them have."""
    texts = []
    bad = own_series(panel())
    if processes.rank() == processes.size() - 1:
        bad.loc[0, "y"] = np.inf
    for table in (bad, panel()):
        try:
            forecaster("local").fit(table)
        except (TableError, ProcessError) as error:
            texts.append(f"{type(error).__name__}: {error}")
    return texts


def everything(folder):
    found = {scaling: resumed_here(folder, scaling) for scaling in SCALINGS}
    shards = {rows: read_shard(folder / f"{rows}.parquet", "unique_id") for rows in (7, 1000)}
    shards["folder"] = read_shard(folder / "parts", "unique_id")
    validated = forecaster("local").fit(own_series(panel()), 6)
    return {**found, "shards": shards, "failed": failed_here(), "validated": described(validated.fitted)}


@pytest.fixture(scope="module", params=[2, 3])
def group(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("group")
    alone = {scaling: forecaster(scaling).fit(panel(), 0, checkpoint=folder / scaling) for scaling in SCALINGS}
    for rows in (7, 1000):
        panel().to_parquet(folder / f"{rows}.parquet", row_group_size=rows)
    (folder / "parts").mkdir()
    for number, start in enumerate(range(0, 202, 50)):
        panel().iloc[start : start + 50].to_parquet(folder / "parts" / f"part-{number}.parquet")
    return folder, alone, in_processes(request.param, everything, folder)


@pytest.mark.parametrize("scaling", SCALINGS)
def test_choices_statistics_and_windows_are_those_of_one_table(group, scaling):
    """A checkpoint is resumed only by a run with the same windows, to the bit: here by other numbers of processes."""
    _, alone, found = group
    settings, scaled, model = described(alone[scaling].fitted)
    for (own_settings, own_scaled, own_model), _, _, report in (one[scaling] for one in found):
        assert own_settings == settings
        assert own_scaled == scaled
        assert_same(own_model, model)
        assert report.n_windows == alone[scaling].report.n_windows
        assert report.chosen == alone[scaling].report.chosen


def test_each_process_follows_its_own_series_and_the_first_gathers_all(group):
    folder, alone, found = group
    followed = [one["local"][1] for one in found]
    assert [name for own in followed for name in own] == alone["local"].series
    assert all(followed)
    assert found[0]["local"][2] == alone["local"].series
    assert found[1]["local"][2] == followed[1]
    saved = Forecaster.load(folder / "local-saved")
    assert saved.series == alone["local"].series
    future = pd.concat(
        pd.DataFrame({"unique_id": name, "ds": range(length, length + 3), "price": 1.0})
        for name, length in zip(saved.series, LENGTHS, strict=True)
    )
    answer = saved.predict(future=future, n_paths=5)
    pd.testing.assert_frame_equal(
        answer[["unique_id", "ds"]], alone["local"].predict(future=future, n_paths=5)[["unique_id", "ds"]]
    )
    assert answer["y"].notna().all()


def test_weights_and_widths_chosen_by_held_out_rows_are_the_same_in_all(group):
    _, _, (first, *others) = group
    for other in others:
        assert other["validated"][:2] == first["validated"][:2]
        assert_same(other["validated"][2], first["validated"][2])
    assert first["validated"][1].get("widths") is not None or first["validated"][1]["units"]


@pytest.mark.parametrize("source", [7, 1000, "folder"])
def test_each_process_reads_whole_series_and_none_reads_all(group, source):
    _, _, found = group
    shards = [one["shards"][source] for one in found]
    pd.testing.assert_frame_equal(pd.concat(shards, ignore_index=True), panel())
    for shard in shards:
        assert 0 < shard["unique_id"].nunique() < len(LENGTHS)
    assert sum(shard["unique_id"].nunique() for shard in shards) == len(LENGTHS)


def test_a_mistake_in_one_table_ends_all(group):
    _, _, found = group
    infinite, twice = zip(*(one["failed"] for one in found), strict=True)
    assert [text.partition(":")[0] for text in infinite] == ["ProcessError"] * (len(found) - 1) + ["TableError"]
    assert all("column 'y' is infinite" in text for text in infinite)
    assert all("processes 0 and 1 both have rows of series 'a'" in text for text in twice)


@pytest.mark.slow
def test_torchrun_fits_and_saves_one_model(tmp_path):
    panel().drop(columns="price").to_parquet(tmp_path / "table.parquet", row_group_size=20)
    options = ["--horizon", "3", "--steps", "2", "--out", str(tmp_path / "model"), "--particles", "4"]
    options += ["--config", "d_model=8", "d_ff=8", "n_particles=5"]
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*launch, "-m", "smc_transformer.fit", str(tmp_path / "table.parquet"), *options]
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("trained on 7 series, 202 rows") + done.stdout.count("trained on 7 series, 202 rows") == 1
    saved = Forecaster.load(tmp_path / "model")
    assert saved.series == list("abcdefg")
    assert saved.predict(n_paths=10)["y"].notna().all()
