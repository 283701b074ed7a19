"""The writing connection, with its turn among processes."""

from __future__ import annotations

import sqlite3

from tenure.engines.sqlite import forks
from tenure.engines.sqlite.connection import Place, begin, connect
from tenure.engines.sqlite.turnstile import Turnstile


class Database:
    """One file, open for writing. For one thread.

    Whatever writes, a checkpoint while committing or closing included, happens in turn; so no
    checkpoint of ours ever runs beside a commit of ours.
    """

    def __init__(self, place: Place) -> None:
        forks.check(place.path)
        self.connection = connect(place)
        self._file = forks.opened(place.path)
        try:
            self._turnstile = Turnstile(place.path)
        except BaseException:
            self.connection.close()
            forks.closed(self._file)
            raise

    def cursor(self) -> sqlite3.Cursor:
        return self.connection.cursor()

    def begin(self, seconds: float) -> None:
        """Start a transaction; waits up to `seconds` for those who take no turns."""
        self._turnstile.enter()
        try:
            begin(self.connection, seconds)
        except BaseException:
            self._turnstile.leave()
            raise

    def commit(self) -> None:
        """End the transaction. If that fails, `roll_back` is to follow."""
        self.connection.execute("COMMIT")
        self._turnstile.leave()

    def roll_back(self) -> None:
        """End the transaction without effect. Never raises: SQLite may have ended it by itself."""
        try:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
        except sqlite3.Error:
            pass  # the next BEGIN says what is wrong
        self._turnstile.leave()

    def close(self) -> None:
        self._turnstile.enter()
        self.connection.close()
        self._turnstile.leave()
        self._turnstile.close()
        forks.closed(self._file)
