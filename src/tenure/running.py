"""What `QueueService` does where there is no worker: claim a job, and run it here and now."""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from tenure.core.durations import SECOND, Seconds
from tenure.core.job import Job, JobRow
from tenure.core.outcomes import Released, ReleaseReason, Verdict
from tenure.core.rules import decide
from tenure.core.states import State
from tenure.engines.protocol import Claim, Engine
from tenure.errors import (
    ConfigurationError,
    EngineUnavailable,
    InvalidArguments,
    JobNotClaimable,
    JobNotFound,
    LeaseLost,
)
from tenure.handles import JobHandle
from tenure.receiving import receive_options
from tenure.tasks import BoundTask, Task, TaskRef
from tenure.worker.options import WorkerChanges, WorkerOptions
from tenure.worker.single import HeldRun, SingleRun, reason
from tenure.worker.worker import Worker, new_owner

if TYPE_CHECKING:
    from tenure.declarations import Declarations
    from tenure.lifetime import Lifetime
    from tenure.loops import Home
    from tenure.observe.hooks import Hooks
    from tenure.settings import Settings
    from tenure.tasks import TaskSet
    from tenure.worker.surroundings import Surroundings

T = TypeVar("T")

log = logging.getLogger("tenure")


class Running:
    """The part of a service that runs jobs."""

    settings: Settings
    tasks: TaskSet
    hooks: Hooks
    _declarations: Declarations
    _surroundings: Surroundings
    _life: Lifetime
    _home: Home
    _inline = False
    """Whether every job runs at its enqueue, as in tests."""

    def worker(self, **options: Unpack[WorkerChanges]) -> Worker:
        """A worker for this service's tasks: `await jobs.worker(burst=True).run()`.

        See `WorkerOptions` for the options. It must run on the loop that the service lives on,
        which it becomes if the service is not open yet.
        """
        return Worker(
            self._life.engine,
            self.tasks,
            self._worker_options(options),
            hooks=self.hooks,
            prepare=self.open,
            surroundings=self._surroundings,
            declarations=self._declarations,
            retention=self.settings.retention,
        )

    async def claim(
        self,
        *queues: str,
        tasks: Iterable[Task[..., Any] | TaskRef | str] | None = None,
        limit: int = 1,
        lease: Seconds | None = None,
    ) -> list[Job]:
        """Claim up to `limit` (1 to 1,000) due jobs of these queues (none: `default`).

        `for job in await jobs.claim(): await jobs.execute(job)`. `tasks` are tasks or their names;
        None: all that this service knows. Nothing is waited for, and until `execute` nobody renews
        the leases: `lease` is in seconds, and a job that is not executed by then is somebody
        else's. Raises `ConfigurationError`.
        """
        wanted = self.tasks.names if tasks is None else tasks
        length = self.settings.lease if lease is None else lease
        options = receive_options(queues, wanted, limit, 0, length)
        claim = Claim(
            owner=self._claimant(),
            limit=options.limit,
            lease=round(options.times.length * SECOND),
            queues=options.queues,
            tasks=options.tasks,
        )
        return [Job(row) for row in await self._run(lambda engine: engine.claim(claim))]

    async def execute(self, job: Job) -> Job:
        """Run a claimed job through the whole life cycle; what has become of it.

        Its lease is renewed at once, and kept from now on. The outcome is stored as a worker would:
        the job has ended then, or is pending: given back, or to be retried. Its failure does not
        raise. Raises `LeaseLost`, with nothing run, if the job is no longer held by this claim;
        `JobNotClaimable` if it is not claimed, or runs here already; `UnknownTask`. Cancelled, it
        cancels the body, gives the job back and raises.
        """
        if not isinstance(job, Job):
            raise InvalidArguments(
                f"a job that was claimed is needed, as claim() gives it, not {type(job).__name__}"
            )
        row = job.row
        self.tasks.get(row.task)
        if row.state is not State.RUNNING or row.owner is None:
            raise JobNotClaimable(f"job {row.id} is not claimed: {reason(row)}")

        async def run() -> Job:
            executing = self._executing()
            attempt = (row.id, row.token)
            if attempt in executing:
                raise JobNotClaimable(f"job {row.id} is being executed here already")
            executing.add(attempt)
            try:
                await self.open()
                options = self._one_at_a_time(row)
                return await HeldRun(
                    self._life.engine,
                    self.tasks,
                    options,
                    row,
                    hooks=self.hooks,
                    surroundings=self._surroundings,
                    owner=row.owner,
                ).finish()
            finally:
                executing.discard(attempt)

        return await self._home.run(run)

    async def run_one(self, job_id: str, token: int | None = None) -> Job:
        """Make one attempt at this job, here and now; what has become of it.

        The job has ended then, or is pending: given back, or to be retried. With a `token`, the
        job is taken over from the claim with that token, whose holder passed it on: of several
        that come with one token only the first gets the job, and the others raise `LeaseLost`.

        Raises `JobNotFound`, `UnknownTask`, and `JobNotClaimable` with nothing changed. Cancelled,
        it cancels the body, gives the job back and raises.
        """

        if token is not None and (isinstance(token, bool) or not isinstance(token, int)):
            raise InvalidArguments(f"token must be a whole number, not {token!r}")

        async def run() -> Job:
            return await (await self._single(job_id, token)).finish()

        return await self._home.run(run)

    async def _single(
        self, job_id: str, token: int | None = None, **options: Unpack[WorkerChanges]
    ) -> SingleRun:
        """What runs this job, on the home loop."""
        row = (await self.get(job_id)).row
        self.tasks.get(row.task)
        if token is not None:
            await self._run(lambda engine: _take_over(engine, row, token))
        chosen = self._one_at_a_time(row, options)
        return SingleRun(
            self._life.engine,
            self.tasks,
            chosen,
            row,
            hooks=self.hooks,
            surroundings=self._surroundings,
        )

    def _one_at_a_time(self, row: JobRow, options: WorkerChanges | None = None) -> WorkerOptions:
        changes: WorkerChanges = {**(options or {}), "queues": (row.queue,), "concurrency": 1}
        return self._worker_options(changes)

    def _worker_options(self, changes: WorkerChanges) -> WorkerOptions:
        return WorkerOptions(
            concurrency=self.settings.concurrency,
            lease=self.settings.lease,
            log_success=self.settings.log_success,
            log_level=self.settings.log_level,
        ).changed(changes)

    def _runs_inline(self, bound: BoundTask[Any]) -> bool:
        return bound.spec.executor == "inline" or (self._inline and bound.name in self.tasks)

    def _check_inline(self, bound: Iterable[BoundTask[Any]]) -> None:
        """Raise `ConfigurationError` for what is to run here, and whose code is not here."""
        for item in bound:
            if item.spec.executor == "inline" and item.name not in self.tasks:
                raise ConfigurationError(
                    f"{item.name}: executor inline needs the code, which this service does not have"
                )

    async def _run_inline(
        self, bound: Sequence[BoundTask[Any]], handles: Sequence[JobHandle[Any]]
    ) -> None:
        """Run those of these new jobs that are to run at their enqueue, one after the other.

        One that is not due, or that a worker was quicker to take, is left as it is. From here on
        nothing fails the enqueue: the jobs are stored.
        """
        for item, handle in zip(bound, handles, strict=True):
            if not handle.created or item.spec.delay_us or not self._runs_inline(item):
                continue
            try:
                await self.run_one(handle.id)
            except (JobNotClaimable, JobNotFound):
                pass
            except EngineUnavailable as error:
                log.warning("job %s waits for a worker: %s", handle.id, error)

    def _claimant(self) -> str:
        """The owner of what this service claims, in this process."""
        if self._claiming is None or self._claiming[0] != os.getpid():
            self._claiming = os.getpid(), new_owner(), set()
        return self._claiming[1]

    def _executing(self) -> set[tuple[str, int]]:
        """Job and token of what `execute` runs in this process."""
        self._claimant()
        assert self._claiming is not None
        return self._claiming[2]

    _claiming: tuple[int, str, set[tuple[str, int]]] | None = None

    if TYPE_CHECKING:  # of the other parts of a service

        async def get(self, job_id: str) -> Job: ...

        async def open(self) -> None: ...

        async def _run(self, operation: Callable[[Engine], Awaitable[T]]) -> T: ...


async def _take_over(engine: Engine, row: JobRow, token: int) -> None:
    """Give the job back in the name of the claim with this token, which only one caller can."""
    if row.token != token or row.state is not State.RUNNING:
        raise LeaseLost(f"job {row.id} is not held under the token {token} any more")
    settlement = decide(row, Released(ReleaseReason.UNSTARTED), now=row.started_at or 0)
    [answer] = await engine.settle([settlement])
    if answer.verdict is not Verdict.APPLIED:
        raise LeaseLost(f"job {row.id} is not held under the token {token} any more")
