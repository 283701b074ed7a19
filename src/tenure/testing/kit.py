"""What a test asks of a service: what was enqueued, to run it, and to let time pass."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from tenure.core import codec
from tenure.core.durations import Seconds, micros, moment
from tenure.core.job import Job
from tenure.core.query import PAGE_MAX, Filter, Page
from tenure.core.states import State
from tenure.engines.protocol import Engine
from tenure.errors import ConfigurationError, InvalidArguments, JobFailed
from tenure.observe.hooks import Happening
from tenure.service import QueueService
from tenure.tasks import Task, TaskRef
from tenure.testing.clock import ManualClock
from tenure.testing.flaky import Flaky
from tenure.testing.misses import describe_misses
from tenure.worker.pruner import prune_step
from tenure.worker.ticker import Ticker

RUNS_MAX = 1000
"""How many jobs one `drain` runs, unless told otherwise."""

_SWEEP = 500


class Kit:
    """A service on the store of a test. Made by `override`, and by the fixture `tenure_jobs`.

    `service` is the service, `clock` the store's clock (None where it keeps its own), `faults`
    makes operations of the store fail, stall or lose their reply (see `Flaky`). `sync` has the same
    methods for tests without an event loop.
    """

    def __init__(self, service: QueueService, clock: ManualClock | None, faults: Flaky) -> None:
        self.service = service
        self.clock = clock
        self.faults = faults
        self._ticker: Ticker | None = None

    @property
    def sync(self) -> SyncKit:
        """The same, blocking."""
        return SyncKit(self)

    async def assert_enqueued(
        self, task: Task[..., Any] | TaskRef | str, /, **arguments: Any
    ) -> Job:
        """The last job of this task with these arguments, whatever became of it since.

        Arguments that are not named may be anything. Fails the test by an `AssertionError` that
        lists what comes near. Raises `InvalidArguments` for an argument that the task does not
        have.
        """
        name = task if isinstance(task, str) else task.name
        known = self._known(task)
        wanted = _as_stored(known, name, arguments)
        jobs = [job async for job in self.service.find_all()]
        defaults = _defaults(known)
        for job in jobs:
            if job.task == name and _matches({**defaults, **job.arguments}, wanted):
                return job
        raise AssertionError(describe_misses(name, wanted, defaults, jobs))

    async def assert_not_enqueued(
        self, task: Task[..., Any] | TaskRef | str, /, **arguments: Any
    ) -> None:
        """Fail the test if there is a job of this task with these arguments."""
        try:
            job = await self.assert_enqueued(task, **arguments)
        except AssertionError:
            return
        raise AssertionError(f"job {job.id} of {job.task} was enqueued, with {job.arguments!r}")

    async def drain(self, *, check: bool = False, limit: int = RUNS_MAX) -> list[Job]:
        """Run whatever is due, and what that enqueues, until nothing is due any more.

        In a worker, as in production: arguments and results are encoded and decoded. Returns the
        jobs that ran, in the order of their last start, as they are now. `check` raises `JobFailed`
        for the first that failed. A job that waits for its time, as after a failure, stays; see
        `advance`. Raises `AssertionError` after `limit` starts: something enqueues itself.
        """
        return await self.service._home.run(lambda: self._drain(check, limit))

    async def advance(self, seconds: Seconds, *, check: bool = False) -> list[Job]:
        """Let time pass, in the store: whatever becomes due meanwhile runs, each at its time.

        What is due now runs first. Retries, delays, schedules and expiries come in their order, the
        leases of vanished holders run out, and at the end what is kept no longer is removed.
        Returns the jobs that ran. Raises as `drain` does, and `ConfigurationError` where the store
        keeps its own time. The time of the process stands still: timeouts and sleeps in bodies take
        as long as ever.
        """
        return await self.service._home.run(lambda: self._advance(seconds, check))

    async def _drain(self, check: bool, limit: int) -> list[Job]:
        await self.service.open()
        engine = self.service._life.engine
        await self._tick(engine)
        queues = [stats.queue for stats in await engine.stats()]
        started: dict[str, None] = {}
        starts = 0

        def hear(happening: Happening) -> None:
            nonlocal starts
            if happening.name == "job.started":
                starts += 1
                job_id = happening.facts["job_id"]
                started.pop(job_id, None)
                started[job_id] = None
                if starts > limit:
                    worker.stop()

        while queues:
            worker = self.service.worker(queues=queues, burst=True, poll_max=0.05)
            unhook = self.service.hooks.add(hear)
            try:
                await worker.run()
            finally:
                unhook()
            if starts > limit:
                raise AssertionError(f"more than {limit} jobs ran, and there are still more")
            known = set(queues)
            queues = [stats.queue for stats in await engine.stats() if stats.pending]
            queues = [queue for queue in queues if queue not in known]
        await self._tick(engine)  # a schedule may have waited for the end of its job
        rows = await engine.get(list(started))
        jobs = [Job(row) for row in rows if row is not None]
        if check:
            for job in jobs:
                if job.state is State.FAILED:
                    raise JobFailed(job)
        return jobs

    async def _advance(self, seconds: Seconds, check: bool) -> list[Job]:
        clock = self.clock
        if clock is None:
            raise ConfigurationError("this store keeps its own time; use memory:// or sqlite:///")
        end = clock.time_us() + micros(seconds, "seconds")
        ran = await self._drain(check, RUNS_MAX)
        engine = self.service._life.engine
        while (now := clock.time_us()) < end:
            clock.advance(timedelta(microseconds=await _next(engine, now, end) - now))
            while await engine.sweep(_SWEEP):
                pass
            ran += await self._drain(check, RUNS_MAX)
        more = True
        while more:
            retention = self.service.settings.retention
            _, more = await prune_step(engine, retention, clock.time_us())
        return list({job.id: job for job in ran}.values())

    async def _tick(self, engine: Engine) -> None:
        """Fire the schedules that are due by the clock of the store."""
        if self.clock is not None and self.service.tasks.names:
            self._ticker = self._ticker or self.service._ticker(engine)
            if self._ticker is not None:
                await self._ticker.fire_due()

    def _known(self, task: Task[..., Any] | TaskRef | str) -> Task[..., Any] | None:
        if isinstance(task, Task):
            return task
        name = task if isinstance(task, str) else task.name
        return self.service.tasks.get(name) if name in self.service.tasks else None

    def __repr__(self) -> str:
        at = "" if self.clock is None else f" at {moment(self.clock.time_us()):%Y-%m-%d %H:%M:%S}"
        return f"<Kit {self.service.url}{at}>"


class SyncKit:
    """The blocking face of a `Kit`."""

    def __init__(self, kit: Kit) -> None:
        self._kit = kit
        self._home = kit.service._home
        self.service = kit.service.sync
        self.clock = kit.clock
        self.faults = kit.faults

    def assert_enqueued(self, task: Task[..., Any] | TaskRef | str, /, **arguments: Any) -> Job:
        """See `Kit.assert_enqueued`."""
        return self._home.run_sync(lambda: self._kit.assert_enqueued(task, **arguments))

    def assert_not_enqueued(
        self, task: Task[..., Any] | TaskRef | str, /, **arguments: Any
    ) -> None:
        """See `Kit.assert_not_enqueued`."""
        self._home.run_sync(lambda: self._kit.assert_not_enqueued(task, **arguments))

    def drain(self, *, check: bool = False, limit: int = RUNS_MAX) -> list[Job]:
        """See `Kit.drain`."""
        return self._home.run_sync(lambda: self._kit.drain(check=check, limit=limit))

    def advance(self, seconds: Seconds, *, check: bool = False) -> list[Job]:
        """See `Kit.advance`."""
        return self._home.run_sync(lambda: self._kit.advance(seconds, check=check))


async def _next(engine: Engine, now: int, end: int) -> int:
    """The first instant after `now`, up to `end`, at which something in the store may happen."""
    queues = [stats.queue for stats in await engine.stats()]
    due = await engine.next_due(queues) if queues else None
    instants = [end]
    if due:
        instants.append(now + due)
    instants += [s.next_at for s in await engine.schedules() if s.next_at and not s.paused]
    page = Page(PAGE_MAX)
    living = Filter(states=(State.PENDING, State.RUNNING))
    while True:
        found = await engine.find(living, page)
        for row in found:
            instants += [at for at in (row.lease_until, row.expires_at) if at is not None]
        if found.next is None:
            break
        page = Page(PAGE_MAX, found.next)
    return min(instant for instant in instants if instant > now)


def _as_stored(
    task: Task[..., Any] | None, name: str, arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments as plain JSON values, as a job shows them."""
    if task is not None:
        known = inspect.signature(task.function).parameters
        unknown = [argument for argument in arguments if argument not in known]
        takes_any = any(p.kind is p.VAR_KEYWORD for p in known.values())
        if unknown and not takes_any:
            raise InvalidArguments(f"{name} has no argument {unknown[0]!r}")
    return {key: codec.decode(codec.encode(value, key)) for key, value in arguments.items()}


def _defaults(task: Task[..., Any] | None) -> dict[str, Any]:
    """What arguments are that nobody gave, as far as JSON can say it."""
    if task is None:
        return {}
    found = {}
    for name, parameter in inspect.signature(task.function).parameters.items():
        if parameter.default is not parameter.empty and name not in task.signature.injected:
            try:
                found[name] = codec.decode(codec.encode(parameter.default, name))
            except ValueError:
                pass  # such a default can be compared with nothing that was stored
    return found


def _matches(arguments: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    return all(name in arguments and arguments[name] == wanted[name] for name in wanted)
