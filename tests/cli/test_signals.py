"""Counting the signals that end a worker."""

from __future__ import annotations

import asyncio
import os
import signal
import threading

import pytest

from tenure.worker.signals import StopSignals, stop_signals


def test_signals_are_counted_and_handlers_restored():
    calls: list[int] = []
    told: list[str] = []
    before = signal.getsignal(signal.SIGTERM)

    async def main() -> None:
        heard = asyncio.Event()

        def stop() -> None:
            calls.append(signals.count)
            heard.set()

        with stop_signals(stop, limit=60, told=told.append) as signals:
            for _ in range(2):
                heard.clear()
                os.kill(os.getpid(), signal.SIGTERM)
                await heard.wait()

    asyncio.run(main())
    assert calls == [1, 2]
    assert [text.split(":")[0] for text in told] == ["SIGTERM", "SIGTERM"]
    assert signal.getsignal(signal.SIGTERM) is before


def test_the_third_leaves_without_the_loop():
    left: list[int] = []

    async def main() -> None:
        signals = StopSignals(lambda: None, limit=60, leave=left.append)
        for _ in range(3):
            signals.arrived(signal.SIGINT)  # the loop has no turn in between
        signals.close()

    asyncio.run(main())
    assert left == [130]


@pytest.mark.parametrize("limit", [0.01])
def test_the_limit_leaves_by_itself(limit):
    left: list[int] = []
    gone = threading.Event()

    def leave(code: int) -> None:
        left.append(code)
        gone.set()

    async def main() -> None:
        signals = StopSignals(lambda: None, limit=limit, leave=leave)
        signals.arrived(signal.SIGTERM)
        assert gone.wait(20)  # blocks the loop, as a body may
        signals.close()

    asyncio.run(main())
    assert left == [143]


def test_a_limit_that_was_not_needed_ends_with_the_worker():
    left: list[int] = []

    async def main() -> None:
        with stop_signals(lambda: None, limit=3600) as signals:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(0)
            assert signals.count == 1

    asyncio.run(main())
    assert left == []
    for timer in [t for t in threading.enumerate() if isinstance(t, threading.Timer)]:
        timer.join(5)
        assert not timer.is_alive()
