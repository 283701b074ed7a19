"""A folder with an app in it, and the ways to call commands there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tenure.cli.root import cli

APP = """
import asyncio
import threading
import time

from tenure import QueueService

jobs = QueueService("sqlite:///jobs.db")


def begun() -> None:
    # A little before that its job is running already.
    open("begun", "w").close()


@jobs.task
async def add(a: int, b: int = 2) -> int:
    return a + b


@jobs.task
async def hello(name: str) -> str:
    return "hello " + name


@jobs.task
def fail(text: str = "no luck") -> None:
    raise ValueError(text)


@jobs.task
async def rest(seconds: float = 60.0) -> str:
    begun()
    await asyncio.sleep(seconds)
    return "rested"


@jobs.task
async def until_file(path: str) -> str:
    import os

    begun()
    while not os.path.exists(path):
        await asyncio.sleep(0.02)
    return "found"


@jobs.task
async def deaf() -> None:
    begun()
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass


@jobs.task
async def block_the_loop() -> None:
    begun()
    while True:
        pass


@jobs.task
def block_a_thread() -> None:
    begun()
    threading.Event().wait()
"""


def until(condition: Callable[[], Any], seconds: float = 20.0) -> Any:
    """Wait until the condition is true, and return what it returned."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, "the condition has not come true in time"
        time.sleep(0.02)
    return value


class Project:
    """A folder with `app.py`, and commands called in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"sqlite:///{folder / 'jobs.db'}"
        self._started: list[subprocess.Popen[str]] = []

    def __call__(self, *arguments: str, code: int = 0, **options: Any) -> Result:
        """Call a command in this process; it must end with `code`, and never by an exception."""
        result = CliRunner().invoke(cli, arguments, prog_name="tenure", **options)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, (arguments, result.output)
        assert "Traceback" not in result.stderr
        return result

    def json(self, *arguments: str, code: int = 0) -> Any:
        """The JSON document that a command prints."""
        return json.loads(self(*arguments, "--json", code=code).stdout)

    def lines(self, *arguments: str) -> list[Any]:
        """The JSON documents that a command prints, one per line."""
        return [json.loads(line) for line in self(*arguments, "--json").stdout.splitlines()]

    def job(self, job_id: str) -> dict[str, Any]:
        """The job as the command shows it."""
        shown: dict[str, Any] = self.json("job", "show", self.url, job_id)
        return shown

    def enqueue(self, *words: str) -> str:
        """Put a job in; returns its id."""
        return self("enqueue", "app:jobs", *words).stdout.strip()

    def start(self, *arguments: str, **surroundings: str) -> subprocess.Popen[str]:
        """Start a command as a process of its own; it is ended with the test."""
        return self.spawn(sys.executable, "-m", "tenure", *arguments, **surroundings)

    def spawn(self, *command: str, **surroundings: str) -> subprocess.Popen[str]:
        """Start a process in the folder; it is ended with the test."""
        process = subprocess.Popen(
            command,
            cwd=self.folder,
            env=os.environ | surroundings,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._started.append(process)
        return process

    def working(self, job_id: str, *options: str) -> subprocess.Popen[str]:
        """A worker process whose first body, that of this job, has begun."""
        process = self.start("worker", "app:jobs", *options)
        begun = self.folder / "begun"
        until(lambda: begun.exists() or process.poll() is not None)
        assert self.job(job_id)["state"] == "running"
        assert process.poll() is None, process.communicate()
        return process

    def close(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.communicate()


@pytest.fixture
def tenure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    """Commands, called in a fresh folder with an app."""
    for name in [name for name in os.environ if name.startswith("TENURE_")]:
        monkeypatch.delenv(name)
    (tmp_path / "app.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)
    project = Project(tmp_path)
    yield project
    project.close()
    # Modules of this folder only: the next test has an `app` of its own.
    for name in sys.modules.keys() - before:
        file = getattr(sys.modules[name], "__file__", None) or ""
        if file.startswith(str(tmp_path)):
            del sys.modules[name]
