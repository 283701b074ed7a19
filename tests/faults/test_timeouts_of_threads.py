"""Timeouts of threads: the clock says stop, the thread cannot hear it, and the pool runs dry."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable

import pytest

from tenure.core.states import State
from tests.worker.kit import House, until
from tests.worker.puppet import Strings

pytestmark = pytest.mark.anyio
Scaled = Callable[[int, int], int]


@pytest.fixture
def house(memory: tuple[House, Strings]) -> House:
    """One engine will do: nothing here depends on it."""
    return memory[0]


async def test_a_thread_blocked_in_the_system_holds_up_its_own_place_only(house: House):
    """A read without a limit, of a peer that says nothing; the neighbours go on."""
    here, there = socket.socketpair()

    def reads() -> bytes:
        return here.recv(1)

    def quick() -> str:
        return threading.current_thread().name

    stuck = await house.put(house.task(reads, timeout=0.3))
    async with house.working(concurrency=2) as worker:
        begun = time.monotonic()
        [job] = await house.ended(stuck)
        assert time.monotonic() - begun < 2
        assert job.error is not None
        assert (job.state, job.error.kind) == (State.FAILED, "timeout")
        task = house.task(quick)
        jobs = await house.ended(*[await house.put(task) for _ in range(4)])
        assert {job.state for job in jobs} == {State.COMPLETED}
        assert worker.left_behind == 1
        there.send(b"x")
        await until(lambda: worker.left_behind == 0)
    assert await house.job(stuck) == job
    here.close()
    there.close()


async def test_bodies_that_raise_after_their_timeout_cost_no_thread(house: House, scaled: Scaled):
    count = scaled(50, 2000)

    def late() -> None:
        time.sleep(0.03)
        raise ValueError("too late for anybody")

    def quick() -> str:
        return threading.current_thread().name

    ids = [await house.put(house.task(late, timeout=0.01)) for _ in range(count)]
    async with house.working(concurrency=4) as worker:
        jobs = await house.ended(*ids)
        assert {job.error.kind for job in jobs if job.error} == {"timeout"}
        await until(lambda: worker.left_behind == 0)
        assert worker._runner.free() == 4
        assert worker._runner._threads.threads <= 4
        jobs = await house.ended(*[await house.put(house.task(quick)) for _ in range(10)])
    assert {job.state for job in jobs} == {State.COMPLETED}
