import math

import pytest
import torch
from helpers.models import mean_and_error

from smc_transformer.smc import RESAMPLERS, select, systematic, uniform_log_weights
from smc_transformer.support.randomness import as_generator

EQUAL = [0.25, 0.25, 0.25, 0.25]
UNEVEN = [0.4, 0.3, 0.2, 0.1]
PEAKED = [0.97, 0.01, 0.01, 0.01]
ONE_OF_FOUR = [0.0, 0.0, 1.0, 0.0]
TWO_OF_FOUR = [0.5, 0.0, 0.5, 0.0]
THEMSELVES = [0, 1, 2, 3]


def log_weights_of(*rows):
    return torch.tensor(rows, dtype=torch.float64).log()


@pytest.mark.parametrize("weights", [EQUAL, UNEVEN, ONE_OF_FOUR])
def test_a_threshold_of_one_resamples_whatever_the_weights(weights):
    log_weights = log_weights_of(weights)
    selection = select(log_weights, systematic, ess_threshold=1.0, generator=as_generator(0))
    assert selection.resampled.tolist() == [True]
    assert torch.equal(selection.log_weights, uniform_log_weights(log_weights))


@pytest.mark.parametrize("weights", [EQUAL, PEAKED, ONE_OF_FOUR])
def test_a_threshold_of_zero_never_resamples(weights):
    log_weights = log_weights_of(weights)
    selection = select(log_weights, systematic, ess_threshold=0.0, generator=as_generator(0))
    assert selection.resampled.tolist() == [False]
    assert selection.ancestors.tolist() == [THEMSELVES]
    assert torch.equal(selection.log_weights, log_weights)


def test_each_sequence_of_a_batch_is_judged_by_itself():
    log_weights = log_weights_of(UNEVEN, ONE_OF_FOUR, EQUAL, PEAKED)
    selection = select(log_weights, systematic, ess_threshold=0.5, generator=as_generator(0))
    assert selection.resampled.tolist() == [False, True, False, True]
    assert selection.ancestors[[0, 2]].tolist() == [THEMSELVES, THEMSELVES]
    assert selection.ancestors[1].tolist() == [2, 2, 2, 2]
    assert selection.ancestors[3].tolist().count(0) >= 3  # floor(4 x 0.97)


def test_resampled_sequences_carry_equal_weights_and_the_others_their_own():
    log_weights = log_weights_of(UNEVEN, PEAKED)
    carried = select(log_weights, systematic, ess_threshold=0.5, generator=as_generator(0)).log_weights
    assert torch.equal(carried[0], log_weights[0])
    assert carried[1].tolist() == [-math.log(4)] * 4


@pytest.mark.parametrize(("threshold", "expected"), [(0.49, False), (0.51, True)])
def test_the_threshold_is_a_share_of_the_particles(threshold, expected):
    # Two of four particles with half the weight each: an effective sample size of 2.
    selection = select(log_weights_of(TWO_OF_FOUR), systematic, ess_threshold=threshold, generator=as_generator(0))
    assert selection.resampled.tolist() == [expected]


@pytest.mark.parametrize("scheme", sorted(RESAMPLERS))
def test_ancestors_are_those_that_the_scheme_draws(scheme):
    log_weights = log_weights_of(UNEVEN, PEAKED)
    selection = select(log_weights, RESAMPLERS[scheme], ess_threshold=1.0, generator=as_generator(5))
    assert torch.equal(selection.ancestors, RESAMPLERS[scheme](log_weights, 4, as_generator(5)))


def test_selection_keeps_the_type_of_the_weights():
    log_weights = log_weights_of(UNEVEN).float()
    for threshold in (0.0, 0.5, 1.0):
        selection = select(log_weights, systematic, ess_threshold=threshold, generator=as_generator(0))
        assert selection.log_weights.dtype == torch.float32


# --- selection by first-stage weights ------------------------------------------------------------------------------

