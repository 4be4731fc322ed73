"""An encoder that also sees what changed: the last observation minus the one before it."""

import torch
from jaxtyping import Float
from torch import Tensor

from smc_transformer.kernels.encoder import EncoderTensors
from smc_transformer.nn.encoders.base import CausalEncoder, Position, State


def typical_size(
    values: Float[Tensor, "sequence time feature"], levels: Float[Tensor, "sequence _ feature"]
) -> Float[Tensor, "feature"]:
    """The deviation of each column, 1 where there is none beyond the rounding of the levels; NaN is missing."""
    rows = values.flatten(0, 1)
    spread = (rows - rows.nanmean(dim=0)).square().nanmean(dim=0).sqrt()
    rounding = 10 * torch.finfo(rows.dtype).eps * levels.abs().nan_to_num(0.0).flatten(0, 1).amax(dim=0)
    return torch.where(spread > rounding, spread, 1.0)


class ChangesEncoder(CausalEncoder):
    """Gives another encoder levels and changes side by side.

    Levels tell where a series is, changes where it is going; a series far from where training saw it still changes
    as it used to. Changes are compressed by asinh, so that a jump does not drown all else. `inner` has twice the
    `n_features` of an input.
    """

    level_scale: Tensor
    change_scale: Tensor

    def __init__(self, inner: CausalEncoder, n_features: int):
        super().__init__()
        self.inner = inner
        self.register_buffer("level_scale", torch.ones(n_features))
        self.register_buffer("change_scale", torch.ones(n_features))

    @torch.no_grad()
    def set_scales_(self, x: Float[Tensor, "sequence time feature"]) -> None:
        """Take typical levels and changes from training sequences; NaN is missing."""
        for scale, values in ((self.level_scale, x), (self.change_scale, x.diff(dim=1))):
            scale.copy_(typical_size(values, x))

    def start(self, x: Float[Tensor, "row ..."]) -> State:
        previous = x.reshape(len(x), -1, len(self.level_scale))[:, 0]
        return (previous, *self.inner.start(torch.cat((previous, previous), dim=-1)))

    def encode(self, x: Float[Tensor, "row time feature"]) -> tuple[Float[Tensor, "row time d_model"], State]:
        previous = torch.cat((x[:, :1], x[:, :-1]), dim=1)  # nothing has changed yet at the first observation
        embedding, state = self.inner.encode(self._features(x, previous))
        return embedding, (x[:, -1], *state)

    def step(
        self, x: Float[Tensor, "row feature"], state: State, position: Position
    ) -> tuple[Float[Tensor, "row d_model"], State]:
        is_first = torch.as_tensor(position == 0, device=x.device).unsqueeze(-1)
        previous = torch.where(is_first, x, state[0])
        embedding, inner_state = self.inner.step(self._features(x, previous), state[1:], position)
        return embedding, (x, *inner_state)

    def kernel_form(self) -> EncoderTensors | None:
        inner = self.inner.kernel_form()
        return None if inner is None else inner._replace(level_scale=self.level_scale, change_scale=self.change_scale)

    def _features(self, x: Float[Tensor, "*batch feature"], previous: Float[Tensor, "*batch feature"]) -> Tensor:
        return torch.cat((x / self.level_scale, torch.asinh((x - previous) / self.change_scale)), dim=-1)
