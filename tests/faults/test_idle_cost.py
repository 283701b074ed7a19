"""Idle cost: a worker without work keeps a core busy, or asks the store all the time."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.worker.kit import until
from tests.worker.site import Site

pytestmark = pytest.mark.anyio
Scaled = Callable[[int, int], int]

TICKS = os.sysconf("SC_CLK_TCK")


def cpu(pid: int) -> float:
    """Seconds of processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
async def test_a_worker_without_work_costs_next_to_nothing(site: Site, scaled: Scaled):
    """However many places it has; and a new job is still started at once."""
    seconds = scaled(15, 600) / 10
    processes = []
    for concurrency in (1, 1000):
        processes.append(await site.start(concurrency=concurrency, poll_max=1.0, lease=30.0))
        first = await site.put("quick")
        await site.house.ended(first)
    await asyncio.sleep(1.2)  # until the looks have grown rare
    before = [cpu(process.pid) for process in processes]
    await asyncio.sleep(seconds)
    used = [cpu(process.pid) - was for process, was in zip(processes, before, strict=True)]
    assert max(used) <= 0.03 * seconds
    begun = asyncio.get_running_loop().time()
    job_id = await site.put("quick")
    await until(lambda: site.notes("start", job_id))
    assert asyncio.get_running_loop().time() - begun < 0.5
