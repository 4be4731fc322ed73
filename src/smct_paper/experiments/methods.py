"""From a cell to the method that is trained in it."""

import json
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from smct_paper.experiments.grid import BAYES_OPTIMAL, SMC_TRANSFORMER, Cell
from smct_paper.experiments.profiles import PAPER, WARMUP_STEPS, Profile

if TYPE_CHECKING:
    from smct_paper.baselines import Method


def build_method(cell: Cell, profile: Profile) -> "Method":
    """The method of a cell, untrained, with the profile's epochs and the data set's batch size."""
    if cell.model == SMC_TRANSFORMER:
        from smct_paper.experiments.smc_settings import smc_method

        return smc_method(cell.config, cell.dataset, profile.name)

    from smct_paper.baselines import BASELINES, BayesOptimal
    from smct_paper.datasets import DATASETS

    if cell.model == BAYES_OPTIMAL:
        return BayesOptimal()
    make = BASELINES[cell.model]
    epochs = profile.baseline_epochs(cell.model, cell.dataset)
    wanted = {
        "epochs": epochs,
        "batch_size": DATASETS[cell.dataset].batch_size,
        # The warm-up shrinks with the length of training, which raises the peak of the learning rate.
        "warmup_steps": max(1, WARMUP_STEPS * epochs // PAPER.epochs.others),
    }
    has = make().settings()  # methods that do not train have no epochs
    return make(**{name: value for name, value in wanted.items() if name in has})


def settings_of(cell: Cell, profile: Profile) -> dict[str, Any]:
    """The settings with which a cell would run, as JSON gives them back."""
    return json.loads(json.dumps(build_method(cell, profile).settings()))


def wanted_of(cells: Iterable[Cell], profile: Profile) -> dict[Cell, dict[str, Any]]:
    """What each cell is run with, as it is written down; a finished cell with anything else does not count."""

    @cache
    def wanted(any_seed: Cell) -> dict[str, Any]:
        try:
            settings = settings_of(any_seed, profile)
        except Exception:  # the cell fails with the same error in its worker, where it is written down
            settings = None
        return {"profile": profile.name, "settings": settings, "evaluation": profile.evaluation()}

    return {cell: wanted(replace(cell, seed=0)) for cell in cells}
