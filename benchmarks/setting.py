"""What a benchmark is given: an engine, how much effort to spend, and places for its stores."""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec

from tests.servers.postgres import PostgresServer, running
from tests.servers.schemas import migrated

SQLITE_FULL, SQLITE_NORMAL, MEMORY, ANY = "sqlite-full", "sqlite-normal", "memory", "any"
POSTGRESQL = "postgresql"
REDIS = "redis"
ENGINES = (SQLITE_FULL, SQLITE_NORMAL, POSTGRESQL, REDIS, MEMORY, ANY)


class Effort(msgspec.Struct, frozen=True, kw_only=True):
    """How much to measure. Times are seconds."""

    rounds: int
    slot: float
    """How long one contestant is measured in one round, where time decides."""
    jobs: int
    """How many jobs one drain runs."""
    backlog: int
    wakeups: int
    idle: float
    leases: int
    lease: float
    """Length of the leases that are kept; a third of it is the interval of renewal."""
    renewals: int = 6
    """How often each of them is renewed; a minute renews a lease of 30 s six times."""
    starts: int
    """How often a process is started to be timed."""


TINY = Effort(
    rounds=1,
    slot=0.005,
    jobs=60,
    backlog=200,
    wakeups=2,
    idle=0.1,
    leases=50,
    lease=1.0,
    renewals=2,
    starts=1,
)
QUICK = Effort(
    rounds=3, slot=0.05, jobs=1500, backlog=100_000, wakeups=20, idle=3, leases=3_000, lease=1.5,
    starts=5,
)  # fmt: skip
DEFAULT = Effort(
    rounds=7, slot=0.15, jobs=3000, backlog=300_000, wakeups=40, idle=8, leases=10_000, lease=3.0,
    starts=9,
)  # fmt: skip
FULL = Effort(
    rounds=15, slot=0.5, jobs=10_000, backlog=1_000_000, wakeups=300, idle=30, leases=10_000,
    lease=15.0, starts=21,
)  # fmt: skip

EFFORTS = {"quick": QUICK, "default": DEFAULT, "full": FULL}


class Setting:
    """One engine and one effort. Every store asked for is new and empty."""

    def __init__(
        self,
        engine: str,
        effort: Effort,
        folder: Path,
        server: PostgresServer | None = None,
        database: str = "postgres",
    ) -> None:
        self.engine = engine
        self.effort = effort
        self.folder = folder
        self.server = server
        self.databases = [database]
        """On the server: the one for tenure, and those that were made for others."""
        self._made = 0

    @property
    def synchronous(self) -> str:
        """How hard SQLite tries: `full` or `normal`."""
        return "normal" if self.engine == SQLITE_NORMAL else "full"

    @contextmanager
    def place(self) -> Iterator[Path]:
        """A folder that is gone afterwards."""
        self._made += 1
        folder = self.folder / f"{self.engine}-{self._made}"
        folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder)

    def url(self, folder: Path) -> str:
        """Where tenure keeps jobs in this folder."""
        if self.engine == MEMORY:
            return "memory://"
        if self.server is not None:
            return migrated(
                f"{self.server.url(self.databases[0])}?schema={folder.name.replace('-', '_')}"
            )
        return f"sqlite:///{folder / 'tenure.db'}?synchronous={self.synchronous}"

    def elsewhere(self) -> float:
        """CPU seconds that a server of this setting has taken so far, in all its processes."""
        return 0.0 if self.server is None else self.server.cpu()

    def database(self, name: str) -> str:
        """A new database on the server, which is there until the setting ends; its address."""
        assert self.server is not None, "there is a server for PostgreSQL only"
        self.databases.append(f"{self.databases[0]}_{name}")
        return self.server.create_database(self.databases[-1])


@contextmanager
def settings(
    engine: str, effort: Effort, server: PostgresServer | None = None
) -> Iterator[Setting]:
    """A setting in a temporary folder; on this server, or else on one of its own."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tenure-bench-")))
        if engine != POSTGRESQL:
            yield Setting(engine, effort, folder)
            return
        server = server or stack.enter_context(running())
        setting = Setting(engine, effort, folder, server, f"bench_{secrets.token_hex(4)}")
        server.create_database(setting.databases[0])
        try:
            yield setting
        finally:
            for name in setting.databases:
                server.drop_database(name)
