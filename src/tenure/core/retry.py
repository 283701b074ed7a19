"""How long to wait before the next try."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec

from tenure.core.durations import SECOND, Seconds, micros, shown
from tenure.errors import ConfigurationError

SHORTEST = SECOND // 10
"""No backoff is shorter than 0.1 s, so a zero base cannot burn all attempts at once."""

_CEILING = 366 * 86_400.0


class RetryPolicy(msgspec.Struct, frozen=True):
    """Exponential backoff: after failure n, wait `min(cap, base * factor ** (n - 1))` seconds.

    `base` (from 0) and `cap` (from 0.1) are seconds, up to 366 days; `factor` is from 1 to 1,000.
    Up to `jitter` (0 to 1) of the wait is taken off at random, so that jobs that failed together
    spread out. No wait is shorter than 0.1 s. Raises `ConfigurationError` for values outside these
    ranges. Stored in full: a job keeps the policy of its enqueue when the defaults change.
    """

    base: float = 5.0
    factor: float = 3.0
    cap: float = 3600.0
    jitter: float = 0.2

    def __post_init__(self) -> None:
        for name, minimum in (("base", 0.0), ("cap", 0.1)):
            value: Any = getattr(self, name)
            wait = micros(value, name, minimum=minimum, maximum=_CEILING)
            if isinstance(value, timedelta):
                msgspec.structs.force_setattr(self, name, wait / SECOND)
        within("factor", self.factor, 1.0, 1000.0)
        within("jitter", self.jitter, 0.0, 1.0)

    @classmethod
    def constant(cls, seconds: Seconds, *, jitter: float = 0.0) -> RetryPolicy:
        """The same wait before every try."""
        wait = micros(seconds, "seconds", maximum=_CEILING) / SECOND
        return cls(base=wait, factor=1.0, cap=max(wait, 0.1), jitter=jitter)

    def delay(self, failures: int, roll: float) -> int:
        """Microseconds to wait after `failures` failures (from 1); `roll` is random in [0, 1)."""
        base = max(self.base * SECOND, SHORTEST)
        cap = self.cap * SECOND
        try:
            # Powers of an int would grow without bound before the cap is looked at.
            wait = min(cap, base * float(self.factor) ** (failures - 1))
        except OverflowError:
            wait = cap
        return max(SHORTEST, round(wait * (1 - self.jitter * roll)))


def within(name: str, value: Any, low: float, high: float) -> float:
    """`value` itself if it is a number from `low` to `high`; else `ConfigurationError`."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number:
        raise ConfigurationError(f"{name} must be a number, not {type(value).__name__}")
    if not low <= value <= high:
        raise ConfigurationError(f"{name} must be from {low:g} to {high:g}, not {shown(value)}")
    return float(value)


DEFAULT_RETRY = RetryPolicy()
