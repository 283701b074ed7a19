"""Claiming by hand: a batch of deliveries, kept from the claim, and given back if not started."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, overload

import msgspec

from tenure.core.durations import SECOND, Seconds, micros
from tenure.core.job import JobRow
from tenure.core.lease import LeaseTimes, lease_times
from tenure.core.outcomes import Outcome, Released, ReleaseReason
from tenure.core.rules import admit
from tenure.deliveries import Delivery, Held
from tenure.engines.protocol import Claim, Engine, Topic
from tenure.errors import ConfigurationError, EngineUnavailable, TenureError
from tenure.leases.keeper import LeaseKeeper
from tenure.leases.lease import Lease
from tenure.leases.once import in_thread, uninterrupted
from tenure.leases.process import default_keeper
from tenure.options import check_name
from tenure.telling import Telling
from tenure.worker.renewal import EngineLeases

if TYPE_CHECKING:
    from tenure.service import QueueService

log = logging.getLogger("tenure.deliveries")

LIMIT_MAX = 1000
WAIT_MAX = 86_400.0
_POLL_SECONDS = 1.0


class ReceiveOptions(msgspec.Struct, frozen=True):
    """Which jobs to claim, and how; checked."""

    queues: tuple[str, ...]
    tasks: tuple[str, ...] | None
    limit: int
    wait: float
    times: LeaseTimes


def receive_options(
    queues: Sequence[str],
    tasks: Iterable[Any] | None,
    limit: int,
    wait: Seconds,
    lease: Seconds,
) -> ReceiveOptions:
    """Checked options. Raises `ConfigurationError` naming what is wrong."""
    for queue in queues:
        check_name(queue, "queue")
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= LIMIT_MAX:
        raise ConfigurationError(f"limit must be an integer from 1 to {LIMIT_MAX}, not {limit!r}")
    names = None
    if tasks is not None:
        given = [tasks] if isinstance(tasks, str) else list(tasks)
        names = tuple(getattr(task, "name", task) for task in given)
        if not names or not all(isinstance(name, str) for name in names):
            raise ConfigurationError("tasks must be tasks or their names, at least one")
    seconds = micros(wait, "wait", maximum=WAIT_MAX) / SECOND
    return ReceiveOptions(tuple(queues) or ("default",), names, limit, seconds, lease_times(lease))


class Batch:
    """What one call of `receive` claimed. Filled on the service's loop, emptied anywhere."""

    def __init__(self, service: QueueService) -> None:
        self.held: list[Held] = []
        self._service = service
        self._abandoned = False
        self._loop: asyncio.AbstractEventLoop | None = None

    async def fill(self, options: ReceiveOptions) -> None:
        """Claim, and wait for jobs if that was asked for. Cancelled, it leaves nothing claimed."""
        try:
            await self._service._run(partial(self._fill, options))
        except BaseException:
            self.abandon()
            raise

    async def release(self) -> None:
        """Give back what was not started; what cannot be given back lapses."""
        unstarted = [held for held in self.held if held.take()]
        if unstarted:
            await self._service._run(partial(_give_back, unstarted=unstarted))

    def abandon(self) -> None:
        """As `release`, soon and without waiting: for finalizers and after a cancellation."""
        self._abandoned = True
        loop = self._loop
        if loop is None or all(held.started for held in self.held):
            return
        try:
            loop.call_soon_threadsafe(lambda: _start(self.release()))
        except RuntimeError:  # the loop is gone
            for held in self.held:
                if held.take():
                    held.keeper.remove_later([held.lease])

    async def _fill(self, options: ReceiveOptions, engine: Engine) -> None:
        self._loop = asyncio.get_running_loop()
        ready = await self._service._receiving.claim(engine, options)
        self.held = ready
        if self._abandoned:
            _start(self.release())


class Deliveries(Sequence[Delivery]):
    """The deliveries of one batch, in the order of the claim."""

    def __init__(self, batch: Batch) -> None:
        self._deliveries = [Delivery(held) for held in batch.held]

    @overload
    def __getitem__(self, index: int) -> Delivery: ...
    @overload
    def __getitem__(self, index: slice) -> list[Delivery]: ...
    def __getitem__(self, index: int | slice) -> Delivery | list[Delivery]:
        return self._deliveries[index]

    def __len__(self) -> int:
        return len(self._deliveries)

    def __iter__(self) -> Iterator[Delivery]:
        return iter(self._deliveries)


class Receiver:
    """What `QueueService.receive` returns: enter it with `async with`, or loop with `async for`."""

    def __init__(self, service: QueueService, options: ReceiveOptions) -> None:
        self._service = service
        self._options = options
        self._batch: Batch | None = None

    async def __aenter__(self) -> Deliveries:
        if self._batch is not None:
            raise RuntimeError("a receiver is entered once; call receive() again")
        self._batch = Batch(self._service)
        await self._batch.fill(self._options)
        return Deliveries(self._batch)

    async def __aexit__(self, *exc: object) -> None:
        assert self._batch is not None
        await _released(self._batch)

    def __aiter__(self) -> AsyncIterator[Delivery]:
        return _Stream(Batch(self._service), self._options)


class _Stream:
    """Hands out a batch one by one; what was not started when the loop ends is given back."""

    def __init__(self, batch: Batch, options: ReceiveOptions) -> None:
        self._batch = batch
        self._options = options
        self._left: deque[Delivery] | None = None

    def __aiter__(self) -> _Stream:
        return self

    async def __anext__(self) -> Delivery:
        if self._left is None:
            await self._batch.fill(self._options)
            self._left = deque(Deliveries(self._batch))
        if not self._left:
            await _released(self._batch)
            raise StopAsyncIteration
        return self._left.popleft()

    def __del__(self) -> None:
        self._batch.abandon()  # after a `break`, nobody else does


