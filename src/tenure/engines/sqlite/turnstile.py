"""Taking turns with other processes.

SQLite's waiting for its write lock is a poll, which starves waiters (seconds at full load) and
leaves the lock unused in between. A lock that the kernel hands over does neither. A single one
would not be fair, so there are two: who waits for the turn holds the gate, and all others queue at
the gate (worst wait measured with four processes: 13 ms).
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from threading import Event, Lock, Thread

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
        """Wait for the turn, if it is not held yet. Has no deadline: the callers of a waiting
        thread have their own.
        """
        if self._inside:
            return
        fcntl.flock(self._gate, fcntl.LOCK_EX)
        fcntl.flock(self._turn, fcntl.LOCK_EX)
        fcntl.flock(self._gate, fcntl.LOCK_UN)
        self._inside = True

    def enter_within(self, seconds: float, *, otherwise: Callable[[], None]) -> bool:
        """As `enter`, but gives up after `seconds`, and returns whether it is this one's turn.

        Waiting for a lock of files cannot be broken off. So where it comes to waiting, a thread
        does that; after False it calls `otherwise` when the turn has come, in that turn.
        """
        return self._enter_at_once() or _Arrival(self, otherwise).wait(seconds)

    def _enter_at_once(self) -> bool:
        try:
            fcntl.flock(self._gate, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        try:
            fcntl.flock(self._turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._inside = True
        except BlockingIOError:
            return False
        finally:
            fcntl.flock(self._gate, fcntl.LOCK_UN)
        return True

    def leave(self) -> None:
        """Give the turn on; nothing happens if it is not held."""
        if self._inside:
            self._inside = False
            fcntl.flock(self._turn, fcntl.LOCK_UN)

    def close(self) -> None:
        self._inside = False
        forks.close(self._gate)
        forks.close(self._turn)


class _Arrival:
    """Somebody waits for his turn, as long as he likes."""

    def __init__(self, turnstile: Turnstile, otherwise: Callable[[], None]) -> None:
        self._turnstile = turnstile
        self._otherwise = otherwise
        self._lock = Lock()
        self._here = Event()
        self._gone = False

    def wait(self, seconds: float) -> bool:
        Thread(target=self._enter, name="tenure-sqlite-turn", daemon=True).start()
        self._here.wait(max(0.0, seconds))
        with self._lock:
            self._gone = not self._here.is_set()
        return not self._gone

    def _enter(self) -> None:
        self._turnstile.enter()
        with self._lock:
            if not self._gone:
                self._here.set()
                return
        self._otherwise()


def _open(path: str) -> int:
    try:
        # Reading is right enough for a lock, so users of one group can share a database.
        return forks.keep(os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))
    except OSError as error:
        raise EngineUnavailable(f"{path} cannot be opened: {error.strerror}") from error
