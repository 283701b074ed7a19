"""What time it is by the store's clock, as far as its answers tell."""

from __future__ import annotations

from tenure.clock import Clock
from tenure.core.durations import SECOND

_STEP = SECOND // 2
"""A change of the wall clock that is larger than this, in microseconds, is a step."""


class StoreTime:
    """The clock of this host, corrected by what the store said of its own.

    If somebody sets this host's clock, what was learned is forgotten.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset = 0
        self._anchor = self._difference()

    def now(self) -> int:
        """The store's time, in microseconds, as well as it is known."""
        difference = self._difference()
        if abs(difference - self._anchor) > _STEP:
            self._anchor, self._offset = difference, 0
        return self._clock.time_us() + self._offset

    def reached(self, at: int) -> None:
        """By its own clock the store is at `at` or later."""
        self._offset += max(at - self.now(), 0)

    def before(self, at: int) -> None:
        """By its own clock the store has not come to `at`."""
        self._offset -= max(self.now() - at + 1, 0)

    def _difference(self) -> int:
        return self._clock.time_us() - round(self._clock.monotonic() * SECOND)