class Receiving:
    """What all receivers of a service share: who they are, and how their leases are kept."""

    def __init__(
        self, service: QueueService, keeper: Callable[[], LeaseKeeper] = default_keeper
    ) -> None:
        self._service = service
        self.telling = Telling(service.tasks, service._surroundings)
        self._find_keeper = keeper
        self._clients: dict[int, tuple[Engine, LeaseKeeper, EngineLeases]] = {}
        self._owner = ""
        self._pid = 0

    async def claim(self, engine: Engine, options: ReceiveOptions) -> list[Held]:
        """Jobs that may be started, with their leases kept; empty after `options.wait` seconds."""
        keeper = self._client(engine)[0]
        end = keeper.clock.monotonic() + options.wait
        held = await self._once(engine, options)
        if held or not options.wait:
            return held
        async with engine.listen({Topic.QUEUE}) as listener:
            while not (held := await self._once(engine, options)):
                left = end - keeper.clock.monotonic()
                if left <= 0:
                    break
                due = await engine.next_due(options.queues, options.tasks)
                nap = _POLL_SECONDS if due is None else max(0.005, due / SECOND)
                await listener.wait(min(left, nap, _POLL_SECONDS))
        return held

    async def close(self) -> None:
        """Let go of the leases that are still kept, and of the connections that renew them."""
        clients, self._clients = self._clients, {}
        if self._pid == os.getpid():
            for _, keeper, client in clients.values():
                await in_thread(partial(keeper.discard, client))
        await self.telling.close()

    async def _once(self, engine: Engine, options: ReceiveOptions) -> list[Held]:
        """One claim. Cancelled while it is under way, it gives back what it brings."""
        work = asyncio.ensure_future(self._take(engine, options))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            work.add_done_callback(partial(_not_wanted, engine))
            raise

    async def _take(self, engine: Engine, options: ReceiveOptions) -> list[Held]:
        keeper, client = self._client(engine)
        self.telling.open()
        claim = Claim(
            owner=self._owner,
            limit=options.limit,
            lease=round(options.times.length * SECOND),
            queues=options.queues,
            tasks=options.tasks,
        )
        sent_at = keeper.clock.monotonic()
        rows = await engine.claim(claim)
        leases = [self._lease(row, options.times, sent_at, keeper) for row in rows]
        all_held = [
            Held(self._service, keeper, client, engine, row, lease, sent_at)
            for row, lease in zip(rows, leases, strict=True)
        ]
        try:
            await keeper.aregister(client, leases)
        except BaseException:
            _start(_give_back(engine, all_held))
            raise
        held = []
        for one in all_held:
            outcome = admit(one.row)
            if outcome is None:
                held.append(one)
            else:
                await _refuse(engine, one, outcome)
        return held

    def _lease(self, row: JobRow, times: LeaseTimes, sent_at: float, keeper: LeaseKeeper) -> Lease:
        lease = Lease(row.id, row.token, self._owner, times, sent_at=sent_at, clock=keeper.clock)
        lease.labels = {"queue": row.queue, "task": row.task}
        return lease

    def _client(self, engine: Engine) -> tuple[LeaseKeeper, EngineLeases]:
        if self._pid != os.getpid():
            # In the child of a fork: the parent's connections are left alone.
            _inherited.append(self._clients)
            self._pid, self._clients = os.getpid(), {}
            self._owner = f"{socket.gethostname()}:{self._pid}:{secrets.token_hex(4)}"
        known = self._clients.get(id(engine))
        if known is None or known[1].closed:
            keeper = self._find_keeper()
            known = self._clients[id(engine)] = (engine, keeper, EngineLeases(engine, keeper.clock))
        return known[1], known[2]


_inherited: list[object] = []
_background: set[asyncio.Task[Any]] = set()


def _start(work: Coroutine[Any, Any, Any]) -> None:
    """Run in the background, on this loop."""
    task = asyncio.ensure_future(work)
    _background.add(task)
    task.add_done_callback(_ended)


def _ended(task: asyncio.Task[Any]) -> None:
    _background.discard(task)
    if not task.cancelled() and (error := task.exception()) is not None:
        log.warning("deliveries could not be given back; their leases will lapse: %s", error)


def _not_wanted(engine: Engine, work: asyncio.Task[list[Held]]) -> None:
    if not work.cancelled() and work.exception() is None:
        _start(_give_back(engine, [one for one in work.result() if one.take()]))


async def _give_back(engine: Engine, unstarted: Sequence[Held]) -> None:
    """Release these at once: nothing is counted, and others may have them."""
    for held in unstarted:
        held.owned = False
        held.keeper.remove([held.lease])
    outcome = Released(ReleaseReason.UNSTARTED)
    if unstarted:
        await engine.settle([held.settlement(outcome) for held in unstarted])


async def _refuse(engine: Engine, held: Held, outcome: Outcome) -> None:
    """End what may not be started any more: overdue, cancelled, or fatal to its holders."""
    held.keeper.remove([held.lease])
    try:
        await held.write(engine, outcome)
    except EngineUnavailable as error:
        log.warning("the end of job %s could not be written: %s", held.row.id, error)


async def _released(batch: Batch) -> None:
    try:
        await uninterrupted(batch.release)
    except TenureError as error:
        log.warning("deliveries could not be given back; their leases will lapse: %s", error)
