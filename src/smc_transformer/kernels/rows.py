"""Maps of single rows, whose numbers do not depend on the rows beside them."""

import ctypes

from jaxtyping import Float
from torch import Tensor

from smc_transformer.kernels.encoder import EncoderTensors
from smc_transformer.kernels.library import check, loaded, threads
from smc_transformer.kernels.structures import COUNT, POINTER


def embed_rows(
    encoder: EncoderTensors,
    x: Float[Tensor, "row n_features"],
    previous: Float[Tensor, "row n_features"] | None,
    hidden: Float[Tensor, "row d"] | None,
) -> Float[Tensor, "row d"]:
    """The next embeddings: `previous` are the inputs before x, for an encoder that sees changes; `hidden` a GRU's."""
    structure = encoder.structure()
    out = x.new_empty(len(x), structure.d)
    given = [None if part is None else part.contiguous() for part in (x, previous, hidden)]
    pointers = [POINTER(None if part is None else part.data_ptr()) for part in (*given, out)]
    work = threads(len(x) * encoder.weight.numel() * 2)
    check(loaded(x).embed_rows(ctypes.byref(structure), *pointers, COUNT(len(x)), work))
    return out


def map_rows(weight: Float[Tensor, "n_out n_in"], x: Float[Tensor, "*batch n_in"]) -> Float[Tensor, "*batch n_out"]:
    """A linear map of each row."""
    weight, x = weight.contiguous(), x.contiguous()
    n_out, n_in = weight.shape
    out = x.new_empty(*x.shape[:-1], n_out)
    rows = out.numel() // n_out
    pointers = [POINTER(weight.data_ptr()), POINTER(None), POINTER(x.data_ptr()), POINTER(out.data_ptr())]
    check(loaded(x).map_rows(*pointers, *map(COUNT, (rows, n_in, n_out)), threads(out.numel() * n_in)))
    return out
