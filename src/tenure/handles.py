"""Handles: what an enqueue returns, and how its end is awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from tenure.core.durations import Seconds
from tenure.core.job import Job, JobRow
from tenure.core.query import CancelResult
from tenure.core.states import State
from tenure.engines.protocol import Engine, Listener, Topic
from tenure.errors import (
    ConfigurationError,
    EngineUnavailable,
    JobCancelled,
    JobExpired,
    JobFailed,
    JobNotFound,
)
from tenure.tasks import Task

if TYPE_CHECKING:
    from tenure.service import QueueService

R = TypeVar("R")

_GET_MAX = 500
_POLL_SECONDS = 1.0

_ENDINGS = {
    State.FAILED: JobFailed,
    State.CANCELLED: JobCancelled,
    State.EXPIRED: JobExpired,
}


class JobHandle(Generic[R]):
    """A job that was enqueued.

    `cancelling`: it was there already, and was asked to stop, so it may not do what is wanted.
    """

    def __init__(
        self,
        service: QueueService,
        id: str,
        *,
        created: bool | None = True,
        cancelling: bool = False,
        task: Task[..., R] | None = None,
    ) -> None:
        self.id = id
        self._created = created
        self.cancelling = cancelling
        self._service = service
        self._task = task

    @property
    def created(self) -> bool:
        """False when it was there already: another job has the unique key, and this is its handle.

        Raises `ConfigurationError` where that is not known: of a job that was enqueued in a
        pipeline of Redis, which does nothing before it is executed.
        """
        if self._created is None:
            raise ConfigurationError(
                "whether the job is new is not known: it was enqueued in a pipeline; "
                "ask for the job once that was executed"
            )
        return self._created

    async def job(self) -> Job:
        """The job as it is now. Raises `JobNotFound`."""
        return await self._service.get(self.id)

    async def wait(self, timeout: Seconds | None = None) -> Job:
        """The final job, once it has ended.

        `timeout` is in seconds; None waits for ever, 0 only looks. Raises `TimeoutError` (the job
        goes on) and `JobNotFound`.
        """
        return await self._service.wait(self.id, timeout=timeout)

    async def result(self, timeout: Seconds | None = None) -> R:
        """What the body returned, as the task's annotated type.

        Raises `JobFailed`, `JobCancelled` or `JobExpired` with the stored error, and what `wait`
        raises.
        """
        job = await self.wait(timeout)
        return self._result_of(job)

    async def cancel(self, *, force: bool = False) -> CancelResult:
        """Cancel the job; see `QueueService.cancel`."""
        return await self._service.cancel(self.id, force=force)

    def _result_of(self, job: Job) -> R:
        ending = _ENDINGS.get(job.state)
        if ending is not None:
            raise ending(job)
        if self._task is None:
            value: R = job.result
            return value
        return self._task.result_from(job.row.result)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}>"


class Waiter:
    """Waits for the ends of any number of jobs with one listener and one query at a time.

    Belongs to the loop it was made on. Signals only say when to look; every job that is waited for
    is looked at once a second as well, since signals may be lost and jobs may be pruned.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[str, set[asyncio.Future[JobRow]]] = {}
        self._ask: set[str] = set()
        self._asked = asyncio.Event()
        self._watch: asyncio.Task[None] | None = None

    @property
    def here(self) -> bool:
        """Whether the running loop is the one this waiter belongs to."""
        return self._loop is asyncio.get_running_loop()

    async def wait(self, job_id: str, limit: float | None) -> JobRow:
        """The final row of this job. Raises `TimeoutError` after `limit` s, or `JobNotFound`.

        A limit of zero means one look.
        """
        if limit == 0:
            [row] = await self._engine.get([job_id])
            if row is None:
                raise _not_found(job_id)
            if not row.state.final:
                raise TimeoutError(f"job {job_id} has not ended")
            return row
        future: asyncio.Future[JobRow] = self._loop.create_future()
        self._waiting.setdefault(job_id, set()).add(future)
        self._look_at({job_id})
        try:
            done, _ = await asyncio.wait({future}, timeout=limit)
            if not done:
                raise TimeoutError(f"job {job_id} has not ended within {limit:g} seconds")
            return future.result()
        finally:
            if not future.cancel() and not future.cancelled():
                future.exception()  # seen, even by a caller that was cancelled just now
            self._waiting[job_id].discard(future)
            if not self._waiting[job_id]:
                del self._waiting[job_id]
            if not self._waiting:
                self._asked.set()  # the watch may go

    async def close(self) -> None:
        """Stop watching; whoever still waits is told that the service was closed."""
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.wait({self._watch})
        self._fail("the service was closed while waiting")

    def _look_at(self, ids: Iterable[str]) -> None:
        self._ask.update(ids)
        self._asked.set()
        if self._watch is None:
            self._watch = asyncio.create_task(self._run())

    async def _run(self) -> None:
        """Look when asked to, until nobody waits any more."""
        try:
            async with self._engine.listen({Topic.DONE}) as listener:
                hearing = asyncio.create_task(self._hear(listener))
                try:
                    await self._watch_over()
                finally:
                    hearing.cancel()
        except Exception as error:
            self._fail("waiting failed", error)
        finally:
            if self._watch is asyncio.current_task():
                self._watch = None

    async def _watch_over(self) -> None:
        next_look = self._loop.time() + _POLL_SECONDS
        while self._waiting:
            self._asked.clear()
            ask, self._ask = self._ask, set()
            if self._loop.time() >= next_look:
                next_look = self._loop.time() + _POLL_SECONDS
                ask = set(self._waiting)
            await self._look([job_id for job_id in ask if job_id in self._waiting])
            try:
                async with asyncio.timeout_at(next_look):
                    await self._asked.wait()
            except TimeoutError:
                pass
        self._watch = None  # whoever comes now needs another one

    async def _hear(self, listener: Listener) -> None:
        try:
            while True:
                signals = await listener.wait()
                if any(signal.topic is not Topic.DONE for signal in signals):
                    self._look_at(self._waiting)
                else:
                    self._look_at({signal.key for signal in signals} & self._waiting.keys())
        except EngineUnavailable:
            pass  # without signals, a look per second has to do
        except Exception as error:
            self._fail("waiting failed", error)

    async def _look(self, ids: Sequence[str]) -> None:
        for start in range(0, len(ids), _GET_MAX):
            part = ids[start : start + _GET_MAX]
            try:
                rows = await self._engine.get(part)
            except EngineUnavailable:
                return  # the caller's timeout bounds the wait; the store may come back
            for job_id, row in zip(part, rows, strict=True):
                for future in self._unanswered(job_id):
                    if row is None:
                        future.set_exception(_not_found(job_id))
                    elif row.state.final:
                        future.set_result(row)

    def _unanswered(self, job_id: str) -> list[asyncio.Future[JobRow]]:
        return [f for f in self._waiting.get(job_id, ()) if not f.done()]

    def _fail(self, message: str, cause: Exception | None = None) -> None:
        """Tell everybody who waits, each by an exception of their own: raising changes it."""
        for job_id in self._waiting:
            for future in self._unanswered(job_id):
                error = EngineUnavailable(f"{message}: {cause}" if cause else message)
                error.__cause__ = cause
                future.set_exception(error)


def _not_found(job_id: str) -> JobNotFound:
    return JobNotFound(f"no job has the id {job_id!r}")
