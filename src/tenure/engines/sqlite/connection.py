"""Opening the file: checks, pragmas, schema.

No code of ours opens the database, its `-wal` or its `-shm` except through sqlite3: closing any
other descriptor of such a file drops SQLite's POSIX locks, and with them acknowledged commits.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from importlib import resources
from itertools import chain, repeat
from pathlib import Path
from typing import TypeVar

import msgspec

from tenure.engines.sql import read_text
from tenure.engines.sqlite.mounts import network_file_system
from tenure.errors import ConfigurationError, EngineUnavailable, SchemaError

APPLICATION_ID = 0x54454E55
"""`TENU`: marks a file as ours, where `file` and SQLite itself look for such a mark."""

SYNCHRONOUS = ("full", "normal")
OLDEST_SQLITE = (3, 38, 0)
_PACKAGE = "tenure.engines.sqlite"
_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL})
_CANNOT_WRITE = frozenset({sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM})
# SQLite's own busy handler sleeps ever longer and starves a waiter for seconds; short waits of
# uneven lengths do not.
_WAITS = (0.0003, 0.0005, 0.0011, 0.0007, 0.0017, 0.0013)
_LATER_WAIT = 0.004
_T = TypeVar("_T")


class Place(msgspec.Struct, frozen=True):
    """Which file, and how to use it. `timeout`: seconds that a call may take in all.

    Raises `ConfigurationError` for a value that is not allowed.
    """

    path: str
    synchronous: str = "full"
    timeout: float = 10.0

    def __post_init__(self) -> None:
        if self.synchronous not in SYNCHRONOUS:
            allowed = " or ".join(SYNCHRONOUS)
            raise ConfigurationError(f"synchronous must be {allowed}, not {self.synchronous!r}")
        if not 0 < self.timeout <= 3600:
            raise ConfigurationError(
                f"timeout must be above 0 and at most 3600, not {self.timeout:g}"
            )


def connect(place: Place, *, any_thread: bool = False) -> sqlite3.Connection:
    """A connection that writes. Creates the file and upgrades its schema where needed.

    `any_thread`: it may be used by several threads, one at a time.

    Raises `ConfigurationError`, `SchemaError` or `EngineUnavailable` before anything is written
    to a file that is not ours.
    """
    check_library(sqlite3.sqlite_version_info)
    check_path(place.path)
    connection = _open(place, any_thread=any_thread)
    try:
        check_schema(connection, place)
        _configure(connection, place)
        _migrate(connection, place)
    except sqlite3.Error as error:
        connection.close()
        raise _refusal(error, place) from error
    except BaseException:
        connection.close()
        raise
    return connection


def connect_reader(place: Place) -> sqlite3.Connection:
    """A connection that only reads, to a file that `connect` has prepared."""
    connection = _open(place, there=True)
    connection.execute("PRAGMA query_only = 1")
    return connection


def check_library(version: tuple[int, ...]) -> None:
    """Raise `SchemaError` for a SQLite that is too old."""
    if version < OLDEST_SQLITE:
        found, needed = (".".join(map(str, v)) for v in (version, OLDEST_SQLITE))
        raise SchemaError(f"SQLite {needed} or newer is needed; this Python has {found}")


def check_path(path: str) -> None:
    """Raise for a place where no database can be. Asks the folder only, never opens the file."""
    folder = os.path.dirname(path)
    if os.path.isdir(path):
        raise ConfigurationError(f"{path} is a folder; name a file in it")
    if not os.path.isdir(folder):
        raise ConfigurationError(f"{path}: the folder {folder} does not exist")
    if kind := network_file_system(folder):
        raise ConfigurationError(
            f"{path} is on a network file system ({kind}), where SQLite loses data; "
            f"keep the file on a local disk of the machine that runs all the processes"
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        raise EngineUnavailable(
            f"{path}: the folder {folder} is read-only; SQLite keeps files beside the database"
        )
    if os.path.exists(path) and not os.access(path, os.R_OK | os.W_OK):
        raise EngineUnavailable(f"{path}: the file may not be read and written")


def check_schema(connection: sqlite3.Connection, place: Place) -> int:
    """The schema version of the file (0: none yet). Raises `SchemaError` for what is not ours."""

    def check() -> int:
        # One snapshot: another process may be creating the schema right now.
        connection.execute("BEGIN")
        try:
            return _check_schema(connection, place.path)
        finally:
            _roll_back(connection)

    return retry_busy(check, place.timeout)


def begin(connection: sqlite3.Connection, seconds: float) -> None:
    """Start a write transaction, waiting up to `seconds` for those of other connections."""
    retry_busy(lambda: connection.execute("BEGIN IMMEDIATE"), seconds)


def retry_busy(work: Callable[[], _T], seconds: float) -> _T:
    """Do `work`, again and again while the file is locked, for `seconds`."""
    # Real time, whatever the engine's clock: a lock of another process does not know that one.
    deadline = time.monotonic() + seconds
    for wait in _waits():
        try:
            return work()
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() >= deadline:
                raise
        time.sleep(wait)
    raise AssertionError("waits never end")


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another connection held a lock, so that trying again may help."""
    return _primary_code(error) in _BUSY


