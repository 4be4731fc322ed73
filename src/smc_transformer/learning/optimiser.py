"""Adam without torch's compiler.

The methods of torch's optimisers tell its compiler that they are not for it, and import it to say so: 1.6 s, most of
it for sympy, in the first training of every process. Nothing here is compiled by torch, so the methods behind these
marks are called directly.
"""

from inspect import unwrap

import torch
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
