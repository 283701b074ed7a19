"""Clocks: the wall clock jumps, and live workers are taken for dead, or dead ones for alive."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tenure.core.states import State
from tenure.engines.memory import MemoryEngine
from tenure.engines.protocol import Engine
from tenure.engines.sqlite import SQLiteEngine
from tests.worker.kit import Gate, House

pytestmark = pytest.mark.anyio

HOUR = 3600 * 1_000_000


class Stepped:
    """The machine's clock, which somebody sets."""

    def __init__(self) -> None:
        self.offset = 0

    def time_us(self) -> int:
        return time.time_ns() // 1000 + self.offset

    def monotonic(self) -> float:
        return time.monotonic()


@pytest.fixture
def clock() -> Stepped:
    return Stepped()


@pytest.fixture(params=["memory", "sqlite"])
async def house(
    request: pytest.FixtureRequest, tmp_path: Path, clock: Stepped
) -> AsyncIterator[House]:
    """A house whose store goes by that clock."""
    file = tmp_path / "jobs.db"
    engine: Engine = (
        MemoryEngine(clock=clock) if request.param == "memory" else SQLiteEngine(file, clock=clock)
    )
    async with engine:
        house = House(engine)
        yield house
        house.keeper.close()


@pytest.mark.parametrize("step", [-2 * HOUR, 500_000])
async def test_a_step_within_the_lease_or_back_starts_nothing_twice(
    house: House, clock: Stepped, step: int
):
    gate = Gate()

    async def body() -> str:
        await gate.wait()
        return "done"

    task = house.task(body)
    ids = [await house.put(task) for _ in range(5)]
    async with house.working(lease=1.5), house.working(lease=1.5):
        await gate.reached(5)
        clock.offset = step
        await asyncio.sleep(0.7)  # a renewal of every lease
        gate.open = True
        later = [await house.put(task) for _ in range(5)]
        jobs = await house.ended(*ids, *later)
    assert gate.entered == 10
    assert {(job.state, job.claims, job.lapses) for job in jobs} == {(State.COMPLETED, 1, 0)}


async def test_after_a_jump_ahead_every_job_has_one_end_by_one_token(house: House, clock: Stepped):
    """All leases seem to have run out. Whoever takes over, the other is stopped and refused."""
    running: dict[str, int] = {}
    gate = Gate()

    async def body(n: str) -> str:
        running[n] = running.get(n, 0) + 1
        try:
            await gate.wait()
            return "done"
        finally:
            running[n] -= 1

    ids = [await house.put(house.task(body), str(n)) for n in range(5)]
    async with house.working(lease=1.0), house.working(lease=1.0):
        await gate.reached(5)
        clock.offset = HOUR
        await gate.reached(10)  # taken over
        await asyncio.sleep(0.7)
        assert set(running.values()) == {1}  # the first holders have been stopped
        gate.open = True
        jobs = await house.ended(*ids)
    assert {(job.state, job.result) for job in jobs} == {(State.COMPLETED, "done")}
    assert {(job.claims, job.lapses) for job in jobs} == {(2, 1)}


async def test_order_and_fences_survive_a_clock_that_is_set_back(house: House, clock: Stepped):
    async def body() -> None:
        pass

    task = house.task(body)
    job_id = await house.put(task)
    tokens = []
    for _ in range(5):
        [job] = await house.steal()
        tokens.append(job.token)
        clock.offset -= HOUR
        await house.engine.cancel([job_id], force=True)
        await house.engine.requeue([job_id])
    assert tokens == sorted(set(tokens))
    async with house.working():
        await house.ended(job_id)
    assert (await house.job(job_id)).token > tokens[-1]
