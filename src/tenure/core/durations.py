"""Time as tenure keeps it: whole microseconds, as `int`.

Instants are microseconds since 1970-01-01 UTC. Users give seconds (`int`, `float`) or `timedelta`
and timezone-aware `datetime`; they are checked and converted here, once, where they are given.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

from tenure.errors import ConfigurationError

Seconds = int | float | timedelta
"""What users may give as a duration: seconds, or a `timedelta`. `bool` is refused."""

SECOND = 1_000_000
HOUR = 3600 * SECOND
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAST_INSTANT = 253_402_300_799_999_999
"""9999-12-31T23:59:59.999999Z: the last instant a `datetime` can show."""


def micros(value: Seconds, name: str, *, minimum: float = 0, maximum: float | None = None) -> int:
    """Microseconds of a duration given in seconds.

    Raises `ConfigurationError`, naming `name` and the allowed range in seconds, for a bool, NaN,
    an infinity, another type, or a value outside `minimum`..`maximum`.
    """
    if isinstance(value, timedelta):
        total = value // timedelta(microseconds=1)
    elif isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigurationError(
            f"{name} must be a number of seconds or a timedelta, not {type(value).__name__}"
        )
    elif isinstance(value, int):
        total = value * SECOND
    elif not math.isfinite(value):
        raise ConfigurationError(f"{name} must be finite, not {value}")
    else:
        # The bound keeps the product finite and changes no verdict.
        total = round(max(-1e18, min(value, 1e18)) * SECOND)
    ceiling = LAST_INSTANT if maximum is None else round(maximum * SECOND)
    if not round(minimum * SECOND) <= total <= ceiling:
        raise ConfigurationError(
            f"{name} must be at least {shown(minimum)} and at most {shown(ceiling / SECOND)} "
            f"seconds, not {shown(value)}"
        )
    return total


def instant(value: datetime, name: str) -> int:
    """Microseconds since the epoch of a timezone-aware `datetime`.

    Raises `ConfigurationError`, naming `name`, for a naive datetime or another type.
    """
    if not isinstance(value, datetime):
        raise ConfigurationError(f"{name} must be a datetime, not {type(value).__name__}")
    if value.tzinfo is None or value.utcoffset() is None:
        raise ConfigurationError(f"{name} must have a time zone; {value.isoformat()} is naive")
    total = (value - EPOCH) // timedelta(microseconds=1)
    if not 0 <= total <= LAST_INSTANT:
        raise ConfigurationError(f"{name} must lie between 1970 and 9999, not {value.isoformat()}")
    return total


def moment(value: int) -> datetime:
    """The UTC `datetime` of an instant."""
    return EPOCH + timedelta(microseconds=value)


def shown(value: Seconds) -> str:
    """Seconds, or any number, for the text of an error. Never raises."""
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    try:
        return f"{seconds:.12g}"
    except OverflowError:
        return "a number beyond all floats"
