"""Inserting without an event loop: see `engines.optional`."""

from __future__ import annotations

import os
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from threading import Lock

from tenure.core.insertion import Inserted
from tenure.core.job import NewJob
from tenure.engines.sqlite import forks, operations
from tenure.engines.sqlite.connection import Place
from tenure.engines.sqlite.database import Database
from tenure.engines.sqlite.group import GROUP_CALLS, Group, Told
from tenure.engines.sqlite.thread import LOCK_SHARE, Request
from tenure.errors import EngineUnavailable


class DirectInserts:
    """See `engines.optional.Direct`. Threads that wait for one another share a commit.

    In a forked child it begins anew, with what `forks` says about that.
    """

    def __init__(
        self, place: Place, time_us: Callable[[], int], told: Told, max_payload: int
    ) -> None:
        self._place = place
        self._max_payload = max_payload
        self._group = Group(time_us, place.timeout * LOCK_SHARE, told)
        self._counters: dict[int, _Counter] = {}
        weakref.finalize(self, _close_own, self._counters)

    def insert(self, jobs: Sequence[NewJob], *, now: int | None = None) -> list[Inserted]:
        """See `engines.optional.Direct.insert`."""
        operations.check_sizes(jobs, self._max_payload)
        request = Request("insert", lambda tx, at: operations.insert(tx, jobs, at), now, len(jobs))
        deadline = time.monotonic() + self._place.timeout
        self._counter.serve(request, self._place, self._group, deadline)
        if request.error is not None:
            raise request.error
        answers: list[Inserted] = request.answer
        return answers

    def close(self) -> None:
        """See `engines.optional.Direct.close`."""
        _close_own(self._counters)

    @property
    def _counter(self) -> _Counter:
        # By process, as a lock that a forked child inherits may be held for ever. In one step that
        # the interpreter makes whole, as several threads of the child may come at once.
        pid = os.getpid()
        return self._counters.get(pid) or self._counters.setdefault(pid, _Counter())


class _Counter:
    """Where the threads of one process queue, and the connection behind it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._waiting: deque[Request] = deque()
        self._database: Database | None = None

    def serve(self, request: Request, place: Place, group: Group, deadline: float) -> None:
        """Have the request done, and with it those of threads that wait behind this one."""
        self._waiting.append(request)
        if not self._lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
            request.fail(EngineUnavailable(f"insert: {place.path} is busy with other threads"))
            self._withdraw(request)
            return
        try:
            while request.answer is None and request.error is None:
                self._serve_all(place, group, deadline)
        finally:
            self._lock.release()

    def _withdraw(self, request: Request) -> None:
        try:
            self._waiting.remove(request)
        except ValueError:
            pass  # somebody does it right now

    def _serve_all(self, place: Place, group: Group, deadline: float) -> None:
        requests = [self._waiting.popleft() for _ in range(min(len(self._waiting), GROUP_CALLS))]
        try:
            database = self._opened(place)
            if not database.arrive(deadline - time.monotonic()):
                self._database = None  # it closes itself when its turn has come
                raise EngineUnavailable(
                    f"insert: {place.path} did not answer within {place.timeout:g} s"
                )
        except Exception as error:
            for request in requests:
                request.fail(error)
            return
        if database.checkpoints.due:
            database.checkpoints.run()
        if group.begin(database, requests):
            group.finish(database, requests)

    def _opened(self, place: Place) -> Database:
        if self._database is None:
            self._database = forks.keep_alive(Database(place, any_thread=True))
        return self._database

    def close(self) -> None:
        with self._lock:
            database, self._database = self._database, None
        if database is not None:
            forks.let_go(database)
            database.close()


def _close_own(counters: dict[int, _Counter]) -> None:
    """Close what this process opened, and only that."""
    counter = counters.pop(os.getpid(), None)
    if counter is not None:
        counter.close()
