"""The parameters of an encoder that the kernels can run row by row, as they take them (`Encoder` in encoder.h)."""

from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from smc_transformer.kernels.structures import Encoder, check_shapes, point


class EncoderTensors(NamedTuple):
    """A linear map or a GRU of one layer, of the inputs or of their levels and changes; weights are (n_out, n_in)."""

    weight: Float[Tensor, "gates width"]
    bias: Float[Tensor, "gates"]
    recurrent: Float[Tensor, "gates d"] | None = None
    """None: a linear map."""
    recurrent_bias: Float[Tensor, "gates"] | None = None
    level_scale: Float[Tensor, "n_features"] | None = None
    """None: the inputs as they are."""
    change_scale: Float[Tensor, "n_features"] | None = None

    def learned(self) -> dict[str, Tensor]:
        """The parameters that have gradients, by name."""
        return {name: value for name, value in self._asdict().items() if value is not None and "scale" not in name}

    def structure(self) -> Encoder:
        """As C sees them."""
        gates, width = self.weight.shape
        d = gates if self.recurrent is None else gates // 3
        n_features = width if self.level_scale is None else width // 2
        sizes = {"weight": (gates, width), "recurrent": (gates, d), "bias": (gates,), "recurrent_bias": (gates,)}
        check_shapes(self._asdict(), sizes | dict.fromkeys(("level_scale", "change_scale"), (n_features,)))
        encoder = Encoder(d=d, n_features=n_features, width=width)
        point(encoder, {name: None if part is None else part.contiguous() for name, part in self._asdict().items()})
        return encoder
