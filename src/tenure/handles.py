"""Handles: what an enqueue returns, and how its end is awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from tenure.core.durations import Seconds, micros
from tenure.core.job import Job, JobRow
from tenure.core.query import CancelResult
from tenure.core.states import State
from tenure.engines.protocol import Engine, Topic
from tenure.errors import EngineUnavailable, JobCancelled, JobExpired, JobFailed, JobNotFound
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
    """A job that was enqueued. `created` is False when it was there already."""

    def __init__(
        self,
        service: QueueService,
        id: str,
        *,
        created: bool = True,
        task: Task[..., R] | None = None,
    ) -> None:
        self.id = id
        self.created = created
        self._service = service
        self._task = task

    async def job(self) -> Job:
        """The job as it is now. Raises `JobNotFound`."""
        return await self._service.get(self.id)

    async def wait(self, timeout: Seconds | None = None) -> Job:
        """The final job, once it has ended.

        `timeout` is in seconds; None waits for ever. Raises `TimeoutError` (the job goes on) and
        `JobNotFound`.
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

    Belongs to the loop it is used on.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._waiting: dict[str, set[asyncio.Future[JobRow]]] = {}
        self._watch: asyncio.Task[None] | None = None

    async def wait(self, job_id: str, timeout: Seconds | None) -> JobRow:
        """The final row of this job. Raises `TimeoutError` or `JobNotFound`."""
        limit = None if timeout is None else micros(timeout, "timeout") / 1e6
        future: asyncio.Future[JobRow] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(job_id, set()).add(future)
        try:
            if self._watch is None or self._watch.done():
                self._watch = asyncio.create_task(self._run())
            else:
                await self._look([job_id])
            async with asyncio.timeout(limit):
                return await future
        except TimeoutError:
            raise TimeoutError(f"job {job_id} has not ended within {limit:g} seconds") from None
        finally:
            future.cancel()
            futures = self._waiting.get(job_id, set())
            futures.discard(future)
            if not futures:
                self._waiting.pop(job_id, None)

    async def close(self) -> None:
        """Stop watching; whoever still waits is told that the service was closed."""
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.wait({self._watch})
        self._fail(EngineUnavailable("the service was closed while waiting"))

    async def _run(self) -> None:
        async with self._engine.listen({Topic.DONE}) as listener:
            ask = list(self._waiting)
            while self._waiting:
                await self._look(ask)
                signals = await listener.wait(_POLL_SECONDS)
                if signals and all(s.topic is Topic.DONE for s in signals):
                    ask = [s.key for s in signals if s.key in self._waiting]
                else:
                    ask = list(self._waiting)

    async def _look(self, ids: Sequence[str]) -> None:
        for start in range(0, len(ids), _GET_MAX):
            part = ids[start : start + _GET_MAX]
            try:
                rows = await self._engine.get(part)
            except EngineUnavailable:
                return  # the caller's timeout bounds the wait; the store may come back
            for job_id, row in zip(part, rows, strict=True):
                if row is None:
                    self._resolve(job_id, JobNotFound(f"no job has the id {job_id!r}"))
                elif row.state.final:
                    self._resolve(job_id, row)

    def _resolve(self, job_id: str, answer: JobRow | BaseException) -> None:
        for future in self._waiting.get(job_id, ()):
            if future.done():
                continue
            if isinstance(answer, BaseException):
                future.set_exception(answer)
            else:
                future.set_result(answer)

    def _fail(self, error: BaseException) -> None:
        for job_id in list(self._waiting):
            self._resolve(job_id, error)
