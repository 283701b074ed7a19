"""Enqueueing inside a transaction of the caller: `jobs.using(connection)`."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, overload

from tenure.core.job import NewJob
from tenure.engines.answers import at_once, awaited
from tenure.engines.protocol import Inserted
from tenure.errors import ConfigurationError
from tenure.handles import JobHandle
from tenure.tasks import BoundTask, Task, TaskRef, bound_tasks

if TYPE_CHECKING:
    from tenure.service import QueueService
    from tenure.sync import JobHandle as SyncJobHandle

P = ParamSpec("P")
R = TypeVar("R")


class _Joining:
    """What both faces share: the work itself, on the caller's thread and connection."""

    def __init__(self, service: QueueService, connection: object) -> None:
        self._service = service
        self._joined = service._life.engine.join(connection)

    def _insert(self, new: Sequence[NewJob]) -> list[Inserted] | Awaitable[list[Inserted]]:
        return self._joined.insert(new)


def _outside(tasks: Iterable[BoundTask[R]]) -> list[BoundTask[R]]:
    """These, none of which is to run at its enqueue. Raises `ConfigurationError`."""
    bound = bound_tasks(tasks)
    for item in bound:
        if item.spec.executor == "inline":
            raise ConfigurationError(
                f"{item.name}: executor inline cannot run within a transaction, since the job "
                "is not there before the commit; enqueue it with options(executor=None)"
            )
    return bound


class Using(_Joining):
    """Enqueues that become true with the caller's commit, and are gone with its rollback.

    The work is done on the caller's thread and connection. As a context manager that is left after
    the commit, it wakes workers; without, they find the jobs by looking, a moment later.
    """

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
        """As `QueueService.enqueue`. What is refused leaves the transaction as it was."""
        bound = self._service._enqueueing.bind(task, args, kwargs)
        [handle] = await self.enqueue_many([bound])
        return handle

    async def enqueue_many(self, tasks: Iterable[BoundTask[R]]) -> list[JobHandle[R]]:
        """As `QueueService.enqueue_many`."""
        put = self._service._enqueueing.put
        return await put(_outside(tasks), lambda new: awaited(self._insert(new)))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._joined.wake()


class SyncUsing(_Joining):
    """The blocking twin of `Using`."""

    @overload
    def enqueue(
        self, task: Task[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> SyncJobHandle[R]: ...
    @overload
    def enqueue(self, task: BoundTask[R], /) -> SyncJobHandle[R]: ...
    @overload
    def enqueue(self, task: TaskRef | str, /, *args: Any, **kwargs: Any) -> SyncJobHandle[Any]: ...
    def enqueue(self, task: Any, /, *args: Any, **kwargs: Any) -> SyncJobHandle[Any]:
        """As `QueueService.enqueue`. What is refused leaves the transaction as it was."""
        bound = self._service._enqueueing.bind(task, args, kwargs)
        [handle] = self.enqueue_many([bound])
        return handle

    def enqueue_many(self, tasks: Iterable[BoundTask[R]]) -> list[SyncJobHandle[R]]:
        """As `QueueService.enqueue_many`."""
        from tenure.sync import JobHandle as SyncJobHandle

        put = self._service._enqueueing.put_sync
        handles = put(_outside(tasks), lambda new: at_once(self._insert(new)))
        return [SyncJobHandle(handle, self._service) for handle in handles]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._joined.wake()
