"""Mirrors of the C structures; `library` compares their sizes with those in C when it loads the kernels."""

import ctypes
from collections.abc import Mapping, Sequence

from torch import Tensor

POINTER, COUNT, NUMBER = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double
"""How C sees a tensor, a size and a number."""

MEANS = ("query_mean", "key_mean", "value_mean", "embedding")
NOISES = ("query_noise", "key_noise", "value_noise", "attention_noise")
FACTORS = ("query_factor", "key_factor", "value_factor", "attention_factor")
PROJECTIONS = ("query", "key", "value")
"""Wq, Wk, Wv."""
NET = ("gain_1", "bias_1", "inner", "inner_bias", "outer", "outer_bias", "gain_2", "bias_2")


def _fields(kind: type, *names: str) -> list[tuple[str, type]]:
    return [(name, kind) for name in names]


class Strides(ctypes.Structure):
    """In common.h."""

    _fields_ = _fields(COUNT, "sequence", "particle", "step")


class Layer(ctypes.Structure):
    """In layer.h."""

    _fields_ = [
        *_fields(COUNT, "d", "heads", "d_ff", "n_out"),
        *_fields(POINTER, *FACTORS, "output", *NET, "projection", "projection_bias"),
        *_fields(NUMBER, "epsilon_1", "epsilon_2"),
    ]


class Filter(ctypes.Structure):
    """In filter.c."""

    _fields_ = [
        *_fields(COUNT, "batch", "particles", "steps", "window", "n_targets"),
        *_fields(POINTER, *MEANS, *NOISES),
        ("noise_strides", Strides),
        *_fields(POINTER, "targets", "last_targets"),
        *_fields(COUNT, "n_parameters", "density"),
        *_fields(POINTER, "root", "lowest", "highest"),
        *_fields(NUMBER, "constant", "degrees", "largest_log"),
        ("uniforms", POINTER),
        *_fields(COUNT, "n_uniforms", "scheme", "stop_at_collapse"),
        ("ess_threshold", NUMBER),
        *_fields(POINTER, "keys", "values", "trajectories", "ancestors", "resampled", "increments", "prior"),
        *_fields(POINTER, "posterior", "parameters", "attention", "collapsed", "observed"),
        *_fields(COUNT, "n_inputs", "reach"),
        *_fields(POINTER, "inputs", "positions", *PROJECTIONS, "normal", "gamma", "completed"),
        *_fields(POINTER, "last", "previous", "hidden"),
    ]


class Step(ctypes.Structure):
    """In step.c."""

    _fields_ = [
        *_fields(COUNT, "batch", "particles", "owners"),
        *_fields(POINTER, *MEANS, *NOISES),
        ("noise_strides", Strides),
        *_fields(POINTER, "keys", "values", "held", "trajectories"),
        *_fields(COUNT, "capacity", "window"),
        *_fields(POINTER, "n_slots", "past_keys", "past_values", "past_trajectories", "past_n_slots", "parents"),
        *_fields(COUNT, "past_particles", "past_slots"),
        *_fields(POINTER, "z", "parameters"),
    ]


class Contours(ctypes.Structure):
    """In weights.h."""

    _fields_ = [("n", COUNT), *_fields(POINTER, "root", "lowest", "highest"), *_fields(NUMBER, "constant", "degrees")]


class Follow(ctypes.Structure):
    """In follow.c."""

    _fields_ = [
        *_fields(COUNT, "batch", "particles", "owners", "capacity", "window", "n_inputs", "n_targets", "n_parameters"),
        *_fields(COUNT, "adds_last", "scheme"),
        ("ess_threshold", NUMBER),
        *_fields(ctypes.c_uint32, "selection", "noise"),
        *_fields(POINTER, "stream_keys", "position", "n_slots", "last", "previous", "hidden", "keys", "values", "held"),
        *_fields(POINTER, "trajectories", "log_weights", "informed", "resampled", *PROJECTIONS, "parameters"),
        *_fields(POINTER, "targets", "log_density", "pit", "root", "lowest", "highest"),
        *_fields(NUMBER, "constant", "degrees"),
    ]


class Row(ctypes.Structure):
    """In follow.c."""

    _fields_ = [
        *_fields(POINTER, "columns", "values", "given"),
        *_fields(COUNT, "n_given", "n_features"),
        ("largest", NUMBER),
        *_fields(POINTER, "unit", "scaled", "position", "n_slots"),
    ]


class Replay(ctypes.Structure):
    """In replay.c."""

    _fields_ = [
        *_fields(COUNT, "batch", "n_trajectories", "particles", "steps", "window", "owners", "groups"),
        *_fields(POINTER, *MEANS, "nodes", *NOISES),
        ("noise_strides", Strides),
        *_fields(POINTER, "trajectories", "gradient", *(f"{name}_gradient" for name in MEANS), "sums"),
        ("n_sums", COUNT),
    ]


