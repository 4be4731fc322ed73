"""Which steps come right after a jump: where a model shows whether it notices that something has changed."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

RARE = 0.99
"""A change larger than this share of those in the training windows is a jump."""
AFTER = 3
"""So many steps after a jump count as right after it."""


def right_after_jumps(
    x: Float[Tensor, "window time_plus_1 target"], train: Float[Tensor, "training_window train_time target"]
) -> Bool[Tensor, "window time target"]:
    """Whether a target has jumped at one of the `AFTER` steps before each of the steps 1, 2, ...

    A jump is a change from one step to the next, in either direction, that is rare in training. A change from or to a
    missing value is none, as nobody has seen it.
    """
    jumped = x.diff(dim=1).abs() > _rare_change(train)
    earlier = F.pad(jumped, (0, 0, AFTER, 0))[:, :-1]  # row t: whether step t + 1 - AFTER had one
    return earlier.unfold(1, AFTER, 1).any(dim=-1)


def _rare_change(train: Float[Tensor, "training_window train_time target"]) -> Float[Tensor, "target"]:
    changes = train.diff(dim=1).abs().flatten(0, 1)
    own = [column[~column.isnan()] for column in changes.T]
    # By the order statistic: torch's quantiles end at 16 million numbers.
    never = changes.new_tensor(float("inf"))
    return torch.stack([c.kthvalue(1 + int(RARE * (len(c) - 1))).values if len(c) else never for c in own])
