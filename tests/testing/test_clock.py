"""A clock that is turned by hand, and the offset of the machine's one."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from tenure.clock import OFFSET, Clock, SystemClock
from tenure.core.durations import SECOND
from tenure.errors import ConfigurationError
from tenure.testing.clock import START, ManualClock


def test_it_stands_still():
    clock: Clock = ManualClock()
    assert [clock.time_us(), clock.monotonic()] == [clock.time_us(), clock.monotonic()]
    assert clock.monotonic() == 0.0
    assert clock.time_us() == START.timestamp() * SECOND


def test_advancing_turns_both_readings():
    clock = ManualClock()
    before = clock.time_us()
    clock.advance(1.5)
    clock.advance(timedelta(seconds=2))
    clock.advance(0)
    assert (clock.time_us() - before, clock.monotonic()) == (3_500_000, 3.5)


def test_setting_turns_the_wall_clock_alone():
    clock = ManualClock(datetime(2026, 3, 29, tzinfo=UTC))
    clock.advance(5)
    for moment in (datetime(2030, 1, 1, tzinfo=UTC), datetime(2020, 1, 1, tzinfo=UTC)):
        clock.set(moment)
        assert clock.time_us() == moment.timestamp() * SECOND
        assert clock.monotonic() == 5.0


@pytest.mark.parametrize("seconds", [-1, float("nan"), True, "1"])
def test_time_does_not_run_backwards(seconds: object):
    clock = ManualClock()
    with pytest.raises(ConfigurationError):
        clock.advance(seconds)  # type: ignore[arg-type]
    assert clock.monotonic() == 0.0


def test_a_time_without_a_zone_is_refused():
    with pytest.raises(ConfigurationError, match="zone"):
        ManualClock(datetime(2026, 1, 1))  # noqa: DTZ001
    with pytest.raises(ConfigurationError, match="zone"):
        ManualClock().set(datetime(2026, 1, 1))  # noqa: DTZ001


def test_threads_lose_no_turn():
    clock = ManualClock()

    def turn(_: int) -> None:
        for _ in range(500):
            clock.advance(1)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(turn, range(4)))
    assert clock.monotonic() == 2000.0


class TestOffset:
    def _reads(self, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", "from tenure.clock import *; print(SYSTEM_CLOCK.time_us())"],
            env=os.environ | environment,
            capture_output=True,
            text=True,
            check=False,
        )

    @pytest.mark.parametrize("offset", ["-3600", "7200.5"])
    def test_it_skews_the_wall_clock_of_a_process(self, offset: str):
        ahead = int(self._reads(**{OFFSET: offset}).stdout) / SECOND - time.time()
        assert abs(ahead - float(offset)) < 60

    @pytest.mark.parametrize("offset", ["an hour", "nan", "inf"])
    def test_no_number_is_refused(self, monkeypatch: pytest.MonkeyPatch, offset: str):
        monkeypatch.setenv(OFFSET, offset)
        with pytest.raises(ConfigurationError, match=OFFSET):
            SystemClock()

    def test_without_it_the_clock_is_the_machines(self, monkeypatch: pytest.MonkeyPatch):
        for value in (None, ""):
            monkeypatch.delenv(OFFSET, raising=False)
            if value is not None:
                monkeypatch.setenv(OFFSET, value)
            assert abs(SystemClock().time_us() / SECOND - time.time()) < 60

    def test_it_does_not_touch_the_other_reading(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setenv(OFFSET, "1e6")
        assert abs(SystemClock().monotonic() - SystemClock().monotonic()) < 60
