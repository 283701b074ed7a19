"""QueueService: the one object that applications touch."""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, Unpack, overload

import anyio.to_thread
from msgspec.structs import replace

from tenure.core.durations import SECOND, Seconds, micros
from tenure.core.fleet import Inspection, notes
from tenure.core.insertion import Inserted
from tenure.core.job import Job, NewJob
from tenure.core.query import CancelResult, RequeueResult, Swept
from tenure.core.states import State
from tenure.engines.open import open_engine
from tenure.engines.optional import Checkable, direct_of
from tenure.engines.protocol import Engine
from tenure.errors import ConfigurationError, InvalidArguments, JobNotFound, SchemaError
from tenure.handles import JobHandle
from tenure.joining import Using
from tenure.lifetime import Lifetime
from tenure.lookups import SWEEP_MAX, checked_ids, count, page, selection
from tenure.loops import Home
from tenure.observe.hooks import Hooks
from tenure.options import TaskChanges, TaskOptions, changed
from tenure.queues import Queues
from tenure.receipts import Receipts
from tenure.receiving import Receiver, Receiving, receive_options
from tenure.settings import load
from tenure.tasks import BoundTask, Decorator, Task, TaskRef, TaskSet, bound_tasks
from tenure.worker.options import WorkerChanges, WorkerOptions
from tenure.worker.single import SingleRun
from tenure.worker.worker import Worker

if TYPE_CHECKING:
    from tenure.sync import QueueService as SyncQueueService

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


