"""What breaks around a worker: the store, the engine, the keeper. Nothing is lost in silence."""

from __future__ import annotations

import asyncio
import logging

import pytest

from tenure import INJECTED, JobContext
from tenure.core.states import State
from tenure.errors import EngineUnavailable
from tenure.worker import attempt
from tests.worker.kit import NEVER, Gate, House, dormant, until
from tests.worker.puppet import Strings

pytestmark = pytest.mark.anyio


async def quick() -> str:
    return "done"


async def run_here(house: House, **options: object) -> None:
    async with asyncio.timeout(15):
        await house.worker(**options).run()


async def test_a_worker_runs_only_once(house: House):
    worker = await house.burst()
    with pytest.raises(RuntimeError, match="only once"):
        await worker.run()


async def test_a_failed_preparation_is_raised_and_leaves_nothing(memory: tuple[House, Strings]):
    house, _ = memory
    worker = house.worker()

    async def prepare() -> None:
        raise EngineUnavailable("away at start")

    worker._prepare = prepare
    before = len(asyncio.all_tasks())
    with pytest.raises(EngineUnavailable):
        await worker.run()
    assert len(asyncio.all_tasks()) == before


async def test_a_store_away_at_start_is_waited_for(moved: tuple[House, Strings]):
    house, strings = moved
    job_id = await house.put(house.task(quick))
    strings.fail()
    async with house.working():
        await until(lambda: strings.calls["claim"] >= 2)
        strings.heal()
        [job] = await house.ended(job_id)
    assert job.result == "done"


async def test_a_store_away_for_very_long_ends_no_worker(
    memory: tuple[House, Strings], caplog: pytest.LogCaptureFixture
):
    """Backoffs are computed for the thousandth failure, too."""
    house, strings = memory
    caplog.set_level(logging.INFO, "tenure")
    job_id = await house.put(house.task(quick))
    worker = house.worker()
    worker._poller._away = 5000
    strings.before["claim"] = [EngineUnavailable("away")]
    async with house.working(worker):
        await until(lambda: strings.calls["claim"])
        assert worker._poller._wait <= 5
        worker._poller.wake()
        await house.ended(job_id)
    assert "the store is back" in caplog.text


@pytest.mark.parametrize("operation", ["claim", "next_due"])
async def test_a_defect_of_the_engine_ends_the_worker_loudly(
    moved: tuple[House, Strings], operation: str, caplog: pytest.LogCaptureFixture
):
    house, strings = moved
    gate = Gate()

    async def waiting() -> str:
        await gate.wait()
        return "done"

    job_id = await house.put(house.task(waiting))
    running = asyncio.ensure_future(run_here(house))
    await gate.reached()
    strings.before[operation] = [TypeError("a defect")]
    await until(lambda: not strings.before[operation])
    await until(lambda: "the worker ends" in caplog.text)
    gate.open = True  # what runs drains
    with pytest.raises(TypeError, match="a defect"):
        await running
    assert (await house.job(job_id)).result == "done"
    assert house.keeper.active == 0


async def test_a_defect_met_by_the_last_claim_is_told_as_well(memory: tuple[House, Strings]):
    house, strings = memory
    worker = house.worker()
    asked = asyncio.Event()

    async def stop_then_fail(name: str, args: object) -> None:
        if name == "claim":
            asked.set()
            await until(lambda: worker._stopping.is_set())
            raise TypeError("a defect")

    strings.on_call = stop_then_fail
    running = asyncio.create_task(worker.run())
    await asked.wait()
    worker.stop()
    with pytest.raises(TypeError, match="a defect"):
        await running


async def test_an_outcome_that_the_store_refuses_becomes_an_error(moved: tuple[House, Strings]):
    house, strings = moved
    job_id = await house.put(house.task(quick, max_attempts=3))
    strings.before["settle"] = [TypeError("no such column")]
    async with house.working():
        [job] = await house.ended(job_id)
        [other] = await house.ended(await house.put(house.task(quick)))
    assert job.error is not None
    assert (job.state, job.claims, job.error.kind) == (State.FAILED, 1, "TypeError")
    assert other.result == "done"


async def test_a_store_that_refuses_every_outcome_ends_the_worker(
    moved: tuple[House, Strings], caplog: pytest.LogCaptureFixture
):
    house, strings = moved
    job_id = await house.put(house.task(quick))

    async def refuse(name: str, args: object) -> None:
        if name == "settle":
            raise TypeError("no such column")

    strings.on_call = refuse
    with pytest.raises(TypeError, match="no such column"):
        await run_here(house)
    assert "its lease will lapse" in caplog.text
    assert house.keeper.active == 0
    assert await house.state(job_id) is State.RUNNING


