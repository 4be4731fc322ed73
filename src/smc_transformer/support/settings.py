"""What all frozen settings share: plain values, and a way to JSON and back."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from typing import Any, TypeVar

from smc_transformer.support.checks import LARGEST_COUNT, check_count, shown

Own = TypeVar("Own", bound="FrozenSettings")


def check_names(settings: Iterable[str], known: set[str], what: str = "settings") -> None:
    """Refuse settings whose names are not known."""
    unknown = [name for name in settings if not isinstance(name, str) or name not in known]
    if unknown:
        raise ValueError(f"unknown {what} {shown(sorted(unknown, key=str))}; known are {sorted(known)}")


class FrozenSettings:
    """A base of frozen dataclasses whose values are checked when they are made."""

    def to_dict(self) -> dict[str, Any]:
        """The settings as a dictionary that JSON can hold."""
        return asdict(self)  # type: ignore[call-overload]

    @classmethod
    def from_dict(cls: type[Own], settings: dict[str, Any]) -> Own:
        """The inverse of `to_dict`; unknown names are rejected."""
        if not isinstance(settings, Mapping):
            raise TypeError(f"settings must be a dictionary, got {shown(settings)}")
        check_names(settings, cls.names())
        return cls(**settings)

    @classmethod
    def names(cls) -> set[str]:
        """The names of the settings."""
        return {field.name for field in fields(cls)}  # type: ignore[arg-type]

    def _set(self, name: str, value: Any) -> None:
        """Replace a value by an equal one of a plain type, which JSON can hold (numpy numbers are accepted)."""
        object.__setattr__(self, name, value)

    def _check_counts(self, *names: str, at_most: int = LARGEST_COUNT) -> None:
        for name in names:
            self._set(name, check_count(getattr(self, name), name, at_most=at_most))
