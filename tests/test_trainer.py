"""The training loop: reproducible, resumable, honest about its best epoch."""

import json

import pytest
import torch
from helpers import make_model, sequences
from safetensors.torch import save_file

from smc_transformer import SMCTransformer, SMCTransformerConfig
from smc_transformer.learning import Trainer, constant, fit, warmup_cosine, warmup_inverse_sqrt
from smc_transformer.learning.checkpoint import CheckpointError, load_checkpoint

TRAIN, VALIDATION = sequences(20, 6, seed=1), sequences(8, 6, seed=2)
SETTINGS = {"epochs": 4, "batch_size": 6, "validation_particles": 8, "seed": 3, "progress": False}


def small_model(**settings):
    return make_model(d_model=4, d_ff=4, n_particles=5, **settings)


def weights(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name in one:
        assert torch.equal(one[name], other[name]), name


def test_same_seed_same_numbers_and_another_seed_others():
    models = [small_model(), small_model(), small_model()]
    histories = [
        fit(model, TRAIN, VALIDATION, **{**SETTINGS, "seed": seed})
        for model, seed in zip(models, (3, 3, 4), strict=True)
    ]
    assert_same(weights(models[0]), weights(models[1]))
    assert histories[0] == histories[1]
    assert histories[0] != histories[2]


def test_global_random_state_is_neither_used_nor_changed():
    model = small_model()
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = fit(model, TRAIN, VALIDATION, **SETTINGS)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert fit(small_model(), TRAIN, VALIDATION, **SETTINGS) == first


def test_seeded_weights_do_not_depend_on_the_global_state():
    models = []
    for global_seed in (1, 2):
        torch.manual_seed(global_seed)
        models.append(SMCTransformer(SMCTransformerConfig(), generator=7))
    assert_same(weights(models[0]), weights(models[1]))


class Interrupt:
    """Behaves like the user who presses Ctrl-C at the n-th call."""

    def __init__(self, at):
        self.calls_left = at

    def __call__(self, step):
        self.calls_left -= 1
        if self.calls_left == 0:
            raise KeyboardInterrupt
        return 1.0


@pytest.mark.parametrize("noise_learning", ["gradient", "em"])
@pytest.mark.parametrize("interrupted_at", [2, 4, 5, 11])
def test_interrupted_training_resumes_to_the_same_result(tmp_path, interrupted_at, noise_learning):
    """4 steps an epoch: interrupted within an epoch, in its last step, in the first of the next, and late."""
    straight, resumed = small_model(noise_learning=noise_learning), small_model(noise_learning=noise_learning)
    expected = fit(straight, TRAIN, VALIDATION, **SETTINGS)
    path = tmp_path / "run.safetensors"
    with pytest.raises(KeyboardInterrupt):
        fit(resumed, TRAIN, VALIDATION, checkpoint=path, schedule=Interrupt(interrupted_at), **SETTINGS)
    assert load_checkpoint(path).state["step"] == interrupted_at - 1
    fresh = small_model(seed=99, noise_learning=noise_learning)  # as in a new process: nothing but the file is left
    assert fit(fresh, TRAIN, VALIDATION, checkpoint=path, **SETTINGS) == expected
    assert_same(weights(fresh), weights(straight))


def test_a_finished_run_is_not_trained_again(tmp_path):
    path = tmp_path / "run.safetensors"
    first, second = small_model(), small_model(seed=99)
    history = fit(first, TRAIN, VALIDATION, checkpoint=path, **SETTINGS)
    assert fit(second, TRAIN, VALIDATION, checkpoint=path, schedule=Interrupt(1), **SETTINGS) == history
    assert_same(weights(first), weights(second))


def test_model_ends_at_its_best_validation_epoch_and_patience_ends_training():
    seen = {}
    model = small_model()

    def remember(report):
        seen[report.epoch] = (report.validation_nll, weights(model))

    # A learning rate that makes things worse after a while.
    trainer = Trainer(
        model, **{**SETTINGS, "epochs": 30}, patience=2, learning_rate=0.5, on_epoch=remember, clip_norm=None
    )
    history = trainer.fit(TRAIN, VALIDATION)
    best = min(history, key=lambda report: report.validation_nll).epoch
    assert len(history) == best + 2 < 30
    assert_same(weights(model), seen[best][1])


def test_fewer_lines_than_particles_also_learn():
    model = small_model()
    history = fit(model, TRAIN, n_lines=2, **{**SETTINGS, "epochs": 15})
    assert history[-1].training_nll < history[0].training_nll


def test_all_sequences_are_used_in_every_epoch(monkeypatch):
    from smc_transformer.learning import trainer as module

    batches = []
    honest = module.training_step

    def spy(model, x, **options):
        batches.append(x)
        return honest(model, x, **options)

    monkeypatch.setattr(module, "training_step", spy)
    fit(small_model(), TRAIN, **{**SETTINGS, "epochs": 2})
    assert [len(batch) for batch in batches] == [6, 6, 6, 2] * 2
    for epoch in (batches[:4], batches[4:]):
        assert set(torch.cat(epoch)[:, 0, 0].tolist()) == set(TRAIN[:, 0, 0].tolist())
    assert not torch.equal(batches[0], batches[4])  # shuffled anew


def test_any_optimiser_can_be_used():
    model = small_model()
    before = weights(model)
    fit(model, TRAIN, optimiser=lambda parameters, rate: torch.optim.SGD(parameters, lr=rate), **SETTINGS)
    assert not torch.equal(before["readout.projection.weight"], model.readout.projection.weight)


def test_checkpoints_that_cannot_be_used_say_why(tmp_path):
    path = tmp_path / "run.safetensors"
    fit(small_model(), TRAIN, checkpoint=path, **SETTINGS)

    with pytest.raises(CheckpointError, match=r"another training run.*seed: 3 there, 4 here"):
        fit(small_model(), TRAIN, checkpoint=path, **{**SETTINGS, "seed": 4})

    truncated = tmp_path / "truncated.safetensors"
    truncated.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match="not a readable checkpoint"):
        fit(small_model(), TRAIN, checkpoint=truncated, **SETTINGS)

    foreign = tmp_path / "foreign.safetensors"
    save_file({"a": torch.zeros(1)}, foreign)
    with pytest.raises(CheckpointError, match="not a training checkpoint"):
        fit(small_model(), TRAIN, checkpoint=foreign, **SETTINGS)

    newer = tmp_path / "newer.safetensors"
    header = json.dumps({"format": "smc-transformer-training", "version": 99, "state": {}})
    save_file({"a": torch.zeros(1)}, newer, metadata={"header": header})
    with pytest.raises(CheckpointError, match="format version 99"):
        fit(small_model(), TRAIN, checkpoint=newer, **SETTINGS)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"batch_size": -1}, "batch_size must be at least 1"),
        ({"n_lines": 0}, "n_lines must be at least 1"),
        ({"learning_rate": 0.0}, "learning_rate must be positive"),
    ],
)
def test_impossible_settings_are_rejected(settings, message):
    with pytest.raises(ValueError, match=message):
        Trainer(small_model(), **settings)


def test_patience_without_validation_is_rejected():
    with pytest.raises(ValueError, match="needs validation sequences"):
        fit(small_model(), TRAIN, patience=2)


def test_schedules():
    assert constant()(17) == 1.0
    cosine = warmup_cosine(n_steps=110, n_warmup=10, final=0.1)
    assert [cosine(step) for step in (5, 10, 60, 110, 500)] == pytest.approx([0.5, 1.0, 0.55, 0.1, 0.1])
    vaswani = warmup_inverse_sqrt(d_model=64, n_warmup=100)
    assert vaswani(100) == pytest.approx(1 / 80)
    assert vaswani(50) == pytest.approx(vaswani(100) / 2)
    assert vaswani(400) == pytest.approx(vaswani(100) / 2)
