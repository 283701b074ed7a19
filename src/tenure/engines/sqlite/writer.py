"""The thread that writes, with group commit."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from queue import Empty

from tenure.engines.sqlite.database import Database
from tenure.engines.sqlite.thread import LOCK_SHARE, Call, ConnectionThread, Transaction

GROUP_CALLS, GROUP_ROWS = 512, 5_000
"""A group takes no further call once it has this many, or this many rows."""

LOOK_EVERY = 0.25
"""Seconds between two looks at what others wrote."""

Told = Callable[[Transaction], None]
Look = Callable[[sqlite3.Connection], None]


class Writer(ConnectionThread[Database]):
    """Writes. Calls that wait while a transaction runs go into the next one together.

    `told` hears of each transaction that took effect. While `watch` is true, `look` is called
    about every `LOOK_EVERY` seconds.
    """

    def __init__(
        self,
        connect: Callable[[], Database],
        time_us: Callable[[], int],
        timeout: float,
        told: Told,
        look: Look,
    ) -> None:
        super().__init__("tenure-sqlite-writer", connect, time_us)
        self._patience = timeout * LOCK_SHARE
        self._told = told
        self._look = look
        self._looked = 0.0
        self._ahead: Call | None = None
        self.watch = False

    def nudge(self) -> None:
        """Have `watch` read again."""
        self._calls.put(None)

    def _first(self, database: Database) -> Call:
        call, self._ahead = self._ahead, None
        while True:
            if self.watch and time.monotonic() >= self._looked + LOOK_EVERY:
                self._looked = time.monotonic()
                self._look(database.connection)
            if call is not None:
                return call
            try:
                call = self._calls.get(timeout=LOOK_EVERY if self.watch else None)
            except Empty:
                pass

    def _serve(self, database: Database, first: Call) -> list[Call]:
        try:
            database.begin(self._patience)
        except Exception as error:
            calls = self._group(first)
            for call in calls:
                call.fail(error)
            return calls
        # Only now, as many calls come while the turn is waited for; and as many leave.
        calls = self._group(first)
        self._do(database, [call for call in calls if not call.future.done()])
        return calls

    def _group(self, first: Call) -> list[Call]:
        """This call and those that wait behind it, up to the caps."""
        group, rows = [first], first.rows
        while len(group) < GROUP_CALLS and rows < GROUP_ROWS:
            try:
                call = self._calls.get_nowait()
            except Empty:
                break
            if call is None:
                continue
            if call is self._closing or rows + call.rows > GROUP_ROWS:
                self._ahead = call
                break
            group.append(call)
            rows += call.rows
        return group

    def _do(self, database: Database, calls: list[Call]) -> None:
        """Do these calls in the transaction that has begun, and end it."""
        tx = Transaction(database.cursor())
        try:
            for call in calls:
                call.answer = self._work(call, tx)
            database.commit()
        except Exception as error:
            database.roll_back()
            self._do_apart(database, calls, error)
        else:
            self._tell(tx)

    def _do_apart(self, database: Database, calls: list[Call], error: Exception) -> None:
        """After an error: each call in its own transaction, so that it fails its caller only."""
        if len(calls) == 1:
            calls[0].fail(error)
            return
        for call in calls:
            try:
                database.begin(self._patience)
            except Exception as refusal:
                call.fail(refusal)
            else:
                self._do(database, [call])

    def _tell(self, tx: Transaction) -> None:
        try:
            self._told(tx)
        except Exception:
            pass  # a hint may be lost; what was written stands
