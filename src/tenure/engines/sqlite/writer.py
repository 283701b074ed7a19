"""The thread that writes, with group commit."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from queue import Empty

from tenure.engines.sqlite.checkpoints import IDLE_AFTER
from tenure.engines.sqlite.database import Database
from tenure.engines.sqlite.group import GROUP_CALLS, GROUP_ROWS, Group, Told
from tenure.engines.sqlite.thread import LOCK_SHARE, Call, ConnectionThread

LOOK_EVERY = 0.25
"""Seconds between two looks at what others wrote."""

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
        super().__init__("tenure-sqlite-writer", connect)
        self._together = Group(time_us, timeout * LOCK_SHARE, told)
        self._look = look
        self._looked = 0.0
        self._ahead: Call | None = None
        self._stirred = False
        self.watch = False

    def nudge(self) -> None:
        """Have `watch` read again."""
        self._calls.put(None)

    def stir(self) -> None:
        """Say that another connection wrote, so that a checkpoint will be due."""
        self._stirred = True
        self._calls.put(None)

    def _first(self, database: Database) -> Call:
        call, self._ahead = self._ahead, None
        while True:
            self._tend(database)
            if call is not None:
                return call
            wait = IDLE_AFTER if database.checkpoints.behind else None
            try:
                call = self._calls.get(timeout=LOOK_EVERY if self.watch else wait)
            except Empty:
                pass

    def _tend(self, database: Database) -> None:
        """What is to be done between two groups."""
        if self._stirred:
            self._stirred = False
            database.checkpoints.stir()
        if self.watch and time.monotonic() >= self._looked + LOOK_EVERY:
            self._looked = time.monotonic()
            self._look(database.connection)
        database.checkpoint()

    def _serve(self, database: Database, first: Call) -> list[Call]:
        if not self._together.begin(database, [first]):
            return [first]
        # Only now, as many calls come while the turn is waited for; and as many leave.
        calls = self._group(first)
        self._together.finish(database, [call for call in calls if not call.future.done()])
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
