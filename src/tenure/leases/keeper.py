"""The keeper: renews every lease that this process holds, whatever its event loops do."""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Iterable, Sequence
from functools import partial
from weakref import WeakSet

from tenure.clock import SYSTEM_CLOCK, Clock
from tenure.core.lease import Extension
from tenure.errors import LeaseLost
from tenure.leases.book import Book
from tenure.leases.callbacks import Callbacks
from tenure.leases.client import LeaseClient
from tenure.leases.filed import Filed
from tenure.leases.guard import Guard
from tenure.leases.holder import Holder
from tenure.leases.journal import Journal
from tenure.leases.lease import Doubt, Lease
from tenure.leases.request import Errand, Request, told_to_wait
from tenure.leases.runner import Master, Plan, Runner
from tenure.leases.traffic import JITTER
from tenure.leases.watchman import Watchman
from tenure.observe.hooks import Hooks

log = logging.getLogger("tenure.leases")

START_TIMEOUT = 5.0
LONGEST_WAIT = 1.0
"""Seconds of the loop's clock between two looks at ours, which goes on while suspended."""

STALL_WARN = 5.0
STALL_RELEASE = 600.0

CLOSED = "closed"


class LeaseKeeper:
    """Renews leases on a thread of its own, in batches, and tells holders what is lost.

    Every method may be called from any thread; from signal handlers and finalizers, all but
    `discard` and `close`. None but these two waits for I/O. After a fork the child's copy is
    empty: the leases stay the parent's.

    An event loop that holds leases and does not run for `stall_warn` seconds is reported with the
    stack of its thread, and loses the leases whose `limit` has passed; after `stall_release`
    seconds it loses them all, lest hung work be kept for ever.
    """

    def __init__(
        self,
        clock: Clock = SYSTEM_CLOCK,
        hooks: Hooks | None = None,
        *,
        stall_warn: float = STALL_WARN,
        stall_release: float = STALL_RELEASE,
    ) -> None:
        self.hooks = Hooks() if hooks is None else hooks
        self.clock = clock
        self._stall_limits = (stall_warn, stall_release)
        self.journal = Journal(self.hooks)
        self._begin()
        keepers.add(self)

    def _begin(self) -> None:
        self._guard = Guard()
        """Guards all that follows. Held for bookkeeping only, never around foreign code."""
        self._book = Book(random.random() * JITTER, random.random)
        self._watchman = Watchman(self._stall_limits, self.journal)
        self._callbacks = Callbacks(self.journal)
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

    @property
    def interrupted(self) -> bool:
        """Whether this is a signal handler or a finalizer that interrupted the keeper's own work.

        What is asked for then is done as soon as that goes on; waiting for it would be in vain.
        """
        return self._guard.held

    def register(self, client: LeaseClient, leases: Sequence[Lease]) -> None:
        """Keep these from now on; returns when that is recorded, without waiting for I/O.

        Only the first registration (or the first after the thread died) waits for the thread to
        report: at most 5 s, else `RuntimeError` from its startup error, and nothing is recorded.
        A lease that is kept already is left as it is.
        """
        if self._guard.held:
            self._guard.later(partial(self._register_late, client, leases))
            return
        fresh, added = self._record(client, leases)
        if fresh is not None:
            self._check_started(fresh, added, fresh.reported.wait(START_TIMEOUT))
        self.journal.registered(added)

    async def aregister(self, client: LeaseClient, leases: Sequence[Lease]) -> None:
        """As `register`, for event loops: the thread is awaited without blocking the loop.

        Cancelled meanwhile, it records nothing.
        """
        fresh, added = self._record(client, leases)
        if fresh is not None:
            try:
                reported = await fresh.reported.wait_async(START_TIMEOUT)
            except BaseException:
                self.remove(added)
                raise
            self._check_started(fresh, added, reported)
        self.journal.registered(added)

    def remove(self, leases: Iterable[Lease]) -> None:
        """Stop renewing these. In effect on return: a late answer is ignored. Idempotent."""
        if self._guard.held:
            self._guard.later(partial(self.remove, list(leases)))
            return
        with self._guard:
            removed = self._book.remove(leases)
        self.journal.stopped(removed)

    def remove_later(self, leases: Iterable[Lease]) -> None:
        """As `remove`, within a second and without waiting for anything: for finalizers."""
        self._guard.later(partial(self.remove, list(leases)))

    def move(self, lease: Lease, holder: Holder | None) -> None:
        """From now on this event loop holds the lease, is told and watched."""
        with self._guard:
            self._book.move(lease, holder)

    def nudge(self, ids: Iterable[str]) -> None:
        """Renew these now, as there is news to fetch; unknown ids are ignored."""
        if self._guard.held:
            self._guard.later(partial(self.nudge, list(ids)))
            return
        with self._guard:
            self._book.nudge(ids, self.clock.monotonic())
            late = self._late()
        if late is not None:
            late.wake()

    def ask(self, client: LeaseClient, lease: Lease, seconds: float) -> Errand:
        """Extend this lease once, by `seconds` from when the service works on it; 0 releases it.

        Three tries, within what is left of the lease, and never beside another extension of it.
        The lease need not be kept. Returns at once; see `Errand` for the answer.
        """
        errand = Errand(lease, seconds, self.clock.monotonic())
        if self._guard.held:
            self._guard.later(partial(self._ask, client, errand))
        else:
            self._ask(client, errand)
        return errand

    def suspend(self, lease: Lease) -> None:
        """See `Lease.suspended`."""
        with self._guard:
            held = self._book.suspend(lease, self.clock.monotonic())
        if not held:
            raise LeaseLost(f"the lease of {lease.id} is lost ({lease.reason})")

    def resume(self, lease: Lease) -> Doubt | None:
        """See `Lease.suspended`; what is returned is over when it is known what holds."""
        with self._guard:
            doubt = self._book.resume(lease, self.clock.monotonic())
            late = self._late()
        if late is not None:
            late.wake()
        return doubt

    def discard(self, client: LeaseClient, timeout: float = 5.0) -> None:
        """Forget a client: its leases are dropped, its requests cut off, its connections closed.

        Blocks up to `timeout` seconds until that is done, but not on the keeper's own thread.
        """
        with self._guard:
            removed = self._book.discard(client)
            runner = self._runner
        self.journal.stopped(removed)
        if runner is None or not runner.alive:
            return
        ended = runner.end_link(client)
        if not runner.here and not ended.wait(timeout):
            self.journal.stop_timeout("a lease client", timeout)

    def close(self, timeout: float = 5.0) -> None:
        """Cancel all renewals, lose what is left (reason `closed`), tell holders, end the thread.

        Blocks up to `timeout` seconds for the thread. Idempotent; there is no way back.
        """
        with self._guard:
            again, self._closed = self._closed, True
            filed = self._book.close(CLOSED)
            runner, self._runner = self._runner, None
        self._spread(filed)
        if again:
            return
        if runner is not None:
            runner.stop()
            if not runner.here and not runner.join(timeout):
                self.journal.stop_timeout("the lease keeper", timeout)
        self._callbacks.close()
        self.journal.keeper("shutdown")

    def _record(
        self, client: LeaseClient, leases: Sequence[Lease]
    ) -> tuple[Runner | None, list[Lease]]:
        """Keep these; returns the runner, if it was started just now, and what is new."""
        if not leases:
            return None, []
        with self._guard:
            if self._closed:
                raise RuntimeError("the lease keeper is closed")
            added = self._book.add(client, leases)
            for lease in added:
                lease._keeper = self
            fresh = self._revive()
            late = self._late()
        if fresh is not None:
            self._start(fresh, added)
        elif late is not None:
            late.wake()
        return fresh, added

    def _register_late(self, client: LeaseClient, leases: Sequence[Lease]) -> None:
        try:
            self.register(client, leases)
        except Exception:
            log.exception("%d leases could not be registered", len(leases))

    def _ask(self, client: LeaseClient, errand: Errand) -> None:
        with self._guard:
            if self._closed:
                errand.end(None, RuntimeError("the lease keeper is closed"))
                return
            self._book.ask(client, errand)
            fresh = self._revive()
            late = self._late()
        if fresh is not None:
            try:
                self._start(fresh, [])
            except RuntimeError as error:
                self._give_up_errands(error)
        elif late is not None:
            late.wake()

    def _revive(self) -> Runner | None:
        """Under the lock: a new runner, if there is none that runs."""
        if self._runner is not None and self._runner.alive:
            return None
        return self._succeed()

    def _succeed(self) -> Runner:
        """Under the lock: a new runner takes over what is kept."""
        self._book.carry_over(self.clock.monotonic())
        self._planned = -math.inf  # its first look is still to come
        master = Master(self._ready, self._plan, self._file, self._ended)
        self._runner = runner = Runner(master)
        return runner

    def _late(self) -> Runner | None:
        """Under the lock: the runner, if it has to be woken for something earlier than planned.

        Also if its planned look is overdue: it sleeps by another clock, which a suspension stops.
        """
        wake = self._book.next_wake()
        if wake is None or wake >= self._planned > self.clock.monotonic():
            return None
        self._planned = wake
        return self._runner

    def _start(self, runner: Runner, added: list[Lease]) -> None:
        self.journal.keeper("start")
        try:
            runner.start()
        except RuntimeError as error:
            self._give_up(runner, added)
            raise RuntimeError(f"the lease keeper did not start: {error}") from error

    def _check_started(self, runner: Runner, added: list[Lease], reported: bool) -> None:
        if reported and runner.ready:
            return
        self._give_up(runner, added)
        error = runner.error
        raise RuntimeError(
            f"the lease keeper did not start within {START_TIMEOUT:g} s"
            if error is None
            else f"the lease keeper did not start: {error}"
        ) from error

    def _give_up_errands(self, error: BaseException | None) -> None:
        with self._guard:
            self._book.give_up(error)

    def _give_up(self, runner: Runner, added: list[Lease]) -> None:
        with self._guard:
            if self._runner is runner:
                self._runner = None  # should it come up yet, it finds that it has no master
            self._book.remove(added)

    # Called by the runner, in its thread. One that was replaced is not listened to any more.

    def _ready(self, runner: Runner) -> None:
        self.journal.keeper("ready")

    def _plan(self, runner: Runner) -> Plan | None:
        self._guard.catch_up()
        now, wall = self.clock.monotonic(), self.clock.time_us()
        with self._guard:
            if runner is not self._runner:
                return None
            sight = self._watchman.look(self._book, now, wall)
            filed = self._book.due(now)
            busy = len(self._book)
            wake = self._book.next_wake()
            self._planned = math.inf if wake is None else wake
        self.journal.attempts(filed.requests)
        self._spread(filed)
        for found in self._watchman.act(sight, self._book, self._guard, now):
            self._spread(found)
        wait = LONGEST_WAIT if busy else None
        if wake is not None:
            wait = min(LONGEST_WAIT, wake - self.clock.monotonic())
        return Plan(filed.requests, wait, filed.idle)

    def _file(
        self,
        runner: Runner,
        request: Request,
        answers: list[Extension] | None,
        error: BaseException | None,
    ) -> None:
        now = self.clock.monotonic()
        with self._guard:
            if runner is not self._runner or runner.over.is_set():
                return  # what was cut off by the end of the loop has not failed
            if answers is None:
                filed = self._book.failed(request, now, error, told_to_wait(error))
            else:
                filed = self._book.answered(request, answers, now)
            late = self._late()
        if late is not None:
            late.wake()
        if answers is None:
            self.journal.failed(request, error, filed)
        self._spread(filed)

    def _ended(self, runner: Runner, error: BaseException | None) -> None:
        successor = None
        with self._guard:
            active = len(self._book)
            if runner is self._runner:
                self._runner = None
                self._book.carry_over(self.clock.monotonic())
                if active and runner.lasted:
                    # Nobody may register for long, and no lease may be lost in silence.
                    successor = self._succeed()
                else:
                    self._book.give_up(error)
        if error is not None and runner.ready:
            self.journal.died(error, active)
        if successor is not None:
            try:
                successor.start()
            except RuntimeError as caught:  # the interpreter is going down, or no thread is left
                self.journal.died(caught, active)

    def _spread(self, filed: Filed) -> None:
        self.journal.filed(filed)
        for lease in (*filed.cancelled, *filed.lost):
            self._callbacks.deliver(lease)

    def _forget(self) -> object:
        """In the child of a fork: start empty, and leave alone what belongs to the parent.

        Returns the old parts, to be kept from the garbage collector, which would close the
        parent's loop.
        """
        old = (self._runner, self._book, self._callbacks)
        self._book.orphan()
        closed = self._closed
        self._begin()
        self._closed = closed
        return old


keepers: WeakSet[LeaseKeeper] = WeakSet()
"""All keepers of this process, for the child of a fork."""
