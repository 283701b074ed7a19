"""One attempt: a claimed job, its body, and what became of it."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from tenure.ambient import enter_job
from tenure.clock import Clock
from tenure.context import JobContext, Stopping
from tenure.core import codec
from tenure.core.columns import unreadable
from tenure.core.job import JobRow
from tenure.engines.protocol import Engine
from tenure.errors import PayloadError
from tenure.executors.threads import ThreadPool
from tenure.leases.lease import Lease
from tenure.tasks import Task, injected_values
from tenure.worker.assessor import Assessor, Ending, NoThread, put_off
from tenure.worker.surroundings import PLAIN, Course, End, Surroundings

log = logging.getLogger("tenure.worker")

STOP_GRACE = 5.0
"""Seconds a cancelled body may take to unwind before it is cancelled again, or left behind."""

LAST_GRACES = 3
"""How often a body is cancelled before it is left behind."""


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
        surroundings: Surroundings = PLAIN,
    ) -> None:
        self.row = row
        self.lease = lease
        self.abandoned: asyncio.Future[Any] | None = None
        self.context = JobContext(row, lease, clock, engine)
        self.assessor = Assessor(
            self.context,
            task,
            surroundings.describer,
            clock=clock,
            max_result=engine.traits.max_payload,
        )
        self._task = task
        self._threads = threads
        self._engine = engine
        self._clock = clock
        self._grace = grace
        self._surroundings = surroundings
        self._course: Course | None = None
        self._thread_runs = False
        self._told: Stopping | None = None
        """Why the body was told to stop; None while it was not."""
        self._hurried = False
        self._waiter: asyncio.Future[None] | None = None

    @property
    def fatal(self) -> BaseException | None:
        """What the body raised that must end the worker."""
        return self.assessor.fatal

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
        enter_job(self.context)
        plain = self._surroundings.plain
        try:
            call = self._prepare()
            if plain:
                call = self._filled(call, {})
        except BaseException as error:
            return self.assessor.raised(error, self._told)
        if self.in_thread and not await self._place():
            return self.assessor.unstarted(self._told)
        self.context.begin()
        try:
            body = self._start(call) if plain else self._start_course(call)
        except NoThread as error:
            return put_off(self.row, error)
        await self._wait(body)
        if not body.done():
            self.abandoned = body
            end = None if self._course is None else self._course.end
            if end is None:
                return self.assessor.left_behind(self._told)
            return self._ended(end)
        return self._outcome(body)

    def _prepare(self) -> Callable[..., Any]:
        if (column := unreadable(self.row)) is not None:
            raise PayloadError(f"the store's column {column!r} holds what cannot be read here")
        if self.row.codec != codec.JSON:
            raise PayloadError(f"the payload is encoded as {self.row.codec!r}, which is unknown")
        self.context.actor = self._actor()
        args, kwargs = self._task.signature.decode(codec.decode(self.row.payload))
        return functools.partial(self._task.function, *args, **kwargs)

    def _filled(
        self, call: Callable[..., Any], dependencies: Mapping[str, Any]
    ) -> Callable[[], Any]:
        values = injected_values(self._task, self.context, dependencies)
        return functools.partial(call, **values) if values else call

    def _actor(self) -> str | None:
        """Who enqueued the job, else whom the task names for this attempt."""
        if self.row.actor is not None or self._task.spec.actor is None:
            return self.row.actor
        try:
            return self._task.spec.actor_now()
        except Exception as error:
            text = f"job {self.row.id} ({self.row.task}): the task's actor is unknown"
            self._surroundings.describer.log(text, error, self.row)
            return None

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
        body = self._submit(call)
        body.add_done_callback(lambda _: self._threads.places.give_back())
        return body

    def _submit(self, call: Callable[[], Any]) -> asyncio.Future[Any]:
        try:
            return self._threads.submit(functools.partial(_caught, call))
        except RuntimeError as error:
            if self._course is None:
                self._threads.places.give_back()
            raise NoThread(str(error)) from error

    def _start_course(self, call: Callable[..., Any]) -> asyncio.Future[Any]:
        """Run the body with what surrounds it, which is always on the loop."""
        course = Course(self._surroundings, self.row, self.context, lambda: self._told)
        self._course = course
        body = asyncio.get_running_loop().create_task(
            course.run(functools.partial(self._within, call))
        )
        if self.in_thread:
            body.add_done_callback(lambda _: self._threads.places.give_back())
        return body

    async def _within(self, call: Callable[..., Any], dependencies: Mapping[str, Any]) -> End:
        """The body itself, given its dependencies."""
        try:
            filled = self._filled(call, dependencies)
            if not self.in_thread:
                return End(*await _awaited(filled))
            body = self._submit(filled)
        except BaseException as error:
            return End(error=error)
        self._thread_runs = True
        try:
            return End(*await body)
        except BaseException as error:
            return End(error=error)
        finally:
            self._thread_runs = False

    async def _wait(self, body: asyncio.Future[Any]) -> None:
        """Until the body ended, or was told to stop and did not within the grace."""
        if self._told is None:
            await self._pause(body, self.context.remaining())
        if body.done():
            return
        if self._told is None:
            self.stop("timeout")
        # What surrounds the body of a `def` task is on the loop, where it can be cancelled.
        if not self.in_thread or (self._course is not None and not self._thread_runs):
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

    def _outcome(self, body: asyncio.Future[Any]) -> Ending:
        if body.cancelled():
            error: BaseException | None = asyncio.CancelledError("cancelled before it started")
        else:
            error = body.exception()
        if error is not None:
            return self.assessor.raised(error, self._told)
        end: End | tuple[Any, BaseException | None] = body.result()
        if isinstance(end, End):
            return self._ended(end)
        return self.assessor.ended(End(*end), self._told)

    def _ended(self, end: End) -> Ending:
        """The outcome of a body and its dependencies, as matters stood when they ended."""
        assert self._course is not None
        return self.assessor.ended(end, self._course.told)


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
