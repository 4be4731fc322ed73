"""What all tests share: one thread for each process (`make test` runs two), tests as users run the package, a model."""

import os

import jaxtyping
import pytest
import torch
from helpers.shapes import CheckOnce

torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"  # of the processes that tests start
jaxtyping.jaxtyped = CheckOnce(jaxtyping.jaxtyped)  # before the import hook puts it on the package's functions


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Tests that train run as users do: what they call is checked by the others, at a third of the time of these."""
    jaxtyping.config.update("jaxtyping_disable", item.get_closest_marker("slow") is not None)


@pytest.fixture
def without_shape_checks():
    """As users run the package: only its own checks stand between them and a mistake."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", before)


@pytest.fixture
def drawn_by_turns(monkeypatch):
    """Whole sequences with gaps get the random numbers that a filter draws which goes step by step."""
    from helpers.agreement import draw_by_turns  # not above: the hook that checks shapes is not there yet

    from smc_transformer.inference import compiled

    monkeypatch.setattr(compiled, "draw_numbers", draw_by_turns)


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """A folder with a fitted model and its table data.csv: two series of hourly values, 80 and 60 rows long."""
    from helpers.command_tables import QUICK, waves, write  # not above: the hook that checks shapes is not there yet

    from smc_transformer.cli import main

    folder = tmp_path_factory.mktemp("trained")
    assert main(["fit", write(waves(80, 60), folder / "data.csv"), *QUICK, "--out", str(folder / "model")]) == 0
    return folder


@pytest.fixture(scope="session")
def saved(tmp_path_factory):
    """A saved forecaster of the series a, b and c, with whole-number times up to 39."""
    from helpers.forecaster_tables import make, walks  # not above: the hook that checks shapes is not there yet

    folder = tmp_path_factory.mktemp("saved") / "model"
    make().fit(walks(40, 40, 40), progress=False).save(folder)
    return folder
