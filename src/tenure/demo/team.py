"""The worker processes of the demo. Whatever happens, none outlives it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any, Self

CONCURRENCY = 8
LEASE_SECONDS = 2
_PATIENCE = 10.0


class Member:
    """One worker process. Its log goes to a file."""

    def __init__(self, number: int, url: str, queue: str, folder: Path) -> None:
        self.number = number
        self.log = folder / f"worker-{number}.log"
        command = [sys.executable, "-m", "tenure", "worker", "tenure.demo.app:jobs", "-q", queue]
        surroundings = {
            "TENURE_URL": url,
            "TENURE_LEASE": str(LEASE_SECONDS),
            "TENURE_CONCURRENCY": str(CONCURRENCY),
            "TENURE_DEMO_PIPE": "1",
            "PYTHONWARNINGS": "ignore",
        }
        with self.log.open("wb") as log:
            # A session of its own: Ctrl-C is for the demo, which then ends its workers.
            self._process = subprocess.Popen(
                command,
                env=os.environ | surroundings,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def freeze(self) -> None:
        """Stop it where it is, so that what it holds can be looked at."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL it, and wait until it is gone."""
        self._process.kill()
        self._process.wait()

    def ask_to_end(self) -> None:
        """SIGTERM: it drains and ends."""
        if self.alive:
            self.thaw()
            self._process.terminate()

    def end(self, deadline: float) -> None:
        """Wait for its end until the deadline (monotonic); then kill it."""
        try:
            self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.kill()
        pipe: IO[Any] | None = self._process.stdin
        if pipe is not None:
            pipe.close()

    def last_words(self, lines: int = 15) -> str:
        """The end of its log."""
        text = self.log.read_text(encoding="utf-8", errors="replace")
        return "\n".join(text.splitlines()[-lines:])


class Team:
    """Several worker processes; use it with `with`."""

    def __init__(self, count: int, url: str, queue: str, folder: Path) -> None:
        self._count = count
        self._place = (url, queue, folder)
        self.members: list[Member] = []

    def __enter__(self) -> Self:
        try:
            for number in range(1, self._count + 1):
                self.members.append(Member(number, *self._place))
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End every process, kindly first."""
        for member in self.members:
            member.ask_to_end()
        deadline = time.monotonic() + _PATIENCE
        for member in self.members:
            member.end(deadline)

    def by_owner(self, owner: str) -> Member | None:
        """The living member with this worker id, which holds its process id."""
        pid = owner.rsplit(":", 2)[-2]
        return next((m for m in self.members if str(m.pid) == pid and m.alive), None)
