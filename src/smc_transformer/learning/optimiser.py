"""Adam without torch's compiler, and how long a gradient it follows.

The methods of torch's optimisers tell its compiler that they are not for it, and import it to say so: 1.6 s, most of
it for sympy, in the first training of every process. Nothing here is compiled by torch, so the methods behind these
marks are called directly.
"""

from collections.abc import Iterable
from inspect import unwrap

import torch
from torch import Tensor
from torch.optim import Adam as TorchAdam
from torch.optim import AdamW as TorchAdamW
from torch.optim import Optimizer


class _Unmarked:
    add_param_group = unwrap(Optimizer.add_param_group)
    zero_grad = unwrap(Optimizer.zero_grad)
    state_dict = unwrap(Optimizer.state_dict)
    load_state_dict = unwrap(Optimizer.load_state_dict)
    step = torch.no_grad()(unwrap(TorchAdam.step))  # that of AdamW, too


class Adam(_Unmarked, TorchAdam):
    """`torch.optim.Adam`."""


class AdamW(_Unmarked, TorchAdamW):
    """`torch.optim.AdamW`."""


def clip_gradients(parameters: Iterable[Tensor], longest: float) -> None:
    """Shorten the gradient of all parameters together where it is too long, as `torch.nn.utils.clip_grad_norm_` does.

    That one also multiplies by 1 what is short enough, and sorts gradients by their devices first.
    """
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if not gradients:
        return
    factor = longest / (torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients))) + 1e-6)
    if not factor >= 1:  # nor if it is NaN: no part of such a gradient is followed
        torch._foreach_mul_(gradients, factor)
