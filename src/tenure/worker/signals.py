"""Signals that end a worker process: the first drains, the second cancels, the third exits."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

STOPPING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM") if hasattr(signal, name))


class StopSignals:
    """Counts the signals that ask this process to end, and calls `stop` for the first two.

    At the third, or `limit` seconds after the first, the process exits with 128 + the signal's
    number, whatever still runs; while `waits()` is true the limit begins anew. The count is kept by
    the handler itself and not on the event loop, so the third signal is heard even while a body
    blocks the loop.
    """

    def __init__(
        self,
        stop: Callable[[], None],
        *,
        limit: float,
        told: Callable[[str], None] = lambda text: None,
        waits: Callable[[], bool] = lambda: False,
        leave: Callable[[int], None] | None = None,
    ) -> None:
        self._stop = stop
        self._limit = limit
        self._told = told
        self._waits = waits
        self._leave = leave or leave_now
        self._loop = asyncio.get_running_loop()
        self._timer: threading.Timer | None = None
        self.count = 0

    def arrived(self, number: int, frame: FrameType | None = None) -> None:
        """A signal came. This is a signal handler: it runs between any two steps of the thread."""
        self.count += 1
        if self.count > 2:
            self._leave(128 + number)
            return
        self._loop.call_soon_threadsafe(self._begin, self.count, number)
        if self._timer is None:
            self._start_timer(number)

    def _start_timer(self, number: int) -> None:
        self._timer = threading.Timer(self._limit, self._out_of_time, [number])
        self._timer.daemon = True
        self._timer.start()

    def _out_of_time(self, number: int) -> None:
        if self._waits():
            self._start_timer(number)
        else:
            self._leave(128 + number)

    def close(self) -> None:
        """End the time limit."""
        if self._timer is not None:
            self._timer.cancel()

    def _begin(self, count: int, number: int) -> None:
        self._stop()
        name = signal.Signals(number).name
        if count == 1:
            self._told(f"{name}: no more jobs are taken; once more cancels those that run")
        else:
            self._told(f"{name}: cancelling what runs; once more exits at once")


@contextmanager
def stop_signals(
    stop: Callable[[], None],
    *,
    limit: float,
    told: Callable[[str], None] = lambda text: None,
    waits: Callable[[], bool] = lambda: False,
) -> Iterator[StopSignals]:
    """Let SIGINT and SIGTERM end a worker while the block runs; restores the handlers after.

    Enter it on the main thread, with the worker's loop running. `limit` is in seconds; `told` gets
    a sentence about each signal.
    """
    signals = StopSignals(stop, limit=limit, told=told, waits=waits)
    before: dict[int, Any] = {}
    try:
        for number in STOPPING:
            before[number] = signal.signal(number, signals.arrived)
        yield signals
    finally:
        for number, handler in before.items():
            # None: set by something that is not Python, and so out of reach.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        signals.close()


def leave_now(code: int) -> None:
    """Exit at once, after flushing the standard streams; nothing is awaited, nothing is joined."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (RuntimeError, ValueError, OSError, AttributeError):
            pass  # in use by the code that the signal interrupted, closed, or absent
    os._exit(code)
