"""Whether a network is as it was: what was found out about it, or computed from it, holds as long.

Not its weights, which may change where they are: who relies on a watch reads them there. But where they are, which
parts it has, whether these are in training, have hooks or methods of their own, and the few numbers from which others
have been computed (the parameters of the observation model, and a factor that stands for many).
"""

from torch import Tensor

from smc_transformer.network import Network


class Watch:
    """Remembers how a network is."""

    def __init__(self, network: Network) -> None:
        self._attention = attention = network.attention
        self._plain = (attention.window, attention.n_heads)
        self._parts, self._tensors, self._epsilons = [], [], []
        for part in network.modules():
            own = vars(part)
            hooks, children = (own["_forward_hooks"], own["_forward_pre_hooks"]), own["_modules"]
            sizes = (len(own), *map(len, hooks))
            self._parts.append((own, sizes, own["training"], *hooks, children, list(children.values())))
            for held in (own["_parameters"], own["_buffers"]):
                self._tensors += [(held, name, one, _address(one)) for name, one in held.items()]
            if "eps" in own:
                self._epsilons.append((own, own["eps"]))
        observation = network.observation
        few = [*observation.parameters(), *observation.buffers()]
        few += [one.factor for one in attention.covariances if one.factor.numel() != one.size]
        self._few = [(one.detach(), _bytes(one)) for one in few]

    def is_unchanged(self) -> bool:
        """Whether it still is so."""
        for own, sizes, training, hooks, early, children, before in self._parts:
            if (len(own), len(hooks), len(early)) != sizes or own["training"] is not training:
                return False
            if before and [*children.values()] != before:  # modules are equal only to themselves
                return False
        for held, name, tensor, address in self._tensors:
            if held.get(name) is not tensor or (address and tensor.data_ptr() != address):
                return False
        return (
            (self._attention.window, self._attention.n_heads) == self._plain
            and all(own["eps"] == epsilon for own, epsilon in self._epsilons)
            and all(_bytes(one) == before for one, before in self._few)
        )


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


def _bytes(tensor: Tensor) -> bytes:
    return tensor.detach().cpu().numpy().tobytes()
