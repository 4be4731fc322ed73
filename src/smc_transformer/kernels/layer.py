"""The parameters of the stochastic attention and the read-out, as the kernels take them (`Layer` in layer.h)."""

from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from smc_transformer.kernels.structures import Layer, check_shapes, point


class LayerTensors(NamedTuple):
    """The parameters by their names in C; weights are (n_out, n_in), as torch has them.

    h = LN_1(z + e), y = LN_2(h + outer ReLU(inner h)), out = projection y; without a net, out = projection (z + e).
    """

    n_heads: int
    query_factor: Float[Tensor, "d"]
    """Scales of the noises; ones where the noise comes scaled."""
    key_factor: Float[Tensor, "d"]
    value_factor: Float[Tensor, "d"]
    attention_factor: Float[Tensor, "d"]
    output: Float[Tensor, "d d"]
    projection: Float[Tensor, "n_out d"] | None = None
    """None: nothing is read out."""
    projection_bias: Float[Tensor, "n_out"] | None = None
    gain_1: Float[Tensor, "d"] | None = None
    """From here on the net of a transformer; None: there is none."""
    bias_1: Float[Tensor, "d"] | None = None
    inner: Float[Tensor, "d_ff d"] | None = None
    inner_bias: Float[Tensor, "d_ff"] | None = None
    outer: Float[Tensor, "d d_ff"] | None = None
    outer_bias: Float[Tensor, "d"] | None = None
    gain_2: Float[Tensor, "d"] | None = None
    bias_2: Float[Tensor, "d"] | None = None
    epsilon_1: float = 0.0
    epsilon_2: float = 0.0

    def tensors(self) -> dict[str, Tensor]:
        """Those that are there, by name."""
        return {name: value for name, value in zip(self._fields, self, strict=True) if isinstance(value, Tensor)}

    def structure(self) -> Layer:
        """As C sees them."""
        d, d_ff = len(self.output), 1 if self.inner is None else len(self.inner)
        n_out = 0 if self.projection is None else len(self.projection)
        sizes = dict.fromkeys(self._fields, (d,)) | {"output": (d, d), "inner": (d_ff, d), "outer": (d, d_ff)}
        sizes |= {"inner_bias": (d_ff,), "projection": (n_out, d), "projection_bias": (n_out,)}
        check_shapes(self.tensors(), sizes)
        layer = Layer(
            d=d,
            heads=self.n_heads,
            d_ff=d_ff,
            n_out=n_out,
            epsilon_1=self.epsilon_1,
            epsilon_2=self.epsilon_2,
        )
        point(layer, {name: tensor.contiguous() for name, tensor in self.tensors().items()})
        return layer
