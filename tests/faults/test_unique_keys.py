"""Unique keys: locks that outlive their jobs, that are freed too early, or that bar a new start."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tenure import Discard, QueueService, task
from tenure.core.fleet import Flaw
from tenure.engines.protocol import Claim
from tests.faults.scripts import output, run, start
from tests.service.stores import Store, shared_store, store

__all__ = ["shared_store", "store"]
pytestmark = pytest.mark.anyio
Scaled = Callable[[int, int], int]


@task(unique_key="k", max_lapses=0)
async def work(how: str = "") -> str:
    if how == "discard":
        raise Discard("of no use")
    if how == "fail":
        raise ValueError("for good")
    return how


async def killed(jobs: QueueService, job_id: str) -> None:
    """Its worker has vanished, and another one finds that out."""
    await jobs._life.engine.claim(Claim(owner="dead", limit=1, lease=1, ids=(job_id,)))
    await jobs.sweep()


async def run_it(jobs: QueueService, job_id: str) -> None:
    await jobs.worker(burst=True).run()


async def cancel(jobs: QueueService, job_id: str) -> None:
    await jobs.cancel(job_id)


async def force(jobs: QueueService, job_id: str) -> None:
    await jobs._life.engine.claim(Claim(owner="busy", limit=1, lease=60_000_000, ids=(job_id,)))
    await jobs.cancel(job_id, force=True)


async def expire(jobs: QueueService, job_id: str) -> None:
    """Nobody sweeps: the next enqueue finds by itself that it is too late for this one."""
    await asyncio.sleep(0.002)


ENDS: dict[str, tuple[Any, Any]] = {
    "completed": (work.bind("return"), run_it),
    "failed": (work.bind("fail"), run_it),
    "discarded": (work.bind("discard"), run_it),
    "cancelled": (work.bind(), cancel),
    "cancelled by force": (work.bind(), force),
    "killed": (work.bind(), killed),
    "expired": (work.options(expires_in=0.001, delay=60).bind(), expire),
}


@pytest.mark.parametrize("end", ENDS)
async def test_no_end_of_a_job_leaves_its_key_behind(store: Store, end: str):
    """There is no lock beside the job that could be forgotten."""
    bound, act = ENDS[end]
    async with store.service(tasks=[work]) as jobs:
        first = await jobs.enqueue(bound)
        assert first.created
        await act(jobs, first.id)
        second = await jobs.enqueue(work)
        assert (second.created, second.id != first.id) == (True, True)
        assert not (await jobs.enqueue(work)).created


async def test_no_housekeeping_frees_the_key_of_a_job_that_runs(store: Store):
    """Sweeps, and other long jobs, while it runs: duplicates are refused all the time."""
    entered, leave = asyncio.Event(), asyncio.Event()

    async with store.service() as jobs:

        @jobs.task(unique_by="arguments")
        async def long(number: int) -> None:
            entered.set()
            await leave.wait()

        handles = await jobs.enqueue_many([long.bind(n) for n in range(2)])
        running = asyncio.create_task(jobs.worker(lease=1).run())
        await entered.wait()
        for _ in range(20):
            await jobs.sweep()
            twin = await jobs.enqueue(long, 0)
            assert (twin.created, twin.id) == (False, handles[0].id)
        leave.set()
        for handle in handles:
            await handle.wait(20)
        assert (await jobs.enqueue(long, 0)).created
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_the_same_work_may_be_enqueued_again_whatever_became_of_it(store: Store):
    """No window of time in which an equal job is swallowed without a word."""
    async with store.service(tasks=[work]) as jobs:
        seen: set[str] = set()
        for how in ("fail", "return", "discard", "return"):
            handle = await jobs.enqueue(work, how)
            assert handle.created
            seen.add(handle.id)
            await jobs.worker(burst=True).run()
        assert len(seen) == 4


DIES = """
import os, sys
from tenure import QueueService, task

@task(unique_until="forever")
async def once() -> None: ...

@task
async def often() -> None: ...

jobs = QueueService(sys.argv[1], tasks=[once, often])
for n in range(10_000):
    key = f"{sys.argv[2]}-{n}"
    jobs.sync.enqueue_many([
        once.options(unique_key=f"once {key}").bind(),
        often.bind(),
        often.options(unique_key=f"often {key}").bind(),
    ])
    os.write(1, b".")
"""


async def test_a_producer_that_is_killed_leaves_no_key_without_its_job(
    shared_store: Store, tmp_path: Path, scaled: Scaled
):
    """Reservation, key and job are one write, and so is a batch of keyed jobs and others."""
    rounds = scaled(4, 100)
    assert shared_store.url is not None
    async with shared_store.service() as jobs:
        await jobs.find()
        for number in range(rounds):
            process = start(DIES, shared_store.url, str(number), cwd=tmp_path)
            assert process.stdout is not None
            await asyncio.to_thread(process.stdout.read, 1 + number)
            process.kill()
            await asyncio.to_thread(process.communicate)
        found = [job async for job in _all(jobs)]
        once = [job for job in found if job.task == "once"]
        assert len(once) == len(found) / 3 >= rounds
        for job in once:
            assert job.unique_key is not None
            kept = await jobs.identities.get(job.unique_key)
            assert kept is not None
            assert kept.job_id == job.id
        for number in range(rounds):  # the next one may have been under way
            count = sum(job.unique_key.startswith(f"once {number}-") for job in once)
            assert await jobs.identities.get(f"once {number}-{count}") is None
        inspected = await jobs.inspect()
        assert [f for f in inspected.findings if f.code in set(Flaw)] == []


async def _all(jobs: QueueService) -> Any:
    before = None
    while page := await jobs.find(limit=1000, before=before):
        for job in page:
            yield job
        before = page[-1].id


KEY = """
from tenure import task

@task(unique_by="arguments")
async def send(to: frozenset[str], **more: int) -> None: ...

print(send.bind(frozenset({"a", "b", "c", "d"}), x=1, y=2).unique_key())
"""


def test_equal_arguments_give_one_key_in_every_process(tmp_path: Path):
    """Whatever the seed by which a process orders its sets."""
    seeds = ("0", "1", "2", "random")
    processes = [start(KEY, cwd=tmp_path, PYTHONHASHSEED=seed) for seed in seeds]
    assert len({output(process) for process in processes}) == 1
    assert run(KEY, cwd=tmp_path).startswith("arguments:v1:")
