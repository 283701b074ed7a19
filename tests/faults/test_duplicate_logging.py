"""Duplicate logging: a line appears twice, or handlers and files add up job by job."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tenure import QueueService, TaskRef
from tests.faults.scripts import output, start, surroundings
from tests.worker.kit import SOON, House, until
from tests.worker.puppet import Strings

pytestmark = pytest.mark.anyio
Scaled = Callable[[int, int], int]


@pytest.fixture
def house(memory: tuple[House, Strings]) -> House:
    """One engine will do: nothing here depends on it."""
    return memory[0]


SETUPS = {
    "nothing": "",
    "basicConfig": "logging.basicConfig(level=logging.INFO)",
    "dictConfig": """logging.config.dictConfig({
        "version": 1,
        "disable_existing_loggers": False,
        "handlers": {"out": {"class": "logging.StreamHandler", "stream": "ext://sys.stderr"}},
        "root": {"handlers": ["out"], "level": "INFO"},
        "loggers": {"shop": {"level": "INFO"}},
    })""",
}
APP = """
import asyncio, logging, logging.config, sys
from tenure import QueueService

SETUP

jobs = QueueService("sqlite:///jobs.db")

@jobs.task
async def on_loop():
    logging.getLogger("shop").warning("a line of the body")
    logging.warning("a line of the root")
    raise ValueError("the end of the job")

@jobs.task
def in_thread():
    logging.getLogger("shop").warning("a line of the body")
    logging.warning("a line of the root")
    raise ValueError("the end of the job")

if __name__ == "__main__":
    async def main():
        async with jobs:
            await jobs.enqueue(on_loop)
            await jobs.enqueue(in_thread)
            await jobs.worker(burst=True).run()
    asyncio.run(main())
"""
LINES = ["a line of the body", "a line of the root", "the end of the job"]


@pytest.mark.parametrize("setup", SETUPS)
def test_each_line_is_written_once_whoever_set_logging_up(tmp_path: Path, setup: str):
    app = APP.replace("SETUP", SETUPS[setup])
    (tmp_path / "app.py").write_text(app)
    with QueueService(f"sqlite:///{tmp_path}/jobs.db").sync as jobs:
        jobs.enqueue_many([TaskRef(name).bind() for name in ("on_loop", "in_thread")])
    by_command = subprocess.Popen(
        [sys.executable, "-m", "tenure", "worker", "app:jobs", "--burst"],
        cwd=tmp_path,
        env=surroundings(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    own = tmp_path / "embedded"
    own.mkdir()
    embedded = start(app, cwd=own)
    for process in (by_command, embedded):
        out, err = process.communicate(timeout=30)
        assert process.returncode == 0, err
        for line in LINES:
            assert (out + err).count(line) == 2, f"{line!r} in\n{out}\n{err}"


def test_importing_and_using_the_library_sets_nothing_up(tmp_path: Path):
    code = """
    import asyncio, logging
    from tenure import QueueService
    jobs = QueueService("memory://")
    @jobs.task
    async def body(): pass
    async def main():
        async with jobs:
            await jobs.enqueue(body)
            await jobs.worker(burst=True).run()
    asyncio.run(main())
    assert logging.getLogger().handlers == []
    assert logging.getLogger().level == logging.WARNING
    for name, logger in logging.Logger.manager.loggerDict.items():
        if name.startswith("tenure") and isinstance(logger, logging.Logger):
            assert logger.propagate and logger.level == logging.NOTSET, name
            assert all(isinstance(h, logging.NullHandler) for h in logger.handlers), name
    """
    assert output(start(textwrap.dedent(code), cwd=tmp_path)) == ""


async def test_no_handler_file_or_thread_is_left_by_a_job(house: House, kind: str, scaled: Scaled):
    """A third of them fails, some run out of time, some are cancelled."""

    async def on_loop(number: int) -> None:
        logging.getLogger("shop").debug("a line")
        if number % 3 == 0:
            raise ValueError("no")
        if number % 10 == 1:
            await until(lambda: False, 60)

    def in_thread(number: int) -> None:
        logging.getLogger("shop").debug("a line")
        if number % 3 == 0:
            raise ValueError("no")

    def counts() -> tuple[int, int]:
        loggers = [logging.getLogger(name) for name in logging.Logger.manager.loggerDict]
        handlers = sum(len(logger.handlers) for logger in [logging.getLogger(), *loggers])
        files = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
        return handlers, files

    function = on_loop if kind == "async" else in_thread
    task = house.task(function, timeout=0.05, max_attempts=1, retry=SOON)

    async def round_of(count: int) -> None:
        ids = [await house.put(task, number) for number in range(count)]
        await house.engine.cancel(ids[-5:])
        await house.ended(*ids)

    async with house.working(concurrency=20, threads=4):
        await round_of(20)
        before, threads = counts(), threading.active_count()
        await round_of(scaled(200, 5000))
        await until(lambda: counts() == before)
        assert threading.active_count() <= threads + 4  # not every one was needed before
