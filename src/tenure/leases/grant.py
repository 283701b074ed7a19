"""When a lease began, and how much of it was granted."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple, Self

from tenure.clock import SYSTEM_CLOCK, Clock
from tenure.core.durations import SECOND, Seconds, instant, micros
from tenure.core.lease import SOON


class Grant(NamedTuple):
    """What a service granted: `seconds` (None: as many as asked for), counted from `sent_at`.

    `sent_at` is a reading of a clock's `monotonic()` that was taken *before* the claim was sent;
    None: now. `adopted` leases come from elsewhere, so that nobody here knows when they began.
    """

    sent_at: float | None = None
    seconds: float | None = None
    adopted: bool = False

    @classmethod
    def claimed(cls, sent_at: float, seconds: Seconds | None = None) -> Self:
        """A claim was sent at `sent_at`. Raises `ConfigurationError` for a bad duration."""
        granted = None if seconds is None else micros(seconds, "granted") / SECOND
        return cls(sent_at, granted)

    @classmethod
    def left(cls, seconds: Seconds) -> Self:
        """A lease taken over from elsewhere, with so many seconds left.

        Raises `ConfigurationError` for a bad duration.
        """
        return cls(None, micros(seconds, "left") / SECOND, adopted=True)

    @classmethod
    def until(
        cls, deadline: datetime, server_time: datetime | None = None, clock: Clock = SYSTEM_CLOCK
    ) -> Self:
        """A lease taken over from elsewhere that ends at `deadline` by the service's clock.

        `server_time` is what that clock showed just now, as in the `Date` of the answer; without
        it the wall clock of this machine must do. Raises `ConfigurationError` for a naive time.
        """
        now = clock.time_us() if server_time is None else instant(server_time, "server_time")
        left = (instant(deadline, "deadline") - now) / SECOND
        return cls(None, max(0.0, left), adopted=True)

    @property
    def urgent(self) -> bool:
        """Whether it has to be renewed at once: who knows how long it was under way."""
        return self.adopted and (self.seconds or 0.0) <= SOON
