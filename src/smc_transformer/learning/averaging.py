"""A running average of the weights over training steps: less noise than any single step's weights."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class WeightAverage:
    """An exponential average of all that a model has learned: parameters, and what EM keeps.

    A step keeps the share `keep` of the old average; less at first, so that the start is soon forgotten.
    """

    def __init__(self, model: nn.Module, keep: float):
        self.model = model
        self.keep = keep
        self.weights = {name: value.clone() for name, value in model.state_dict().items()}

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Take the weights of step 1, 2, ... into the average."""
        share = 1 - min(self.keep, step / (step + 10))
        for name, value in self.model.state_dict().items():
            old = self.weights[name]
            # What is not a finite number yet (such as bounds before the first EM step) has no average.
            usable = old.is_floating_point() and bool(old.isfinite().all())
            self.weights[name] = old.lerp(value, share) if usable else value.clone()

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The model with the average in place of its weights, for as long as it takes."""
        own: dict[str, Tensor] = {name: value.clone() for name, value in self.model.state_dict().items()}
        self.model.load_state_dict(self.weights)
        try:
            yield
        finally:
            self.model.load_state_dict(own)
