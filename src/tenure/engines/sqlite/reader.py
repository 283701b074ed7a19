"""The thread that reads."""

from __future__ import annotations

import time
from collections.abc import Callable

from tenure.engines.sqlite.connection import retry_busy
from tenure.engines.sqlite.database import ReadOnly
from tenure.engines.sqlite.thread import LOCK_SHARE, Call, ConnectionThread, Transaction

_STEPS_BETWEEN_LOOKS = 100_000


class Reader(ConnectionThread[ReadOnly]):
    """Reads, one call at a time, beside the writer: a long read delays no claim."""

    def __init__(
        self,
        connect: Callable[[], ReadOnly],
        time_us: Callable[[], int],
        timeout: float,
    ) -> None:
        super().__init__("tenure-sqlite-reader", connect)
        self._time_us = time_us
        self._timeout = timeout

    def _first(self, database: ReadOnly) -> Call:
        while (call := self._calls.get()) is None:
            pass
        return call

    def _serve(self, database: ReadOnly, first: Call) -> list[Call]:
        connection = database.connection
        deadline = time.monotonic() + self._timeout
        # A read that nobody waits for any more must not hold up those behind it.
        connection.set_progress_handler(
            lambda: first.future.done() or time.monotonic() > deadline, _STEPS_BETWEEN_LOOKS
        )
        tx = Transaction(connection.cursor())
        try:
            # Reading waits for nobody, but for a process that recovers the log of a killed one.
            patience = self._timeout * LOCK_SHARE
            now = self._time_us() if first.now is None else first.now
            first.answer = retry_busy(lambda: first.work(tx, now), patience)
        except Exception as error:
            first.fail(error)
        return [first]
