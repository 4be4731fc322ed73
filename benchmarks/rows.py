"""A row of the table: what was measured, and its target."""

from collections.abc import Sequence


def row(
    name: str,
    size: Sequence[int] | str,
    ratio: float,
    *,
    at_most: float | None = None,
    at_least: float | None = None,
) -> dict:
    """A measured ratio beside its target; without a target it is only reported."""
    met = (at_most is None or ratio <= at_most) and (at_least is None or ratio >= at_least)
    target = (
        f"at most {at_most:g}" if at_most is not None else f"at least {at_least:g}" if at_least is not None else None
    )
    return {"name": name, "size": size, "ratio": float(f"{ratio:.3g}"), "target": target, "met": met}
