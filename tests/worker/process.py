"""A worker process for the tests: `python -m tests.worker.process DATABASE LOG OPTIONS`.

LOG gets a line for whatever the bodies do; OPTIONS are of the worker, as a JSON object.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import sys
import time
from pathlib import Path

from tenure import INJECTED, JobContext
from tenure.engines.sqlite import SQLiteEngine
from tests.worker.kit import House


def declare(house: House, log: Path) -> None:
    """The tasks that both the tests and their processes know."""

    def note(word: str, ctx: JobContext) -> None:
        line = f"{word} {ctx.job_id} {os.getpid()} {ctx.token}\n".encode()
        handle = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(handle, line)  # one write: lines of several processes do not mix
        finally:
            os.close(handle)

    async def spin(seconds: float, *, ctx: JobContext = INJECTED) -> int:
        note("start", ctx)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            pass
        note("end", ctx)
        return os.getpid()

    def spin_in_thread(seconds: float, *, ctx: JobContext = INJECTED) -> int:
        note("start", ctx)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            pass
        note("end", ctx)
        return os.getpid()

    def hold_gil(rounds: int, *, ctx: JobContext = INJECTED) -> int:
        """Long calls that never let another thread run."""
        note("start", ctx)
        for _ in range(rounds):
            sum(range(20_000_000))
        note("end", ctx)
        return os.getpid()

    def sleep(seconds: float, *, ctx: JobContext = INJECTED) -> int:
        note("start", ctx)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            time.sleep(0.01)
        note("end", ctx)
        return os.getpid()

    async def wait(*, ctx: JobContext = INJECTED) -> None:
        note("start", ctx)
        await asyncio.sleep(60)

    async def die(*, ctx: JobContext = INJECTED) -> None:
        note("start", ctx)
        os._exit(9)

    async def quick(*, ctx: JobContext = INJECTED) -> int:
        note("start", ctx)
        return os.getpid()

    def linger_once(flag: str, *, ctx: JobContext = INJECTED) -> int:
        """The first time, the body returns when there is a file with `.go` behind the name."""
        note("start", ctx)
        if first_time(flag):
            while not Path(f"{flag}.go").exists():
                time.sleep(0.005)
        note("end", ctx)
        return os.getpid()

    def seize_once(flag: str, seconds: int, *, ctx: JobContext = INJECTED) -> int:
        """The first time, a call into C keeps every other thread of Python from running."""
        note("start", ctx)
        if first_time(flag):
            ctypes.PyDLL(None).sleep(seconds)
        note("end", ctx)
        return os.getpid()

    for function in (spin, spin_in_thread, hold_gil, sleep, wait, quick, linger_once, seize_once):
        house.task(function)
    house.task(die, max_lapses=1)


def first_time(flag: str) -> bool:
    """Whether nobody was here before; leaves a file that says so."""
    try:
        Path(flag).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


async def main(database: str, log: str, options: str) -> None:
    async with SQLiteEngine(database, synchronous="normal") as engine:
        house = House(engine)
        declare(house, Path(log))
        await house.worker(**json.loads(options)).run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
