"""Hearing of writes by others: a look at the file's version every now and then."""

from __future__ import annotations

import sqlite3

from tenure.engines.protocol import Signal, Topic
from tenure.engines.signals import SignalHub
from tenure.engines.sqlite.operations import SQL

_CANCELLING = SQL["cancelling"]


class Watch:
    """Compares `PRAGMA data_version` with the last look; that is all while nothing happens.

    Made for one connection: the writing one, whose own commits do not change that number. So a
    process is not woken by what it wrote itself, except by way of `side()`.
    """

    def __init__(self, hub: SignalHub) -> None:
        self._hub = hub
        self._version: int | None = None
        self._cancelling: frozenset[str] = frozenset()

    def look(self, connection: sqlite3.Connection) -> None:
        """Publish that something changed, if it did. Never raises: a hint may be lost."""
        try:
            (version,) = connection.execute("PRAGMA data_version").fetchone()
            before, self._version = self._version, version
            if before is not None and before != version:
                self._hub.publish([Signal(Topic.ANY), *self._newly_cancelling(connection)])
        except sqlite3.Error:
            pass  # the next operation says what is wrong

    def _newly_cancelling(self, connection: sqlite3.Connection) -> list[Signal]:
        found = frozenset(row[0] for row in connection.execute(_CANCELLING))
        new = found - self._cancelling
        self._cancelling = found
        return [Signal(Topic.CANCEL, job_id) for job_id in new]
