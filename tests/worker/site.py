"""A database, the worker processes on it, and what they did."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tenure.engines.sqlite import SQLiteEngine
from tests.worker.kit import House, until
from tests.worker.process import declare

Process = asyncio.subprocess.Process


class Site:
    """A database, what its bodies did, and the processes that work on it."""

    def __init__(self, folder: Path, house: House) -> None:
        self.house = house
        self._folder = folder
        self._log = folder / "log"
        self.processes: list[Process] = []
        declare(house, self._log)

    async def put(self, name: str, *args: Any, **changes: Any) -> str:
        return await self.house.put(self.house.tasks.get(name), *args, **changes)

    async def start(self, **options: Any) -> Process:
        """A worker process, which says on its error stream what it logs."""
        options = {"concurrency": 5, "lease": 1.0, "poll_max": 0.1, **options}
        number = len(self.processes)
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
        self.processes.append(process)
        return process

    def errors(self, process: Process) -> str:
        return (self._folder / f"errors-{self.processes.index(process)}").read_text()

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
        return next(p for p in self.processes if p.pid == pid)

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
        for process in self.processes:
            if process.returncode is None:
                process.kill()
            await process.wait()


@asynccontextmanager
async def open_site(folder: Path) -> AsyncIterator[Site]:
    async with SQLiteEngine(folder / "jobs.db", synchronous="normal") as engine:
        site = Site(folder, House(engine))
        try:
            yield site
        finally:
            await site.end()
            site.house.keeper.close()
