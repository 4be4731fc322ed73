"""Training in several processes: the gradients and EM statistics of one process with the whole batch."""

import functools
import math

import pytest
import torch
from helpers.models import assert_same, make_model, sequences, weights
from helpers.process_groups import in_processes

from smc_transformer.learning import ForecastScore, Goal, Likelihood, SquaredError, Trainer
from smc_transformer.learning.calibration import share_covered
from smc_transformer.learning.em import merge_statistics
from smc_transformer.learning.goals import BatchReport
from smc_transformer.learning.step_widths import held_out_forecasts, step_widths
from smc_transformer.smc.weights import WeightCollapseError
from smc_transformer.support import processes
from smc_transformer.support.processes import ProcessError

TRAIN, VALIDATION = sequences(8, 6, seed=1), sequences(5, 6, seed=2)
TRAIN[4, :3], TRAIN[6, :2] = math.nan, math.nan  # which begin later
TRAIN[5, 4], VALIDATION[1, 3] = math.nan, math.nan  # missing
SETTINGS = {"epochs": 2, "batch_size": 4, "validation_particles": 4, "seed": 3, "progress": False}
CLOSE = {"rtol": 1e-10, "atol": 1e-12}


class NoiseOfSequences(Goal):
    """Another goal in which each sequence has noise of its own, that does not depend on what it is together with."""

    def __init__(self, goal):
        self.goal, self.label = goal, goal.label

    def accumulate(self, model, x, sampling):
        before = [parameter.grad for parameter in model.parameters()]
        assert all(gradient is None for gradient in before)
        total, reports = {}, []
        for one in x:
            model.zero_grad()
            reports.append(self.goal.accumulate(model, one.unsqueeze(0), self._sampling(one, sampling)))
            for name, parameter in model.named_parameters():
                if parameter.grad is not None:
                    total[name] = total.get(name, 0) + reports[-1].n_terms * parameter.grad
        n_terms, n_steps = (sum(getattr(report, name) for report in reports) for name in ("n_terms", "n_steps"))
        for name, parameter in model.named_parameters():
            parameter.grad = total[name] / n_terms if name in total else None
        told = [(report.statistics, report.n_steps / n_steps) for report in reports]
        statistics = None if told[0][0] is None else merge_statistics(model, told)
        return BatchReport(sum(report.loss for report in reports), n_terms, statistics, n_steps)

    def validate(self, model, x, sampling):
        counts = [self.goal.n_validated(model, one.unsqueeze(0)) for one in x]
        means = [self.goal.validate(model, one.unsqueeze(0), self._sampling(one, sampling)) for one in x]
        return sum(mean * n for mean, n in zip(means, counts, strict=True)) / sum(counts)

    def n_validated(self, model, x):
        return self.goal.n_validated(model, x)

    def _sampling(self, one, sampling):
        seed = int(one.nan_to_num(0.0).abs().sum() * 1e6)
        return sampling._replace(generator=torch.Generator().manual_seed(seed))


def small_model(**settings):
    return make_model(d_model=4, d_ff=4, n_particles=5, **settings)


GOALS = {"likelihood": Likelihood(), "forecast": ForecastScore(3, n_paths=4), "error": SquaredError()}
MODELS = {"gaussian": {}, "scaled": {"observation": "heteroscedastic"}}
BOTH = [("likelihood", "gaussian"), ("likelihood", "scaled"), ("forecast", "scaled"), ("error", "gaussian")]


def trained(goal, model, **settings):
    """The model after a training, and what was reported."""
    network = small_model(**MODELS[model])
    trainer = Trainer(network, goal=NoiseOfSequences(GOALS[goal]), **{**SETTINGS, **settings})
    history = trainer.fit(TRAIN, VALIDATION)
    return weights(network), [(one.training_loss, one.validation_loss) for one in history]


def resumed(checkpoint, n_epochs):
    found, history = trained("likelihood", "gaussian", checkpoint=checkpoint, epochs=n_epochs)
    return found, history


class Collapsing(Likelihood):
    """A batch with the sequence that begins with this value has none but particles without weight."""

    def accumulate(self, model, x, sampling):
        if (x[:, 0] == TRAIN[7, 0]).any():
            raise WeightCollapseError(int((x[:, 0] == TRAIN[7, 0]).nonzero()[0, 0]), 2)
        return super().accumulate(model, x, sampling)


