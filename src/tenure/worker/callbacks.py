"""Tells tasks what became of their jobs: `on_failure` and `on_lost`. Changes nothing itself."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from tenure.ambient import enter_job
from tenure.context import JobContext
from tenure.core.job import Job, JobError, JobRow
from tenure.core.query import Swept
from tenure.core.states import State
from tenure.engines.protocol import Engine
from tenure.errors import UnknownTask
from tenure.executors.threads import ThreadPool
from tenure.tasks import Task, TaskSet
from tenure.worker.failure import Describer

log = logging.getLogger("tenure.worker")

_THREADS = 4
_PATIENCE = 60.0


class Callbacks:
    """Calls the functions of tasks beside everything else: nobody waits for them but `close`.

    `async` ones run on this loop, `def` ones in threads of their own. What they raise is logged.
    """

    def __init__(self, tasks: TaskSet, describer: Describer) -> None:
        self._tasks = tasks
        self._describer = describer
        self._threads = ThreadPool(_THREADS)
        self._running: set[asyncio.Task[None]] = set()
        self._lost: set[tuple[str, int]] = set()

    def failed(self, row: JobRow, error: JobError | None = None) -> None:
        """The job has failed for good; `row` is as it is now. To be told once."""
        error = error or row.error
        task = self._task(row)
        if task is not None and task.spec.on_failure is not None and error is not None:
            self._start("on_failure", partial(task.spec.on_failure, Job(row), error), row)

    def lost(self, context: JobContext, reason: str) -> None:
        """The attempt with this context has lost its lease; what was told before is not again."""
        row = context.job.row
        task = self._task(row)
        attempt = (row.id, row.token)
        if task is not None and task.spec.on_lost is not None and attempt not in self._lost:
            self._lost.add(attempt)
            self._start("on_lost", partial(task.spec.on_lost, context, reason), row, context)

    def over(self, row: JobRow) -> None:
        """Nothing more will be told of this attempt."""
        self._lost.discard((row.id, row.token))

    def swept(self, rows: Iterable[JobRow | None]) -> None:
        """A sweep has found that these have failed."""
        for row in rows:
            if row is not None:
                self.failed(row)

    async def close(self, timeout: float) -> None:
        """Wait up to `timeout` seconds for what runs, then cancel it. Takes bounded time."""
        if self._running:
            await asyncio.wait(self._running, timeout=timeout)
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running, timeout=1.0)
        self._threads.close()

    def _task(self, row: JobRow) -> Task[..., Any] | None:
        try:
            return self._tasks.get(row.task)
        except UnknownTask:
            return None

    def _start(
        self, name: str, call: partial[Any], row: JobRow, context: JobContext | None = None
    ) -> None:
        surroundings = contextvars.copy_context()
        if context is not None:
            surroundings.run(enter_job, context)
        loop = asyncio.get_running_loop()
        task = loop.create_task(self._call(name, call, row), context=surroundings)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _call(self, name: str, call: partial[Any], row: JobRow) -> None:
        text = f"{name} of job {row.id} ({row.task}) failed"
        try:
            if inspect.iscoroutinefunction(call.func):
                await call()
            else:
                await self._threads.submit(partial(_told, call))
        except asyncio.CancelledError:
            log.error("%s of job %s (%s) was cancelled: the worker ends", name, row.id, row.task)
        except BaseException as error:
            self._describer.log(text, error, row)


async def sweep(engine: Engine, limit: int, tasks: TaskSet, describer: Describer) -> list[Swept]:
    """Sweep where no worker is, and tell the tasks whose jobs have failed by it."""
    swept = await engine.sweep(limit)
    failed = [item.id for item in swept if item.state is State.FAILED]
    if failed:
        callbacks = Callbacks(tasks, describer)
        callbacks.swept(await engine.get(failed))
        await callbacks.close(_PATIENCE)
    return swept


def _told(call: Callable[[], Any]) -> None:
    answer = call()
    if inspect.iscoroutine(answer):
        answer.close()
        raise TypeError("it gave a coroutine that nobody awaits; make it an `async def`")
