"""The parts of the comparison of labelled particles with the pooled view."""

import numpy as np

from benchmarks.panels.hypotheses import OneCandidate, mixed
from smc_transformer.forecaster.view.bank import Bank
from smc_transformer.forecaster.view.local import LocalView


def test_paths_of_labels_are_drawn_in_proportion_to_their_weights():
    paths = np.broadcast_to(np.array([1.0, 2.0, 3.0])[None, :, None, None], (2, 3, 100, 4))
    found = mixed(np.array([[0.5, 0.3, 0.2], [0.0, 0.0, 1.0]]), paths)
    assert found.shape == (2, 100, 4)
    assert [(found[0, :, 0] == label).sum() for label in (1, 2, 3)] == [50, 30, 20]
    assert (found[1] == 3.0).all()


def test_a_view_of_one_candidate_has_its_forecasts():
    bank = Bank((4,), 3)
    columns = [np.random.default_rng(0).normal(10.0, 1.0, 40).cumsum()]
    view = LocalView.fit(bank, False, columns)
    one = OneCandidate(bank, False, view.prior, view.noise, view.floor, label=17)
    state = bank.begin(1)
    for y in columns[0]:
        bank.observe(state, np.array([y]))
    np.testing.assert_allclose(one.glance(state, 3).anchor, bank.ahead(state, 3)[..., 17])
    assert not np.allclose(view.glance(state, 3).anchor, bank.ahead(state, 3)[..., 17])
