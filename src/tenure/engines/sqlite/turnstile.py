"""Taking turns with other processes.

SQLite's waiting for its write lock is a poll, which starves waiters (seconds at full load) and
leaves the lock unused in between. A lock that the kernel hands over does neither. A single one
would not be fair, so there are two: who waits for the turn holds the gate, and all others queue at
the gate (worst wait measured with four processes: 13 ms).
"""

from __future__ import annotations

import fcntl
import os

from tenure.engines.sqlite import forks
from tenure.errors import EngineUnavailable


class Turnstile:
    """The turn to write to one file, among all that ask here. For one thread.

    Kept in two empty files beside the database; never in the database file itself, whose locks
    SQLite would lose. Those who do not ask (another program, a caller's own transaction) are held
    off by SQLite's lock all the same, only without fairness.
    """

    def __init__(self, path: str) -> None:
        self._gate = _open(f"{path}-gate")
        self._turn = _open(f"{path}-turn")
        self._inside = False

    def enter(self) -> None:
        """Wait for the turn. Has no deadline: the callers of a waiting thread have their own."""
        fcntl.flock(self._gate, fcntl.LOCK_EX)
        fcntl.flock(self._turn, fcntl.LOCK_EX)
        fcntl.flock(self._gate, fcntl.LOCK_UN)
        self._inside = True

    def leave(self) -> None:
        """Give the turn on; nothing happens if it is not held."""
        if self._inside:
            self._inside = False
            fcntl.flock(self._turn, fcntl.LOCK_UN)

    def close(self) -> None:
        self._inside = False
        forks.close(self._gate)
        forks.close(self._turn)


def _open(path: str) -> int:
    try:
        # Reading is right enough for a lock, so users of one group can share a database.
        return forks.keep(os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))
    except OSError as error:
        raise EngineUnavailable(f"{path} cannot be opened: {error.strerror}") from error
