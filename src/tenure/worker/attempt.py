"""One attempt: a claimed job, its body, and what became of it."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from tenure.clock import Clock
from tenure.context import JobContext, Stopping
from tenure.core import codec
from tenure.core.directives import Cancel, Discard, Retry, Snooze, alone
from tenure.core.durations import SECOND
from tenure.core.job import JobError, JobRow
from tenure.core.outcomes import (
    Cancelled,
    Completed,
    Errored,
    Outcome,
    Released,
    ReleaseReason,
    Snoozed,
)
from tenure.errors import PayloadError, Stopped
from tenure.executors.threads import ThreadPool
from tenure.leases.lease import Lease
from tenure.tasks import Task, injected_values
from tenure.worker.failure import describe

log = logging.getLogger("tenure.worker")

STOP_GRACE = 5.0
"""Seconds a cancelled body may take to unwind before it is cancelled again, or left behind."""

_LAST_GRACES = 3


class Attempt:
    """Runs the body of one claimed job, and tells how it ended.

    `sent_at` is the monotonic time at which the claim was sent. `stop` may be called at any time
    from the worker's loop. Afterwards `abandoned` is the body that still runs although its attempt
    is over, if there is one, and `fatal` an exception that must end the worker.
    """

    def __init__(
        self,
        row: JobRow,
        task: Task[..., Any],
        lease: Lease,
        *,
        sent_at: float,
        threads: ThreadPool,
        max_payload: int,
        clock: Clock,
        grace: float = STOP_GRACE,
    ) -> None:
        self.row = row
        self.lease = lease
        self.abandoned: asyncio.Future[Any] | None = None
        self.fatal: BaseException | None = None
        self._task = task
        self._threads = threads
        self._max_payload = max_payload
        self._clock = clock
        self._grace = grace
        self._sent_at = sent_at
        self._stopped: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        deadline = None if row.timeout is None else clock.monotonic() + row.timeout
        self.context = JobContext(row, lease, deadline, clock)

    def stop(self, reason: Stopping) -> None:
        """Ask the body to end; the first reason stays."""
        self.context.stop(reason)
        if not self._stopped.done():
            self._stopped.set_result(None)

    async def run(self) -> Outcome | None:
        """Run the body to its end. None: the lease is lost and there is nothing to settle with.

        Never raises an `Exception`: whatever happens becomes an outcome.
        """
        try:
            call = self._prepare()
        except Exception as error:
            return self._errored(error)
        body = self._start(call)
        await self._wait(body)
        if not body.done():
            self.abandoned = body
            return self._left_behind()
        return self._outcome(body)

    def _prepare(self) -> Callable[[], Any]:
        args, kwargs = self._task.signature.decode(codec.decode(self.row.payload))
        kwargs |= injected_values(self._task, self.context)
        return functools.partial(self._task.function, *args, **kwargs)

    def _start(self, call: Callable[[], Any]) -> asyncio.Future[Any]:
        if self._task.is_async:
            return asyncio.get_running_loop().create_task(_awaited(call()))
        return self._threads.submit(functools.partial(_caught, call))

    async def _wait(self, body: asyncio.Future[Any]) -> None:
        """Until the body ended, or was told to stop and did not within the grace."""
        limit = self.context.remaining()
        either = {body, self._stopped}
        await asyncio.wait(either, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
        if body.done():
            return
        if not self._stopped.done():
            self.stop("timeout")
        if self._task.is_async:
            await self._unwind(body)
        elif self.context.stopping != "timeout":
            await asyncio.wait({body}, timeout=self._thread_patience())

    async def _unwind(self, body: asyncio.Future[Any]) -> None:
        """Cancel an async body until it ends; one that swallows every cancellation is left."""
        for _ in range(_LAST_GRACES):
            body.cancel()
            await asyncio.wait({body}, timeout=self._grace)
            if body.done():
                return
            log.warning(
                "job %s (%s) did not end within %g s of being cancelled",
                self.row.id,
                self.row.task,
                self._grace,
                extra={"job_id": self.row.id, "task": self.row.task},
            )

    def _thread_patience(self) -> float | None:
        """A thread cannot be interrupted; on shutdown the process will not wait for ever."""
        if self.context.stopping == "shutdown":
            return self._grace
        return self.context.remaining()

    def _left_behind(self) -> Outcome | None:
        """The outcome of an attempt whose body does not end."""
        match self.context.stopping:
            case "cancel":
                return Cancelled(self._error("cancelled", "cancelled, but the body still runs"))
            case "shutdown":
                return Released(ReleaseReason.SHUTDOWN)
            case "lost":
                return None
            case _:
                return Errored(self._timeout_error("the body still runs"))

    def _outcome(self, body: asyncio.Future[Any]) -> Outcome | None:
        if body.cancelled():
            return self._interrupted(asyncio.CancelledError("cancelled before it started"))
        error = body.exception()
        if error is not None:
            return self._errored(error)
        result, raised = body.result()
        if raised is not None:
            return self._raised(raised)
        if self.context.stopping == "timeout":
            return Errored(self._timeout_error("it returned too late"))
        return self._completed(result)

    def _completed(self, result: Any) -> Outcome:
        try:
            data = None if result is None else codec.encode(result, "result")
            if data is not None and len(data) > self._max_payload:
                raise PayloadError(
                    f"result: {len(data)} bytes are more than the {self._max_payload} allowed"
                )
        except Exception as error:
            # The side effects happened, so running the body again would not be a remedy.
            return self._errored(error, retryable=False)
        return Completed(data)

    def _raised(self, error: BaseException) -> Outcome | None:
        directive = alone(error)
        match directive:
            case Retry():
                return self._errored(directive, after=directive.after)
            case Snooze():
                return Snoozed(directive.delay)
            case Cancel():
                return Cancelled(self._described(directive, "cancelled"))
            case Discard():
                return self._errored(directive, retryable=False)
        if isinstance(error, asyncio.CancelledError | Stopped):
            return self._interrupted(error)
        if self.context.stopping == "lost":
            return None
        if not isinstance(error, Exception):
            # SystemExit, KeyboardInterrupt and their like: given back, and the worker ends.
            self.fatal = error
            return Released(ReleaseReason.SHUTDOWN)
        if self.context.stopping == "timeout":
            return Errored(self._timeout_error(f"then raised {type(error).__qualname__}"))
        return self._errored(error)

    def _interrupted(self, error: BaseException) -> Outcome | None:
        match self.context.stopping:
            case "cancel":
                return Cancelled(None)
            case "timeout":
                return Errored(self._timeout_error())
            case "shutdown":
                return Released(ReleaseReason.SHUTDOWN)
            case "lost":
                return None
            case None:
                return self._errored(error)

    def _errored(
        self, error: BaseException, *, retryable: bool = True, after: int | None = None
    ) -> Errored:
        return Errored(self._described(error), retryable=retryable, after=after)

    def _described(self, error: BaseException, kind: str | None = None) -> JobError:
        at = self._clock.time_us()
        return describe(error, attempt=self.row.attempt, at=at, kind=kind)

    def _error(self, kind: str, message: str) -> JobError:
        at = self._clock.time_us()
        return JobError(kind=kind, message=message, attempt=self.row.attempt, at=at)

    def _timeout_error(self, detail: str = "") -> JobError:
        limit = self.row.timeout or 0.0
        text = f"the attempt took longer than its limit of {limit:g} seconds"
        return self._error("timeout", f"{text}; {detail}" if detail else text)

    @property
    def in_thread(self) -> bool:
        """Whether the body runs in a thread, which nothing can interrupt."""
        return not self._task.is_async

    @property
    def elapsed_us(self) -> int:
        """Microseconds since the claim was sent, by this machine's monotonic clock."""
        return round((self._clock.monotonic() - self._sent_at) * SECOND)


async def _awaited(body: Coroutine[Any, Any, Any]) -> tuple[Any, BaseException | None]:
    """The result or the exception of a body, as a value.

    As a value, because asyncio lets SystemExit and KeyboardInterrupt out of a task break the loop.
    """
    try:
        return await body, None
    except BaseException as error:
        return None, _from_body(error)


def _caught(call: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    try:
        return call(), None
    except BaseException as error:
        return None, _from_body(error)


def _from_body(error: BaseException) -> BaseException:
    """The exception with a traceback that begins in the body, not in this module."""
    trace = error.__traceback__
    return error.with_traceback(trace.tb_next if trace else None)
