"""Receiving by hand: what is claimed, what is kept, and what is given back."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import anyio
import pytest
import trio
import trio.lowlevel

from tenure import QueueService, State, TaskRef
from tenure.errors import ConfigurationError, EngineUnavailable
from tenure.leases.keeper import LeaseKeeper
from tenure.leases.process import default_keeper
from tenure.sync import QueueService as SyncQueueService
from tests.leases.callers import soon
from tests.service.receiving import Shop, add, other

pytestmark = pytest.mark.anyio


@pytest.fixture
async def shop() -> AsyncIterator[Shop]:
    shop = Shop()
    async with shop.jobs:
        yield shop
    shop.keeper.close()


@pytest.fixture
async def jobs(url: str) -> AsyncIterator[QueueService]:
    async with QueueService(url, tasks=[add, other]) as jobs:
        yield jobs


@pytest.fixture
def blocking(url: str) -> Iterator[SyncQueueService]:
    with SyncQueueService(url, tasks=[add, other]) as jobs:
        yield jobs


async def fill(jobs: QueueService, count: int, **options: Any) -> list[str]:
    handles = await jobs.enqueue_many([add.options(**options).bind(i) for i in range(count)])
    return [handle.id for handle in handles]


async def states(jobs: QueueService, ids: list[str]) -> list[str]:
    return [(await jobs.get(job_id)).state for job_id in ids]


# What is claimed


async def test_a_batch_comes_in_the_order_of_the_claim(jobs):
    ids = await fill(jobs, 5)
    async with jobs.receive(limit=3) as deliveries:
        assert [each.id for each in deliveries] == ids[:3]
        assert len(deliveries) == 3
        assert deliveries[1].id == ids[1]
        assert [each.id for each in deliveries[1:]] == ids[1:3]
        assert await states(jobs, ids) == ["running"] * 3 + ["pending"] * 2


async def test_only_these_queues_and_tasks_are_claimed(jobs):
    mail = (await jobs.enqueue(add.options(queue="mail"), 1)).id
    await jobs.enqueue(add, 2)
    cared = (await jobs.enqueue(other.options(queue="mail"))).id
    async with jobs.receive("mail", tasks=[other]) as deliveries:
        assert [each.id for each in deliveries] == [cared]
    async with jobs.receive("mail", tasks="add") as deliveries:
        assert [each.id for each in deliveries] == [mail]
    async with jobs.receive("mail", "default") as deliveries:
        assert len(deliveries) == 3


async def test_unknown_tasks_are_delivered_too(jobs):
    await jobs.enqueue(TaskRef("written.elsewhere"), x=1)
    async with jobs.receive() as deliveries:
        [delivery] = deliveries
        async with delivery:
            assert delivery.task == "written.elsewhere"
            assert delivery.arguments == {"x": 1}
    assert await states(jobs, [delivery.id]) == ["completed"]


async def test_the_loop_ends_when_the_batch_does(jobs):
    ids = await fill(jobs, 5)
    seen = []
    async for delivery in jobs.receive(limit=3):
        async with delivery:
            seen.append(delivery.id)
    assert seen == ids[:3]
    async for delivery in jobs.receive():
        async with delivery:
            seen.append(delivery.id)
    assert seen == ids
    async for _ in jobs.receive():
        raise AssertionError("nothing is left")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"limit": 0}, "limit"),
        ({"limit": 1001}, "limit"),
        ({"limit": True}, "limit"),
        ({"limit": 1.5}, "limit"),
        ({"wait": -1}, "wait"),
        ({"wait": float("nan")}, "wait"),
        ({"wait": True}, "wait"),
        ({"lease": 0}, "lease"),
        ({"lease": 0.5}, "lease"),
        ({"tasks": []}, "tasks"),
        ({"tasks": [3]}, "tasks"),
    ],
)
def test_bad_options_are_refused_where_they_are_given(service, options, named):
    for receive in (service.receive, service.sync.receive):
        with pytest.raises(ConfigurationError, match=named):
            receive("default", **options)
    with pytest.raises(ConfigurationError, match="queue"):
        service.receive("no such\nqueue")


async def test_the_lease_is_as_long_as_asked_for(shop):
    await fill(shop.jobs, 1)
    async with shop.jobs.receive(lease=120) as deliveries:
        assert deliveries[0].lease.remaining() == 108
        row = (await shop.jobs.get(deliveries[0].id)).row
        assert row.lease_until == shop.clock.time_us() + 120_000_000


async def test_waiting_ends_when_a_job_comes(jobs):
    found: list[str] = []

    async def receive() -> None:
        async with jobs.receive(wait=60) as deliveries:
            found.extend(each.id for each in deliveries)

    waiting = asyncio.create_task(receive())
    await asyncio.sleep(0)
    ids = await fill(jobs, 1)
    await waiting
    assert found == ids


async def test_waiting_ends_when_a_job_becomes_due(jobs):
    [job_id] = await fill(jobs, 1, delay=0.2)
    async with jobs.receive(wait=60) as deliveries:
        assert [each.id for each in deliveries] == [job_id]


async def test_waiting_ends_without_a_job(jobs):
    async with jobs.receive(wait=0.05) as deliveries:
        assert not len(deliveries)


async def test_what_may_not_be_started_is_ended_and_not_delivered(shop):
    [job_id] = await fill(shop.jobs, 1, max_lapses=1)
    for _ in range(2):
        async with shop.jobs.receive() as deliveries:
            deliveries[0].accept()
        shop.clock.advance(31)
    async with shop.jobs.receive() as deliveries:
        assert not len(deliveries)
    job = await shop.jobs.get(job_id)
    assert job.state is State.FAILED
    assert job.error is not None
    assert job.error.kind == "lapsed"
    assert shop.keeper.active == 0


# What is kept


@pytest.mark.parametrize("face", ["block", "loop"])
async def test_all_leases_of_a_batch_are_kept_from_the_claim_on(shop, face):
    """A slow first handler loses nothing of the other nine."""
    ids = await fill(shop.jobs, 10)
    order: list[str] = []

    async def handle(delivery: Any) -> None:
        assert not delivery.lease.lost
        async with delivery:
            if not order:
                for _ in range(30):
                    shop.tick(10)  # ten leases long
            order.append(delivery.id)

    if face == "block":
        async with shop.jobs.receive(limit=10) as deliveries:
            for delivery in deliveries:
                await handle(delivery)
    else:
        async for delivery in shop.jobs.receive(limit=10):
            await handle(delivery)
    assert order == ids
    assert await states(shop.jobs, ids) == ["completed"] * 10
    assert shop.renewals == 30  # one request for all of them


async def test_others_get_nothing_of_what_is_kept(shop):
    await fill(shop.jobs, 3)
    async with shop.jobs.receive():
        shop.tick(10)
        shop.tick(25)
        async with shop.jobs.receive() as others:
            assert not len(others)


# What is given back


@pytest.mark.parametrize("leaves", ["end", "break", "error", "cancel"])
async def test_what_was_not_started_is_given_back(shop, leaves):
    ids = await fill(shop.jobs, 4)

    async def work() -> None:
        async with shop.jobs.receive() as deliveries:
            async with deliveries[0]:
                pass
            deliveries[1].accept()
            if leaves == "error":
                raise ZeroDivisionError
            if leaves == "cancel":
                scope.cancel()
                await anyio.sleep_forever()

    with anyio.CancelScope() as scope:
        try:
            await work()
        except ZeroDivisionError:
            assert leaves == "error"
    assert await states(shop.jobs, ids) == ["completed", "running", "pending", "pending"]
    row = (await shop.jobs.get(ids[2])).row
    assert (row.failures, row.lapses, row.releases) == (0, 0, 0)
    assert shop.keeper.active == 0


async def test_a_loop_that_is_left_gives_back_the_rest(shop):
    ids = await fill(shop.jobs, 3)
    async for delivery in shop.jobs.receive():
        async with delivery:
            break
    gc.collect()
    await soon(lambda: shop.keeper.active == 0)
    await soon(lambda: shop.engine.calls["settle"] == 2)
    assert await states(shop.jobs, ids) == ["completed", "pending", "pending"]


async def test_a_delivery_that_was_given_back_can_not_be_started(shop):
    await fill(shop.jobs, 1)
    async with shop.jobs.receive() as deliveries:
        pass
    with pytest.raises(RuntimeError, match="given back"):
        async with deliveries[0]:
            raise AssertionError


async def test_a_receiver_is_entered_once(shop):
    await fill(shop.jobs, 1)
    receiver = shop.jobs.receive()
    async with receiver:
        with pytest.raises(RuntimeError, match="once"):
            await receiver.__aenter__()


async def test_giving_back_is_tried_and_else_the_leases_lapse(shop, caplog):
    await fill(shop.jobs, 1)
    async with shop.jobs.receive():
        shop.engine.fail("settle")
    assert "could not be given back" in caplog.text
    assert shop.keeper.active == 0


async def test_a_claim_whose_caller_is_gone_is_given_back(shop):
    ids = await fill(shop.jobs, 2)
    gate = shop.engine.hold("claim", after=True)

    async def work() -> None:
        async with shop.jobs.receive():
            raise AssertionError

    task = asyncio.create_task(work())
    await gate.reached()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    gate.let_go()
    await soon(lambda: shop.engine.calls["settle"] == 1 and shop.keeper.active == 0)
    assert await states(shop.jobs, ids) == ["pending"] * 2


async def test_leases_that_can_not_be_kept_are_given_back(shop, monkeypatch):
    ids = await fill(shop.jobs, 2)

    async def refuse(*args: Any) -> None:
        raise RuntimeError("the lease keeper did not start")

    monkeypatch.setattr(LeaseKeeper, "aregister", refuse)
    with pytest.raises(RuntimeError, match="did not start"):
        await shop.jobs.receive().__aenter__()
    await soon(lambda: shop.engine.calls["settle"] == 1)
    assert await states(shop.jobs, ids) == ["pending"] * 2


async def test_a_store_that_is_away_is_told(shop):
    shop.engine.fail("claim")
    with pytest.raises(EngineUnavailable):
        await shop.jobs.receive().__aenter__()


async def test_closing_the_service_lets_go_of_what_is_kept(shop):
    await fill(shop.jobs, 2)
    async with shop.jobs.receive() as deliveries:
        assert shop.keeper.active == 2
        await shop.jobs.close()
        assert shop.keeper.active == 0
        await shop.jobs.open()
        async with deliveries[0]:  # still ours: no lease has run out yet
            pass


async def test_the_process_keeps_nothing_of_a_closed_service(jobs):
    await fill(jobs, 2)
    before = default_keeper().active
    async with jobs.receive():
        assert default_keeper().active == before + 2
        await jobs.close()
        assert default_keeper().active == before


# From elsewhere


def test_it_works_from_trio(service):
    service.tasks.add(add)
    done = []

    async def main() -> None:
        await fill(service, 3)
        async for delivery in service.receive():
            async with delivery:
                await trio.lowlevel.checkpoint()
                done.append(delivery.id)
        with trio.move_on_after(0.05):
            await service.receive(wait=60).__aenter__()
        await fill(service, 1)
        async with service.receive() as deliveries:
            with trio.CancelScope() as scope:
                async with deliveries[0]:
                    scope.cancel()
                    await trio.sleep_forever()

    trio.run(main)
    assert len(done) == 3
    [last] = service.sync.find(states=["pending"])
    assert last.row.releases == 1


def test_it_works_from_several_event_loops(service):
    service.tasks.add(add)
    service.sync.open()  # lives in a portal of its own

    async def main() -> None:
        await fill(service, 2)
        async for delivery in service.receive():
            async with delivery:
                break

    asyncio.run(main())
    asyncio.run(main())
    deadline = threading.Event()
    while len(service.sync.find(states=["pending"])) != 2 and not deadline.wait(0.01):
        pass
    assert len(service.sync.find(states=["completed"])) == 2


# Without an event loop


def test_sync_a_batch_and_a_loop(blocking):
    ids = [blocking.enqueue(add, i).id for i in range(5)]
    with blocking.receive(limit=2) as deliveries:
        assert [each.id for each in deliveries] == ids[:2]
        with deliveries[0]:
            pass
    seen = []
    for delivery in blocking.receive():
        with delivery:
            seen.append(delivery.id)
    assert sorted(seen) == ids[1:]  # what was given back queues again
    assert [blocking.get(job_id).state for job_id in ids] == ["completed"] * 5


def test_sync_a_loop_that_is_left_gives_back_the_rest(blocking):
    ids = [blocking.enqueue(add, i).id for i in range(3)]
    for delivery in blocking.receive():
        with delivery:
            break
    gc.collect()
    pause = threading.Event()
    while blocking.queues.stats()[0].pending != 2 and not pause.wait(0.01):
        pass
    assert blocking.get(ids[0]).state is State.COMPLETED


def test_sync_waiting_ends(blocking):
    assert list(blocking.receive(wait=0.05)) == []
    worker = threading.Thread(target=lambda: blocking.enqueue(add, 1))
    worker.start()
    with blocking.receive(wait=60) as deliveries:
        assert len(deliveries) == 1
    worker.join()
    receiver = blocking.receive()
    with receiver, pytest.raises(RuntimeError, match="once"):
        receiver.__enter__()


def test_sync_threads_may_share_a_batch(blocking):
    ids = [blocking.enqueue(add, i).id for i in range(8)]

    def work(delivery: Any) -> None:
        with delivery:
            delivery.result = delivery.arguments["a"]

    with blocking.receive() as deliveries:
        threads = [threading.Thread(target=work, args=(each,)) for each in deliveries]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [blocking.get(job_id).result for job_id in ids] == list(range(8))


# Forks


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_child_of_a_fork_receives_by_itself(tmp_path):
    jobs = SyncQueueService(f"sqlite:///{tmp_path}/jobs.db", tasks=[add])
    ids = [jobs.enqueue(add, i).id for i in range(2)]
    with jobs.receive(limit=1) as deliveries, deliveries[0]:
        jobs.close()  # a SQLite file does not cross a fork
        pid = os.fork()
        if pid == 0:
            try:
                for delivery in jobs.receive():
                    with delivery:
                        delivery.result = "child"
                jobs.close()
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitpid(pid, 0)[1] == 0
    assert [jobs.get(job_id).result for job_id in ids] == [None, "child"]
    jobs.close()