log = logging.getLogger("tenure")


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
        self.receipts = Receipts(self)
        self._home = Home()
        self._receiving = Receiving(self)
        try:
            self._life = Lifetime(lambda: open_engine(self.settings.url), self._at_exit)
        except ConfigurationError as error:
            if url is not None:
                raise
            raise ConfigurationError(f"TENURE_URL or [tool.tenure] url: {error}") from error
        self._life.before_close = self._receiving.close

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
        bound = bound_tasks(tasks)
        new = self._new_jobs(bound)
        if not new:
            return []
        inserted = await self._run(lambda engine: engine.insert(new))
        return self._handles(bound, inserted)

    def using(self, connection: object) -> Using:
        """Enqueue inside the caller's own transaction, on the caller's connection.

        `await jobs.using(connection).enqueue(resize, "a.jpg")`: the job is there if and when the
        caller commits. On SQLite the connection is a `sqlite3.Connection` to the same file after
        `BEGIN IMMEDIATE`, on PostgreSQL a `psycopg.Connection` or `psycopg.AsyncConnection` in a
        transaction, on Redis a pipeline that is one. Raises `ConfigurationError` saying what to do
        for any other.
        """
        return Using(self, connection)

    # Looking after jobs

    async def get(self, job_id: str) -> Job:
        """The job with this id. Raises `JobNotFound`."""
        ids = checked_ids((job_id,))
        [row] = await self._run(lambda engine: engine.get(ids))
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
        where, part = selection(states, tasks, queues), page(limit, before)
        rows = await self._run(lambda engine: engine.find(where, part))
        return [Job(row) for row in rows]

    async def wait(self, job_id: str, *, timeout: Seconds | None = None) -> Job:
        """The final job, once it has ended.

        `timeout` is in seconds; None waits for ever, 0 only looks. Raises `TimeoutError` (the job
        goes on) and `JobNotFound`.
        """
        checked_ids((job_id,))
        limit = None if timeout is None else micros(timeout, "timeout") / SECOND

        async def wait() -> Job:
            await self._life.open()
            return Job(await self._life.waiter().wait(job_id, limit))

        return await self._home.run(wait)

    async def cancel(self, *job_ids: str, force: bool = False) -> CancelResult:
        """Cancel pending jobs at once, and ask running ones to stop.

        A running body hears of it within a renewal interval, usually much sooner; if it finishes
        first, it has completed. `force` ends running jobs at once and takes their lease away:
        whatever their bodies do later is refused.
        """
        ids = checked_ids(job_ids)
        return await self._run(lambda engine: engine.cancel(ids, force=force))

    async def requeue(self, *job_ids: str) -> RequeueResult:
        """Make ended jobs pending again, with fresh budgets and no expiry."""
        ids = checked_ids(job_ids)
        return await self._run(lambda engine: engine.requeue(ids))

    async def inspect(self, *, thorough: bool = False) -> Inspection:
        """What is wrong with the store or deserves attention, and the settings of its queues.

        `thorough` also reads everything, where the engine can look for damage that way. Findings
        that are a `problem` put jobs or data in danger; the others are hints.
        """

        async def ask(engine: Engine) -> Inspection:
            found = await engine.inspect()
            more = notes(found, self.tasks.names, await engine.workers())
            damage = await engine.check() if thorough and isinstance(engine, Checkable) else ()
            return replace(found, findings=(*damage, *found.findings, *more))

        return await self._run(ask)

    # Running

    def worker(self, **options: Unpack[WorkerChanges]) -> Worker:
        """A worker for this service's tasks: `await jobs.worker(burst=True).run()`.

        See `WorkerOptions` for the options. It must run on the loop that the service lives on,
        which it becomes if the service is not open yet.
        """
        chosen = self._worker_options(options)
        return Worker(self._life.engine, self.tasks, chosen, hooks=self.hooks, prepare=self.open)

    def _worker_options(self, changes: WorkerChanges) -> WorkerOptions:
        return WorkerOptions(
            concurrency=self.settings.concurrency,
            lease=self.settings.lease,
            log_success=self.settings.log_success,
        ).changed(changes)

    async def run_one(self, job_id: str) -> Job:
        """Make one attempt at this job, here and now; what has become of it.

        The job has ended then, or is pending: given back, or to be retried. Raises `JobNotFound`,
        `UnknownTask`, and `JobNotClaimable` with nothing changed. Cancelled, it cancels the body,
        gives the job back and raises.
        """

        async def run() -> Job:
            return await (await self._single(job_id)).finish()

        return await self._home.run(run)

    async def _single(self, job_id: str, **options: Unpack[WorkerChanges]) -> SingleRun:
        """What runs this job, on the home loop."""
        job = await self.get(job_id)
        self.tasks.get(job.task)
        options = {**options, "queues": (job.queue,), "concurrency": 1}
        worker = self._worker_options(options)
        return SingleRun(self._life.engine, self.tasks, worker, job.row, hooks=self.hooks)

    def receive(
        self,
        *queues: str,
        tasks: Iterable[Task[..., Any] | TaskRef | str] | None = None,
        limit: int = 10,
        wait: Seconds = 0,
        lease: Seconds | None = None,
    ) -> Receiver:
        """Claim jobs by hand: up to `limit` (1 to 1,000) of these queues (none: `default`).

        `async with jobs.receive("mail", limit=10) as deliveries` gives all at once, `async for
        delivery in jobs.receive("mail")` one by one. Each delivery is an async context manager
        whose block ends the job; its lease is kept from the claim on. What was not started when
        the block or the loop ends is given back.

        `tasks` (None: any name) are tasks or their names. If nothing is due, up to `wait` seconds
        are waited for it. `lease` is in seconds. Raises `ConfigurationError`.
        """
        length = self.settings.lease if lease is None else lease
        return Receiver(self, receive_options(queues, tasks, limit, wait, length))

    async def sweep(self, limit: int = 500) -> list[Swept]:
        """Expire what is overdue and take back what lapsed, of any task.

        Up to `limit` (1 to 10,000) of each. Workers do this by themselves; this is for hosts
        without one.
        """
        most = count(limit, SWEEP_MAX)
        return await self._run(lambda engine: engine.sweep(most))

    # Living

    async def migrate(self) -> int:
        """Create or upgrade the store's schema; returns its version. Safe to repeat."""

        async def run() -> int:
            try:
                await self._life.open()
            except SchemaError:
                pass  # not there yet, or older: that is what this is for
            return await self._life.engine.migrate()

        return await self._home.run(run)

    async def open(self) -> None:
        """Open the service now, not at first use. Raises `EngineUnavailable` or `SchemaError`."""
        await self._home.run(self._life.open)

    async def close(self) -> None:
        """Close the service. It may be opened again; closing twice does nothing."""
        if self._home.has_portal:
            await anyio.to_thread.run_sync(self._shut)
        elif self._life.begun:
            await self._home.run(self._life.close)
        self._close_direct()

    @asynccontextmanager
    async def lifespan(self, app: object = None) -> AsyncIterator[None]:
        """The lifespan of an ASGI application: open while it runs."""
        async with self:
            yield

    @property
    def url(self) -> str:
        """Where the jobs are kept, without secrets."""
        return self._life.engine.url

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
        if isinstance(task, Task | TaskRef):
            bound: BoundTask[Any] = task.bind(*args, **kwargs)
            return bound
        if isinstance(task, BoundTask):
            if args or kwargs:
                raise InvalidArguments(f"{task.name} is bound already and takes no arguments")
            return task
        if inspect.iscoroutine(task):
            task.close()
            raise ConfigurationError(
                "the task was called; give it and its arguments apart: enqueue(task, argument)"
            )
        raise ConfigurationError(
            f"task must be a Task, a TaskRef or a task's name, not {task!r}; "
            "was the function decorated with @jobs.task?"
        )

    def _new_jobs(self, bound: Iterable[BoundTask[Any]]) -> list[NewJob]:
        limit = self._life.engine.traits.max_payload
        new_id = self._life.ids
        return [item.new_job(new_id(), limit) for item in bound]

    def _handles(
        self, bound: Iterable[BoundTask[R]], inserted: Iterable[Inserted]
    ) -> list[JobHandle[R]]:
        return [
            JobHandle(self, answer.id, created=answer.created, task=item.task)
            for answer, item in zip(inserted, bound, strict=True)
        ]

    def _put(self, tasks: Iterable[BoundTask[R]]) -> list[JobHandle[R]]:
        """`enqueue_many` of the blocking face: on this thread if the engine can do so."""
        bound = bound_tasks(tasks)  # here, as reading a generator runs the caller's code
        direct = direct_of(self._life.engine)
        if direct is None:
            return self._home.run_sync(lambda: self.enqueue_many(bound))
        self._home.refuse_to_block()
        new = self._new_jobs(bound)
        return self._handles(bound, direct.insert(new)) if new else []

    async def _run(self, operation: Callable[[Engine], Awaitable[T]]) -> T:
        async def run() -> T:
            await self._life.open()
            return await operation(self._life.engine)

        return await self._home.run(run)

    def _shut(self, timeout: float | None = None) -> None:
        """Close from a plain thread and end the portal."""
        if self._life.begun:
            self._home.run_last(self._life.close, timeout)
        else:
            self._home.leave()
        self._close_direct()

    def _close_direct(self) -> None:
        """Let go of the connection of the blocking face, if it has one of its own."""
        direct = direct_of(self._life.engine)
        if direct is not None:
            direct.close()

    def _at_exit(self) -> None:
        try:
            self._shut(_EXIT_SECONDS)
        except Exception as error:
            log.warning("%s could not be closed at exit: %s", self.url, error)

    def __repr__(self) -> str:
        return f"<QueueService {self.url}>"


_EXIT_SECONDS = 10.0
