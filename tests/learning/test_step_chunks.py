"""A batch in chunks of sequences: the same gradients and statistics, in bounded memory."""

import pytest
import torch
from helpers.models import make_model, sequences

from smc_transformer.learning import step as step_module
from smc_transformer.learning import training_step
from smc_transformer.learning.em import merge_statistics
from smc_transformer.learning.step import accumulate_gradients, sequences_at_once
from smc_transformer.smc import WeightCollapseError


def three_at_once(monkeypatch, model, n_steps):
    monkeypatch.setattr(
        step_module, "NUMBERS_AT_ONCE", 3 * model.inference.n_particles * n_steps * model.config.d_model
    )


@pytest.mark.parametrize("settings", [{}, {"noise_learning": "em"}, {"observation": "heteroscedastic"}], ids=str)
def test_chunks_add_up_to_the_batch(monkeypatch, settings):
    model = make_model(d_model=4, n_particles=5, **settings)
    x = sequences(8, 6)
    three_at_once(monkeypatch, model, 6)
    statistics, log_likelihood, _ = accumulate_gradients(model, x, 10, generator=torch.Generator().manual_seed(1))
    gradients = {name: parameter.grad.clone() for name, parameter in model.gradient_parameters().items()}

    model.zero_grad()
    generator = torch.Generator().manual_seed(1)
    steps = [training_step(model, x[first : first + 3], generator=generator) for first in (0, 3, 6)]
    (-torch.cat([step.objective for step in steps]).sum() / 10).backward()
    for name, parameter in model.gradient_parameters().items():
        torch.testing.assert_close(gradients[name], parameter.grad)
    torch.testing.assert_close(log_likelihood, torch.cat([step.log_likelihood for step in steps]))
    by_hand = merge_statistics(model, [(step.statistics, len(step.objective) / 8) for step in steps])
    torch.testing.assert_close(statistics, by_hand)


@pytest.mark.parametrize("distribution", ["gaussian", "heteroscedastic", "student_t"])
def test_merged_statistics_are_those_of_the_whole_batch(distribution):
    model = make_model(n_inputs=2, n_targets=2, observation=distribution)
    generator = torch.Generator().manual_seed(0)
    targets = torch.randn(7, 1, 5, 2, generator=generator, dtype=torch.float64)
    parameters = torch.randn(7, 4, 5, model.observation.n_parameters, generator=generator, dtype=torch.float64)
    weights = torch.rand(7, 4, generator=generator, dtype=torch.float64)
    whole = model.observation.statistics(targets, parameters, weights)
    parts = [
        model.observation.statistics(targets[part], parameters[part], weights[part])
        for part in (slice(0, 3), slice(3, 7))
    ]
    torch.testing.assert_close(model.observation.merge(parts, [3 / 7, 4 / 7]), whole)


def test_distributions_learned_by_gradient_alone_have_nothing_to_merge():
    assert make_model(observation="categorical", n_classes=3).observation.merge([None] * 2, [0.5] * 2) is None


def test_statistics_of_an_unknown_kind_are_refused_by_name():
    with pytest.raises(TypeError, match="GaussianObservation needs a method merge"):
        make_model().observation.merge([{"a": 1}, {"a": 2}], [0.5, 0.5])


def test_small_batches_are_one_chunk_and_huge_sequences_one_each():
    model = make_model(d_model=32)
    assert sequences_at_once(model, n_particles=10, n_steps=24) > 100
    assert sequences_at_once(model, n_particles=60, n_steps=60) < 2048 / 10  # twenty tensors in less than 4 GiB
    assert sequences_at_once(model, n_particles=10_000, n_steps=10_000) == 1


def test_a_collapse_names_the_sequence_of_the_batch(monkeypatch):
    model = make_model(d_model=4, n_particles=5)
    x = sequences(8, 6)
    x[7, 3] = 1e300
    three_at_once(monkeypatch, model, 6)
    with pytest.raises(WeightCollapseError) as caught:
        accumulate_gradients(model, x, 10, generator=torch.Generator().manual_seed(1))
    assert (caught.value.sequence, caught.value.step) == (7, 3)
