"""The worker: claim, run, settle, until told to stop."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import secrets
import socket
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from tenure.clock import SYSTEM_CLOCK, Clock
from tenure.core.job import JobRow
from tenure.core.outcomes import Outcome, Released, ReleaseReason, Snoozed
from tenure.core.rules import admit, decide
from tenure.engines.protocol import Engine, Signal, Topic
from tenure.errors import EngineUnavailable
from tenure.executors.threads import ThreadPool
from tenure.leases.holder import Holder
from tenure.leases.keeper import LeaseKeeper
from tenure.leases.lease import Lease
from tenure.leases.process import default_keeper
from tenure.observe.hooks import Hooks
from tenure.tasks import TaskSet
from tenure.worker.attempt import Attempt
from tenure.worker.options import WorkerOptions, seconds
from tenure.worker.poller import Poller
from tenure.worker.renewal import EngineLeases
from tenure.worker.report import Reporter
from tenure.worker.settler import Settler

log = logging.getLogger("tenure.worker")

_SWEEP_SECONDS = 10.0
_SWEEP_LIMIT = 500
_BUSY_BODY_SNOOZE = 1_000_000
_STORE_REASONS = frozenset({"deadline", "lapsed"})


class Worker:
    """Runs the jobs of one service in this process. Single use: `run` once.

    `stop()` may be called from the worker's loop at any time: the first call drains, the second
    cancels what still runs.
    """

    def __init__(
        self,
        engine: Engine,
        tasks: TaskSet,
        options: WorkerOptions,
        *,
        hooks: Hooks | None = None,
        keeper: LeaseKeeper | None = None,
        clock: Clock = SYSTEM_CLOCK,
        prepare: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._prepare = prepare
        self.id = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self.options = options
        self._engine = engine
        self._tasks = tasks
        self._clock = clock
        self._keeper = keeper or default_keeper()
        self._leases = EngineLeases(engine)
        self._reporter = Reporter(hooks or Hooks(), log_success=options.log_success)
        self._threads = ThreadPool(options.threads or options.concurrency)
        self._settler = Settler(engine, clock)
        self._attempts: dict[str, Attempt] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._left_behind: dict[str, Attempt] = {}
        self._stops = 0
        self._stopping = asyncio.Event()
        self._hurry = asyncio.Event()
        self._fatal: BaseException | None = None
        self._poller = Poller(
            engine,
            options,
            owner=self.id,
            tasks=tasks.names,
            free=self._free,
            begin=self._begin,
            clock=clock,
        )

    async def run(self) -> None:
        """Work until stopped, or in burst mode until nothing is due and nothing runs.

        Cancelling this coroutine cancels the running jobs, releases them and raises. SystemExit
        and KeyboardInterrupt of a body release its job, stop the worker and are raised here.
        """
        if self._prepare is not None:
            await self._prepare()
        self._settler.start()
        helpers = [
            asyncio.create_task(work)
            for work in (self._listen(), self._sweep(), self._poller.run())
        ]
        try:
            await self._until_stopped(helpers)
        except asyncio.CancelledError:
            self._cancel_all()
            raise
        finally:
            await _uncancelled(self._shut_down(helpers))
        if self._fatal is not None:
            raise self._fatal

    def stop(self) -> None:
        """First call: claim no more and let running jobs end. Second call: cancel them."""
        self._stops += 1
        self._poller.stop()
        self._stopping.set()
        if self._stops > 1:
            self._cancel_all()

    @property
    def active(self) -> int:
        """How many jobs run now."""
        return len(self._running)

    @property
    def left_behind(self) -> int:
        """How many bodies still run although their attempt is over; they ignored being stopped."""
        return len(self._left_behind)

    def _cancel_all(self) -> None:
        self._hurry.set()
        for attempt in list(self._attempts.values()):
            attempt.stop("shutdown")

    async def _until_stopped(self, helpers: Sequence[asyncio.Task[None]]) -> None:
        stopping = asyncio.create_task(self._stopping.wait())
        burst = asyncio.create_task(self._burst())
        waiting: set[asyncio.Task[Any]] = {stopping, burst, *helpers}
        try:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()  # a helper that died is a defect: it must not pass in silence
        finally:
            stopping.cancel()
            burst.cancel()

    async def _burst(self) -> None:
        """Ends, in burst mode only, when a look found nothing while nothing ran."""
        while True:
            await self._poller.idle.wait()
            self._poller.idle.clear()
            if self.options.burst and not self._running:
                return

    async def _shut_down(self, helpers: Sequence[asyncio.Task[None]]) -> None:
        self._poller.stop()
        await asyncio.wait({helpers[-1]})  # a claim in flight must not be left without a holder
        limit = seconds(self.options.shutdown_timeout, "shutdown_timeout")
        grace = seconds(self.options.stop_grace, "stop_grace")
        await self._drain(limit)
        self._cancel_all()
        if self._running:
            await asyncio.wait(self._running, timeout=4 * grace)
        unwritten = await self._settler.close(timeout=max(grace, 1.0))
        if unwritten:
            log.error("%d outcomes could not be written; their leases will lapse", unwritten)
        for task in [*helpers, *self._running]:
            task.cancel()
        await asyncio.wait([*helpers, *self._running])
        self._threads.close()
        # A thread of its own: the loop's default pool may be full of other people's work.
        await ThreadPool(1).submit(partial(self._keeper.discard, self._leases))

    async def _drain(self, limit: float) -> None:
        """Wait for the running jobs, until the limit or a second stop."""
        hurry = asyncio.create_task(self._hurry.wait())
        deadline = self._clock.monotonic() + limit
        while self._running and not hurry.done():
            left = deadline - self._clock.monotonic()
            if left <= 0:
                break
            either: set[asyncio.Task[Any]] = {*self._running, hurry}
            await asyncio.wait(either, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()

    def _free(self) -> int:
        # A body left behind in a thread occupies it; one on the loop costs next to nothing.
        stuck = sum(attempt.in_thread for attempt in self._left_behind.values())
        return self.options.concurrency - len(self._running) - stuck

    def _begin(self, rows: Sequence[JobRow], sent_at: float) -> None:
        """Take over claimed rows: leases first, all at once, then the bodies."""
        loop, holder = asyncio.get_running_loop(), Holder.here()
        leases = [
            Lease(
                row.id,
                row.token,
                self.id,
                self.options.times,
                sent_at=sent_at,
                clock=self._clock,
                on_signal=self._signalled,
                holder=holder,
            )
            for row in rows
        ]
        self._keeper.register(self._leases, leases)
        for row, lease in zip(rows, leases, strict=True):
            work = loop.create_task(self._work(row, lease, sent_at))
            self._running.add(work)
            work.add_done_callback(self._ended)

    def _ended(self, work: asyncio.Task[None]) -> None:
        self._running.discard(work)
        if not work.cancelled() and (error := work.exception()) is not None:
            log.error("a job could not be handled; its lease will lapse", exc_info=error)
        self._poller.slot_freed()
        if self.options.burst and not self._running:
            self._poller.wake()

    async def _work(self, row: JobRow, lease: Lease, sent_at: float) -> None:
        """One claimed job from here to its settlement."""
        attempt = self._attempt(row, lease, sent_at)
        try:
            outcome = self._refused(row, lease)
            if outcome is None:
                self._attempts[row.id] = attempt
                self._reporter.started(row)
                outcome = await attempt.run()
                self._note_leftovers(attempt)
            if outcome is None:
                outcome = self._after_loss(row, lease)
            if outcome is not None:
                await self._settle(row, attempt, outcome)
        finally:
            self._attempts.pop(row.id, None)
            self._keeper.remove([lease])

    def _attempt(self, row: JobRow, lease: Lease, sent_at: float) -> Attempt:
        return Attempt(
            row,
            self._tasks.get(row.task),
            lease,
            sent_at=sent_at,
            threads=self._threads,
            max_payload=self._engine.traits.max_payload,
            clock=self._clock,
            grace=seconds(self.options.stop_grace, "stop_grace"),
        )

    def _refused(self, row: JobRow, lease: Lease) -> Outcome | None:
        """The outcome of a claimed job that must not be started here and now, if so."""
        if lease.lost or self._hurry.is_set():
            return Released(ReleaseReason.UNSTARTED)
        if row.id in self._left_behind:
            return Snoozed(_BUSY_BODY_SNOOZE)
        return admit(row)

    def _after_loss(self, row: JobRow, lease: Lease) -> Outcome | None:
        """What to offer for an attempt that was stopped because its lease is lost.

        If the lease ran out because the store was away, giving the job back by its token keeps
        the outage from counting as a crash. The store refuses it if somebody took over.
        """
        reason = lease.reason or "unknown"
        self._reporter.lost(row, "run", reason)
        return Released(ReleaseReason.STORE) if reason in _STORE_REASONS else None

    async def _settle(self, row: JobRow, attempt: Attempt, outcome: Outcome) -> None:
        now = (row.started_at or 0) + attempt.elapsed_us
        settlement = decide(row, outcome, now=now, roll=random.random())
        answer = await self._settler.settle(settlement)
        self._reporter.settled(row, settlement, answer)

    def _note_leftovers(self, attempt: Attempt) -> None:
        """Keep account of a body that outlived its attempt, and of a fatal exception."""
        body = attempt.abandoned
        if body is not None:
            self._left_behind[attempt.row.id] = attempt
            body.add_done_callback(lambda _: self._body_returned(attempt.row))
        if attempt.fatal is not None and self._fatal is None:
            self._fatal = attempt.fatal
            self.stop()

    def _body_returned(self, row: JobRow) -> None:
        self._left_behind.pop(row.id, None)
        log.info("the left-behind body of job %s (%s) returned", row.id, row.task)
        self._poller.slot_freed()

    def _signalled(self, lease: Lease) -> None:
        """The keeper learned something about a lease; called on the worker's loop."""
        attempt = self._attempts.get(lease.id)
        if attempt is None or attempt.lease is not lease:
            return
        if lease.lost:
            attempt.stop("lost")
        elif lease.cancel_requested:
            attempt.stop("cancel")

    async def _listen(self) -> None:
        """Turn signals of the store into looks for jobs and early renewals."""
        served = frozenset(self.options.queues)
        async with self._engine.listen({Topic.QUEUE, Topic.CANCEL}) as listener:
            while True:
                signals = await listener.wait()
                self._heard(signals, served)

    def _heard(self, signals: frozenset[Signal], served: frozenset[str]) -> None:
        cancels = [s.key for s in signals if s.topic is Topic.CANCEL and s.key in self._attempts]
        if cancels:
            self._keeper.nudge(cancels)
        if any(
            s.topic is Topic.ANY or (s.topic is Topic.QUEUE and s.key in served) for s in signals
        ):
            self._poller.wake()

    async def _sweep(self) -> None:
        """Now and then take back what nobody claims: lapsed jobs of tasks unknown here."""
        while True:
            await asyncio.sleep(_SWEEP_SECONDS * random.uniform(0.8, 1.2))
            try:
                swept = await self._engine.sweep(_SWEEP_LIMIT)
            except EngineUnavailable as error:
                log.debug("the sweep waits for the store: %s", error)
                continue
            for job_id, state in swept:
                log.warning("job %s was overdue or its worker vanished: now %s", job_id, state)


async def _uncancelled(work: Coroutine[Any, Any, None]) -> None:
    """Run to the end even if the caller is cancelled meanwhile; then raise the cancellation."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
    task.result()
    if cancelled is not None:
        raise cancelled
