"""Whether a network has changed: while it has not, what was computed from it or found out about it can be used again.

Not its weights, which may change where they are: who relies on a watch reads them there. But where they are, which
parts it has, whether these are in training, have hooks or methods of their own, and the few numbers from which others
have been computed (the parameters of the observation model, and a factor that stands for many).
"""

from itertools import chain
from operator import is_

import numpy as np
from torch import Tensor

from smc_transformer.network import Network


class Watch:
    """Remembers how a network is.

    What is compared stands in long lists: to go through them in C takes a third of the time of a loop over the parts.
    """

    def __init__(self, network: Network) -> None:
        self._attention = attention = network.attention
        self._plain = (attention.window, attention.n_heads)
        parts = [vars(part) for part in network.modules()]
        counted = ("_forward_hooks", "_forward_pre_hooks", "_modules")
        self._measured = [held for own in parts for held in (own, *(own[name] for name in counted))]
        self._sizes = [*map(len, self._measured)]
        self._parts, self._training = parts, [own["training"] for own in parts]
        self._families = [own["_modules"] for own in parts]
        self._children = [*chain.from_iterable(map(dict.values, self._families))]
        held = [(of, name) for own in parts for of in (own["_parameters"], own["_buffers"]) for name in of]
        self._holders, self._names = [of for of, _ in held], [name for _, name in held]
        self._tensors = [of[name] for of, name in held]
        self._placed = [tensor for tensor in self._tensors if tensor is not None]
        self._addresses = [*map(Tensor.data_ptr, self._placed)]
        self._epsilons = [(own, own["eps"]) for own in parts if "eps" in own]
        observation = network.observation
        few = [*observation.parameters(), *observation.buffers()]
        few += [one.factor for one in attention.covariances if one.factor.numel() != one.size]
        # Arrays where the numbers are, which the addresses above watch; elsewhere than on the CPU the tensors.
        self._few = [one.detach().numpy() if one.device.type == "cpu" else one.detach() for one in few]
        self._numbers = [*map(_bytes, self._few)]

    def is_unchanged(self) -> bool:
        """Whether it still is so."""
        return (
            [*map(len, self._measured)] == self._sizes
            and [own["training"] for own in self._parts] == self._training
            and [*chain.from_iterable(map(dict.values, self._families))] == self._children  # each equals only itself
            and all(map(is_, map(dict.get, self._holders, self._names), self._tensors))
            and [*map(Tensor.data_ptr, self._placed)] == self._addresses
            and (self._attention.window, self._attention.n_heads) == self._plain
            and all(own["eps"] == epsilon for own, epsilon in self._epsilons)
            and [*map(_bytes, self._few)] == self._numbers
        )


def _bytes(numbers: Tensor | np.ndarray) -> bytes:
    return numbers.tobytes() if isinstance(numbers, np.ndarray) else numbers.cpu().numpy().tobytes()
