"""One attempt: a claimed job, its body, and what became of it."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from tenure.clock import Clock
from tenure.context import JobContext, Stopping
from tenure.core import codec
from tenure.core.columns import unreadable
from tenure.core.directives import Cancel, Discard, Handoff, Retry, Snooze
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
from tenure.engines.protocol import Engine
from tenure.errors import PayloadError
from tenure.executors.threads import ThreadPool
from tenure.leases.lease import Lease
from tenure.tasks import Task, injected_values
from tenure.worker.endings import deadly, follows_cancellation, interruption, single
from tenure.worker.failure import describe

log = logging.getLogger("tenure.worker")

STOP_GRACE = 5.0
"""Seconds a cancelled body may take to unwind before it is cancelled again, or left behind."""

LAST_GRACES = 3
"""How often a body is cancelled before it is left behind."""

_NO_THREAD_SNOOZE = SECOND


Ending = Outcome | Handoff | None
"""What to settle with; `Handoff`: somebody else settles; None: the lease is lost."""


class Attempt:
    """Runs the body of one claimed job, and tells how it ended.

    `stop` may be called at any time from the worker's loop. Afterwards `abandoned` is the body that
    still runs although its attempt is over, if there is one, and `fatal` an exception that must end
    the worker.
    """

    def __init__(
        self,
        row: JobRow,
        task: Task[..., Any],
        lease: Lease,
        *,
        threads: ThreadPool,
        engine: Engine,
        clock: Clock,
        grace: float = STOP_GRACE,
    ) -> None:
        self.row = row
        self.lease = lease
        self.abandoned: asyncio.Future[Any] | None = None
        self.fatal: BaseException | None = None
        self.context = JobContext(row, lease, clock, engine)
        self._task = task
        self._threads = threads
        self._engine = engine
        self._clock = clock
        self._grace = grace
        self._told: Stopping | None = None
        """Why the body was told to stop; None while it was not."""
        self._hurried = False
        self._waiter: asyncio.Future[None] | None = None

    def stop(self, reason: Stopping) -> None:
        """Ask the body to end; the first reason stays, but a shutdown is heard in any case."""
        self.context.stop(reason)
        if self._told is None:
            self._told = reason
        if reason == "shutdown":
            self._hurried = True
        self._wake()

    @property
    def in_thread(self) -> bool:
        """Whether the body runs in a thread, which nothing can interrupt."""
        return not self._task.is_async

    async def run(self) -> Ending:
        """Run the body to its end. None: the lease is lost and there is nothing to settle with.

        `Handoff`: whoever has the receipt settles.

        Raises nothing of the body's: whatever happens becomes an outcome.
        """
        try:
            call = self._prepare()
        except BaseException as error:
            return self._raised(error)
        if self.in_thread and not await self._place():
            return self._unstarted()
        self.context.begin()
        try:
            body = self._start(call)
        except RuntimeError as error:  # the system gives no thread: not the job's fault
            log.warning("job %s (%s) has to wait: %s", self.row.id, self.row.task, error)
            return Snoozed(_NO_THREAD_SNOOZE)
        await self._wait(body)
        if not body.done():
            self.abandoned = body
            return self._left_behind()
        return self._outcome(body)

    def _prepare(self) -> Callable[[], Any]:
        if (column := unreadable(self.row)) is not None:
            raise PayloadError(f"the store's column {column!r} holds what cannot be read here")
        if self.row.codec != codec.JSON:
            raise PayloadError(f"the payload is encoded as {self.row.codec!r}, which is unknown")
        args, kwargs = self._task.signature.decode(codec.decode(self.row.payload))
        kwargs |= injected_values(self._task, self.context)
        return functools.partial(self._task.function, *args, **kwargs)

    async def _place(self) -> bool:
        """Wait until a thread is free; False if the attempt was stopped before there was one.

        The timeout does not count yet, so waiting costs a job nothing.
        """
        places = self._threads.places
        place = places.take()
        taken = False
        try:
            if self._told is None:
                await self._pause(place, None)
            taken = place.done() and self._told is None
        finally:
            if not taken and not place.cancel():
                places.give_back()
        return taken

    def _start(self, call: Callable[[], Any]) -> asyncio.Future[Any]:
        if not self.in_thread:
            return asyncio.get_running_loop().create_task(_awaited(call))
        places = self._threads.places
        try:
            body = self._threads.submit(functools.partial(_caught, call))
        except RuntimeError:
            places.give_back()
            raise
        body.add_done_callback(lambda _: places.give_back())
        return body

    async def _wait(self, body: asyncio.Future[Any]) -> None:
        """Until the body ended, or was told to stop and did not within the grace."""
        if self._told is None:
            await self._pause(body, self.context.remaining())
        if body.done():
            return
        if self._told is None:
            self.stop("timeout")
        if not self.in_thread:
            await self._unwind(body)
        elif self._told != "timeout" or self._holds_slot:
            await self._outlast(body)

    async def _unwind(self, body: asyncio.Future[Any]) -> None:
        """Cancel an async body until it ends; one that swallows every cancellation is left."""
        for _ in range(LAST_GRACES):
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

    async def _outlast(self, body: asyncio.Future[Any]) -> None:
        """Wait for a thread, which cannot be interrupted: up to the timeout, if there is one, and
        past it as long as it holds a slot, which is nobody else's before it returns.

        On shutdown no longer than the grace, as the process will not wait for ever.
        """
        limit = self._patience()
        while not (body.done() or self._hurried or limit == 0.0):
            await self._pause(body, limit)
            limit = self._patience()
        if self._hurried and not body.done():
            await asyncio.wait({body}, timeout=self._grace)

    @property
    def _holds_slot(self) -> bool:
        return self.row.concurrency_key is not None

    def _patience(self) -> float | None:
        return None if self._holds_slot else self.context.remaining()

    async def _pause(self, future: asyncio.Future[Any], seconds: float | None) -> None:
        """Until the future is done, `stop` is called or `seconds` have passed (None: for ever).

        Every job waits here once, so this is spelt out: `asyncio.wait` costs three times as much.
        """
        if future.done():
            return
        loop = asyncio.get_running_loop()
        waiter = self._waiter = loop.create_future()
        timer = None if seconds is None else loop.call_later(seconds, self._wake)
        future.add_done_callback(self._wake)
        try:
            await waiter
        finally:
            future.remove_done_callback(self._wake)
            if timer is not None:
                timer.cancel()

    def _wake(self, future: asyncio.Future[Any] | None = None) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _unstarted(self) -> Outcome | None:
        match self._told:
            case "cancel":
                return Cancelled()
            case "lost":
                return None
            case _:
                return Released(ReleaseReason.UNSTARTED)

    def _left_behind(self) -> Outcome | None:
        """The outcome of an attempt whose body does not end."""
        match self._told:
            case "cancel":
                return Cancelled(self._error("cancelled", "cancelled, but the body still runs"))
            case "shutdown":
                return Released(ReleaseReason.SHUTDOWN)
            case "lost":
                return None
            case _:
                return Errored(self._timeout_error("the body still runs"))

    def _outcome(self, body: asyncio.Future[Any]) -> Ending:
        if body.cancelled():
            return self._interrupted(asyncio.CancelledError("cancelled before it started"))
        error = body.exception()
        if error is not None:
            return self._raised(error)
        result, raised = body.result()
        if raised is not None:
            return self._raised(raised)
        if self._told == "timeout":
            return Errored(self._timeout_error("it returned too late"))
        return self._completed(result)

    def _completed(self, result: Any) -> Ending:
        try:
            data = self._encode(result)
        except Exception as error:
            # The side effects happened, so running the body again would not be a remedy.
            return self._errored(error, retryable=False)
        except BaseException as error:
            return self._raised(error)
        return Completed(data)

    def _encode(self, result: Any) -> bytes | None:
        if inspect.iscoroutine(result):
            result.close()
            raise PayloadError(
                "result: the body returned a coroutine that nobody awaited; "
                "a task that awaits must be an `async def` itself"
            )
        return codec.encode_result(result, self._engine.traits.max_payload)

    def _raised(self, error: BaseException) -> Ending:
        """The outcome of a body that ended by an exception, and whether the worker must end."""
        told = self._told
        if deadly(error):
            self.fatal = error
            return None if told == "lost" else Released(ReleaseReason.SHUTDOWN)
        if told == "lost":
            return None
        directive = single(error)
        match directive:
            case Retry():
                return self._errored(directive, after=directive.after)
            case Snooze():
                return Snoozed(directive.delay)
            case Cancel():
                return Cancelled(self._described(directive, "cancelled"))
            case Discard():
                return self._errored(directive, retryable=False)
            case Handoff():
                return directive
        if interruption(error) or (told == "shutdown" and follows_cancellation(error)):
            return self._interrupted(error)
        if told == "timeout":
            return Errored(self._timeout_error(f"then raised {type(error).__qualname__}"))
        return self._errored(error)

    def _interrupted(self, error: BaseException) -> Outcome | None:
        match self.context.stopping:
            case "cancel":
                return Cancelled()
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


async def _awaited(
    call: Callable[[], Coroutine[Any, Any, Any]],
) -> tuple[Any, BaseException | None]:
    """The result or the exception of a body, as a value.

    As a value, because asyncio lets SystemExit and KeyboardInterrupt out of a task break the loop.
    """
    try:
        return await call(), None
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
    return BaseException.with_traceback(error, trace.tb_next if trace else None)
