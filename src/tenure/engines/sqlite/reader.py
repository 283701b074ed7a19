"""The thread that reads."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable

from tenure.engines.sqlite.connection import retry_busy
from tenure.engines.sqlite.thread import LOCK_SHARE, Call, ConnectionThread, Transaction

_STEPS_BETWEEN_LOOKS = 100_000


class Reader(ConnectionThread[sqlite3.Connection]):
    """Reads, one call at a time, beside the writer: a long read delays no claim."""

    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
        time_us: Callable[[], int],
        timeout: float,
    ) -> None:
        super().__init__("tenure-sqlite-reader", connect, time_us)
        self._timeout = timeout

    def _first(self, connection: sqlite3.Connection) -> Call:
        while (call := self._calls.get()) is None:
            pass
        return call

    def _serve(self, connection: sqlite3.Connection, first: Call) -> list[Call]:
        deadline = time.monotonic() + self._timeout
        # A read that nobody waits for any more must not hold up those behind it.
        connection.set_progress_handler(
            lambda: first.future.done() or time.monotonic() > deadline, _STEPS_BETWEEN_LOOKS
        )
        tx = Transaction(connection.cursor())
        try:
            # Reading waits for nobody, but for a process that recovers the log of a killed one.
            patience = self._timeout * LOCK_SHARE
            first.answer = retry_busy(lambda: self._work(first, tx), patience)
        except Exception as error:
            first.fail(error)
        return [first]
