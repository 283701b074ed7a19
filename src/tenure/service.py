"""QueueService: the one object that applications touch."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, Unpack, overload

import anyio.to_thread
from msgspec.structs import replace

from tenure.core.durations import SECOND, Seconds, micros
from tenure.core.fleet import Inspection, notes
from tenure.core.job import Job
from tenure.declarations import Declarations
from tenure.engines.open import open_engine
from tenure.engines.optional import Checkable, direct_of
from tenure.engines.protocol import Engine
from tenure.enqueueing import Enqueueing
from tenure.errors import ConfigurationError, SchemaError
from tenure.handles import JobHandle
from tenure.identities import Identities
from tenure.joining import Using
from tenure.lifetime import Lifetime
from tenure.lookups import checked_ids
from tenure.loops import Home
from tenure.observe.hooks import Hooks
from tenure.operating import Operating
from tenure.options import TaskChanges, TaskOptions, changed
from tenure.queues import Queues
from tenure.receipts import Receipts
from tenure.receiving import Receiver, Receiving, receive_options
from tenure.running import Running
from tenure.schedules import Schedules
from tenure.settings import calling_module, load
from tenure.tasks import BoundTask, Decorator, Task, TaskRef, TaskSet, bound_tasks
from tenure.wiring import ServiceSettings, companion_of, surroundings_of

if TYPE_CHECKING:
    from tenure.sync import QueueService as SyncQueueService

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


log = logging.getLogger("tenure")


class QueueService(Running, Operating):
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
        **settings: Unpack[ServiceSettings],
    ) -> None:
        self.settings = load({"url": url, **settings})
        self.tasks = TaskSet()
        self.tasks.collect(tasks)
        self.hooks = Hooks()
        self.queues = Queues(self)
        self.receipts = Receipts(self)
        self.identities = Identities(self)
        self._surroundings = surroundings_of(self.settings)
        self._enqueueing = Enqueueing(self)
        app = self.settings.app_name or calling_module()
        self._declarations = Declarations(self.tasks, app, self._enqueueing.job_of)
        self.schedules = Schedules(self, self._declarations)
        self._home = Home()
        self._receiving = Receiving(self)
        try:
            self._life = Lifetime(lambda: open_engine(self.settings.url), self._at_exit)
        except ConfigurationError as error:
            if url is not None:
                raise
            raise ConfigurationError(f"TENURE_URL or [tool.tenure] url: {error}") from error
        self._life.before_close = self._receiving.close
        self._life.companion = companion_of(self.settings)

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
        [handle] = await self.enqueue_many([self._enqueueing.bind(task, args, kwargs)])
        return handle

    async def enqueue_many(self, tasks: Iterable[BoundTask[R]]) -> list[JobHandle[R]]:
        """Put any number of jobs in as one atomic batch: all are stored, or none.

        `await jobs.enqueue_many([resize.bind(path) for path in paths])`. Handles come in the
        order given. Raises as `enqueue` does.
        """
        bound = bound_tasks(tasks)
        handles = await self._enqueueing.put(
            bound, lambda new: self._run(lambda engine: engine.insert(new))
        )
        await self._run_inline(bound, handles)
        return handles

    def using(self, connection: object) -> Using:
        """Enqueue inside the caller's own transaction, on the caller's connection.

        `await jobs.using(connection).enqueue(resize, "a.jpg")`: the job is there if and when the
        caller commits. On SQLite the connection is a `sqlite3.Connection` to the same file after
        `BEGIN IMMEDIATE`, on PostgreSQL one of psycopg or asyncpg in a transaction; or a
        connection or session of SQLAlchemy 2, or Django's, over one of these; on Redis a pipeline
        that is a transaction. Raises `ConfigurationError` saying what to do for any other.
        """
        return Using(self, connection)

    # Looking after jobs

    def handle(self, job_id: str) -> JobHandle[Any]:
        """A handle of a job that was enqueued elsewhere."""
        return JobHandle(self, job_id)

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

    async def inspect(self, *, thorough: bool = False) -> Inspection:
        """What is wrong with the store or deserves attention, and the settings of its queues.

        `thorough` also reads everything, where the engine can look for damage that way. Findings
        that are a `problem` put jobs or data in danger; the others are hints.
        """

        async def ask(engine: Engine) -> Inspection:
            found = await engine.inspect()
            more = notes(found, self.tasks.names, await engine.workers())
            more += await self.schedules._notes()
            damage = await engine.check() if thorough and isinstance(engine, Checkable) else ()
            return replace(found, findings=(*damage, *found.findings, *more))

        return await self._run(ask)

    # Running

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
