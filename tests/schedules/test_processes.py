"""Many schedulers in processes of their own, some of them killed, some with wrong clocks."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tenure import QueueService
from tenure.clock import OFFSET
from tests.faults.scripts import surroundings
from tests.worker.kit import until

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(90)]

Process = asyncio.subprocess.Process
STEP = 0.1


@asynccontextmanager
async def processes(url: str, *ahead: float, each: int) -> AsyncIterator[list[Process]]:
    """Processes with so many schedulers each, whose clocks are so many seconds ahead."""
    started: list[Process] = []
    try:
        for seconds in ahead:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "tests.schedules.process",
                url,
                str(each),
                stdout=asyncio.subprocess.PIPE,
                cwd=Path(__file__).parents[2],
                env=surroundings(**{OFFSET: str(seconds)}),
            )
            started.append(process)
        for process in started:
            assert process.stdout is not None
            assert await process.stdout.readline() == b"ready\n"
        yield started
    finally:
        for process in started:
            if process.returncode is None:
                process.kill()
            await process.wait()


async def fired(jobs: QueueService) -> list[int]:
    """The ticks whose jobs there are."""
    return sorted(job.row.tick or 0 for job in await jobs.schedules.history("beat", limit=1000))


async def reaches(jobs: QueueService, count: int) -> None:
    async def reached() -> bool:
        return len(await fired(jobs)) >= count

    await until(reached, timeout=60)


async def test_twenty_schedulers_fire_each_tick_once(url: str, scaled: Callable[[int, int], int]):
    """Some are killed, and where the store has a clock of its own, some believe that it is an hour
    earlier or later: those that share a file share the machine, and so its clock."""
    wrong = 3600.0 if url.startswith("postgresql") else 0.0
    async with QueueService(url) as jobs:

        @jobs.task
        async def beat() -> None: ...

        await jobs.schedules.add("beat", beat, interval=STEP, misfire="all")
        wanted = scaled(20, 500)
        async with processes(url, 0, wrong, -wrong, 0, each=scaled(5, 10)) as started:
            await reaches(jobs, wanted)
            started[0].kill()
            started[1].kill()
            await reaches(jobs, 2 * wanted)
        ticks = await fired(jobs)
        row = (await jobs.schedules.get("beat")).row
    step = round(STEP * 1e6)
    assert ticks == list(range(ticks[0], row.next_at or 0, step))
    assert row.last_at == ticks[-1]


async def test_workers_of_one_service_fire_each_tick_once(tmp_path: Path):
    url = f"sqlite:///{tmp_path}/jobs.db"
    ran: list[int] = []

    def service() -> QueueService:
        jobs = QueueService(url, app_name="shop")

        @jobs.task(interval=STEP, misfire="all")
        async def beat() -> None:
            ran.append(1)

        return jobs

    services = [service() for _ in range(4)]
    workers = [each.worker(poll_max=0.1) for each in services]
    running = [asyncio.create_task(worker.run()) for worker in workers]
    await until(lambda: len(ran) >= 15)
    for worker in workers:
        worker.stop()
    await asyncio.gather(*running)
    ticks = await fired(services[0])
    assert ticks == list(range(ticks[0], ticks[-1] + 1, round(STEP * 1e6)))
    for each in services:
        await each.close()
