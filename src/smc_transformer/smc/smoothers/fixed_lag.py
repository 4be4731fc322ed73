"""Fixed-lag smoothing (Kitagawa, 1996): what happened long ago is no longer resampled.

The particle of step s on a line is chosen by X_1, ..., X_{s + lag} and then left alone, so every step keeps about as
many different particles as a filter of `lag` steps. The price is a bias: later observations do not count, and the parts
of a line come from different ancestral lines.
"""

import torch
from torch import Generator

from smc_transformer.smc.resampling import Resampler
from smc_transformer.smc.smoothers.base import History, LookAhead, SmoothingLines, smoother
from smc_transformer.smc.weights import uniform_log_weights


@smoother
def fixed_lag(
    history: History,
    n_lines: int | None,
    lag: int,
    resample: Resampler,
    look_ahead: LookAhead | None,
    generator: Generator | None = None,
) -> SmoothingLines:
    """Equally weighted lines."""
    ancestors = history.ancestors
    batch, n_particles, n_steps = ancestors.shape
    themselves = torch.arange(n_particles, device=ancestors.device).expand(batch, n_particles)
    lines = torch.empty_like(ancestors)
    lines[:, :, 0] = themselves
    for step in range(1, n_steps):
        _inherit(lines, ancestors[:, :, step], slice(max(0, step - lag), step))
        if step >= lag and history.by_weight is not None and not history.by_weight[:, step].all():
            # This slot is left alone from here on, and nothing has drawn it by the weights yet.
            drawn = resample(history.log_weights[:, :, step - 1], n_particles, generator)
            parents = torch.where(history.by_weight[:, step, None], themselves, drawn)
            _inherit(lines, parents, slice(step - lag, step - lag + 1))
        lines[:, :, step] = themselves
    n_lines = n_particles if n_lines is None else n_lines
    ends = resample(history.log_weights[:, :, -1], n_lines, generator)
    if n_lines != n_particles:  # which old parts go on is a matter of chance alone
        chosen = torch.rand(batch, n_lines, n_particles, generator=generator, device=ends.device).argmax(dim=-1)
        old = lines[:, :, : max(0, n_steps - lag)]
        old = old.gather(1, chosen.unsqueeze(-1).expand(-1, -1, old.shape[-1]))
    else:
        old = lines[:, :, : max(0, n_steps - lag)]
    recent = lines[:, :, max(0, n_steps - lag) :]
    recent = recent.gather(1, ends.unsqueeze(-1).expand(-1, -1, recent.shape[-1]))
    equal = uniform_log_weights(history.log_weights[:, :1, -1].expand(-1, n_lines))
    return SmoothingLines(torch.cat((old, recent), dim=-1), equal, ancestral=lag >= n_steps)


def _inherit(lines: torch.Tensor, parents: torch.Tensor, held: slice) -> None:
    """Let children take over the held slots of their parents."""
    part = lines[:, :, held]
    lines[:, :, held] = part.gather(1, parents.unsqueeze(-1).expand(-1, -1, part.shape[-1]))
