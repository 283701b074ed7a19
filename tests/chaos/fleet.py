"""Worker processes that are killed and frozen at random, and started again."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import tenure

ROOT = Path(__file__).resolve().parents[2]


class Fleet:
    """`size` processes of `tenure worker`, in a folder; what they say goes to a file each."""

    def __init__(
        self,
        folder: Path,
        size: int,
        *options: str,
        app: str = "tests.chaos.shop:jobs",
        **environment: str,
    ) -> None:
        self.folder = folder
        self._command = [sys.executable, "-m", "tenure", "worker", app]
        self._command += options
        source = Path(tenure.__file__).parent.parent
        path = os.pathsep.join((str(source), str(ROOT)))
        self._environment = {**os.environ, **environment, "PYTHONPATH": path}
        self._started = 0
        self._workers = [self._start() for _ in range(size)]

    def kill_one(self, dice: random.Random) -> None:
        """End one process by SIGKILL, and start another in its place."""
        index = dice.randrange(len(self._workers))
        worker = self._workers[index]
        worker.kill()
        worker.wait(timeout=30)
        self._workers[index] = self._start()

    def revive(self) -> None:
        """Start another process in the place of each that has ended."""
        for place, worker in enumerate(self._workers):
            if worker.poll() is not None:
                self._workers[place] = self._start()

    def freeze_one(self, dice: random.Random, seconds: float) -> None:
        """Stop one process by SIGSTOP for so long, then let it go on."""
        worker = dice.choice(self._workers)
        worker.send_signal(signal.SIGSTOP)
        time.sleep(seconds)  # not to wait for anything: this is how long it is frozen
        worker.send_signal(signal.SIGCONT)

    @property
    def alive(self) -> int:
        """How many processes run."""
        return sum(worker.poll() is None for worker in self._workers)

    def said(self) -> str:
        """All that the processes wrote."""
        texts = [p.read_text(errors="replace") for p in sorted(self.folder.glob("worker-*.log"))]
        return "\n".join(texts)

    def end(self) -> None:
        """Let all drain and end; kill who does not."""
        for worker in self._workers:
            worker.send_signal(signal.SIGCONT)
            worker.terminate()
        for worker in self._workers:
            try:
                worker.wait(timeout=30)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait(timeout=30)

    def _start(self) -> subprocess.Popen[bytes]:
        self._started += 1
        with (self.folder / f"worker-{self._started}.log").open("wb") as log:
            return subprocess.Popen(
                self._command,
                cwd=self.folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )


def until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    """Wait for a condition of other processes; fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.05)


def assert_no_problem(url: str) -> None:
    """`tenure doctor` finds nothing wrong with a store."""
    doctor = subprocess.run(
        [sys.executable, "-m", "tenure", "doctor", url],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert doctor.returncode == 0, doctor.stdout + doctor.stderr
