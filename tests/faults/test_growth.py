"""Growth: memory that is never given back, or an operation that loads a whole backlog."""

from __future__ import annotations

import gc
import logging
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tenure import QueueService
from tenure.core.fleet import WorkerInfo
from tenure.core.job import NewJob
from tenure.core.retry import RetryPolicy
from tenure.engines.memory import MemoryEngine
from tenure.engines.protocol import Claim
from tenure.engines.sqlite import SQLiteEngine
from tenure.errors import ConfigurationError
from tenure.worker import control, poller
from tests.worker.kit import House, until
from tests.worker.puppet import Strings

pytestmark = pytest.mark.anyio
Scaled = Callable[[int, int], int]


@contextmanager
def measured() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()


async def grown(work: Callable[[int], Awaitable[None]], count: int) -> float:
    """Bytes that each of `count` rounds left behind, after as many went before."""
    with measured():
        await work(count)  # caches fill, pools reach their size
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        await work(count)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    return (after - before) / count


async def test_a_producer_keeps_nothing_of_what_it_enqueued(tmp_path: Path, scaled: Scaled):
    jobs = QueueService(f"sqlite:///{tmp_path}/jobs.db?synchronous=normal")

    @jobs.task
    async def task(text: str) -> None:
        pass

    async def enqueue(count: int) -> None:
        for _ in range(count):
            await jobs.enqueue(task, "x" * 1000)

    async with jobs:
        assert await grown(enqueue, scaled(500, 150_000)) < 300


async def test_a_worker_keeps_nothing_of_what_it_ran(
    tmp_path: Path, kind: str, scaled: Scaled, monkeypatch: pytest.MonkeyPatch
):
    # pytest keeps every record.
    monkeypatch.setattr(logging.getLogger("tenure.worker"), "disabled", True)
    async with SQLiteEngine(tmp_path / "jobs.db", synchronous="normal") as engine:
        house = House(engine)

        async def on_loop(text: str) -> str:
            return text

        def in_thread(text: str) -> str:
            raise ValueError(text)

        task = house.task(on_loop if kind == "async" else in_thread)

        async def run(count: int) -> None:
            ids = [await house.put(task, "x" * 1000) for _ in range(count)]
            await house.ended(*ids[-500:])
            await until(lambda: worker.active == 0)
            house.told.clear()

        async with house.working(threads=4) as worker:
            assert await grown(run, scaled(120, 20_000)) < 400
        house.keeper.close()


async def test_an_idle_worker_keeps_nothing_of_a_store_that_is_away(
    memory: tuple[House, Strings], monkeypatch: pytest.MonkeyPatch, scaled: Scaled
):
    """Thousands of failed looks: their errors, with all that hangs on them, are let go."""
    house, strings = memory
    quick = RetryPolicy(base=0.0, cap=0.1, jitter=0.0)
    monkeypatch.setattr(quick.__class__, "delay", lambda self, failures, roll: 100)
    monkeypatch.setattr(poller, "_AWAY", quick)
    monkeypatch.setattr(control, "_RETRY", quick)

    async def quiet() -> None:
        pass

    house.task(quiet)

    async def look(count: int) -> None:
        before = strings.calls["claim"]
        await until(lambda: strings.calls["claim"] >= before + count)

    async with house.working():
        strings.fail()
        assert await grown(look, scaled(500, 20_000)) < 100
        strings.heal()


async def test_workers_that_come_and_go_leave_no_trace(house: House, scaled: Scaled):
    async def come_and_go(count: int) -> None:
        for n in range(count):
            info = WorkerInfo(id=f"w{n}", queues=("q",), tasks=("t",), concurrency=1)
            await house.engine.announce(info, 1)  # gone a microsecond later, without a word

    await come_and_go(scaled(300, 5000))
    info = WorkerInfo(id="last", queues=("q",), tasks=("t",), concurrency=1)
    await house.engine.announce(info, 60_000_000)
    assert [worker.id for worker in await house.engine.workers()] == ["last"]
    if isinstance(house.engine, MemoryEngine):
        assert await grown(come_and_go, scaled(300, 5000)) < 100


async def test_a_backlog_that_is_due_at_once_is_taken_in_small_parts(
    tmp_path: Path, scaled: Scaled
):
    """Promotion, claims, lists, counts and clean-up hold a bounded part of it in memory."""
    total, now = scaled(20_000, 500_000), 1_700_000_000_000_000
    async with SQLiteEngine(tmp_path / "jobs.db", synchronous="normal") as engine:
        for start in range(0, total, 10_000):
            batch = [
                NewJob(id=f"{n:08}", task="t", payload=b'{"x": "' + b"y" * 100 + b'"}', delay=1)
                for n in range(start, start + 10_000)
            ]
            await engine.insert(batch, now=now)
        with measured():
            later, owner = now + 1_000_000, "w"
            for _ in range(5):
                claim = Claim(owner=owner, limit=10, lease=60_000_000)
                assert len(await engine.claim(claim, now=later)) == 10
            [stats] = await engine.stats(now=later)
            assert stats.running == 50
            # What became ready on the way is a few per claim, not all of it.
            [promoted] = await engine.stats(now=now)
            assert stats.pending == total - 50 == promoted.pending + promoted.scheduled
            await engine.next_due(["default"], ["t"], now=later)
            await engine.sweep(500, now=later + 3600_000_000)
            _, peak = tracemalloc.get_traced_memory()
        assert peak < 4_000_000


async def test_no_operation_can_be_asked_for_everything(jobs: QueueService):
    with pytest.raises(ConfigurationError, match="limit"):
        await jobs.find(limit=1001)
    with pytest.raises(ConfigurationError, match="limit"):
        await jobs.sweep(limit=10_001)
    with pytest.raises(ConfigurationError):
        await jobs._life.engine.prune("jobs", 0, limit=10_001)  # type: ignore[arg-type]
