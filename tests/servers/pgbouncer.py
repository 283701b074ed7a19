"""A private PgBouncer for tests, where its program is installed: `make setup-full` does that.

It pools transactions, on a free port of the loopback, in a folder of its own, and gives sessions in
turns, so that a client hardly ever gets the same one twice. A proxy in front of it cuts and stalls.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import psycopg

from tests.servers.postgres import free_port
from tests.servers.proxy import Proxy

SESSIONS = 6
_START_SECONDS = 30.0
_CONFIGURATION = """
[databases]
* = host=127.0.0.1 port={server}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = plain
auth_file = {folder}/users
admin_users = {user}
pool_mode = transaction
default_pool_size = {sessions}
server_round_robin = 1
max_client_conn = 500
ignore_startup_parameters = extra_float_digits, options
logfile = {folder}/log
log_connections = 0
log_disconnections = 0
log_stats = 0
"""


def program() -> Path | None:
    """Where PgBouncer is installed, if it is."""
    found = shutil.which(
        "pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"
    )
    return None if found is None else Path(found)


class PgBouncer(Proxy):
    """Stands in front of the server that `url` names, as a context manager."""

    def __init__(self, url: str, binary: Path) -> None:
        super().__init__(free_port())
        self._binary = binary
        self._parts = urlsplit(url)
        self._folder = Path(tempfile.mkdtemp(prefix="tenure-pgbouncer-"))
        self._as: dict[str, Any] = {"cwd": self._folder, "stdin": subprocess.DEVNULL}
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        super().__enter__()
        try:
            self._configure()
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self._folder)

    def through(self, url: str) -> str:
        """The URL by which the server is reached through the proxy and PgBouncer."""
        return url.replace(f":{self._parts.port}/", f":{self.port}/")

    @property
    def transactions(self) -> int:
        """How often a session was lent."""
        with psycopg.connect(self._address("pgbouncer"), autocommit=True) as console:
            # Its console knows no parameters, and the simple way of asking only.
            result = console.pgconn.exec_(b"SHOW TOTALS")
            totals = {
                result.get_value(row, 0): result.get_value(row, 1) for row in range(result.ntuples)
            }
        return int(totals[b"total_xact_count"] or 0)

    def _address(self, database: str) -> str:
        """A database behind PgBouncer, without the proxy."""
        user, password = self._parts.username, self._parts.password
        return f"postgresql://{user}:{password}@127.0.0.1:{self._target}/{database}"

    def _configure(self) -> None:
        settings = self._folder / "pgbouncer.ini"
        settings.write_text(
            _CONFIGURATION.format(
                server=self._parts.port,
                port=self._target,
                folder=self._folder,
                user=self._parts.username,
                sessions=SESSIONS,
            )
        )
        users = self._folder / "users"
        users.touch(mode=0o600)
        users.write_text(f'"{self._parts.username}" "{self._parts.password}"\n')
        if os.geteuid() == 0:  # which PgBouncer refuses
            nobody = pwd.getpwnam("nobody")
            self._as |= {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
            for place in (self._folder, settings, users):
                os.chown(place, nobody.pw_uid, nobody.pw_gid)

    def _start(self) -> None:
        self._process = subprocess.Popen(
            [self._binary, "--quiet", "pgbouncer.ini"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            **self._as,
        )
        address = self._address(self._parts.path[1:])
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                psycopg.connect(address, connect_timeout=5).close()
                break
            except psycopg.OperationalError as error:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    log = self._folder / "log"
                    said = log.read_text(errors="replace") if log.exists() else ""
                    raise RuntimeError(f"{error}\n{said[-4000:]}") from error
                time.sleep(0.02)
        with ExitStack() as clients:  # as many transactions at once as there may be sessions
            for _ in range(SESSIONS):
                clients.enter_context(psycopg.connect(address)).execute("SELECT 1")
