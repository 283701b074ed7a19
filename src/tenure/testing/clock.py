"""A clock that is turned by hand."""

from __future__ import annotations

from datetime import UTC, datetime
from threading import Lock

from tenure.core.durations import SECOND, Seconds, instant, micros

START = datetime(2026, 1, 1, tzinfo=UTC)


class ManualClock:
    """Implements `tenure.clock.Clock`; stands still until told otherwise. Safe from any thread.

    It turns what is stamped and compared. It wakes nobody: what sleeps goes on sleeping.
    """

    def __init__(self, start: datetime = START) -> None:
        self._lock = Lock()
        self._time = instant(start, "start")
        self._passed = 0

    def time_us(self) -> int:
        with self._lock:
            return self._time

    def monotonic(self) -> float:
        with self._lock:
            return self._passed / SECOND

    def advance(self, seconds: Seconds) -> None:
        """Let time pass, on both readings. Raises `ConfigurationError` for less than nothing."""
        passed = micros(seconds, "seconds")
        with self._lock:
            self._time += passed
            self._passed += passed

    def set(self, moment: datetime) -> None:
        """Set the wall clock, ahead or back, as an operator does; no time passes."""
        chosen = instant(moment, "moment")
        with self._lock:
            self._time = chosen
