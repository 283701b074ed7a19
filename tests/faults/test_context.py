"""Context: one job sees what belongs to another, or a thread sees nothing at all."""

from __future__ import annotations

import asyncio
import contextvars
import time

import pytest

from tenure import INJECTED, JobContext, Snooze
from tenure.core.job import Job
from tenure.core.states import State
from tenure.worker.surroundings import Next, Surroundings
from tests.worker.kit import SOON, House, until
from tests.worker.puppet import Strings

pytestmark = pytest.mark.anyio


@pytest.fixture
def house(memory: tuple[House, Strings]) -> House:
    """One engine will do: nothing here depends on it."""
    return memory[0]


tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="nobody")


async def test_no_job_sees_what_another_bound_however_that_one_ended(house: House, kind: str):
    """Tenants take turns; a third fails, some run out of time, some put themselves off."""
    seen: list[tuple[str, str]] = []

    def begin(name: str) -> None:
        seen.append((name, tenant.get()))
        tenant.set(name)

    def end(name: str, number: int) -> str:
        assert tenant.get() == name
        if number % 3 == 0:
            raise ValueError("bound and never unbound")
        if number % 7 == 5 and len(seen) < 100:
            raise Snooze(0.01)
        return tenant.get()

    async def on_loop(name: str, number: int) -> str:
        begin(name)
        await asyncio.sleep(0.3 if number % 5 == 1 else 0.002)
        return end(name, number)

    def in_thread(name: str, number: int) -> str:
        begin(name)
        time.sleep(0.06 if number % 5 == 1 else 0.002)
        return end(name, number)

    function = on_loop if kind == "async" else in_thread
    task = house.task(function, timeout=0.05, max_attempts=2, retry=SOON)
    ids = [await house.put(task, "AB"[number % 2], number) for number in range(20)]
    async with house.working(concurrency=8, threads=1 if kind == "def" else None):
        jobs = await house.ended(*ids)
    assert {before for _, before in seen} == {"nobody"}
    assert {job.state for job in jobs} == {State.COMPLETED, State.FAILED}
    for job in jobs:
        if job.state is State.COMPLETED:
            assert job.result == job.arguments["name"]
    assert tenant.get() == "nobody"


async def test_a_cancelled_job_leaves_nothing_behind_for_the_next(house: House, kind: str):
    entered: list[str] = []

    async def on_loop(*, ctx: JobContext = INJECTED) -> str:
        before = tenant.get()
        tenant.set("A")
        entered.append(ctx.job_id)
        if len(entered) == 1:
            await asyncio.sleep(60)
        return before

    def in_thread(*, ctx: JobContext = INJECTED) -> str:
        before = tenant.get()
        tenant.set("A")
        entered.append(ctx.job_id)
        while len(entered) == 1:
            ctx.check()
            time.sleep(0.002)
        return before

    task = house.task(on_loop if kind == "async" else in_thread)
    first = await house.put(task)
    async with house.working(concurrency=1, threads=1):
        await until(lambda: entered)
        await house.engine.cancel([first])
        [job] = await house.ended(first)
        assert job.state is State.CANCELLED
        [job] = await house.ended(await house.put(task))
    assert job.result == "nobody"


async def test_a_tenant_bound_by_middleware_that_fails_now_and_then_reaches_no_other(
    house: House, kind: str
):
    """It binds and never unbinds, and raises before or after every fifth body."""
    seen: list[str] = []

    async def bind(job: Job, step: Next) -> None:
        seen.append(tenant.get())
        tenant.set(job.arguments["name"])
        if job.arguments["number"] % 5 == 1:
            raise LookupError("cannot bind")
        await step()
        if job.arguments["number"] % 5 == 2:
            raise LookupError("cannot unbind")

    async def on_loop(name: str, number: int) -> str:
        await asyncio.sleep(0.001)
        return inner(number)

    def in_thread(name: str, number: int) -> str:
        time.sleep(0.001)
        return inner(number)

    def inner(number: int) -> str:
        if number % 3 == 0:
            raise ValueError("ended badly")
        return tenant.get()

    house.surroundings = Surroundings(middleware=(bind,))
    task = house.task(on_loop if kind == "async" else in_thread)
    ids = [await house.put(task, "AB"[number % 2], number) for number in range(40)]
    await house.burst(concurrency=8, threads=1 if kind == "def" else None)
    for number, job_id in enumerate(ids):
        job = await house.job(job_id)
        assert job.state is (State.COMPLETED if number % 3 else State.FAILED)
        if number % 3 and number % 5 != 1:
            assert job.result == job.arguments["name"]
    assert set(seen) == {"nobody"}


async def test_what_surrounds_the_worker_reaches_bodies_of_either_kind(house: House, kind: str):
    """As a correlation id that the application bound before it ran the worker."""

    async def on_loop() -> str:
        return tenant.get()

    def in_thread() -> str:
        return tenant.get()

    job_id = await house.put(house.task(on_loop if kind == "async" else in_thread))

    async def application() -> None:
        tenant.set("application")
        await house.burst()

    await asyncio.create_task(application())
    assert (await house.job(job_id)).result == "application"
    assert tenant.get() == "nobody"
