"""1000 samples of the one-step predictive distribution at every step of a test set: ours beside MC dropout.

MC dropout needs a pass of the network for each sample; ours needs one filter with 20 particles, and draws from the
mixture. Passes of MC dropout are batched by whichever number is fastest.
"""

import torch

from benchmarks.deterministic import PlainTransformer
from benchmarks.rows import row
from benchmarks.timing import median_seconds
from smc_transformer import SMCTransformer, SMCTransformerConfig

PASSES_AT_ONCE = (5, 20, 100)


def measure(*, tiny=False):
    n_sequences, n_steps, n_samples = (3, 4, 10) if tiny else (100, 24, 1000)
    x = torch.randn(n_sequences, n_steps + 1, 1, generator=torch.Generator().manual_seed(0))
    model = SMCTransformer(SMCTransformerConfig(), generator=0)
    plain = PlainTransformer(dropout=0.1).train()

    @torch.no_grad()
    def dropout(at_once):
        many = x[:, :-1].repeat(at_once, 1, 1)
        passes = [plain(many).view(at_once, n_sequences, n_steps) for _ in range(n_samples // at_once)]
        return torch.cat(passes)

    candidates = {f"dropout {n}": lambda n=n: dropout(n) for n in PASSES_AT_ONCE if n <= n_samples}
    candidates["ours"] = lambda: model.filter(x, n_particles=20).predictive.sample(n_samples)
    times = median_seconds(candidates, repetitions=2 if tiny else 5)
    ours = times.pop("ours")
    return [
        row(
            f"{n_samples} samples of the one-step predictive: MC dropout / ours with 20 particles",
            f"{n_sequences} sequences of {n_steps}",
            min(times.values()) / ours,
            at_least=25,
        )
    ]
