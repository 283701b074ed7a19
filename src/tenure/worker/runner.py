"""Takes claimed jobs over: keeps their leases, runs their bodies, settles their outcomes."""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import msgspec

from tenure.clock import Clock
from tenure.context import JobContext
from tenure.core.directives import Handoff
from tenure.core.durations import SECOND
from tenure.core.job import JobRow
from tenure.core.outcomes import (
    Errored,
    OnShutdown,
    Outcome,
    Released,
    ReleaseReason,
    Settled,
    Settlement,
    Snoozed,
    Verdict,
)
from tenure.core.rules import admit, decide, settled_values
from tenure.core.states import State
from tenure.engines.protocol import Engine
from tenure.executors.threads import ThreadPool
from tenure.leases.holder import Holder
from tenure.leases.keeper import LeaseKeeper
from tenure.leases.lease import DEADLINE, Lease
from tenure.tasks import TaskSet
from tenure.worker.assessor import Ending
from tenure.worker.attempt import LAST_GRACES, Attempt
from tenure.worker.callbacks import Callbacks
from tenure.worker.options import WorkerOptions, seconds
from tenure.worker.renewal import EngineLeases
from tenure.worker.report import Reporter, applied
from tenure.worker.settler import Settler
from tenure.worker.surroundings import PLAIN, Surroundings
from tenure.worker.suspects import Suspects

log = logging.getLogger("tenure.worker")

_BUSY_BODY_SNOOZE = SECOND
_STORE_REASONS = frozenset({DEADLINE, "lapsed"})
_HINTS_KEPT = 1000


