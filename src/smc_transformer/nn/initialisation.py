"""First weights, from a generator."""

import math

import torch
from torch import Generator, nn


@torch.no_grad()
def initialise_weights(module: nn.Module, generator: Generator | None) -> None:
    """Draw all linear, convolution and recurrent weights, uniform within 1 / sqrt(fan in)."""
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Conv1d):
            bound = 1 / math.sqrt(part.weight[0].numel())
        elif isinstance(part, nn.LSTM | nn.GRU):
            bound = 1 / math.sqrt(part.hidden_size)
        else:
            continue
        for parameter in part.parameters(recurse=False):
            nn.init.uniform_(parameter, -bound, bound, generator=generator)
