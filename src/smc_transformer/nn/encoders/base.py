"""What an encoder is: a causal map from inputs to embeddings, over whole sequences or one step at a time.

The stochastic attention sits on top of any causal encoder. Where inputs are observed, the encoder runs once for a
sequence, over all steps at once. Where inputs were drawn (missing values, forecasts), every particle has its own
inputs, and the encoder goes on step by step, one row for each particle, with a state that particles inherit.
"""

from abc import ABC, abstractmethod
from typing import TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from smc_transformer.kernels.encoder import EncoderTensors

Position: TypeAlias = int | Int[Tensor, "row"]
"""How many inputs came before: in all rows, or in each."""

State: TypeAlias = tuple[Tensor, ...]
"""What an encoder remembers of the past: tensors whose first axis is the row."""


class CausalEncoder(nn.Module, ABC):
    """Maps (row, time, feature) to (row, time, d_model); embedding t depends on inputs 0, ..., t only.

    `step` must continue what `encode` began: encoding a sequence whole or in pieces gives the same embeddings.
    """

    @abstractmethod
    def start(self, x: Float[Tensor, "row ..."]) -> State:
        """The state before anything was seen, for as many rows as x has, and of its type."""

    @abstractmethod
    def encode(self, x: Float[Tensor, "row time feature"]) -> tuple[Float[Tensor, "row time d_model"], State]:
        """The embeddings of sequences from their beginning, and the state after them."""

    @abstractmethod
    def step(
        self, x: Float[Tensor, "row feature"], state: State, position: Position
    ) -> tuple[Float[Tensor, "row d_model"], State]:
        """The embedding of the input at `position`, given the state after all earlier ones."""

    def kernel_form(self) -> EncoderTensors | None:
        """How the kernels can embed rows one step at a time; None: they cannot, and torch does it.

        Only the class that defines it is asked, as with observation models. Encodings of the position are added to
        what this form gives.
        """
        return None

    def forward(self, x: Float[Tensor, "row time feature"]) -> Float[Tensor, "row time d_model"]:
        """The embeddings alone."""
        return self.encode(x)[0]


class ResumingEncoder(CausalEncoder):
    """An encoder that continues sequences after a state: whole ones from the beginning, single steps from anywhere."""

    @abstractmethod
    def resume(
        self, x: Float[Tensor, "row time feature"], state: State, position: Position
    ) -> tuple[Float[Tensor, "row time d_model"], State]:
        """The embeddings of inputs from `position` on, given the state after all earlier ones; and the next state."""

    def encode(self, x: Float[Tensor, "row time feature"]) -> tuple[Float[Tensor, "row time d_model"], State]:
        return self.resume(x, self.start(x), 0)

    def step(
        self, x: Float[Tensor, "row feature"], state: State, position: Position
    ) -> tuple[Float[Tensor, "row d_model"], State]:
        embedding, state = self.resume(x.unsqueeze(1), state, position)
        return embedding[:, 0], state


class WholePastEncoder(ResumingEncoder):
    """Any causal module that knows whole sequences only: a step reads the whole past again.

    Exact for every causal module, at a cost per step that grows with the past. A module with `encode` and `step` of
    its own (a subclass of `CausalEncoder`) is used as it is.
    """

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module = module

    def start(self, x: Float[Tensor, "row ..."]) -> State:
        return (x.new_empty(len(x), 0, x.shape[-1]),)

    def resume(
        self, x: Float[Tensor, "row time feature"], state: State, position: Position
    ) -> tuple[Float[Tensor, "row time d_model"], State]:
        past = torch.cat((state[0], x), dim=1)
        embedding = self.module(past)
        if not isinstance(embedding, Tensor) or embedding.shape[:2] != past.shape[:2]:
            got = tuple(embedding.shape) if isinstance(embedding, Tensor) else type(embedding).__name__
            raise ValueError(
                f"an encoder must map (row, time, feature) = {tuple(past.shape)} to (row, time, d_model), got {got}"
            )
        return embedding[:, -x.shape[1] :], (past,)


def as_encoder(module: nn.Module) -> CausalEncoder:
    """The module itself if it can go step by step, else wrapped so that it can."""
    return module if isinstance(module, CausalEncoder) else WholePastEncoder(module)