async def test_a_keeper_that_takes_no_leases_ends_the_worker_and_gives_back(house: House):
    starts = []

    async def body() -> None:
        starts.append(1)

    task = house.task(body)
    ids = [await house.put(task) for _ in range(3)]
    house.keeper.close()
    with pytest.raises(RuntimeError, match="closed"):
        await run_here(house)
    jobs = [await house.job(job_id) for job_id in ids]
    assert not starts
    assert {(j.state, j.row.releases, j.row.lapses) for j in jobs} == {(State.PENDING, 0, 0)}


async def test_a_lost_listener_is_replaced(
    memory: tuple[House, Strings], caplog: pytest.LogCaptureFixture
):
    house, _ = memory
    worker = house.worker(poll_max=NEVER)
    control = worker._control
    real, opened = control._engine.listen, []

    class Deaf:
        def listen(self, *wanted: object) -> object:
            opened.append(1)
            if len(opened) <= 2:
                raise EngineUnavailable("away") if len(opened) == 1 else TypeError("a defect")
            return real(*wanted)  # type: ignore[arg-type]

    control._engine = Deaf()  # type: ignore[assignment]
    async with house.working(worker):
        await until(lambda: len(opened) == 2)
        await dormant(worker)
        unheard = await house.put(house.task(quick))
        await house.ended(unheard, timeout=5)
        assert len(opened) == 3
        await dormant(worker)
        await house.ended(await house.put(house.task(quick)), timeout=5)
    heard = [r for r in caplog.records if "signals of the store" in r.message]
    assert len(heard) == 1


async def test_a_failing_sweep_is_told_and_tried_again(
    memory: tuple[House, Strings],
    caplog: pytest.LogCaptureFixture,
):
    house, strings = memory
    strings.before["sweep"] = [EngineUnavailable("away"), TypeError("a defect")]
    worker = house.worker()
    worker._janitor._every = 0.02
    async with house.working(worker):
        await until(lambda: strings.calls["sweep"] >= 4)
        await house.ended(await house.put(house.task(quick)))
    assert [r.levelno for r in caplog.records if "sweep failed" in r.message] == [logging.ERROR]


async def test_what_a_sweep_takes_back_is_told(house: House, caplog: pytest.LogCaptureFixture):
    task = house.task(quick, max_lapses=0)
    dead = await house.put(task)
    stolen = await house.steal()
    assert [job.id for job in stolen] == [dead]
    late = await house.put(house.task(quick), expires_in=1)
    worker = house.worker(queues=("elsewhere",))
    worker._janitor._every = 0.01
    ahead = stolen[0].row.lease_until or 0
    real = house.engine.sweep

    class Later:
        async def sweep(self, limit: int) -> object:
            return await real(limit, now=ahead + 1)

        get = house.engine.get

    worker._janitor._engine = Later()  # type: ignore[assignment]
    async with house.working(worker):
        await house.ended(dead, late)
        await until(lambda: "job.lapsed" in house.names(dead))
    assert "job.expired" in house.names(late)
    levels = {r.__dict__["job_id"]: r.levelno for r in caplog.records if hasattr(r, "job_id")}
    assert levels == {dead: logging.ERROR, late: logging.WARNING}


async def test_a_failure_while_a_body_is_prepared_by_us_is_the_jobs_error(
    house: House, monkeypatch: pytest.MonkeyPatch
):
    def broken(*_: object, **__: object) -> None:
        raise LookupError("a defect of ours")

    monkeypatch.setattr(attempt.Attempt, "_wait", broken)
    job_id = await house.put(house.task(quick))
    await house.burst()
    job = await house.job(job_id)
    assert job.error is not None
    assert (job.state, job.error.kind) == (State.FAILED, "LookupError")


async def test_transient_failures_on_every_side_lose_and_double_nothing(
    moved: tuple[House, Strings],
):
    """Each call fails now and then, before or after its effect."""
    house, strings = moved
    effects: dict[str, int] = {}

    async def body(*, ctx: JobContext = INJECTED) -> None:
        effects[ctx.job_id] = effects.get(ctx.job_id, 0) + 1

    task = house.task(body)
    ids = [await house.put(task) for _ in range(30)]
    for name, part in (("claim", 3), ("settle", 2), ("next_due", 2), ("extend", 2)):
        pattern = [EngineUnavailable("now and then") if n % part == 0 else None for n in range(5)]
        strings.before[name] = list(pattern)
        strings.after[name] = list(reversed(pattern)) if name == "settle" else []
    async with house.working(concurrency=5, lease=5):
        jobs = await house.ended(*ids)
    assert {job.state for job in jobs} == {State.COMPLETED}
    assert set(effects.values()) == {1}
    assert {job.claims for job in jobs} == {1}