NAN = float("nan")
WEIGHTS = torch.tensor(UNEVEN, dtype=torch.float64)
FIRST_STAGE = torch.tensor([0.1, 2.0, 0.7, 3.0], dtype=torch.float64)


@pytest.mark.parametrize("scheme", sorted(RESAMPLERS))
def test_particles_are_drawn_by_weight_times_first_stage_and_carry_what_makes_up_for_it(scheme):
    n_rows = 10_000
    log_weights, first_stage = WEIGHTS.log().expand(n_rows, 4), FIRST_STAGE.log().expand(n_rows, 4)
    selection = select(
        log_weights, RESAMPLERS[scheme], ess_threshold=1.0, first_stage=first_stage, generator=as_generator(0)
    )
    children = torch.nn.functional.one_hot(selection.ancestors, 4).double()  # (row, child, parent)
    counts, error = mean_and_error(children.sum(dim=1))
    wanted = WEIGHTS * FIRST_STAGE / (WEIGHTS * FIRST_STAGE).sum()
    assert ((counts - 4 * wanted).abs() < 4.5 * error + 1e-9).all()
    carried, error = mean_and_error((selection.log_weights.exp().unsqueeze(-1) * children).sum(dim=1))
    assert (error < 0.02).all()
    assert ((carried - WEIGHTS).abs() < 4.5 * error + 1e-9).all()


def test_an_even_first_stage_changes_nothing():
    log_weights = WEIGHTS.log().unsqueeze(0)
    plain = select(log_weights, systematic, ess_threshold=1.0, generator=as_generator(3))
    looked = select(
        log_weights,
        systematic,
        ess_threshold=1.0,
        first_stage=torch.full((1, 4), -1e4).double(),
        generator=as_generator(3),
    )
    assert torch.equal(plain.ancestors, looked.ancestors)
    torch.testing.assert_close(plain.log_weights, looked.log_weights)


def test_rows_without_a_first_stage_fall_back_to_the_weights():
    infinity = math.inf
    first_stage = torch.tensor([[-infinity] * 4, [NAN] * 4, [NAN, -infinity, -infinity, NAN]], dtype=torch.float64)
    log_weights = WEIGHTS.log().expand(3, 4)
    selection = select(log_weights, systematic, ess_threshold=1.0, first_stage=first_stage, generator=as_generator(0))
    assert torch.equal(selection.ancestors, systematic(log_weights, 4, as_generator(0)))
    assert torch.equal(selection.log_weights, uniform_log_weights(log_weights))


def test_particles_without_a_future_or_a_weight_are_not_drawn():
    log_weights = torch.tensor([[0.5, 0.25, 0.25, 0.0]], dtype=torch.float64).log().expand(500, 4)
    first_stage = torch.tensor([[0.0, NAN, -math.inf, 5.0]], dtype=torch.float64).expand(500, 4)
    selection = select(
        log_weights, RESAMPLERS["multinomial"], ess_threshold=1.0, first_stage=first_stage, generator=as_generator(0)
    )
    assert (selection.ancestors == 0).all()
    assert not selection.log_weights.isnan().any()


def test_whether_to_resample_is_asked_of_weight_times_first_stage():
    log_weights = torch.full((2, 4), 0.25, dtype=torch.float64).log()
    first_stage = torch.tensor([[1.0, 1.0, 1.0, 1.0], [100.0, 1.0, 1.0, 1.0]], dtype=torch.float64).log()
    selection = select(log_weights, systematic, ess_threshold=0.5, first_stage=first_stage, generator=as_generator(0))
    assert selection.resampled.tolist() == [False, True]
    assert selection.ancestors[0].tolist() == [0, 1, 2, 3]
    assert torch.equal(selection.log_weights[0], log_weights[0])  # not resampled: nothing to make up for
    uninformed = select(
        log_weights,
        systematic,
        ess_threshold=1.0,
        informed=torch.tensor([True, False]),
        first_stage=first_stage,
        generator=as_generator(0),
    )
    assert uninformed.resampled.tolist() == [True, False]
    assert torch.equal(uninformed.log_weights[1], log_weights[1])
