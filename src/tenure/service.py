"""QueueService: the one object that applications touch."""

from __future__ import annotations

import asyncio
import atexit
import os
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, Unpack, overload

from tenure.clock import IdSource
from tenure.core.durations import Seconds
from tenure.core.job import Job, NewJob
from tenure.core.query import CancelResult, Filter, Page, QueueStats, RequeueResult, Swept
from tenure.core.states import State
from tenure.engines.open import open_engine
from tenure.engines.protocol import Engine
from tenure.errors import ConfigurationError, JobNotFound, PayloadError
from tenure.handles import JobHandle, Waiter
from tenure.loops import Home
from tenure.observe.hooks import Hooks
from tenure.options import TaskChanges, TaskOptions, changed
from tenure.settings import load
from tenure.tasks import BoundTask, Decorator, Task, TaskRef, TaskSet
from tenure.worker.options import WorkerChanges, WorkerOptions
from tenure.worker.worker import Worker

if TYPE_CHECKING:
    from tenure.sync import QueueService as SyncQueueService

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class QueueService:
    """Durable background work: declare tasks, enqueue jobs, look after them.

    `url` says where jobs are kept (see `Settings`); without it `TENURE_URL` and `[tool.tenure]`
    are asked. `tasks` are collected from these modules (with all their submodules) and `Task`s.

    Constructing does no I/O and starts no thread. The first use opens the service, or `async with`
    does, which also closes it; one opened by use is closed at exit. It can be used from several
    event loops, from trio and, by `sync`, from plain threads; calls from elsewhere than the loop
    that opened it cost a hop between threads.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        tasks: Iterable[str | ModuleType | Task[..., Any]] = (),
        lease: Seconds | None = None,
        concurrency: int | None = None,
        log_success: bool | None = None,
    ) -> None:
        self.settings = load(
            {"url": url, "lease": lease, "concurrency": concurrency, "log_success": log_success}
        )
        self.tasks = TaskSet()
        self.tasks.collect(tasks)
        self.hooks = Hooks()
        self.queues = Queues(self)
        self._ids = IdSource()
        self._home = Home()
        self._engine = open_engine(self.settings.url)
        self._pid = os.getpid()
        self._opened = False
        self._opening: asyncio.Task[None] | None = None
        self._waiter: Waiter | None = None
        self._waiter_loop: asyncio.AbstractEventLoop | None = None

    # Declaring tasks

    @overload
    def task(self, function: Callable[P, Awaitable[R]], /) -> Task[P, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(self, /, **options: Unpack[TaskChanges]) -> Decorator: ...
    def task(self, function: Any = None, /, **options: Unpack[TaskChanges]) -> Any:
        """Make a function a task of this service; see `TaskOptions` for the options.

        Raises `ConfigurationError` if the name is taken, naming both places.
        """
        spec = changed(TaskOptions(), options)

        def declare(function: Callable[..., Any]) -> Task[..., Any]:
            task: Task[..., Any] = Task(function, spec)
            self.tasks.add(task)
            return task

        return declare if function is None else declare(function)

    # Enqueueing

    @overload
    async def enqueue(
        self, task: Task[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> JobHandle[R]: ...
    @overload
    async def enqueue(self, task: BoundTask[R], /) -> JobHandle[R]: ...
    @overload
    async def enqueue(
        self, task: TaskRef | str, /, *args: Any, **kwargs: Any
    ) -> JobHandle[Any]: ...
    async def enqueue(self, task: Any, /, *args: Any, **kwargs: Any) -> JobHandle[Any]:
        """Put one job in; it is stored when this returns.

        The task may be given by name, if this service knows it. Raises `InvalidArguments`,
        `PayloadError` or `ConfigurationError`, naming what is wrong, with nothing stored;
        `UnknownTask`; `EngineUnavailable`.
        """
        [handle] = await self.enqueue_many([self._bind(task, args, kwargs)])
        return handle

    async def enqueue_many(self, tasks: Iterable[BoundTask[R]]) -> list[JobHandle[R]]:
        """Put any number of jobs in as one atomic batch: all are stored, or none.

        `await jobs.enqueue_many([resize.bind(path) for path in paths])`. Handles come in the
        order given. Raises as `enqueue` does.
        """
        bound = list(tasks)
        limit = self._engine.traits.max_payload
        new = [self._new_job(item, limit) for item in bound]
        if not new:
            return []
        inserted = await self._run(lambda engine: engine.insert(new))
        return [
            JobHandle(self, answer.id, created=answer.created, task=item.task)
            for answer, item in zip(inserted, bound, strict=True)
        ]

    # Looking after jobs

    async def get(self, job_id: str) -> Job:
        """The job with this id. Raises `JobNotFound`."""
        [row] = await self._run(lambda engine: engine.get([job_id]))
        if row is None:
            raise JobNotFound(f"no job has the id {job_id!r}")
        return Job(row)

    def handle(self, job_id: str) -> JobHandle[Any]:
        """A handle of a job that was enqueued elsewhere."""
        return JobHandle(self, job_id)

    async def find(
        self,
        *,
        states: Iterable[State | str] = (),
        tasks: Iterable[str] = (),
        queues: Iterable[str] = (),
        limit: int = 100,
        before: str | None = None,
    ) -> list[Job]:
        """Jobs that match, newest first: up to `limit` (1 to 1,000) older than the id `before`."""
        where = Filter(states=_states(states), tasks=tuple(tasks), queues=tuple(queues))
        page = Page(limit=limit, before=before)
        rows = await self._run(lambda engine: engine.find(where, page))
        return [Job(row) for row in rows]

    async def wait(self, job_id: str, *, timeout: Seconds | None = None) -> Job:
        """The final job, once it has ended.

        `timeout` is in seconds; None waits for ever. Raises `TimeoutError` (the job goes on) and
        `JobNotFound`.
        """

        async def wait() -> Job:
            await self._open()
            return Job(await self._waiting().wait(job_id, timeout))

        return await self._home.run(wait)

    async def cancel(self, *job_ids: str, force: bool = False) -> CancelResult:
        """Cancel pending jobs at once, and ask running ones to stop.

        A running body hears of it within a renewal interval, usually much sooner; if it finishes
        first, it has completed. `force` ends running jobs at once and takes their lease away:
        whatever their bodies do later is refused.
        """
        return await self._run(lambda engine: engine.cancel(job_ids, force=force))

    async def requeue(self, *job_ids: str) -> RequeueResult:
        """Make ended jobs pending again, with fresh budgets and no expiry."""
        return await self._run(lambda engine: engine.requeue(job_ids))

    # Running

    def worker(self, **options: Unpack[WorkerChanges]) -> Worker:
        """A worker for this service's tasks: `await jobs.worker(burst=True).run()`.

        See `WorkerOptions` for the options. It must run on the loop that the service lives on,
        which it becomes if the service is not open yet.
        """
        defaults = WorkerOptions(
            concurrency=self.settings.concurrency,
            lease=self.settings.lease,
            log_success=self.settings.log_success,
        )
        changes = defaults.changed(options)
        return Worker(self._engine, self.tasks, changes, hooks=self.hooks, prepare=self.open)

    async def sweep(self, limit: int = 500) -> list[Swept]:
        """Expire what is overdue and take back what lapsed, of any task; up to `limit` of each.

        Workers do this by themselves; this is for hosts without one.
        """
        return await self._run(lambda engine: engine.sweep(limit))

    # Living

    async def migrate(self) -> int:
        """Create or upgrade the store's schema; returns its version. Safe to repeat."""
        return await self._run(lambda engine: engine.migrate())

    async def open(self) -> None:
        """Open the service now, not at first use. Raises `EngineUnavailable` or `SchemaError`."""
        await self._home.run(self._open)

    async def close(self) -> None:
        """Close the service. It may be opened again; closing twice does nothing."""
        await self._home.run(self._close)

    @asynccontextmanager
    async def lifespan(self, app: object = None) -> AsyncIterator[None]:
        """The lifespan of an ASGI application: open while it runs."""
        async with self:
            yield

    @property
    def url(self) -> str:
        """Where the jobs are kept, without secrets."""
        return self._engine.url

    @property
    def sync(self) -> SyncQueueService:
        """The same service for callers without an event loop: every method, blocking."""
        from tenure.sync import QueueService as SyncQueueService

        return SyncQueueService.of(self)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    # Inside

    def _bind(self, task: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> BoundTask[Any]:
        if isinstance(task, str):
            task = self.tasks.get(task)
        if isinstance(task, BoundTask):
            return task
        if not isinstance(task, Task | TaskRef):
            raise ConfigurationError(
                f"task must be a Task, a TaskRef or a task's name, not {task!r}; "
                "was the function decorated with @jobs.task?"
            )
        bound: BoundTask[Any] = task.bind(*args, **kwargs)
        return bound

    def _new_job(self, bound: BoundTask[Any], limit: int) -> NewJob:
        if len(bound.payload) > limit:
            raise PayloadError(
                f"{bound.name}: the arguments are {len(bound.payload)} bytes; {limit} are allowed"
            )
        spec = bound.spec
        return NewJob(
            id=self._ids(),
            task=bound.name,
            queue=spec.queue,
            priority=spec.priority,
            payload=bound.payload,
            delay=spec.delay_us,
            run_at=spec.run_at_us,
            expires_in=spec.expires_in_us,
            expires_at=spec.expires_at_us,
            max_attempts=spec.max_attempts,
            max_lapses=spec.max_lapses,
            max_interruptions=spec.max_interruptions,
            timeout=spec.timeout_seconds,
            retry=spec.retry,
            tags=spec.tags,
            metadata=spec.metadata,
            description=spec.description,
        )

    async def _run(self, operation: Callable[[Engine], Awaitable[T]]) -> T:
        async def run() -> T:
            await self._open()
            return await operation(self._engine)

        return await self._home.run(run)

    async def _open(self) -> None:
        """Open the engine if it is not; on the home loop. Concurrent callers share one opening."""
        if self._pid != os.getpid():
            self._leave_parent()
        if self._opened:
            return
        opening = self._opening
        if opening is None or opening.done():
            opening = self._opening = asyncio.create_task(self._open_engine())
        await asyncio.shield(opening)

    async def _open_engine(self) -> None:
        await self._engine.__aenter__()
        self._opened = True
        atexit.register(_close_at_exit, weakref.ref(self))

    async def _close(self) -> None:
        if self._pid != os.getpid() or not self._opened:
            return
        self._opened = False
        if self._waiter is not None and self._waiter_loop is asyncio.get_running_loop():
            await self._waiter.close()
        self._waiter = None
        await self._engine.__aexit__(None, None, None)

    def _leave_parent(self) -> None:
        """In a forked child: begin unopened, and never touch what belongs to the parent."""
        _INHERITED.append((self._engine, self._waiter))
        self._engine = open_engine(self.settings.url)
        self._pid = os.getpid()
        self._opened = False
        self._opening = None
        self._waiter = None

    def _waiting(self) -> Waiter:
        loop = asyncio.get_running_loop()
        if self._waiter is None or self._waiter_loop is not loop:
            self._waiter, self._waiter_loop = Waiter(self._engine), loop
        return self._waiter

    def _shut(self) -> None:
        """Close from a plain thread and end the portal."""
        if self._opened and self._pid == os.getpid():
            self._home.run_sync(self._close)
        self._home.leave()


class Queues:
    """What concerns whole queues: `jobs.queues`."""

    def __init__(self, service: QueueService) -> None:
        self._service = service

    async def stats(self, *queues: str) -> list[QueueStats]:
        """The depth of these queues by state; of all that hold jobs, if none is named."""
        return await self._service._run(lambda engine: engine.stats(queues))


_INHERITED: list[Any] = []


def _states(states: Iterable[State | str]) -> tuple[State, ...]:
    names = [states] if isinstance(states, str) else states
    try:
        return tuple(State(name) for name in names)
    except ValueError:
        allowed = ", ".join(State)
        raise ConfigurationError(f"states must be of {allowed}; not {states!r}") from None


def _close_at_exit(reference: weakref.ref[QueueService]) -> None:
    service = reference()
    if service is not None:
        service._shut()