class Runner:
    """The jobs that one worker holds, from their claim to their settlement.

    `freed()` is called when a slot may have become free, `fail(error)` when the worker must end.
    """

    def __init__(
        self,
        engine: Engine,
        tasks: TaskSet,
        options: WorkerOptions,
        *,
        owner: str,
        keeper: LeaseKeeper,
        reporter: Reporter,
        clock: Clock,
        surroundings: Surroundings = PLAIN,
    ) -> None:
        self.settler = Settler(engine)
        self.freed: Callable[[], None] = _nothing
        self.fail: Callable[[BaseException], None] = _nothing
        self._engine = engine
        self._tasks = tasks
        self._options = options
        self._owner = owner
        self._keeper = keeper
        self._leases = EngineLeases(engine, clock)
        self._reporter = reporter
        self._clock = clock
        self._surroundings = surroundings
        self.callbacks = Callbacks(tasks, surroundings.describer)
        self._times = options.times
        self._grace = seconds(options.stop_grace, "stop_grace")
        self._threads = ThreadPool(options.threads or options.concurrency)
        self._working: dict[asyncio.Task[None], str] = {}  # the ids of the jobs
        self._attempts: dict[str, Attempt] = {}  # whose bodies run, by job
        self._left_behind: dict[str, Attempt] = {}
        self._suspects = Suspects()
        self._settling = 0
        self._early_cancels: dict[str, None] = {}
        self._changed = asyncio.Event()
        self._hurry = False
        self.running_out = False
        """Whether the worker ends, and waits for jobs that must not be interrupted."""

    @property
    def active(self) -> int:
        """How many jobs are held."""
        return len(self._working)

    def held(self) -> tuple[str, ...]:
        """The ids of the jobs that are held."""
        return tuple(self._working.values())

    @property
    def left_behind(self) -> int:
        """How many bodies still run although their attempt is over."""
        return len(self._left_behind)

    def free(self) -> int:
        """How many more jobs there is room for."""
        # A job whose outcome is being written takes no room: so the next claim goes along with that
        # write, often in one commit. But no more of these may gather than there is room for.
        limit, held = self._options.concurrency, len(self._working)
        # A body left behind in a thread occupies it; one on the loop costs next to nothing.
        stuck = sum(attempt.in_thread for attempt in self._left_behind.values())
        return min(limit - (held - self._settling), 2 * limit - held) - stuck

    def begin(self, rows: Sequence[JobRow], sent_at: float) -> None:
        """Take over claimed rows: leases first, all at once, then the bodies."""
        loop = asyncio.get_running_loop()
        holder = Holder.here()
        leases = [self._lease(row, sent_at, holder) for row in rows]
        kept = True
        try:
            self._keeper.register(self._leases, leases)
        except Exception as error:
            kept = False  # so they must not start; they are given back
            self.fail(error)
        self._suspects.note(rows)
        for row, lease in zip(rows, leases, strict=True):
            work = loop.create_task(self._work(row, lease, sent_at, kept))
            self._working[work] = row.id
            work.add_done_callback(self._ended)
        self._keeper.nudge([row.id for row in rows if row.id in self._early_cancels])

    def ask(self, ids: Iterable[str] | None) -> None:
        """These jobs (None: any) may have been asked to stop: renew their leases, which tells."""
        if ids is None:
            self._keeper.nudge(list(self._attempts))
            return
        ids = list(ids)
        self._keeper.nudge([job_id for job_id in ids if job_id in self._attempts])
        # A hint may be quicker than the answer to the claim that it concerns.
        if len(self._early_cancels) > _HINTS_KEPT:
            self._early_cancels.clear()
        self._early_cancels.update((job_id, None) for job_id in ids)

    def cancel_all(self) -> None:
        """Stop the bodies and start no more; what does not end by itself is given back."""
        self._hurry = True
        for attempt in list(self._attempts.values()):
            attempt.stop("shutdown")
        self._changed.set()

    async def run_out(self) -> None:
        """Stop the bodies but those whose jobs say `run_out`, and wait for these to end.

        `cancel_all` stops them too.
        """
        self.running_out = True
        for attempt in list(self._attempts.values()):
            if not _runs_out(attempt.row):
                attempt.stop("shutdown")
        attempts = self._attempts
        await self._until(
            lambda: not any(_runs_out(one.row) for one in attempts.values()), math.inf
        )
        self.running_out = False

    async def drain(self, limit: float) -> None:
        """Wait until nothing is held, `cancel_all` is called, or `limit` seconds passed."""
        await self._until(lambda: not self._working or self._hurry, limit)

    async def close(self) -> None:
        """Stop what runs, write what is left and let go of everything. Takes bounded time."""
        self.cancel_all()
        await self._until(lambda: not self._attempts, (LAST_GRACES + 1) * self._grace)
        unwritten = await self.settler.close(timeout=max(self._grace, 1.0))
        if unwritten:
            log.error("%d outcomes could not be written; their leases will lapse", unwritten)
        for work in self._working:
            work.cancel()
        await self._until(lambda: not self._working, self._grace)
        await self.callbacks.close(max(self._grace, 1.0))
        self._threads.close()
        await self._discard_leases()

    async def _until(self, condition: Callable[[], bool], limit: float) -> None:
        try:
            async with asyncio.timeout(limit):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            pass

    async def _discard_leases(self) -> None:
        # A thread of its own: the loop's default pool may be full of other people's work.
        pool = ThreadPool(1)
        try:
            await pool.submit(partial(self._keeper.discard, self._leases))
        except RuntimeError:  # there is no thread to be had
            self._keeper.discard(self._leases, timeout=0.0)
        finally:
            pool.close()

    def _lease(self, row: JobRow, sent_at: float, holder: Holder) -> Lease:
        lease = Lease(
            row.id,
            row.token,
            self._owner,
            self._times,
            sent_at=sent_at,
            clock=self._clock,
            on_signal=self._signalled,
            holder=holder,
        )
        lease.labels = {"queue": row.queue, "task": row.task}
        return lease

    def _signalled(self, lease: Lease) -> None:
        """The keeper learned something about a lease; called on the worker's loop."""
        attempt = self._attempts.get(lease.id)
        if attempt is None or attempt.lease is not lease:
            return
        if lease.lost:
            if not attempt.context.completed:
                attempt.stop("lost")
                self._tell_lost(attempt.row, lease, lease.reason or "unknown")
        elif lease.cancel_requested:
            attempt.stop("cancel")

    def _ended(self, work: asyncio.Task[None]) -> None:
        self._working.pop(work, None)
        self._changed.set()
        if not work.cancelled() and (error := work.exception()) is not None:
            log.error("a job could not be settled; its lease will lapse", exc_info=error)
            self.fail(error)
        self.freed()

    async def _work(self, row: JobRow, lease: Lease, sent_at: float, kept: bool) -> None:
        """One claimed job from here to its settlement."""
        now = partial(self._now, row, sent_at)
        try:
            outcome: Ending = self._refused(row, lease, kept)
            lost = False
            if outcome is None:
                await self._suspects.until_alone(row)
                outcome = await self._run(row, lease, sent_at)
                if outcome is None:
                    lost = True
                    outcome = self._after_loss(row, lease)
            if isinstance(outcome, Handoff):
                await self._hand_off(row, lease)
            elif outcome is not None:
                self._settling += 1
                self.freed()
                try:
                    if not await self._settle(row, outcome, now, lost):
                        self._tell_lost(row, lease, "taken")
                finally:
                    self._settling -= 1
        finally:
            self._suspects.ended(row)
            self._keeper.remove([lease])
            self.callbacks.over(row)

    def _now(self, row: JobRow, sent_at: float) -> int:
        """The store's time, as far as it is known here."""
        return (row.started_at or 0) + round((self._clock.monotonic() - sent_at) * SECOND)

    def _refused(self, row: JobRow, lease: Lease, kept: bool) -> Outcome | None:
        """The outcome of a claimed job that must not be started here and now, if so."""
        if not kept or lease.lost or self._hurry or self.running_out:
            return Released(ReleaseReason.UNSTARTED)
        if row.id in self._attempts or row.id in self._left_behind:
            return Snoozed(_BUSY_BODY_SNOOZE)  # its old body still runs in this process
        refusal = admit(row)
        if refusal is None and self._suspects.is_put_off(row):
            return Snoozed(_BUSY_BODY_SNOOZE)
        return refusal

    async def _hand_off(self, row: JobRow, lease: Lease) -> None:
        """Write nothing; a late renewal must not outlive what the new holder does."""
        self._keeper.remove([lease])
        if lease._flight is not None:
            await lease._flight.over.wait_async(self._grace)
        self._reporter.handed_off(row)

    async def _run(self, row: JobRow, lease: Lease, sent_at: float) -> Ending:
        """Run the body; None if the lease is lost and there is no outcome."""
        try:
            attempt = self._attempt(row, lease)
            self._attempts[row.id] = attempt
            if self._hurry or (self.running_out and not _runs_out(row)):
                attempt.stop("shutdown")
            self._reporter.started(row)
            outcome = await attempt.run()
            self._note_leftovers(attempt)
            return outcome
        except Exception as error:  # a defect here is the job's failure, told where people look
            describer = self._surroundings.describer
            describer.log(f"job {row.id} ({row.task}) could not be run", error, row)
            return Errored(describer.error(error, row, at=self._clock.time_us()))
        finally:
            self._attempts.pop(row.id, None)
            self._changed.set()

    def _attempt(self, row: JobRow, lease: Lease) -> Attempt:
        return Attempt(
            row,
            self._tasks.get(row.task),
            lease,
            threads=self._threads,
            engine=self._engine,
            clock=self._clock,
            grace=self._grace,
            surroundings=self._surroundings,
        )

    def _note_leftovers(self, attempt: Attempt) -> None:
        """Keep account of a body that outlived its attempt, and of a fatal exception."""
        body = attempt.abandoned
        if body is not None:
            self._left_behind[attempt.row.id] = attempt
            body.add_done_callback(lambda _: self._body_returned(attempt.row))
        if attempt.fatal is not None:
            self.fail(attempt.fatal)

    def _body_returned(self, row: JobRow) -> None:
        self._left_behind.pop(row.id, None)
        log.info("the left-behind body of job %s (%s) returned", row.id, row.task)
        self.freed()

    def _after_loss(self, row: JobRow, lease: Lease) -> Outcome | None:
        """What to offer for an attempt that was stopped because its lease is lost.

        If the lease ran out because the store was away, giving the job back by its token keeps
        the outage from counting as a crash. The store refuses it if somebody took over. If this
        process stood still instead, it counts: the next claim sees that the lease lapsed.
        """
        reason = lease.reason or "unknown"
        self._reporter.lost(row, "run", reason)
        self._tell_lost(row, lease, reason)
        away = self._leases.failed_within(self._times.length)
        return Released(ReleaseReason.STORE) if reason in _STORE_REASONS and away else None

    def _tell_lost(self, row: JobRow, lease: Lease, reason: str) -> None:
        self.callbacks.lost(JobContext(row, lease, self._clock, self._engine), reason)

    async def _settle(
        self, row: JobRow, outcome: Outcome, now: Callable[[], int], lost: bool
    ) -> bool:
        """Write an outcome; False if it was refused, since somebody else has the job."""
        settlement = decide(row, outcome, now=now(), roll=random.random())
        try:
            answer = await self.settler.settle(settlement)
        except Exception as error:
            settlement, answer = await self._settle_plainly(row, error, now)
        if answer.verdict is Verdict.LOST:
            if not lost:  # else that was told before
                self._reporter.settled(row, settlement, answer)
            return False
        self._reporter.settled(row, settlement, answer)
        change = applied(settlement, answer)
        if change.state is State.FAILED:
            values = settled_values(row.priority, change, now())
            self.callbacks.failed(msgspec.structs.replace(row, **values))
        return True

    async def _settle_plainly(
        self, row: JobRow, error: Exception, now: Callable[[], int]
    ) -> tuple[Settlement, Settled]:
        """Settle with the error by which the store refused an outcome.

        What this raises in turn is no matter of content any more, and ends the worker.
        """
        describer = self._surroundings.describer
        describer.log(f"the outcome of job {row.id} ({row.task}) cannot be stored", error, row)
        failure = describer.error(error, row, at=self._clock.time_us())
        settlement = decide(row, Errored(failure, retryable=False), now=now())
        return settlement, await self.settler.settle(settlement)


def _runs_out(row: JobRow) -> bool:
    return row.on_shutdown == OnShutdown.RUN_OUT


def _nothing(*_: object) -> None:
    """What nobody asked to be told."""
