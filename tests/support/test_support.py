"""What every layer uses: names, chunks, randomness, JSON, progress and remarks."""

import io
import math

import numpy as np
import pandas as pd
import pytest
import torch

from smc_transformer.forecaster.calendar import calendar_features
from smc_transformer.support.as_json import plain, records
from smc_transformer.support.choices import CYCLES
from smc_transformer.support.chunks import chunk_size
from smc_transformer.support.progress import progress_report
from smc_transformer.support.randomness import as_generator, check_seed, derived_generator
from smc_transformer.support.remark import remark
from smc_transformer.support.settings import check_names


@pytest.mark.parametrize(("at_once", "each", "expected"), [(100, 10, 10), (109, 10, 10), (5, 10, 1), (0, 1, 1)])
def test_a_chunk_holds_as_much_as_fits_and_at_least_one(at_once, each, expected):
    assert chunk_size(at_once, each) == expected


def test_unknown_names_are_listed_beside_the_known_ones():
    check_names({"a": 1}, {"a", "b"})
    with pytest.raises(ValueError, match=r"unknown training settings \['c', 'd'\]; known are \['a', 'b'\]"):
        check_names(["d", "a", "c"], {"b", "a"}, "training settings")


@pytest.mark.parametrize("cycle", CYCLES)
def test_every_calendar_feature_that_can_be_chosen_is_a_point_on_a_circle(cycle):
    times = pd.date_range("2024-01-31 05:00", periods=500, freq="7h")
    features = calendar_features(times, (cycle,))
    assert features.shape == (500, 2)
    np.testing.assert_allclose((features**2).sum(axis=1), 2)


def test_json_has_neither_infinite_numbers_nor_objects_of_others():
    value = {1: [math.inf, np.float64(2.5), np.int64(3)], "time": pd.Timestamp("2024-05-01"), "none": (None, pd.NaT)}
    assert plain(value) == {"1": [None, 2.5, 3], "time": "2024-05-01T00:00:00", "none": [None, None]}
    assert plain(object).startswith("<class")
    assert records(pd.DataFrame({"y": [1.5, math.nan]})) == [{"y": 1.5}, {"y": None}]


def test_a_seed_makes_a_generator_and_a_generator_stays_what_it_is():
    generator = torch.Generator()
    assert as_generator(generator) is generator
    assert as_generator(None) is None
    assert as_generator(7).initial_seed() == check_seed(np.int64(7)) == 7
    for wrong in (True, 1.5, "7"):
        with pytest.raises(TypeError, match=r"a seed \(whole number\) or None, got"):
            check_seed(wrong)


def test_derived_generators_depend_on_every_number_and_on_their_order():
    seeds = [(0, 1), (1, 0), (0, 1, 1), (0, 2)]
    assert len({derived_generator(*numbers).initial_seed() for numbers in seeds}) == len(seeds)
    assert derived_generator(3, 4).initial_seed() == derived_generator(3, 4).initial_seed()


def test_progress_is_a_bar_on_terminals_and_a_line_now_and_then_elsewhere(monkeypatch):
    def shown(enabled):
        monkeypatch.setattr("sys.stderr", terminal := Terminal())
        with progress_report("training", 2, enabled=enabled) as report:
            report.advance(2, "nearly there")
        return terminal.getvalue()

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setenv("TERM", "xterm")
    assert "nearly there" in shown(enabled=True)
    assert shown(enabled=False) == ""
    monkeypatch.setattr(Terminal, "isatty", lambda self: False)
    assert shown(enabled=True) == ""  # it was done before there was anything to say
    monkeypatch.setattr("smc_transformer.support.progress.SECONDS_BETWEEN_LINES", 0.0)
    assert shown(enabled=True) == "training: 2 of 2 after 0 seconds, nearly there\n"
    assert shown(enabled=False) == ""


def test_remarks_leave_standard_output_alone(capsys):
    remark("beside the table")
    assert capsys.readouterr() == ("", "beside the table\n")
