"""The connections of an engine, with their turn among processes."""

from __future__ import annotations

import sqlite3

from tenure.engines.sqlite import forks
from tenure.engines.sqlite.checkpoints import Checkpoints
from tenure.engines.sqlite.connection import Place, begin, connect, connect_reader
from tenure.engines.sqlite.turnstile import Turnstile
from tenure.errors import EngineUnavailable


class Database:
    """One file, open for writing. For one thread; with `any_thread`, for one at a time.

    Whatever writes happens in turn, checkpoints and closing included; so no checkpoint of ours ever
    runs beside a commit of ours.
    """

    def __init__(self, place: Place, *, any_thread: bool = False) -> None:
        forks.check(place.path)
        self.connection = connect(place, any_thread=any_thread)
        self._file = forks.opened(place.path)
        try:
            self._turnstile = Turnstile(place.path)
        except BaseException:
            self.connection.close()
            forks.closed(self._file)
            raise
        self.checkpoints = Checkpoints(self.connection, place.path)

    def cursor(self) -> sqlite3.Cursor:
        return self.connection.cursor()

    def arrive(self, seconds: float) -> bool:
        """Wait for the turn to begin, up to `seconds`. Only with `any_thread`.

        After False this is not to be used any more. It closes itself when its turn has come.
        """
        return self._turnstile.enter_within(seconds, otherwise=self.close)

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
        self.checkpoints.committed()

    def roll_back(self) -> None:
        """End the transaction without effect. Never raises: SQLite may have ended it by itself."""
        try:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
        except sqlite3.Error:
            pass  # the next BEGIN says what is wrong
        self._turnstile.leave()

    def checkpoint(self) -> None:
        """Run a checkpoint if it is time. Never raises."""
        if self.checkpoints.due or self.checkpoints.quiet:
            self._turnstile.enter()
            self.checkpoints.run()
            self._turnstile.leave()

    def close(self) -> None:
        self._turnstile.enter()
        self.connection.close()
        self._turnstile.leave()
        self._turnstile.close()
        forks.closed(self._file)


class ReadOnly:
    """One file, open for reading. For one thread."""

    def __init__(self, place: Place) -> None:
        self.connection = connect_reader(place)
        self._path = place.path

    def close(self) -> None:
        # In turn: the last connection that closes runs a checkpoint.
        try:
            turnstile = Turnstile(self._path)
        except EngineUnavailable:  # the folder is gone, and all others with it
            self.connection.close()
            return
        turnstile.enter()
        self.connection.close()
        turnstile.leave()
        turnstile.close()
