"""Every kernel once, at the smallest sizes, in float and double: to be run under valgrind."""

import sys

import torch

from smc_transformer import InferenceSettings, SMCTransformer, SMCTransformerConfig, Trainer
from smc_transformer.kernels import library

torch.set_num_threads(1)
for dtype in (torch.float32, torch.float64):
    if library(torch.empty(0, dtype=dtype)) is None:
        sys.exit("the kernels could not be compiled")
    for encoder, observation in (("gru", "student_t"), ("linear", "gaussian")):
        config = SMCTransformerConfig(
            n_inputs=2, n_targets=1, d_model=5, d_ff=6, window=3, n_heads=1, encoder=encoder, observation=observation
        )
        model = SMCTransformer(config, inference=InferenceSettings(n_particles=3), generator=0).to(dtype)
        x = torch.randn(2, 6, 2, generator=torch.Generator().manual_seed(0)).to(dtype)
        gaps = x.clone()
        gaps[0, 3, 0] = float("nan")
        for given in (x, gaps):
            model.filter(given, generator=0).predictive.sample(5, 0)
            model.forecast(given, 3, 4, torch.zeros(2, 3, 1, dtype=dtype), generator=0)
            Trainer(model, epochs=1, batch_size=2, progress=False).fit(given)
        state = model.init_state(batch=2, generator=0)
        for step in range(3):
            model.observe(state, x[:, step])
sys.stdout.write("all kernels have run\n")
