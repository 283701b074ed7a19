"""The worker: claim, run, settle, until told to stop."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any

from tenure.clock import SYSTEM_CLOCK, Clock
from tenure.core.retention import Retention
from tenure.declarations import Declarations
from tenure.engines.protocol import Engine, Facet
from tenure.leases.keeper import LeaseKeeper
from tenure.leases.process import default_keeper
from tenure.observe.hooks import Happening, Hooks
from tenure.settings import level_of
from tenure.tasks import TaskSet
from tenure.worker.control import Control
from tenure.worker.janitor import Janitor
from tenure.worker.options import WorkerOptions, seconds
from tenure.worker.poller import Poller
from tenure.worker.pruner import Pruner
from tenure.worker.report import Reporter
from tenure.worker.runner import Runner
from tenure.worker.surroundings import PLAIN, Surroundings
from tenure.worker.ticker import Ticker

log = logging.getLogger("tenure.worker")

_LAST_CLAIM_PATIENCE = 15.0
"""Seconds to wait at the end for a claim in flight: longer than any engine lets one take."""


def new_owner() -> str:
    """A name for a holder of jobs that no other one has, in this process or elsewhere."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"


class Worker:
    """Runs the jobs of one service in this process. Single use: `run` once.

    `stop()` may be called from the worker's loop at any time: the first call drains, the second
    cancels what still runs.
    """

    def __init__(
        self,
        engine: Engine,
        tasks: TaskSet,
        options: WorkerOptions,
        *,
        hooks: Hooks | None = None,
        keeper: LeaseKeeper | None = None,
        clock: Clock = SYSTEM_CLOCK,
        prepare: Callable[[], Awaitable[None]] | None = None,
        declarations: Declarations | None = None,
        retention: Retention | None = None,
        owner: str | None = None,
        surroundings: Surroundings = PLAIN,
    ) -> None:
        self.id = new_owner() if owner is None else owner
        self.options = options
        self._prepare = prepare
        self._begun = False
        self._stops = 0
        self._stopping = asyncio.Event()
        self._fatal: BaseException | None = None
        self._hooks = hooks or Hooks()
        self._keeper = keeper or default_keeper()
        level = level_of(options.log_level, "log_level")
        reporter = Reporter(self._hooks, log_success=options.log_success, log_level=level)
        self._sanitized = surroundings.describer.sanitizes
        self._runner = Runner(
            engine,
            tasks,
            options,
            owner=self.id,
            keeper=self._keeper,
            reporter=reporter,
            clock=clock,
            surroundings=surroundings,
        )
        self._poller = Poller(
            engine,
            options,
            owner=self.id,
            tasks=tasks,
            holder=self._runner,
            clock=clock,
        )
        self._runner.freed = self._freed
        self._runner.fail = self._fail
        self._ticker: Ticker | None = None
        if declarations is not None and Facet.SCHEDULES in engine.traits.facets:
            self._ticker = Ticker(engine, declarations, hooks=self._hooks, clock=clock)
        self._control = Control(
            engine,
            options.queues,
            wake=self._poller.wake,
            cancel=self._runner.ask,
            changed=self._changed,
        )
        self._pruner = Pruner(engine, retention or Retention(), clock=clock)
        self._janitor = Janitor(engine, reporter, self._runner.callbacks)

    async def run(self) -> None:
        """Work until stopped, or in burst mode until nothing is due and nothing runs.

        Cancelling this coroutine cancels the running jobs, releases them and raises. SystemExit
        and KeyboardInterrupt of a body release its job, stop the worker and are raised here, and
        so is an error of the engine's other than `EngineUnavailable`. Raises `RuntimeError` when
        called a second time.
        """
        if self._begun:
            raise RuntimeError("a worker runs only once; make another one with jobs.worker()")
        self._begun = True
        if self._prepare is not None:
            await self._prepare()
        if self._ticker is not None and self.options.burst:
            await self._ticker.step()  # so that what is due by then is run, too
        unhook = self._keeper.hooks.add(self._heard, "worker.stalled")
        self._runner.settler.start()
        poller = asyncio.create_task(self._guarded(self._poll()))
        helpers = [asyncio.create_task(self._guarded(work)) for work in self._helpers()]
        try:
            await self._stopping.wait()
        except asyncio.CancelledError:
            self._runner.cancel_all()
            raise
        finally:
            shut_down = self._shut_down(poller, helpers)
            await _uncancelled(shut_down, self._runner.cancel_all)
            unhook()
        if self._fatal is not None:
            raise self._fatal

    def stop(self) -> None:
        """First call: claim no more and let running jobs end. Second call: cancel them."""
        self._stops += 1
        self._poller.stop()
        self._stopping.set()
        if self._stops > 1:
            self._runner.cancel_all()

    @property
    def active(self) -> int:
        """How many jobs run now."""
        return self._runner.active

    @property
    def running_out(self) -> bool:
        """Whether the worker ends, and waits for jobs whose `on_shutdown` is "run_out"."""
        return self._runner.running_out

    @property
    def left_behind(self) -> int:
        """How many bodies still run although their attempt is over; they ignored being stopped."""
        return self._runner.left_behind

    def _heard(self, happening: Happening) -> None:
        """Pass on what the keeper says about this worker's loop: it has hooks of its own."""
        if self._keeper.hooks is not self._hooks:
            self._hooks.emit(happening.name, **happening.facts)

    def _fail(self, error: BaseException) -> None:
        """The worker must end: it drains, and `run` raises the first of such errors."""
        if self._fatal is None:
            self._fatal = error
            trace = None if self._sanitized else error
            log.critical("the worker ends: %s", type(error).__qualname__, exc_info=trace)
        self._poller.stop()
        self._stopping.set()

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        """A helper that breaks must not leave a worker that looks alive."""
        try:
            await work
        except Exception as error:
            self._fail(error)

    def _helpers(self) -> Iterable[Coroutine[Any, Any, None]]:
        """What goes on beside the claiming."""
        ticker = () if self._ticker is None else (self._ticker.run(),)
        return self._control.run(), self._janitor.run(), self._pruner.run(), *ticker

    def _changed(self) -> None:
        if self._ticker is not None:
            self._ticker.wake()

    async def _poll(self) -> None:
        await self._poller.run()
        self._stopping.set()  # in burst mode it ends by itself

    def _freed(self) -> None:
        self._poller.slot_freed()
        if self.options.burst and not self._runner.active:
            self._poller.wake()

    async def _shut_down(
        self, poller: asyncio.Task[None], helpers: Iterable[asyncio.Task[None]]
    ) -> None:
        self._poller.stop()
        # A claim in flight must not be left without a holder.
        await asyncio.wait({poller}, timeout=_LAST_CLAIM_PATIENCE)
        try:
            await self._runner.drain(seconds(self.options.shutdown_timeout, "shutdown_timeout"))
            await self._runner.run_out()
            await self._runner.close()
        finally:
            tasks = [poller, *helpers]
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=1.0)


async def _uncancelled(work: Coroutine[Any, Any, None], hurry: Callable[[], None]) -> None:
    """Run to the end even if the caller is cancelled meanwhile; then raise the cancellation.

    A cancellation is passed on as a call of `hurry`.
    """
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
            hurry()
        except BaseException:
            break  # of the work itself
    task.result()
    if cancelled is not None:
        raise cancelled