def migration_sql() -> str:
    """The SQL of every migration, in order, to be read or printed."""
    return "\n".join(read_text(_PACKAGE, f"migrations/{name}") for name in _migrations())


def schema_version() -> int:
    """The version that this library creates: the number of its last migration."""
    return len(_migrations())


def _waits() -> Iterator[float]:
    return chain(_WAITS * 4, repeat(_LATER_WAIT))


def _primary_code(error: sqlite3.Error) -> int:
    # Errors of Python's own making (a wrong parameter) carry no code.
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _open(place: Place, *, any_thread: bool = False, there: bool = False) -> sqlite3.Connection:
    """A connection; with `there`, only to a file that exists."""
    try:
        connection = sqlite3.connect(
            f"{Path(place.path).as_uri()}?mode={'rw' if there else 'rwc'}",
            uri=True,
            timeout=0,
            isolation_level=None,
            cached_statements=128,
            check_same_thread=not any_thread,
        )
    except sqlite3.Error as error:
        raise _refusal(error, place) from error
    connection.execute("PRAGMA wal_autocheckpoint = 0")  # see checkpoints.py
    return connection


def _refusal(error: sqlite3.Error, place: Place) -> Exception:
    if _primary_code(error) == sqlite3.SQLITE_NOTADB:
        return SchemaError(f"{place.path} is not a database")
    if _primary_code(error) in _CANNOT_WRITE:
        return EngineUnavailable(f"{place.path} cannot be opened for writing: {error}")
    return EngineUnavailable(f"{place.path} cannot be opened: {error}")


def _check_schema(connection: sqlite3.Connection, path: str) -> int:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if application == 0 and version == 0 and tables == 0:
        return 0
    if application != APPLICATION_ID:
        raise SchemaError(f"{path} is the database of another application")
    if version > schema_version():
        (needed,) = connection.execute("SELECT min_library FROM tenure_schema").fetchone()
        if needed > schema_version():
            raise SchemaError(
                f"{path} has schema version {version}, which needs a tenure that knows version "
                f"{needed}; this one knows {schema_version()}: upgrade tenure"
            )
    return int(version)


def _configure(connection: sqlite3.Connection, place: Place) -> None:
    # Changing the mode of a new file needs it for a moment alone.
    def to_wal() -> str:
        return str(connection.execute("PRAGMA journal_mode = WAL").fetchone()[0])

    mode = retry_busy(to_wal, place.timeout)
    if mode != "wal":
        raise EngineUnavailable(
            f"{place.path}: this file system allows no write-ahead log (journal mode {mode})"
        )
    if place.synchronous == "normal":
        connection.execute("PRAGMA synchronous = NORMAL")
    else:
        connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.execute("PRAGMA cache_size = -32768")


def _migrate(connection: sqlite3.Connection, place: Place) -> None:
    """Apply what is missing, in one transaction; of several processes the first one does it."""
    if check_schema(connection, place) >= schema_version():
        return
    begin(connection, place.timeout)
    try:
        found = _check_schema(connection, place.path)
        for name in _migrations()[found:]:
            for statement in statements_of(read_text(_PACKAGE, f"migrations/{name}")):
                connection.execute(statement)
        if found < schema_version():
            # Pragmas take no parameters, so both numbers are checked against the code by a test.
            connection.execute("PRAGMA application_id = 1413828181")
            connection.execute("PRAGMA user_version = 2")
        connection.execute("COMMIT")
    except BaseException:
        _roll_back(connection)
        raise


def _roll_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:  # some errors end it by themselves
        connection.execute("ROLLBACK")


def statements_of(script: str) -> Iterator[str]:
    """The statements of a script, one by one (`executescript` would commit first)."""
    text = ""
    for line in script.splitlines():
        if not line.lstrip().startswith("--"):
            text += line + "\n"
        if text.strip() and sqlite3.complete_statement(text):
            yield text.strip()
            text = ""
    if text.strip():
        raise ValueError(f"the script ends within a statement: {text.strip()}")


def _migrations() -> list[str]:
    folder = resources.files(_PACKAGE).joinpath("migrations")
    return sorted(file.name for file in folder.iterdir() if file.name.endswith(".sql"))
