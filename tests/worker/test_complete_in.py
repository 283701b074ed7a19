"""Completing a job inside the body's own transaction: effects exactly once."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from pathlib import Path

import pytest

from tenure import INJECTED, JobContext, QueueService, RetryPolicy
from tenure.errors import LeaseLost

pytestmark = pytest.mark.anyio

QUICK = RetryPolicy(base=0.1, factor=1, jitter=0)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "shop.db"


@pytest.fixture
async def jobs(place: Path):
    async with QueueService(f"sqlite:///{place}") as service:
        shop = begin(place)
        shop.execute("CREATE TABLE effects (order_id INTEGER, token INTEGER)")
        shop.execute("COMMIT")
        shop.close()
        yield service


def begin(place: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(place, isolation_level=None, timeout=10)
    connection.execute("BEGIN IMMEDIATE")
    return connection


def effects(place: Path) -> list[tuple[int, int]]:
    connection = sqlite3.connect(place)
    rows = connection.execute("SELECT * FROM effects ORDER BY order_id").fetchall()
    connection.close()
    return rows


async def test_a_result_and_an_effect_are_one(jobs, place):
    @jobs.task
    async def ship(order: int, *, ctx: JobContext = INJECTED) -> str:
        shop = begin(place)
        shop.execute("INSERT INTO effects VALUES (?, ?)", (order, ctx.token))
        await ctx.complete_in(shop, f"order {order}")
        shop.execute("COMMIT")
        shop.close()
        return "this is not stored"

    handle = await jobs.enqueue(ship, 7)
    await jobs.worker(burst=True).run()
    job = await handle.wait(5)
    assert job.result == "order 7"
    assert effects(place) == [(7, job.token)]


async def test_the_same_in_a_thread(jobs, place):
    @jobs.task
    def ship(order: int, *, ctx: JobContext = INJECTED) -> int:
        shop = begin(place)
        shop.execute("INSERT INTO effects VALUES (?, ?)", (order, ctx.token))
        ctx.complete_in_sync(shop, order)
        shop.execute("COMMIT")
        shop.close()
        return -1

    handle = await jobs.enqueue(ship, 7)
    await jobs.worker(burst=True).run()
    assert await handle.result(5) == 7
    assert len(effects(place)) == 1


async def test_an_error_after_the_commit_changes_nothing(jobs, place, caplog):
    @jobs.task(max_attempts=3, retry=QUICK)
    async def ship(*, ctx: JobContext = INJECTED) -> None:
        shop = begin(place)
        shop.execute("INSERT INTO effects VALUES (1, ?)", (ctx.token,))
        await ctx.complete_in(shop)
        shop.execute("COMMIT")
        shop.close()
        raise RuntimeError("too late to matter")

    handle = await jobs.enqueue(ship)
    with caplog.at_level(logging.INFO, "tenure.worker"):
        await jobs.worker(burst=True, log_success=True).run()
    job = await handle.wait(5)
    assert job.state == "completed"
    assert len(effects(place)) == 1
    assert "completed" in caplog.text
    assert "retrying" not in caplog.text


async def test_after_a_rollback_the_attempt_ends_as_the_body_does(jobs, place):
    @jobs.task(max_attempts=2, retry=QUICK)
    async def ship(*, ctx: JobContext = INJECTED) -> int:
        shop = begin(place)
        shop.execute("INSERT INTO effects VALUES (1, ?)", (ctx.token,))
        await ctx.complete_in(shop, ctx.attempt)
        shop.execute("ROLLBACK" if ctx.attempt == 1 else "COMMIT")
        shop.close()
        if ctx.attempt == 1:
            raise RuntimeError("rolled back")
        return 0

    handle = await jobs.enqueue(ship)
    worker = jobs.worker()
    running = asyncio.create_task(worker.run())
    job = await handle.wait(20)
    worker.stop()
    await running
    assert (job.state, job.result) == ("completed", 2)
    assert effects(place) == [(1, job.token)]


async def test_who_lost_the_job_cannot_complete_it(jobs, place):
    refused = []

    @jobs.task
    async def ship(*, ctx: JobContext = INJECTED) -> None:
        await jobs.cancel(ctx.job_id, force=True)
        shop = begin(place)
        shop.execute("INSERT INTO effects VALUES (1, ?)", (ctx.token,))
        try:
            await ctx.complete_in(shop)
        except LeaseLost as error:
            refused.append(error)
            shop.execute("ROLLBACK")
            raise
        finally:
            shop.close()

    handle = await jobs.enqueue(ship)
    await jobs.worker(burst=True).run()
    assert (await handle.wait(5)).state == "cancelled"
    assert len(refused) == 1
    assert effects(place) == []


async def test_a_transaction_longer_than_the_lease_is_held_and_completed(jobs, place):
    """Nobody can take the job over while its row is locked, so its lease is not lost meanwhile."""

    @jobs.task
    def slow(*, ctx: JobContext = INJECTED) -> str:
        shop = begin(place)
        with ctx.join(shop):
            shop.execute("INSERT INTO effects VALUES (1, ?)", (ctx.token,))
            time.sleep(1.6)  # longer than the lease; the holder believes in it all the same
            assert not ctx.lease.lost
            ctx.complete_in_sync(shop, "held")
            shop.execute("COMMIT")
        shop.close()
        return "not stored"

    handle = await jobs.enqueue(slow)
    await jobs.worker(burst=True, lease=1).run()
    job = await handle.wait(5)
    assert (job.state, job.result, job.claims) == ("completed", "held", 1)
    assert effects(place) == [(1, job.token)]


async def test_a_body_may_go_on_after_the_commit(jobs, place, caplog):
    """Its lease is over, as the job has ended; that is no loss, and nobody cancels the body."""
    reached = []

    @jobs.task
    async def ship(*, ctx: JobContext = INJECTED) -> None:
        shop = begin(place)
        async with ctx.join(shop):
            await ctx.complete_in(shop, 1)
            shop.execute("COMMIT")
        shop.close()
        await ctx.lease.wait_lost()
        await asyncio.sleep(0)
        ctx.check()
        reached.append(ctx.stopping)

    handle = await jobs.enqueue(ship)
    await jobs.worker(burst=True, lease=1).run()
    assert (await handle.wait(5)).result == 1
    assert reached == [None]
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_a_job_that_is_no_longer_held_cannot_be_joined(jobs, place):
    refused = []

    @jobs.task
    async def late(*, ctx: JobContext = INJECTED) -> None:
        await jobs.cancel(ctx.job_id, force=True)
        shop = begin(place)
        try:
            ctx.join(shop)
        except LeaseLost as error:
            refused.append(error)
        shop.execute("ROLLBACK")
        shop.close()

    handle = await jobs.enqueue(late)
    await jobs.worker(burst=True).run()
    assert (await handle.wait(5)).state == "cancelled"
    assert len(refused) == 1
