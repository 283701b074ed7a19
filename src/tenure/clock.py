"""The clock seam: the only places where tenure reads time or randomness.

Everything that waits or stamps takes a `Clock`, so that tests can turn time by hand.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from struct import Struct
from threading import Lock
from typing import Protocol

from tenure.core.durations import SECOND
from tenure.core.ids import uuid7
from tenure.errors import ConfigurationError

_COUNTER_BITS = 26
_COUNTER_MAX = (1 << _COUNTER_BITS) - 1


class Clock(Protocol):
    """Two readings of time. Both may be taken from any thread."""

    def time_us(self) -> int:
        """Wall-clock time: microseconds since 1970-01-01 UTC. May jump."""
        ...

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never goes back; counts suspended time if it can."""
        ...


OFFSET = "TENURE_TEST_CLOCK_OFFSET"
"""For tests only: seconds (a float) by which the wall clock of this process is ahead, to see what
a difference between the clocks of processes does. Read once, when a clock is made."""


class SystemClock:
    """The machine's clocks. Raises `ConfigurationError` if `OFFSET` is set to no number."""

    def __init__(self) -> None:
        self._offset = _offset(os.environ.get(OFFSET))

    def time_us(self) -> int:
        return time.time_ns() // 1000 + self._offset

    if hasattr(time, "CLOCK_BOOTTIME"):

        def monotonic(self) -> float:
            return time.clock_gettime(time.CLOCK_BOOTTIME)
    else:

        def monotonic(self) -> float:
            return time.monotonic()


def _offset(text: str | None) -> int:
    if not text:
        return 0
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not math.isfinite(seconds):
        raise ConfigurationError(f"{OFFSET} must be a number of seconds, not {text!r}")
    return round(seconds * SECOND)


SYSTEM_CLOCK = SystemClock()


class SystemRandom:
    """Up to 64 random bits of the system, taken in advance. For one thread at a time.

    Each call of the system lets other threads of Python go first, and the one that writes to a
    file may keep the turn for a while. A forked child takes bits of its own.
    """

    _WORDS = Struct("64Q")

    def __init__(self) -> None:
        self._pid = 0
        self._words: list[int] = []

    def __call__(self, count: int) -> int:
        if not self._words or self._pid != os.getpid():
            self._pid = os.getpid()
            self._words = list(self._WORDS.unpack(os.urandom(self._WORDS.size)))
        return self._words.pop() >> (64 - count)


class IdSource:
    """Makes ids that strictly increase within this source, whatever its clock does.

    `now_us` returns Unix time in microseconds; `random_bits(k)` returns k random bits (None: those
    of the system).
    Safe to call from several threads.
    """

    def __init__(
        self,
        now_us: Callable[[], int] = SYSTEM_CLOCK.time_us,
        random_bits: Callable[[int], int] | None = None,
    ) -> None:
        self._now_us = now_us
        self._random_bits = random_bits or SystemRandom()
        self._lock = Lock()
        self._last = 0
        self._counter = 0

    def __call__(self) -> str:
        with self._lock:
            now = self._now_us() // 1000
            if now > self._last:
                self._last = now
                # Half the range is left free, so a burst within a millisecond never wraps.
                self._counter = self._random_bits(_COUNTER_BITS - 1)
            elif self._counter < _COUNTER_MAX:
                self._counter += 1
            else:
                self._last += 1
                self._counter = self._random_bits(_COUNTER_BITS - 1)
            return uuid7(self._last, self._counter, self._random_bits(48))
