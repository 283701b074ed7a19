"""What a running body knows about its job, and the way it is told to stop."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Mapping
from typing import Any, Literal, Self

from tenure.clock import SYSTEM_CLOCK, Clock
from tenure.core import codec, receipts
from tenure.core.codec import printable
from tenure.core.job import Job, JobRow, Progress
from tenure.core.outcomes import Completed, Settled, Verdict
from tenure.core.rules import decide
from tenure.engines.answers import at_once, awaited
from tenure.engines.protocol import AsyncJoined, Engine, Joined
from tenure.errors import ConfigurationError, LeaseLost, Stopped
from tenure.leases.lease import Lease
from tenure.leases.suspension import Suspension

Stopping = Literal["cancel", "timeout", "shutdown", "lost"]


class JobContext:
    """The job that this body runs, and its lease. Every method is non-blocking and thread-safe."""

    def __init__(
        self,
        row: JobRow,
        lease: Lease,
        clock: Clock = SYSTEM_CLOCK,
        engine: Engine | None = None,
    ) -> None:
        self._row = row
        self._clock = clock
        self._engine = engine
        self._completing = False
        self._deadline: float | None = None
        self._stopping: Stopping | None = None
        self.lease = lease
        self.actor: str | None = row.actor
        """Who enqueued the job; else whom the task's `actor` names for this attempt."""

    @property
    def job(self) -> Job:
        """The job as it was claimed."""
        return Job(self._row)

    @property
    def job_id(self) -> str:
        return self._row.id

    @property
    def task(self) -> str:
        return self._row.task

    @property
    def queue(self) -> str:
        return self._row.queue

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""
        return self._row.attempt

    @property
    def max_attempts(self) -> int:
        return self._row.max_attempts

    @property
    def token(self) -> int:
        """The fencing number of this attempt: a later one of the same store is always greater."""
        return self._row.token

    @property
    def headers(self) -> Mapping[str, str]:
        """What travels with the job: `correlation-id`, `traceparent`, `tracestate`."""
        return self._row.headers

    @property
    def correlation_id(self) -> str:
        """What this job has in common with all that came of the same request; else its own id."""
        return self.job.correlation_id

    @property
    def receipt(self) -> str:
        """A string with which any process can settle or extend, after `raise Handoff()`."""
        return receipts.write(receipts.Receipt(self._row.id, self._row.token, self.worker))

    @property
    def worker(self) -> str:
        """The id of the worker that runs this attempt."""
        return self._row.owner or ""

    def remaining(self) -> float | None:
        """Seconds until this attempt's timeout, at least 0; None when it has none."""
        if self._deadline is None:
            return self._row.timeout
        return max(0.0, self._deadline - self._clock.monotonic())

    @property
    def stopping(self) -> Stopping | None:
        """Why this body should end now; None while it should go on."""
        if self._stopping is None and self.lease.lost and not self.completed:
            return "lost"
        return self._stopping

    @property
    def completed(self) -> bool:
        """Whether `complete_in` has ended the job: then the lease is over, and nothing is lost."""
        return self._completing and self.lease.lost and self.lease.reason == "settled"

    def check(self) -> None:
        """Do nothing while the body should go on; else raise `LeaseLost` or `Stopped`.

        Bodies in threads call this between steps; async bodies are cancelled and need not.
        """
        reason = self.stopping
        if reason == "lost":
            raise LeaseLost(f"job {self.job_id}: the lease is lost ({self.lease.reason})")
        if reason is not None:
            raise Stopped(reason)

    def progress(self, current: float, total: float | None = None, message: str = "") -> None:
        """Report how far the body is; the next renewal carries the last report to the store.

        Raises `ConfigurationError` if a number is not finite.
        """
        done = _number(current, "current")
        whole = None if total is None else _number(total, "total")
        self.lease.report(Progress(done, whole, printable(str(message)[:1000])[:1000]))

    def join(self, connection: object) -> Suspension | Holding:
        """`with`, `async with`: hold this job's own row in a transaction of yours.

        Nobody can take the job over while the transaction is open, so the lease's deadline and its
        renewal are suspended. End the transaction inside the block; when the block is left, one
        extension decides whether the lease still holds. On SQLite the open transaction holds the
        whole file: keep it shorter than a lease, or every other worker loses its leases.

        `connection` is as for `complete_in`. Raises `LeaseLost` if the job is no longer held; for
        a connection that is awaited, when the block is entered.
        """
        answer = self._joined(connection).hold(self._row)
        suspension = self.lease.suspended()
        return suspension if answer is None else Holding(answer, suspension)

    async def complete_in(self, connection: object, result: Any = None) -> None:
        """Complete this job inside a transaction of yours, so that it and its effects are one.

        `connection` is on the database that keeps the jobs, and in a writing transaction: one of
        those that `QueueService.using` takes. What the body returns afterwards is not stored. If
        the transaction is rolled back, the attempt ends as the body does.

        Raises `LeaseLost` if the job is no longer held under this token: let it roll the
        transaction back. Raises `PayloadError` for a result that cannot be stored.
        """
        self._completed(await awaited(self._complete(connection, result)))

    def complete_in_sync(self, connection: object, result: Any = None) -> None:
        """`complete_in` for `def` bodies. On the connection's own thread."""
        self._completed(at_once(self._complete(connection, result)))

    def _complete(
        self, connection: object, result: Any
    ) -> list[Settled] | Awaitable[list[Settled]]:
        joined = self._joined(connection)
        data = codec.encode_result(result, self._store().traits.max_payload)
        return joined.settle([decide(self._row, Completed(data), now=self._row.started_at or 0)])

    def _completed(self, answers: list[Settled]) -> None:
        if answers[0].verdict is Verdict.LOST:
            raise LeaseLost(f"job {self.job_id} is no longer held under token {self.token}")
        self._completing = True

    def _joined(self, connection: object) -> Joined | AsyncJoined:
        return self._store().join(connection)

    def _store(self) -> Engine:
        if self._engine is None:
            raise ConfigurationError("this context belongs to no worker, so it has no store")
        return self._engine

    # What follows is the worker's.

    def begin(self) -> None:
        """The body starts: its timeout counts from now."""
        if self._row.timeout is not None:
            self._deadline = self._clock.monotonic() + self._row.timeout
            self.lease.limit = self._deadline

    def stop(self, reason: Stopping) -> None:
        """Tell the body to end. The first reason stays."""
        if self._stopping is None:
            self._stopping = reason


class Holding:
    """A row that is locked by a connection that is awaited; see `JobContext.join`."""

    def __init__(self, hold: Awaitable[None] | None, suspension: Suspension) -> None:
        self._hold = hold
        self._suspension = suspension

    async def __aenter__(self) -> Self:
        await awaited(self._hold)
        await self._suspension.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._suspension.__aexit__(*exc)

    def __enter__(self) -> Self:
        at_once(self._hold)  # which refuses what is awaited
        return self

    def __exit__(self, *exc: object) -> None: ...


def _number(value: float, name: str) -> float:
    """A plain number: a report that cannot be stored would hold up the renewal that carries it."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ConfigurationError(f"{name} must be a number, not {value!r}") from error
    if not math.isfinite(number):
        raise ConfigurationError(f"{name} must be finite, not {value}")
    return number
