"""The optimisers do what torch's do, and leave torch's compiler where it is."""

import subprocess
import sys

import pytest
import torch

from smc_transformer.learning.optimiser import Adam, AdamW, clip_gradients


@pytest.mark.parametrize(("ours", "theirs"), [(Adam, torch.optim.Adam), (AdamW, torch.optim.AdamW)])
def test_same_steps_as_those_of_torch(ours, theirs):
    results = []
    for kind in (ours, theirs):
        weight = torch.nn.Parameter(torch.tensor([1.0, -2.0]))
        optimiser = kind([weight], lr=0.1)
        for _ in range(3):
            optimiser.zero_grad()
            (weight**4).sum().backward()
            optimiser.step()
        again = kind([torch.nn.Parameter(weight.detach().clone())], lr=0.1)
        again.load_state_dict(optimiser.state_dict())
        results.append((weight.detach(), again.state_dict()["state"][0]["exp_avg_sq"]))
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])


@pytest.mark.parametrize("longest", [0.5, 5.0 - 1e-6, 5.0, 5.0 + 3e-6, 80.0])
@pytest.mark.parametrize("value", [3.0, 0.0, float("nan"), float("inf")])
def test_gradients_are_clipped_as_torch_clips_them(longest, value):
    def gradients(clip):
        parameters = [torch.nn.Parameter(torch.zeros(n)) for n in (1, 2, 3)]
        parameters[0].grad, parameters[1].grad = torch.tensor([value]), torch.tensor([4.0, 0.0])
        clip(parameters, longest)
        assert parameters[2].grad is None
        return torch.cat([parameter.grad for parameter in parameters[:2]])

    found, expected = gradients(clip_gradients), gradients(torch.nn.utils.clip_grad_norm_)
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)


def test_without_gradients_nothing_is_clipped():
    clip_gradients([torch.nn.Parameter(torch.zeros(2))], 1.0)


def test_a_training_does_not_import_the_compiler_of_torch():
    training = """
import sys, torch
from smc_transformer import SMCTransformer, SMCTransformerConfig
from smc_transformer.learning.trainer import Trainer
model = SMCTransformer(SMCTransformerConfig(n_inputs=1, n_targets=1, d_model=4, n_heads=1, d_ff=4))
Trainer(model, epochs=1, batch_size=4, progress=False).fit(torch.randn(4, 6, 1))
assert "torch._dynamo" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", training], check=True)
