"""What `QueueService` does with jobs that are there: look for them, change them, remove them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from tenure import operations
from tenure.core.durations import SECOND, Seconds, micros
from tenure.core.job import Job
from tenure.core.query import (
    PAGE_MAX,
    CancelResult,
    Filter,
    Found,
    Page,
    RequeueResult,
    Swept,
)
from tenure.core.upkeep import Maintained
from tenure.engines.protocol import Engine, Facet
from tenure.errors import InvalidArguments, JobNotFound
from tenure.lookups import SWEEP_MAX, Selection, checked_ids, count, page, selection
from tenure.maintenance import Maintenance
from tenure.worker.callbacks import sweep
from tenure.worker.ticker import Ticker

if TYPE_CHECKING:
    from tenure.declarations import Declarations
    from tenure.lifetime import Lifetime
    from tenure.observe.hooks import Hooks
    from tenure.settings import Settings
    from tenure.tasks import TaskSet
    from tenure.worker.surroundings import Surroundings

T = TypeVar("T")


class Operating:
    """The part of a service for those who look after its jobs."""

    settings: Settings
    tasks: TaskSet
    hooks: Hooks
    _declarations: Declarations
    _surroundings: Surroundings
    _life: Lifetime

    async def get(self, job_id: str) -> Job:
        """The job with this id. Raises `JobNotFound`."""
        ids = checked_ids((job_id,))
        [row] = await self._run(lambda engine: engine.get(ids))
        if row is None:
            raise JobNotFound(f"no job has the id {job_id!r}")
        return Job(row)

    async def find(
        self, *, limit: int = 100, before: str | None = None, **where: Unpack[Selection]
    ) -> list[Job]:
        """Jobs that match, newest first: up to `limit` (1 to 1,000) older than the id `before`.

        See `Selection` for what they can be found by. Each step of the search is bounded; looking
        for what is rare takes as many as there are jobs to look at.
        """
        chosen, part = selection(where), page(limit, before)
        rows = await self._run(lambda engine: operations.found(engine, chosen, part))
        return [Job(row) for row in rows]

    async def find_all(self, **where: Unpack[Selection]) -> AsyncIterator[Job]:
        """Every job that matches, newest first, however many: `async for job in jobs.find_all()`.

        Read page by page: a job that is there and matches all the while is met once.
        """
        chosen = selection(where)
        part = Page(PAGE_MAX)
        while True:
            found = await self._run(partial(_find, chosen, part))
            for row in found:
                yield Job(row)
            if found.next is None:
                return
            part = Page(PAGE_MAX, found.next)

    async def cancel(
        self,
        *job_ids: str,
        force: bool = False,
        dry_run: bool = False,
        **where: Unpack[Selection],
    ) -> CancelResult:
        """Cancel pending jobs at once, and ask running ones to stop.

        By their ids, or all that match (see `Selection`; without `states`: that have not ended).
        A running body hears of it within a renewal interval, usually much sooner; if it finishes
        first, it has completed. `force` ends running jobs at once and takes their lease away:
        whatever their bodies do later is refused. `dry_run` changes nothing and tells what it
        would do now.
        """
        ids = checked_ids(job_ids)
        if not where and not dry_run:
            return await self._run(lambda engine: operations.cancel(engine, ids, force=force))
        chosen = selection(where, ids)
        if not ids and not where:
            return CancelResult()  # of no ids: not of all jobs
        return await self._run(
            lambda engine: operations.cancel_matching(engine, chosen, force=force, dry_run=dry_run)
        )

    async def requeue(
        self,
        *job_ids: str,
        arguments: Mapping[str, Any] | None = None,
        dry_run: bool = False,
        **where: Unpack[Selection],
    ) -> RequeueResult:
        """Make ended jobs pending again, with fresh budgets and no expiry.

        By their ids, or all that match (see `Selection`; without `states`: that failed).
        `arguments`, for one job, by parameter name, take the place of those it had; they are
        checked and encoded as at enqueue if this service knows the task. Its unique key stays.
        `dry_run` changes nothing and tells what it would do now, but for unique keys that are
        taken. Raises `InvalidArguments`.
        """
        ids = checked_ids(job_ids)
        if arguments is not None:
            return await self._requeue_edited(ids, where, arguments, dry_run=dry_run)
        if not where and not dry_run:
            return await self._run(lambda engine: operations.requeue(engine, ids))
        chosen = selection(where, ids)
        if not ids and not where:
            return RequeueResult()
        return await self._run(
            lambda engine: operations.requeue_matching(engine, chosen, dry_run=dry_run)
        )

    async def _requeue_edited(
        self, ids: tuple[str, ...], where: Selection, arguments: Mapping[str, Any], *, dry_run: bool
    ) -> RequeueResult:
        if len(ids) != 1 or where:
            raise InvalidArguments("arguments are given for one job, by its id")
        job = await self.get(ids[0])
        task = self.tasks.get(job.task) if job.task in self.tasks else None
        payload = operations.edited(task, job.task, arguments)
        if dry_run:
            chosen = selection({}, ids)
            return await self._run(
                lambda engine: operations.requeue_matching(engine, chosen, dry_run=True)
            )
        return await self._run(lambda engine: operations.requeue(engine, ids, payload))

    async def prune(
        self,
        *job_ids: str,
        older_than: Seconds = 0,
        dry_run: bool = False,
        **where: Unpack[Selection],
    ) -> int:
        """Remove jobs that ended `older_than` seconds ago or earlier, for good; returns how many.

        Those with these ids, or all that match (see `Selection`). What has not ended stays, and
        so do reservations of unique keys. `dry_run` removes nothing and counts. Workers remove by
        themselves what `Settings.retention` no longer keeps. Raises `InvalidArguments` if neither
        ids nor a filter nor an age is given.
        """
        ids = checked_ids(job_ids)
        age = micros(older_than, "older_than")
        if not ids and not where and not age:
            raise InvalidArguments("prune what? Give ids, a filter, or older_than= seconds")
        chosen = selection(where, ids)
        before = self._life.clock.time_us() - age + 1
        return await self._run(
            lambda engine: operations.prune_matching(engine, chosen, before, dry_run=dry_run)
        )

    async def maintain(self, budget: Seconds = 30) -> Maintained:
        """Do the housekeeping of the store, for about `budget` seconds (0 to 86,400).

        In phases, each in bounded steps and with its share of the time: `sweep`, `retention` of
        jobs, `schedules` that are due (where this service has tasks) and `events`. One runner in a
        fleet does it at a time; it has the right for the budget and a minute. Who comes meanwhile
        is told so and does nothing. Workers do all of it by themselves; this is for hosts without
        one, and to catch up.
        """
        seconds = micros(budget, "budget", maximum=86_400) / SECOND

        async def maintain(engine: Engine) -> Maintained:
            describer = self._surroundings.describer
            work = Maintenance(
                engine,
                self.settings.retention,
                clock=self._life.clock,
                sweep=lambda limit: sweep(engine, limit, self.tasks, describer),
                ticker=self._ticker(engine) if self.tasks.names else None,
            )
            return await work.run(seconds)

        return await self._run(maintain)

    def _ticker(self, engine: Engine) -> Ticker | None:
        """What fires the schedules that this service knows, by the clock of the store."""
        if Facet.SCHEDULES not in engine.traits.facets:
            return None
        clock = self._life.clock
        return Ticker(engine, self._declarations, hooks=self.hooks, clock=clock)

    async def sweep(self, limit: int = 500) -> list[Swept]:
        """Expire what is overdue and take back what lapsed, of any task.

        Up to `limit` (1 to 10,000) of each. Workers do this by themselves; this is for hosts
        without one. Calls `on_failure` of the tasks whose jobs have failed by it.
        """
        most = count(limit, SWEEP_MAX)
        return await self._run(
            lambda engine: sweep(engine, most, self.tasks, self._surroundings.describer)
        )

    if TYPE_CHECKING:  # of the other parts of a service

        async def _run(self, operation: Callable[[Engine], Awaitable[T]]) -> T: ...


async def _find(where: Filter, page: Page, engine: Engine) -> Found:
    return await engine.find(where, page)
