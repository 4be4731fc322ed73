"""Every kernel at the smallest sizes, in float and double: to be run under valgrind, and for a look at lost memory.

Fails where a function that the library has was never asked for.
"""

import subprocess
import sys

import numpy as np
import pandas as pd
import torch

from smc_transformer import Forecaster, InferenceSettings, SMCTransformer, SMCTransformerConfig, Trainer
from smc_transformer.forecaster.following import Follower, StreamKeys
from smc_transformer.forecaster.view.bank import Bank
from smc_transformer.forecaster.view.local import LocalView, trace
from smc_transformer.kernels import library
from smc_transformer.learning.goals import ForecastScore
from smc_transformer.learning.squared_error import SquaredError
from smc_transformer.nn.streams import Streams

DTYPES = (torch.float32, torch.float64)
OF_OTHERS = {"work_together", "normal_numbers", "uniform_numbers", "threefry_words"}
"""What other sources, or tests alone, call."""


def main():
    torch.set_num_threads(1)
    for dtype in DTYPES:
        if library(torch.empty(0, dtype=dtype)) is None:
            sys.exit("the kernels could not be compiled")
        use_models(dtype)
    use_streams()
    use_view()
    use_forecaster()
    never = set.intersection(*({*exported(one)} - {*vars(one)} for one in map(loaded, DTYPES))) - OF_OTHERS
    if never:
        sys.exit(f"never called: {', '.join(sorted(never))}")
    sys.stdout.write("all kernels have run\n")


def loaded(dtype):
    return library(torch.empty(0, dtype=dtype))


def exported(kernels):
    """The functions of a library."""
    said = subprocess.run(["nm", "-D", "--defined-only", kernels._name], capture_output=True, text=True, check=True)
    return {line.split()[2] for line in said.stdout.splitlines() if " T " in line}


def use_models(dtype):
    """Filter, paths, training along trajectories of two smoothers, streams."""
    for encoder, observation, smoother in (("gru", "student_t", "genealogy"), ("linear", "gaussian", "fixed_lag")):
        config = SMCTransformerConfig(
            n_inputs=2, n_targets=1, d_model=5, d_ff=6, window=3, n_heads=1, encoder=encoder, observation=observation
        )
        inference = InferenceSettings(n_particles=3, smoother=smoother, smoothing_lag=2)
        model = SMCTransformer(config, inference=inference, generator=0).to(dtype)
        x = torch.randn(2, 6, 2, generator=torch.Generator().manual_seed(0)).to(dtype)
        gaps = x.clone()
        gaps[0, 3, 0] = float("nan")
        for given in (x, gaps):
            model.filter(given, generator=0).predictive.sample(5, 0)
            model.forecast(given, 3, 4, torch.zeros(2, 3, 1, dtype=dtype), generator=0)
            Trainer(model, epochs=1, batch_size=2, progress=False).fit(given)
        for goal in (ForecastScore(3), SquaredError()):
            Trainer(model, epochs=1, batch_size=2, progress=False, goal=goal).fit(x)
        state = model.init_state(batch=2, generator=0)
        for step in range(3):
            model.observe(state, x[:, step])
        follow(model, gaps)
        attend(model, x)


def follow(model, x):
    """Rows of series with random numbers of their own, as a forecaster follows them."""
    from smc_transformer.inference.step import begin

    follower, state, keys = Follower(model, model.settings(3)), begin(model, x[:, 0], 3), torch.tensor([3, 2**60])
    for t in range(1, x.shape[1]):
        runs = torch.zeros(len(x), 1, dtype=torch.long)
        follower.take_step(state, x[:, t, :1].clone(), x[:, t - 1, 1:], StreamKeys(keys), runs, None)


def attend(model, x):
    """Latents and attention along trajectories, with gradients, which the replay in one call has no need of."""
    from smc_transformer.nn.attention import Noise

    noise = Noise(*torch.randn(4, 2, 3, 5, 5, dtype=x.dtype))
    trajectories = torch.arange(3).view(1, 3, 1).expand(2, 3, 5).contiguous()
    embedding = torch.randn(2, 1, 5, 5, dtype=x.dtype, requires_grad=True)
    model.attention.attend_all(model.attention.latents(embedding, noise, trajectories)).sum().backward()


def use_streams():
    """Numbers of rows with streams of their own."""
    streams = Streams.named(["a", "b"], seed=0, purpose="test")
    for parameters in (torch.tensor([[0.3, 40.0, 0.0]] * 2), torch.full((2, 3), float("nan"))):
        streams.gammas(parameters.double())
        streams.poissons(parameters.double())


def use_view():
    """Columns with gaps, a season and a horizon."""
    columns = [np.arange(30.0) % 4, np.where(np.arange(20) % 5, 1.0, np.nan)]
    for counts in (False, True):
        view = LocalView.fit(Bank((4,), 3), counts, columns)
        trace(view, view.bank.begin(2), columns, np.array([[0, 10], [1, 19]]), 3)


def use_forecaster():
    """A table from fit to paths, and rows that come one by one."""
    days = np.tile(np.arange(12), 2)
    table = pd.DataFrame({"unique_id": np.repeat(["a", "b"], 12), "ds": days, "y": np.sin(days)})
    training = {"likelihood_steps": 1, "forecast_steps": 1, "batch_size": 2}
    config = {"d_model": 4, "d_ff": 4}
    forecaster = Forecaster(horizon=2, freq=1, input_size=3, n_particles=3, training=training, config=config)
    forecaster.fit(table, progress=False).predict(n_paths=5)
    for day in (12, 13):
        forecaster.update(pd.DataFrame({"unique_id": ["b"], "ds": [day], "y": [0.1]}))


main()
