"""Moving what stands in the write-ahead log into the database file.

SQLite would do it within somebody's commit. Here it is done between commits, by whoever has the
turn to write, so that it never runs beside a commit of ours and delays no answer.
"""

from __future__ import annotations

import os
import sqlite3
import time

COMMITS = 1000
"""A checkpoint is due after so many commits. It takes some 10 ms, most of which is waiting for the
disk, however few commits there were."""

LONG = 16 * 1024 * 1024
"""Or when the log file is longer than that and still grows."""

IDLE_AFTER = 5.0
"""Or when nothing was written for so many seconds."""

LARGE = 64 * 1024 * 1024
"""A log file of more bytes is cut off. A smaller one keeps its size, as writing over old pages is
quicker than making the file grow."""

_STEP = 1024 * 1024
_LOOK = 8
"""The size of the log is looked at after every so many commits."""


class Checkpoints:
    """Decides when, for one connection, and does it. Only `run` has to be called in turn.

    Readers are not waited for: what one of them still needs stays in the log until the next time.
    """

    def __init__(self, connection: sqlite3.Connection, path: str) -> None:
        self._connection = connection
        self._log = f"{path}-wal"
        self._changes = connection.total_changes
        self._commits = 0
        self._wrote_at = 0.0
        self._size = 0

    @property
    def behind(self) -> bool:
        """Whether anything was written since the last one."""
        return self._commits > 0

    @property
    def due(self) -> bool:
        """Whether the log has become long enough."""
        if self._commits >= COMMITS:
            return True
        if not self._commits or self._commits % _LOOK:
            return False
        return self._log_size() > max(self._size, LONG) + _STEP

    @property
    def quiet(self) -> bool:
        """Whether there is something to do, and nobody to be held up by it."""
        return self.behind and time.monotonic() >= self._wrote_at + IDLE_AFTER

    def committed(self) -> None:
        """Note that this connection committed, if that wrote anything."""
        changes = self._connection.total_changes
        if changes != self._changes:
            self._changes = changes
            self.stir()

    def stir(self) -> None:
        """Note that somebody wrote."""
        self._commits += 1
        self._wrote_at = time.monotonic()

    def run(self) -> None:
        """Do it. Never raises: it is tried again, and until then the log only becomes longer."""
        self._commits = 0
        try:
            complete = self._checkpoint("PRAGMA wal_checkpoint(PASSIVE)")
            if complete and self._log_size() > LARGE:
                complete = self._checkpoint("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.Error:
            complete = False
        if not complete:
            self.stir()
        self._size = self._log_size()

    def _checkpoint(self, statement: str) -> bool:
        """Whether all of the log is in the database file now."""
        busy, in_log, moved = self._connection.execute(statement).fetchone()
        return not busy and in_log == moved

    def _log_size(self) -> int:
        try:
            return os.stat(self._log).st_size
        except OSError:
            return 0
