"""When a worker looks for jobs: at once when there is news, and hardly ever when there is none."""

from __future__ import annotations

import asyncio
import time

import pytest

from tenure import Snooze
from tenure.core.outcomes import Completed, Released, ReleaseReason
from tenure.core.rules import decide
from tenure.engines.protocol import Claim
from tests.worker.kit import NEVER, SOON, Gate, House, dormant, until
from tests.worker.puppet import Strings

pytestmark = pytest.mark.anyio


async def quick() -> float:
    return time.monotonic()


async def test_an_enqueue_is_heard_at_once(house: House):
    task = house.task(quick)
    async with house.working(poll_max=NEVER) as worker:
        for _ in range(5):
            await dormant(worker)
            asked = time.monotonic()
            [job] = await house.ended(await house.put(task))
            assert job.result - asked < 0.5


async def test_a_delayed_job_starts_when_it_is_due(house: House):
    task = house.task(quick)
    asked = time.monotonic()
    later = await house.put(task, delay=400_000)
    worker = house.worker(poll_max=NEVER)
    worker._poller._wait = NEVER  # next_due alone tells when to look
    async with house.working(worker):
        [job] = await house.ended(later)
    assert 0.39 < job.result - asked < 0.9


async def test_a_delayed_job_put_in_while_the_worker_sleeps_starts_when_it_is_due(house: House):
    task = house.task(quick)
    async with house.working(poll_max=NEVER) as worker:
        await dormant(worker)
        asked = time.monotonic()
        [job] = await house.ended(await house.put(task, delay=200_000), timeout=5)
    assert 0.19 < job.result - asked < 0.8


async def test_a_retry_starts_when_it_is_due(house: House):
    gate, starts = Gate(), []

    async def flaky() -> None:
        starts.append(time.monotonic())
        if len(starts) == 1:
            await gate.wait()
            starts[0] = time.monotonic()
            raise ValueError("once")

    job_id = await house.put(house.task(flaky, max_attempts=2, retry=SOON))
    async with house.working(poll_max=NEVER) as worker:
        await gate.reached()
        await dormant(worker)
        gate.open = True
        await house.ended(job_id, timeout=5)
    assert 0.09 < starts[1] - starts[0] < 0.6


async def test_a_snooze_ends_when_it_is_due(house: House):
    gate, starts = Gate(), []

    async def sleepy() -> None:
        starts.append(time.monotonic())
        if len(starts) == 1:
            await gate.wait()
            starts[0] = time.monotonic()
            raise Snooze(0.2)

    job_id = await house.put(house.task(sleepy))
    async with house.working(poll_max=NEVER) as worker:
        await gate.reached()
        await dormant(worker)
        gate.open = True
        await house.ended(job_id, timeout=5)
    assert 0.19 < starts[1] - starts[0] < 0.8


async def test_what_another_gives_back_is_taken_at_once(house: House):
    job_id = await house.put(house.task(quick))
    [job] = await house.steal()
    async with house.working(poll_max=NEVER) as worker:
        await dormant(worker)
        release = decide(job.row, Released(ReleaseReason.SHUTDOWN), now=job.row.started_at or 0)
        await house.engine.settle([release])
        await house.ended(job_id, timeout=5)


async def test_a_lapsed_job_is_taken_over_without_any_signal(moved: tuple[House, Strings]):
    house, _ = moved
    job_id = await house.put(house.task(quick))
    await house.engine.claim(Claim(owner="dead", limit=1, lease=300_000))
    async with house.working(lease=1.0):
        [job] = await house.ended(job_id, timeout=5)
    assert (job.lapses, job.claims) == (1, 2)


async def test_an_idle_worker_asks_little_of_the_store(memory: tuple[House, Strings]):
    """However many slots it has."""
    house, strings = memory
    house.task(quick)
    async with house.working(poll_max=0.4, concurrency=1000):
        await until(lambda: strings.calls["claim"] >= 4)  # after 0.05, 0.1 and 0.2 s
        before, started = strings.calls.copy(), time.monotonic()
        await asyncio.sleep(0.9)
        calls = strings.calls - before
        looks = (time.monotonic() - started) / 0.4 + 1
    assert calls["claim"] <= looks
    assert calls["next_due"] <= looks
    assert set(calls) <= {"claim", "next_due"}


