"""How jobs come into a store: from tasks and arguments to handles."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from tenure.ambient import headers_now
from tenure.core.insertion import Inserted
from tenure.core.job import NewJob
from tenure.drafts import Chains, Draft
from tenure.engines.optional import direct_of
from tenure.errors import ConfigurationError, InvalidArguments
from tenure.handles import JobHandle
from tenure.tasks import BoundTask, Limits, Task, TaskRef

if TYPE_CHECKING:
    from tenure.service import QueueService

R = TypeVar("R")

Insert = Callable[[Sequence[NewJob]], list[Inserted]]
AsyncInsert = Callable[[Sequence[NewJob]], Awaitable[list[Inserted]]]


class Enqueueing:
    """Makes the jobs of one service, on the caller's thread, and has them inserted.

    There what surrounds the call is known: its correlation, its trace, and who acts.
    """

    def __init__(self, service: QueueService) -> None:
        self._service = service

    def bind(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> BoundTask[Any]:
        """What is to be enqueued, from all the ways to say it."""
        if isinstance(task, str):
            task = self._service.tasks.get(task)
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

    def job_of(self, bound: BoundTask[Any], id: str) -> NewJob:
        """The job that is not enqueued by a caller, but by itself when its time has come."""
        return bound.new_job(id, self._limits())

    async def put(self, bound: list[BoundTask[R]], insert: AsyncInsert) -> list[JobHandle[R]]:
        """Have these inserted as one batch, through the middleware."""
        if not bound:
            return []
        run = self._service._home.run
        if not self._service.settings.enqueue_middleware:
            return self._handles(bound, await insert(self._new_jobs(bound)))
        chains, drafts = self._chains(bound)
        await run(chains.before)
        try:
            changed = [draft.bound() for draft in drafts]
            inserted = await insert(self._new_jobs(changed, drafts))
        except BaseException as error:
            await run(partial(chains.failed, error))
            raise
        handles = self._handles(bound, inserted)
        await run(partial(chains.after, handles))
        return handles

    def put_sync(
        self, bound: list[BoundTask[R]], insert: Insert | None = None
    ) -> list[JobHandle[R]]:
        """As `put`, blocking. `insert` is by default the engine's own, on this thread if it can."""
        if not bound:
            return []
        home = self._service._home
        if insert is None and any(map(self._service._runs_inline, bound)):
            return home.run_sync(lambda: self._service.enqueue_many(bound))
        insert = insert or self._direct()
        if not self._service.settings.enqueue_middleware:
            return self._handles(bound, insert(self._new_jobs(bound)))
        chains, drafts = self._chains(bound)
        home.run_sync(chains.before)
        try:
            changed = [draft.bound() for draft in drafts]
            inserted = insert(self._new_jobs(changed, drafts))
        except BaseException as error:
            home.run_sync(partial(chains.failed, error))
            raise
        handles = self._handles(bound, inserted)
        home.run_sync(partial(chains.after, handles))
        return handles

    def _direct(self) -> Insert:
        service = self._service
        direct = direct_of(service._life.engine)
        if direct is not None:
            service._home.refuse_to_block()
            return direct.insert
        return lambda new: service._home.run_sync(
            lambda: service._run(lambda engine: engine.insert(new))
        )

    def _chains(self, bound: Sequence[BoundTask[Any]]) -> tuple[Chains, list[Draft]]:
        headers = headers_now()
        drafts = [Draft(item, headers) for item in bound]
        return Chains(self._service.settings.enqueue_middleware, drafts), drafts

    def _new_jobs(
        self, bound: Sequence[BoundTask[Any]], drafts: Sequence[Draft] = ()
    ) -> list[NewJob]:
        self._service._check_inline(bound)
        limits, new_id = self._limits(), self._service._life.ids
        if drafts:
            pairs = zip(bound, drafts, strict=True)
            return [item.new_job(new_id(), limits, draft.headers) for item, draft in pairs]
        headers = headers_now()
        return [item.new_job(new_id(), limits, headers) for item in bound]

    def _limits(self) -> Limits:
        traits, settings = self._service._life.engine.traits, self._service.settings
        return Limits(traits.max_payload, settings.max_identity_bytes)

    def _handles(
        self, bound: Sequence[BoundTask[R]], inserted: Sequence[Inserted]
    ) -> list[JobHandle[R]]:
        return [
            JobHandle(
                self._service,
                answer.id,
                created=answer.created,
                cancelling=answer.cancelling,
                task=item.task,
            )
            for answer, item in zip(inserted, bound, strict=True)
        ]
