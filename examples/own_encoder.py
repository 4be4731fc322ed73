"""An encoder of one's own below the stochastic attention: exponential averages of the inputs at learned rates.

python examples/own_encoder.py [epochs of training]
"""

import sys

import torch
from rich.console import Console
from torch import nn

from smc_transformer import SMCTransformer, SMCTransformerConfig
from smc_transformer.learning import Trainer
from smc_transformer.nn.encoders import CausalEncoder
from smc_transformer.scores import one_step_scores
from smct_paper.datasets import SYNTHETIC, split_sequences


class MovingAverages(CausalEncoder):
    """Exponential averages of the inputs at learned rates."""

    def __init__(self, n_features, d_model):
        super().__init__()
        self.projection = nn.Linear(n_features, d_model)
        self.rate = nn.Parameter(torch.linspace(-3, 3, d_model))

    def start(self, x):
        return (x.new_zeros(len(x), self.projection.out_features),)

    def step(self, x, state, position):
        rate = self.rate.sigmoid()
        average = (1 - rate) * state[0] + rate * self.projection(x)
        return average, (average,)

    def encode(self, x):
        state, embeddings = self.start(x), []
        for t in range(x.shape[1]):
            embedding, state = self.step(x[:, t], state, t)
            embeddings.append(embedding)
        return torch.stack(embeddings, dim=1), state


def main(epochs: int) -> None:
    source = SYNTHETIC["model1"]
    train, validation, test = split_sequences(source.sample(1000, 24, generator=0))
    config = SMCTransformerConfig(d_model=16, n_heads=2)
    model = SMCTransformer(config, generator=1, encoder=MovingAverages(n_features=1, d_model=16))
    Trainer(model, epochs=epochs).fit(train, validation)
    Console().print("model:", one_step_scores(model.filter(test, 100, generator=2).predictive, test[:, 1:]))
    Console().print("truth:", one_step_scores(source.predictive(test), test[:, 1:]))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