async def test_a_full_worker_asks_nothing_of_the_store(moved: tuple[House, Strings]):
    house, strings = moved
    gate = Gate()

    async def body() -> None:
        await gate.wait()

    task = house.task(body)
    ids = [await house.put(task) for _ in range(10)]
    worker = house.worker(poll_max=0.01, concurrency=3)
    looks = 0
    real = worker._runner.free

    def free() -> int:
        nonlocal looks
        looks += 1
        return real()

    worker._runner.free = free  # type: ignore[method-assign]
    async with house.working(worker):
        await gate.reached(3)
        before, looks = strings.calls.copy(), 0
        for _ in range(10):
            ids.append(await house.put(task))
        await asyncio.sleep(0.3)
        assert strings.calls - before == {"insert": 10}
        assert looks <= 12  # it may have been woken by each of them
        gate.open = True
        await house.ended(*ids)


async def test_foreign_jobs_in_the_queue_cost_no_hot_loop(memory: tuple[House, Strings]):
    """Jobs of unknown names, due and delayed, right where the worker looks."""
    house, strings = memory
    task = house.task(quick)
    for n in range(20):
        await house.put(task, task="elsewhere", delay=n * 10_000)
    async with house.working(poll_max=0.2):
        await asyncio.sleep(0.3)
        before = strings.calls.copy()
        await asyncio.sleep(0.4)
        calls = strings.calls - before
        assert calls["claim"] < 8
        [job] = await house.ended(await house.put(task))
        assert job.claims == 1


async def test_one_claim_fills_the_worker(moved: tuple[House, Strings]):
    house, strings = moved
    task = house.task(quick)
    ids = [await house.put(task) for _ in range(100)]
    async with house.working(concurrency=100, poll_max=NEVER):
        await house.ended(*ids)
    assert strings.calls["claim"] <= 5
    assert strings.calls["settle"] <= 10


async def test_leases_are_registered_in_bulk(memory: tuple[House, Strings]):
    house, _ = memory
    sizes = []
    real = house.keeper.register

    def register(client: object, leases: list[object]) -> None:
        sizes.append(len(leases))
        real(client, leases)  # type: ignore[arg-type]

    house.keeper.register = register  # type: ignore[method-assign,assignment]
    task = house.task(quick)
    ids = [await house.put(task) for _ in range(64)]
    async with house.working(concurrency=64):
        await house.ended(*ids)
    assert sizes == [64]


async def test_jobs_that_end_together_are_settled_together(moved: tuple[House, Strings]):
    house, strings = moved
    gate = Gate()

    async def body() -> None:
        await gate.wait()

    task = house.task(body)
    ids = [await house.put(task) for _ in range(200)]
    async with house.working(concurrency=200):
        await gate.reached(200)
        gate.open = True
        await house.ended(*ids)
    assert sum(strings.sizes["settle"]) == 200
    assert strings.calls["settle"] <= 20


async def test_claims_keep_order(house: House):
    order: list[int] = []

    async def body(n: int) -> None:
        order.append(n)

    task = house.task(body)
    for n in range(10):
        await house.put(task, n)
    await house.burst(concurrency=1)
    assert order == list(range(10))


async def test_a_settlement_by_hand_frees_no_slot_of_this_worker(house: House):
    """A zombie elsewhere that settles late changes nothing here."""
    job_id = await house.put(house.task(quick))
    [job] = await house.steal()
    far = (job.row.lease_until or 0) + 1
    await house.steal("other", now=far)
    late = decide(job.row, Completed(b"1"), now=far)
    [answer] = await house.engine.settle([late])
    assert answer.verdict == "lost"
    assert not (await house.job(job_id)).state.final
