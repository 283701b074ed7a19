"""Several worker processes on one file: blocked, frozen, killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tenure.core.states import State
from tenure.engines.sqlite import SQLiteEngine
from tests.worker.kit import House, until
from tests.worker.process import declare

pytestmark = pytest.mark.anyio

Process = asyncio.subprocess.Process


class Site:
    """A database, what its bodies did, and the processes that work on it."""

    def __init__(self, folder: Path, house: House) -> None:
        self.house = house
        self._folder = folder
        self._log = folder / "log"
        self._processes: list[Process] = []
        declare(house, self._log)

    async def put(self, name: str, *args: Any, **changes: Any) -> str:
        return await self.house.put(self.house.tasks.get(name), *args, **changes)

    async def start(self, **options: Any) -> Process:
        """A worker process, which says on its error stream what it logs."""
        options = {"concurrency": 5, "lease": 1.0, "poll_max": 0.1, **options}
        number = len(self._processes)
        with (self._folder / f"errors-{number}").open("wb") as errors:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "tests.worker.process",
                str(self._folder / "jobs.db"),
                str(self._log),
                json.dumps(options),
                stderr=errors,
                cwd=Path(__file__).parents[2],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        self._processes.append(process)
        return process

    def errors(self, process: Process) -> str:
        return (self._folder / f"errors-{self._processes.index(process)}").read_text()

    def notes(self, word: str, job_id: str) -> list[int]:
        """The processes that noted this word of this job, in order."""
        if not self._log.exists():
            return []
        lines = [line.split() for line in self._log.read_text().splitlines()]
        return [int(pid) for said, job, pid, _ in lines if (said, job) == (word, job_id)]

    async def started(self, job_id: str, times: int = 1) -> int:
        """The process that started this job last, once it was started so often."""
        await until(lambda: len(self.notes("start", job_id)) >= times)
        return self.notes("start", job_id)[-1]

    def process(self, pid: int) -> Process:
        return next(p for p in self._processes if p.pid == pid)

    async def freeze(self, process: Process) -> None:
        """Stop it, but not while it holds the lock of the file, which would stop everybody."""
        while True:
            process.send_signal(signal.SIGSTOP)
            try:
                async with asyncio.timeout(0.3):
                    await self.house.engine.insert([])
                return
            except TimeoutError:
                process.send_signal(signal.SIGCONT)

    async def end(self) -> None:
        for process in self._processes:
            if process.returncode is None:
                process.kill()
            await process.wait()


@asynccontextmanager
async def _site(folder: Path) -> AsyncIterator[Site]:
    async with SQLiteEngine(folder / "jobs.db", synchronous="normal") as engine:
        site = Site(folder, House(engine))
        try:
            yield site
        finally:
            await site.end()
            site.house.keeper.close()


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with _site(tmp_path) as site:
        yield site


async def one_start_one_completion(site: Site, name: str, amount: float, patience: float) -> None:
    await site.start(lease=3.0)
    job_id = await site.put(name, amount)
    first = await site.started(job_id)
    await site.start(lease=3.0)
    begun = time.monotonic()
    [job] = await site.house.ended(job_id, timeout=patience)
    assert time.monotonic() - begun > 6
    assert (job.state, job.result, job.claims, job.lapses) == (State.COMPLETED, first, 1, 0)
    assert site.notes("start", job_id) == site.notes("end", job_id) == [first]


async def test_a_blocked_event_loop_keeps_its_lease(site: Site):
    """In real time: a busy loop of 10 s under a lease of 3 s, beside an idle worker."""
    await one_start_one_completion(site, "spin", 10, 20)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("name", "amount"), [("spin_in_thread", 10), ("hold_gil", 30)], ids=["thread", "gil"]
)
async def test_a_busy_thread_keeps_its_lease(site: Site, name: str, amount: int):
    await one_start_one_completion(site, name, amount, 120)


async def test_the_job_of_a_killed_worker_is_run_by_another(site: Site):
    for _ in range(2):
        await site.start()
    job_id = await site.put("sleep", 0.8)
    first = await site.started(job_id)
    site.process(first).kill()
    killed = time.monotonic()
    second = await site.started(job_id, 2)
    assert time.monotonic() - killed < 3
    [job] = await site.house.ended(job_id)
    assert second != first
    assert (job.state, job.result) == (State.COMPLETED, second)
    assert (job.claims, job.lapses, job.row.failures) == (2, 1, 0)


async def test_a_job_that_kills_its_process_is_given_up_and_neighbours_finish(site: Site):
    killer = await site.put("die")
    neighbours = [await site.put("quick") for _ in range(5)]
    for times in (1, 2):
        process = await site.start(concurrency=1)
        await site.started(killer, times)
        assert await asyncio.wait_for(process.wait(), 10) == 9
    await site.start(concurrency=1)
    [job, *others] = await site.house.ended(killer, *neighbours)
    assert job.error is not None
    assert (job.state, job.error.kind, job.lapses) == (State.FAILED, "lapsed", 2)
    assert "vanished 2 times" in job.error.message
    assert len(site.notes("start", killer)) == 2
    assert {other.state for other in others} == {State.COMPLETED}
    assert all(len(site.notes("start", other.id)) == 1 for other in others)


async def test_what_a_frozen_worker_brings_late_is_refused(site: Site):
    for _ in range(2):
        await site.start()
    job_id = await site.put("sleep", 1.0)
    first = await site.started(job_id)
    frozen = site.process(first)
    await site.freeze(frozen)
    second = await site.started(job_id, 2)
    [job] = await site.house.ended(job_id)
    frozen.send_signal(signal.SIGCONT)
    await until(lambda: "lost its lease" in site.errors(frozen))
    assert second != first
    assert await site.house.job(job_id) == job  # nothing came after it
    assert (job.result, job.claims, job.lapses) == (second, 2, 1)
    assert site.errors(frozen).count(f"job {job_id} (sleep) lost its lease") == 1
    # It works on.
    later = await site.put("quick")
    site.process(second).kill()
    [job] = await site.house.ended(later)
    assert job.result == first


async def test_a_cancel_is_heard_by_another_process(site: Site):
    await site.start(lease=60, poll_max=60)
    job_id = await site.put("wait")
    await site.started(job_id)
    asked = time.monotonic()
    await site.house.engine.cancel([job_id])
    [job] = await site.house.ended(job_id)
    assert job.state is State.CANCELLED
    assert time.monotonic() - asked < 1.5


async def test_an_enqueue_is_heard_by_another_process(site: Site):
    await site.start(poll_max=60)
    await site.house.ended(await site.put("quick"))
    asked = time.monotonic()
    await site.house.ended(await site.put("quick", delay=100_000))
    assert time.monotonic() - asked < 1.5
