"""The state of one series as bytes: what states.safetensors holds of all, for databases and for engines of others."""

from typing import Any

from smc_transformer.forecaster.fitted import Fitted, Following
from smc_transformer.forecaster.folder import contents, files
from smc_transformer.forecaster.folder.files import SavedForecasterError
from smc_transformer.forecaster.table import Name
from smc_transformer.support.tensor_files import pack_tensors, unpack_tensors


def pack_series(fitted: Fitted, fit: str, name: Name, *, states: str = files.EXACT, **more: Any) -> bytes:
    """The state of a series, exact or small, and what else JSON can hold."""
    tensors, header = files.state_parts(fitted, fit, [name], states)
    return pack_tensors(tensors, {**header, "more": more})


def unpack_series(packed: bytes, fitted: Fitted, fit: str) -> tuple[Name, Following, dict[str, Any]]:
    """The series, its state, and what else was packed; of another model the states are refused."""
    tensors, header = unpack_tensors(packed, "the state", SavedForecasterError)
    if header.get("fit") != fit:
        raise SavedForecasterError("the state belongs to another fit than the model")
    with contents.damage("the state", SavedForecasterError):
        following, _ = files.read_following(tensors, header, fitted.settings, fitted.model, fitted.panel)
        (name,) = following.series
        more = header["more"]
        if not isinstance(more, dict):
            raise TypeError(f"expected an object, got {type(more).__name__}")
    return name, following, more
