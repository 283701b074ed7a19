"""A lock that knows when it is asked for by the very thread that holds it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import RLock


class Guard:
    """Guards a critical section that signal handlers and finalizers may interrupt.

    They run between two steps of the thread that holds the lock, so they must neither wait for it
    nor work on what is half done. `held` tells them; what they want goes to `later` and is done by
    the holder, outside of the lock, as soon as it has let go.
    """

    def __init__(self) -> None:
        self._lock = RLock()  # for its owner, which is known without a gap
        self._owned: Callable[[], bool] = self._lock._is_owned  # type: ignore[attr-defined]
        self._later: deque[Callable[[], object]] = deque()

    @property
    def held(self) -> bool:
        """Whether this thread holds the lock, further up its stack."""
        return self._owned()

    def later(self, call: Callable[[], object]) -> None:
        """Have this called, without waiting, by whoever lets go of the lock next."""
        self._later.append(call)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *exc: object) -> None:
        self._lock.release()
        self.catch_up()

    def catch_up(self) -> None:
        """Do what is wanted, unless this thread holds the lock."""
        while self._later and not self._owned():
            try:
                call = self._later.popleft()
            except IndexError:
                return
            call()
