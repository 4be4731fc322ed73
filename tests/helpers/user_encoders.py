"""Encoders as a user would write them: exponential moving averages of projected inputs, at learned rates."""

import torch
from torch import nn

from smc_transformer.nn.encoders import CausalEncoder


class MovingAverages(nn.Module):
    """Knows whole sequences only."""

    def __init__(self, n_features, d_model):
        super().__init__()
        self.projection = nn.Linear(n_features, d_model)
        self.rate = nn.Parameter(torch.linspace(-1.0, 2.0, d_model))

    def forward(self, x):
        keep = self.rate.sigmoid()
        average, averages = torch.zeros_like(self.projection(x[:, 0])), []
        for hidden in self.projection(x).unbind(dim=1):
            average = keep * average + (1 - keep) * hidden
            averages.append(average)
        return torch.stack(averages, dim=1)


class SteppingAverages(CausalEncoder):
    """The same, and it can go on from where it stands: a step costs the same however long the past is."""

    def __init__(self, n_features, d_model):
        super().__init__()
        self.projection = nn.Linear(n_features, d_model)
        self.rate = nn.Parameter(torch.linspace(-1.0, 2.0, d_model))

    def start(self, x):
        return (x.new_zeros(len(x), len(self.rate)),)

    def encode(self, x):
        state, embeddings = self.start(x), []
        for position, inputs in enumerate(x.unbind(dim=1)):
            embedding, state = self.step(inputs, state, position)
            embeddings.append(embedding)
        return torch.stack(embeddings, dim=1), state

    def step(self, x, state, position):
        keep = self.rate.sigmoid()
        average = keep * state[0] + (1 - keep) * self.projection(x)
        return average, (average,)
