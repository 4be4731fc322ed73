"""Which windows choose the weights and which the widths."""

import torch

from benchmarks.held_out_widths import widths
from smc_transformer.learning import Stage
from smct_paper.datasets import SYNTHETIC, Windows
from smct_paper.experiments.smc_method import SMCMethod, SMCSettings

MODEL = {"d_model": 4, "d_ff": 4, "n_particles": 3}


def test_held_out_windows_alone_widen_what_the_others_have_chosen():
    x = SYNTHETIC["model1"].sample(60, 6, generator=0)
    validation = x[36:48].clone()
    validation[1::2] *= 20  # windows that nothing was chosen by, and which ask for much wider intervals
    data = Windows(
        name="own",
        split="paper",
        train=x[:36],
        validation=validation,
        test=x[48:],
        n_targets=1,
        n_modelled=1,
        history=3,
        columns=("x",),
        mean=torch.zeros(1),
        deviation=torch.ones(1),
    )
    method = SMCMethod(SMCSettings(model=MODEL, likelihood=Stage(4, validations=2, batch_size=16), widen_to=0.96))
    found = widths(method, data, seed=0)
    assert list(found) == ["as trained", "chosen by 0.95", "chosen by 0.96", "held out 0.95", "held out 0.96"]
    assert found["held out 0.95"]["factor"] > 2 * found["chosen by 0.96"]["factor"]
    assert found["held out 0.95"]["mpiw"] > 2 * found["chosen by 0.96"]["mpiw"]
    assert found["chosen by 0.96"]["factor"] >= found["chosen by 0.95"]["factor"]
