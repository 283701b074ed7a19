"""The keeper: renews every lease that this process holds, whatever its event loops do."""

from __future__ import annotations

import math
import os
import random
from collections.abc import Iterable, Sequence
from threading import Lock
from weakref import WeakSet

from tenure.clock import SYSTEM_CLOCK, Clock
from tenure.core.lease import Extension
from tenure.leases.book import JITTER, Book, Filed, Request
from tenure.leases.callbacks import Callbacks
from tenure.leases.client import LeaseClient
from tenure.leases.journal import Journal
from tenure.leases.lease import Lease
from tenure.leases.runner import Master, Plan, Runner
from tenure.observe.hooks import Hooks

START_TIMEOUT = 5.0
LONGEST_WAIT = 1.0
"""Seconds of the loop's clock between two looks at ours, which goes on while suspended."""

CLOSED = "closed"


class LeaseKeeper:
    """Renews leases on a thread of its own, in batches, and tells holders what is lost.

    Every method may be called from any thread, but not from signal handlers or finalizers. None
    but `discard` and `close` waits for I/O. After a fork the child's copy is empty: the leases
    stay the parent's.
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK, hooks: Hooks | None = None) -> None:
        self._clock = clock
        self._journal = Journal(Hooks() if hooks is None else hooks)
        self._begin()
        _keepers.add(self)

    def _begin(self) -> None:
        self._lock = Lock()
        """Guards all that follows. Held for bookkeeping only, never around foreign code."""
        self._book = Book(random.random() * JITTER, random.random)
        self._callbacks = Callbacks(self._journal)
        self._runner: Runner | None = None
        self._planned = 0.0  # when the runner will look again by itself
        self._closed = False

    @property
    def active(self) -> int:
        """How many leases are kept."""
        return len(self._book)

    @property
    def closed(self) -> bool:
        return self._closed

    def register(self, client: LeaseClient, leases: Sequence[Lease]) -> None:
        """Keep these from now on; returns when that is recorded, without waiting for I/O.

        Only the first registration (or the first after the thread died) waits for the thread to
        report: at most 5 s, else `RuntimeError` from its startup error, and nothing is recorded.
        A lease that is kept already is left as it is.
        """
        if not leases:
            return
        fresh = None
        with self._lock:
            if self._closed:
                raise RuntimeError("the lease keeper is closed")
            added = self._book.add(client, leases)
            if self._runner is None or not self._runner.alive:
                fresh = self._succeed()
            late = self._late()
        if fresh is not None:
            self._start(fresh, added)
        elif late is not None:
            late.wake()
        self._journal.registered(added)

    def remove(self, leases: Iterable[Lease]) -> None:
        """Stop renewing these. In effect on return: a late answer is ignored. Idempotent."""
        with self._lock:
            removed = self._book.remove(leases)
        self._journal.stopped(removed)

    def nudge(self, ids: Iterable[str]) -> None:
        """Renew these now, as there is news to fetch; unknown ids are ignored."""
        with self._lock:
            self._book.nudge(ids, self._clock.monotonic())
            late = self._late()
        if late is not None:
            late.wake()

    def discard(self, client: LeaseClient, timeout: float = 5.0) -> None:
        """Forget a client: its leases are dropped, its requests cut off, its connections closed.

        Blocks up to `timeout` seconds until that is done, but not on the keeper's own thread.
        """
        with self._lock:
            removed = self._book.discard(client)
            runner = self._runner
        self._journal.stopped(removed)
        if runner is None or not runner.alive:
            return
        ended = runner.end_link(client)
        if not runner.here and not ended.wait(timeout):
            self._journal.stop_timeout("a lease client", timeout)

    def close(self, timeout: float = 5.0) -> None:
        """Cancel all renewals, lose what is left (reason `closed`), tell holders, end the thread.

        Blocks up to `timeout` seconds for the thread. Idempotent; there is no way back.
        """
        with self._lock:
            again, self._closed = self._closed, True
            filed = self._book.close(CLOSED)
            runner, self._runner = self._runner, None
        self._spread(filed)
        if again:
            return
        if runner is not None:
            runner.stop()
            if not runner.here and not runner.join(timeout):
                self._journal.stop_timeout("the lease keeper", timeout)
        self._callbacks.close()
        self._journal.keeper("shutdown")

    def _succeed(self) -> Runner:
        """Under the lock: a new runner takes over what is kept."""
        self._book.carry_over(self._clock.monotonic())
        self._planned = -math.inf  # its first look is still to come
        master = Master(self._ready, self._plan, self._file, self._ended)
        self._runner = runner = Runner(master)
        return runner

    def _late(self) -> Runner | None:
        """Under the lock: the runner, if it has to be woken for something earlier than planned.

        Also if its planned look is overdue: it sleeps by another clock, which a suspension stops.
        """
        wake = self._book.next_wake()
        if wake is None or wake >= self._planned > self._clock.monotonic():
            return None
        self._planned = wake
        return self._runner

    def _start(self, runner: Runner, added: list[Lease]) -> None:
        self._journal.keeper("start")
        try:
            runner.start()
            if runner.reported.wait(START_TIMEOUT) and runner.ready:
                return
            error = runner.error
        except RuntimeError as caught:
            error = caught
        with self._lock:
            if self._runner is runner:
                self._runner = None  # should it come up yet, it finds that it has no master
            self._book.remove(added)
        raise RuntimeError(
            f"the lease keeper did not start within {START_TIMEOUT:g} s"
            if error is None
            else f"the lease keeper did not start: {error}"
        ) from error

    # Called by the runner, in its thread. One that was replaced is not listened to any more.

    def _ready(self, runner: Runner) -> None:
        self._journal.keeper("ready")

    def _plan(self, runner: Runner) -> Plan | None:
        now = self._clock.monotonic()
        with self._lock:
            if runner is not self._runner:
                return None
            filed = self._book.due(now)
            wake = self._book.next_wake()
            self._planned = math.inf if wake is None else wake
        self._journal.attempts(filed.requests)
        self._spread(filed)
        wait = None if wake is None else min(LONGEST_WAIT, wake - self._clock.monotonic())
        return Plan(filed.requests, wait)

    def _file(
        self,
        runner: Runner,
        request: Request,
        answers: list[Extension] | None,
        error: BaseException | None,
    ) -> None:
        now = self._clock.monotonic()
        with self._lock:
            if runner is not self._runner or runner.over.is_set():
                return  # what was cut off by the end of the loop has not failed
            if answers is None:
                filed = self._book.failed(request, now)
            else:
                filed = self._book.answered(request, answers, now)
            late = self._late()
        if late is not None:
            late.wake()
        if answers is None:
            self._journal.failed(request, error, filed)
        self._spread(filed)

    def _ended(self, runner: Runner, error: BaseException | None) -> None:
        successor = None
        with self._lock:
            active = len(self._book)
            if runner is self._runner:
                self._runner = None
                if active and runner.lasted:
                    # Nobody may register for long, and no lease may be lost in silence.
                    successor = self._succeed()
        if error is not None and runner.ready:
            self._journal.died(error, active)
        if successor is not None:
            try:
                successor.start()
            except RuntimeError as caught:  # the interpreter is going down, or no thread is left
                self._journal.died(caught, active)

    def _spread(self, filed: Filed) -> None:
        self._journal.filed(filed)
        for lease in (*filed.cancelled, *filed.lost):
            self._callbacks.deliver(lease)

    def _forget(self) -> None:
        """In the child of a fork: start empty, and leave alone what belongs to the parent.

        The old parts are kept from the garbage collector, which would close the parent's loop.
        """
        _inherited.append((self._runner, self._book, self._callbacks))
        closed = self._closed
        self._begin()
        self._closed = closed


_keepers: WeakSet[LeaseKeeper] = WeakSet()
_inherited: list[object] = []
_default: LeaseKeeper | None = None
_default_lock = Lock()


def default_keeper() -> LeaseKeeper:
    """The keeper of this process; a new one if that was closed."""
    global _default
    with _default_lock:
        if _default is None or _default.closed:
            _default = LeaseKeeper()
        return _default


def _after_fork() -> None:
    global _default_lock
    _default_lock = Lock()
    for keeper in list(_keepers):
        keeper._forget()


os.register_at_fork(after_in_child=_after_fork)