class Encoder(ctypes.Structure):
    """In encoder.h."""

    _fields_ = [
        *_fields(COUNT, "d", "n_features", "width"),
        *_fields(POINTER, "level_scale", "change_scale", "weight", "bias", "recurrent", "recurrent_bias"),
    ]


class Paths(ctypes.Structure):
    """In paths.c."""

    _fields_ = [
        *_fields(COUNT, "batch", "paths", "steps", "window", "n_inputs", "n_targets", "n_parameters", "adds_last"),
        *_fields(POINTER, "last", "previous", "hidden", "known", "positions", *PROJECTIONS, *NOISES),
        ("noise_strides", Strides),
        *_fields(POINTER, "seeds", "stream_keys", "stream_steps", "draws", "root", "lowest", "highest"),
        *_fields(POINTER, "count_draws"),
        ("largest_log", ctypes.c_double),
        *_fields(COUNT, "past_particles", "past_slots"),
        *_fields(POINTER, "past_keys", "past_values", "past_trajectories", "parents", "n_past"),
        *_fields(POINTER, "targets", "parameters"),
        *_fields(COUNT, "groups", "n_sums"),
        *_fields(POINTER, "targets_gradient", "draws_gradient", "hidden_gradient"),
        *_fields(POINTER, "past_keys_gradient", "past_values_gradient", "sums"),
    ]


class Attention(ctypes.Structure):
    """In attention.c."""

    _fields_ = [
        *_fields(COUNT, "rows", "steps", "d", "heads", "window"),
        *_fields(POINTER, "query", "key", "value", "context", "log_total", "context_gradient"),
        *_fields(POINTER, "query_gradient", "key_gradient", "value_gradient"),
    ]


class Recurrent(ctypes.Structure):
    """In recurrent.c."""

    _fields_ = [
        *_fields(COUNT, "groups", "steps", "n_sums"),
        *_fields(POINTER, "levels", "parents", "inputs", "embedding", "gradient", "sums"),
    ]


class Bank(ctypes.Structure):
    """In view.c."""

    _fields_ = [
        *_fields(COUNT, "seasons", "profiles", "smoothers", "origins", "places", "entries"),
        *_fields(COUNT, "horizon", "stride", "judged_every", "rows_before_judging"),
        *_fields(NUMBER, "remembered", "size_rate", "profile_level_rate", "profile_level_seasons"),
        *_fields(NUMBER, "smallest_factor", "largest_factor"),
        *_fields(POINTER, "lengths", "season_starts", "season_of", "starts", "multiplies", "rates"),
        *_fields(POINTER, "level_rates", "trend_rates", "damping", "sums"),
        ("oldest", COUNT),
        *_fields(POINTER, "n_rows", "n_observed", "silent", "last", "size", "largest", "jump", "profile_entries"),
        *_fields(POINTER, "latest", "visits", "reference", "level", "trend", "origin_level", "origin_trend"),
        *_fields(POINTER, "errors", "n_errors"),
    ]


class View(ctypes.Structure):
    """In view.c."""

    _fields_ = [
        *_fields(COUNT, "counts", "ready_after"),
        ("prior", POINTER),
        *_fields(NUMBER, "noise", "floor", "power", "prior_errors", "prior_noise", "least_noise", "least_unit"),
        ("smallest", NUMBER),
    ]


STRUCTURES = (
    Strides,
    Layer,
    Filter,
    Step,
    Contours,
    Follow,
    Row,
    Replay,
    Encoder,
    Paths,
    Attention,
    Recurrent,
    Bank,
    View,
)


def point(structure: ctypes.Structure, tensors: Mapping[str, Tensor | None]) -> None:
    """Set pointers to contiguous tensors, which are kept alive as long as the structure."""
    kept: list[Tensor] = getattr(structure, "kept", [])
    for name, tensor in tensors.items():
        if tensor is not None:
            kept.append(tensor)
        setattr(structure, name, None if tensor is None else tensor.data_ptr())
    structure.kept = kept


def check_shapes(tensors: Mapping[str, Tensor | None], sizes: Mapping[str, tuple[int, ...]]) -> None:
    """That C reads parameters to their ends and not beyond: a user may have replaced one."""
    for name, tensor in tensors.items():
        if tensor is not None and tensor.shape != sizes[name]:
            raise ValueError(f"the parameter {name} must have the shape {sizes[name]}, got {tuple(tensor.shape)}")


def strides_of(tensors: Sequence[Tensor], like: Tensor) -> tuple[list[Tensor], Strides]:
    """Tensors (batch, particle, time, d) whose rows of d numbers, of the type of `like`, C can find.

    They are copied only if that is not so, or if they lie in memory differently.
    """
    tensors = [tensor.to(like.dtype) for tensor in tensors]
    first = tensors[0].stride()
    if first[-1] != 1 or any(tensor.stride() != first for tensor in tensors):
        tensors = [tensor.contiguous() for tensor in tensors]
    return tensors, Strides(*tensors[0].stride()[:3])
