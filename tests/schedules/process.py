"""A process with some schedulers: `python -m tests.schedules.process URL COUNT`.

Each fires the schedule `beat`, which it finds in the store, until the process is killed.
"""

from __future__ import annotations

import asyncio
import sys

from tenure import QueueService
from tenure.clock import SystemClock
from tenure.declarations import Declarations
from tenure.engines.open import open_engine
from tenure.observe.hooks import Hooks
from tenure.worker.ticker import Ticker


async def main(url: str, count: int) -> None:
    jobs = QueueService(url)

    @jobs.task
    async def beat() -> None: ...

    async with asyncio.TaskGroup() as group:
        for _ in range(count):
            engine = await open_engine(url).__aenter__()
            declarations = Declarations(jobs.tasks, "shop", jobs._enqueueing.job_of)
            clock = SystemClock()
            group.create_task(Ticker(engine, declarations, hooks=Hooks(), clock=clock).run())
        sys.stdout.write("ready\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