def error_of_one():
    try:
        Trainer(small_model(), goal=Collapsing(), **SETTINGS).fit(TRAIN, VALIDATION)
    except (WeightCollapseError, ProcessError) as error:
        return type(error).__name__, str(error)


def everything(folder):
    """All that is compared, in one start of the processes."""
    model = small_model()
    found = {both: trained(*both) for both in BOTH}
    return {
        **found,
        "few": trained("likelihood", "gaussian", batch_size=1, epochs=1),  # some processes have no share
        "resumed": [resumed(f"{folder}/begun.safetensors", 2), resumed(f"{folder}/elsewhere.safetensors", 1)],
        "covered": share_covered(model, VALIDATION, 1, history=2),
        "widths": step_widths(held_out_forecasts(model, sequences(310, 3, seed=4), 2, 1)),
        "error": error_of_one(),
        "own": torch.rand(1, generator=processes.own_generator(3)).item(),
    }


@functools.cache
def alone(goal="likelihood", model="gaussian", **settings):
    return trained(goal, model, **settings)


@pytest.fixture(scope="module", params=[2, 3])
def group(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("group")
    resumed(str(folder / "begun.safetensors"), 1)
    return folder, in_processes(request.param, everything, str(folder))


def assert_close(one, other):
    (found, history), (expected, past) = one, other
    assert found.keys() == expected.keys()
    for name in found:
        torch.testing.assert_close(found[name], expected[name], **CLOSE, msg=lambda text, name=name: f"{name}: {text}")
    torch.testing.assert_close(torch.tensor(history), torch.tensor(past), **CLOSE)


@pytest.mark.parametrize(("goal", "model"), BOTH)
def test_weights_and_losses_are_those_of_one_process(group, goal, model):
    for found in group[1]:
        assert_close(found[goal, model], alone(goal, model))


def test_all_processes_have_the_same_weights_to_the_bit(group):
    _, (first, *others) = group
    for other in others:
        assert_same(first["likelihood", "gaussian"][0], other["likelihood", "gaussian"][0])


def test_a_batch_may_have_fewer_sequences_than_there_are_processes(group):
    for found in group[1]:
        assert_close(found["few"], alone(batch_size=1, epochs=1))


def test_a_run_is_resumed_with_another_number_of_processes(group):
    folder, found = group
    for one in found:
        assert_close(one["resumed"][0], alone())
    assert_close(resumed(str(folder / "elsewhere.safetensors"), 2), alone())


def test_calibration_looks_at_all_sequences(group):
    _, (first, *others) = group
    model = small_model()
    # Each process draws with a generator of its own: the same to the error of 200 draws, and the same in all.
    assert first["covered"] == pytest.approx(share_covered(model, VALIDATION, 1, history=2), abs=0.15)
    expected = step_widths(held_out_forecasts(model, sequences(310, 3, seed=4), 2, 1))
    assert expected[1] != 1.0
    torch.testing.assert_close(torch.tensor(first["widths"]), torch.tensor(expected), rtol=0.1, atol=0.0)
    for other in others:
        assert other["covered"] == first["covered"]
        assert (other["widths"] == first["widths"]).all()


def test_an_error_in_one_process_ends_all(group):
    kinds = [found["error"][0] for found in group[1]]
    assert sorted(kinds) == ["ProcessError"] * (len(kinds) - 1) + ["WeightCollapseError"]
    for kind, text in (found["error"] for found in group[1]):
        assert "sequence 7" in text
        assert "process" in text or kind == "WeightCollapseError"


def test_processes_draw_different_numbers(group):
    assert len({found["own"] for found in group[1]}) == len(group[1])
    assert group[1][0]["own"] == torch.rand(1, generator=processes.own_generator(3)).item()


def test_shares_are_all_there_is_in_its_order(monkeypatch):
    for n, size in ((10, 3), (2, 3), (7, 1), (0, 2)):
        monkeypatch.setattr(processes, "size", lambda size=size: size)
        found = []
        for rank in range(size):
            monkeypatch.setattr(processes, "rank", lambda rank=rank: rank)
            found += range(n)[processes.share(n)]
        assert found == list(range(n))


def test_a_single_process_has_all():
    assert processes.size() == 1
    assert processes.gather(3) == [3]
    assert processes.made_by_first(lambda: 4) == 4
