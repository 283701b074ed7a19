"""Enqueueing inside the caller's own transaction, through the service."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure import QueueService
from tenure.errors import ConfigurationError, JobNotFound, PayloadError

pytestmark = pytest.mark.anyio


@pytest.fixture
def jobs(tmp_path: Path) -> QueueService:
    service = QueueService(f"sqlite:///{tmp_path}/shop.db")

    @service.task
    async def ship(order: int) -> int:
        return order

    return service


@pytest.fixture
def shop(tmp_path: Path, jobs: QueueService) -> Iterator[sqlite3.Connection]:
    jobs.sync.migrate()
    jobs.sync.close()
    connection = sqlite3.connect(tmp_path / "shop.db", isolation_level=None)
    connection.execute("CREATE TABLE orders (id INTEGER)")
    yield connection
    connection.close()


async def test_order_and_job_are_committed_together(jobs, shop):
    async with jobs:
        shop.execute("BEGIN IMMEDIATE")
        shop.execute("INSERT INTO orders VALUES (7)")
        handle = await jobs.using(shop).enqueue("ship", 7)
        with pytest.raises(JobNotFound):
            await handle.job()
        shop.execute("COMMIT")
        assert handle.created
        await jobs.worker(burst=True).run()
        assert await handle.result(5) == 7


async def test_a_rollback_leaves_neither(jobs, shop):
    async with jobs:
        shop.execute("BEGIN IMMEDIATE")
        ship = jobs.tasks.get("ship")
        handles = await jobs.using(shop).enqueue_many([ship.bind(n) for n in range(3)])
        shop.execute("ROLLBACK")
        for handle in handles:
            with pytest.raises(JobNotFound):
                await handle.job()


async def test_leaving_the_block_after_the_commit_wakes_a_worker(jobs, shop):
    async with jobs:
        worker = jobs.worker(poll_max=3600)
        running = asyncio.create_task(worker.run())
        async with jobs.using(shop_begun(shop)) as joined:
            handle = await joined.enqueue("ship", 1)
            shop.execute("COMMIT")
        assert await handle.result(20) == 1
        worker.stop()
        await running


def shop_begun(shop: sqlite3.Connection) -> sqlite3.Connection:
    shop.execute("BEGIN IMMEDIATE")
    return shop


def test_the_blocking_face_does_the_same(jobs, shop):
    with jobs.sync.using(shop_begun(shop)) as joined:
        handle = joined.enqueue("ship", 3)
        many = joined.enqueue_many([jobs.tasks.get("ship").bind(4)])
        shop.execute("COMMIT")
    assert handle.job().state == "pending"
    assert many[0].job().arguments == {"order": 4}
    jobs.sync.close()


def test_what_cannot_be_joined_is_refused_at_once(jobs, shop, tmp_path):
    with pytest.raises(ConfigurationError, match="BEGIN IMMEDIATE"):
        jobs.using(shop)
    with pytest.raises(ConfigurationError, match=r"sqlite3\.Connection"):
        jobs.using(object())
    with pytest.raises(ConfigurationError, match="memory://"):
        QueueService("memory://").using(shop_begun(shop))
    shop.execute("ROLLBACK")


async def test_a_bad_argument_leaves_the_transaction_as_it_was(jobs, shop):
    shop_begun(shop).execute("INSERT INTO orders VALUES (1)")
    ship = jobs.tasks.get("ship")
    with pytest.raises(PayloadError, match="order"):
        await jobs.using(shop).enqueue(ship, float("nan"))
    shop.execute("COMMIT")
    assert shop.execute("SELECT count(*) FROM orders").fetchone() == (1,)
    assert shop.execute("SELECT count(*) FROM jobs").fetchone() == (0,)
