"""Handlers that are cancelled, and full thread pools: no renewal is left behind or missed."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable

import anyio
import anyio.to_thread
import pytest
import trio

from tenure.leases import LeaseRenewal
from tests.leases.callers import Caller, every_loop, soon
from tests.leases.kit import Desk, opened, until
from tests.leases.service import Service


@pytest.fixture
def renewal(desk: Desk, service: Service) -> LeaseRenewal:
    return LeaseRenewal(service.client(), service.lease("r1"), keeper=desk.keeper)


def quiet_for_two_intervals(desk: Desk, service: Service) -> None:
    """As the service sees it: nobody renews any more."""
    before = len(service.renewals)
    for _ in range(12):
        desk.clock.advance(10)
        until(desk.settled)
    assert len(service.renewals) == before
    assert desk.keeper.active == 0


async def work(renewal: LeaseRenewal, inside: Callable[[], None]) -> None:
    async with renewal:
        inside()
        await anyio.sleep_forever()


async def work_by_hand(renewal: LeaseRenewal, inside: Callable[[], None]) -> None:
    await renewal.astart()
    try:
        inside()
        await anyio.sleep_forever()
    finally:
        await renewal.astop()


HANDLERS = pytest.mark.parametrize("handler", [work, work_by_hand])
FLYING = pytest.mark.parametrize("flying", [False, True], ids=["idle", "in flight"])


class Scene:
    """A handler at work, perhaps with an extension in flight that ends a little later."""

    def __init__(self, desk: Desk, service: Service, flying: bool) -> None:
        self.desk, self.service, self.flying = desk, service, flying
        self.gate = threading.Event()

    async def set_up(self) -> None:
        if not self.flying:
            return

        async def late() -> None:
            await opened(self.gate)

        self.service.faults.append(late)
        self.desk.clock.advance(60)
        await soon(lambda: self.service.renewals)
        threading.Timer(0.02, self.gate.set).start()

    def check(self, renewal: LeaseRenewal) -> None:
        assert not renewal.active
        if self.flying:
            assert self.service.applied == [("r1", 300.0)]  # the stop has waited for it
        quiet_for_two_intervals(self.desk, self.service)


@HANDLERS
@FLYING
@pytest.mark.parametrize("uvloop", [False, True], ids=["asyncio", "uvloop"])
def test_a_task_that_is_cancelled(desk, service, renewal, handler, flying, uvloop):
    scene = Scene(desk, service, flying)

    async def main() -> None:
        inside = asyncio.Event()
        task = asyncio.create_task(handler(renewal, inside.set))
        await inside.wait()
        await scene.set_up()
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()
        scene.check(renewal)

    anyio.run(main, backend_options={"use_uvloop": uvloop})


@HANDLERS
def test_a_task_that_is_cancelled_again_and_again(desk, service, renewal, handler):
    scene = Scene(desk, service, flying=True)

    async def main() -> None:
        inside = asyncio.Event()
        task = asyncio.create_task(handler(renewal, inside.set))
        await inside.wait()
        await scene.set_up()
        while not task.done():
            task.cancel()
            await asyncio.sleep(0.001)
        scene.check(renewal)

    asyncio.run(main())


@every_loop
@HANDLERS
@FLYING
def test_a_scope_that_is_cancelled(by: Caller, desk, service, renewal, handler, flying):
    scene = Scene(desk, service, flying)

    async def main() -> None:
        inside = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(handler, renewal, inside.set)
            await inside.wait()
            await scene.set_up()
            tasks.cancel_scope.cancel()
        scene.check(renewal)

    by.run(main)


@every_loop
@HANDLERS
def test_a_time_limit(by: Caller, desk, service, renewal, handler):
    async def main() -> None:
        with anyio.move_on_after(0.01):
            await handler(renewal, lambda: None)
        quiet_for_two_intervals(desk, service)

    by.run(main)


@HANDLERS
@FLYING
def test_a_trio_nursery_that_is_cancelled(desk, service, renewal, handler, flying):
    scene = Scene(desk, service, flying)

    async def main() -> None:
        inside = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(handler, renewal, inside.set)
            await inside.wait()
            await scene.set_up()
            nursery.cancel_scope.cancel()
        scene.check(renewal)

    trio.run(main)


@every_loop
def test_a_neighbour_that_fails(by: Caller, desk, service, renewal):
    async def main() -> None:
        inside = anyio.Event()
        with pytest.raises(ExceptionGroup):  # noqa: PT012
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(work, renewal, inside.set)
                await inside.wait()
                raise ZeroDivisionError
        quiet_for_two_intervals(desk, service)

    by.run(main)


@every_loop
def test_a_start_that_is_cancelled_while_the_thread_comes_up(by: Caller, desk, service, renewal):
    """The keeper thread is slow to start; whoever waits for it gives up."""
    gate = threading.Event()
    ready = desk.keeper._ready

    def slow(runner):
        gate.wait(10)
        ready(runner)

    desk.keeper._ready = slow

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(renewal.astart)
            await soon(lambda: desk.keeper.active)
            tasks.cancel_scope.cancel()
        assert desk.keeper.active == 0
        gate.set()
        await renewal.astart()  # it may be started again
        await renewal.astop()
        quiet_for_two_intervals(desk, service)

    by.run(main)


@every_loop
def test_the_first_start_does_not_block_the_loop(by: Caller, desk, service, renewal):
    gate = threading.Event()
    ready = desk.keeper._ready

    def slow(runner):
        gate.wait(10)
        ready(runner)

    desk.keeper._ready = slow

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(renewal.astart)
            await soon(lambda: desk.keeper.active)
            assert not renewal.active  # still waiting; and yet this task runs
            gate.set()
        assert renewal.active
        await renewal.astop()

    by.run(main)


@every_loop
def test_a_full_thread_pool_is_in_nobodys_way(by: Caller, desk, service, renewal):
    gate = threading.Event()

    async def main() -> None:
        limiter = anyio.to_thread.current_default_thread_limiter()
        limiter.total_tokens = 2
        async with anyio.create_task_group() as tasks:
            for _ in range(4):
                wait = functools.partial(gate.wait, 30)
                tasks.start_soon(anyio.to_thread.run_sync, wait)
            await soon(lambda: limiter.available_tokens == 0)
            with anyio.fail_after(10):
                await renewal.astart()
                desk.clock.advance(60)
                await soon(lambda: len(service.renewals) == 1)
                await renewal.extend_async(60)
                async with renewal.lease.suspended():
                    pass
                await renewal.astop()
            assert limiter.available_tokens == 0
            gate.set()

    by.run(main)
    assert service.changes == [("r1", 60.0)]
