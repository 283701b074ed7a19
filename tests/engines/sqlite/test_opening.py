"""Opening: the schema is made once, and nothing is written where we do not belong."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from pathlib import Path

import pytest

from tenure.core.job import COLUMNS
from tenure.engines.sqlite import SQLiteEngine, connection, migration_sql
from tenure.engines.sqlite.connection import (
    APPLICATION_ID,
    check_library,
    connect,
    schema_version,
    statements_of,
)
from tenure.errors import ConfigurationError, EngineUnavailable, SchemaError
from tests.engines.sqlite.conftest import make_job

pytestmark = pytest.mark.anyio


async def refusal(path: object, kind: type[Exception]) -> str:
    with pytest.raises(kind) as caught:
        async with SQLiteEngine(str(path), timeout=0.5):
            raise AssertionError("it opened")
    return str(caught.value)


def put(path: str, data: bytes) -> None:
    Path(path).write_bytes(data)


def content(path: str) -> bytes:
    return Path(path).read_bytes()


def execute(path: object, *statements: str) -> list[tuple[object, ...]]:
    opened = sqlite3.connect(str(path), isolation_level=None)
    try:
        return [opened.execute(statement).fetchone() for statement in statements]
    finally:
        opened.close()


async def test_the_first_open_makes_the_schema(path: str):
    async with SQLiteEngine(path) as engine:
        assert await engine.migrate() == schema_version()
    found = execute(
        path,
        "PRAGMA application_id",
        "PRAGMA user_version",
        "PRAGMA journal_mode",
        "SELECT version, min_library FROM tenure_schema",
    )
    version = schema_version()
    assert found == [(APPLICATION_ID,), (version,), ("wal",), (version, version)]


async def test_opening_again_changes_nothing(path: str):
    async with SQLiteEngine(path) as engine:
        await engine.insert([make_job(id="a")])
    async with SQLiteEngine(path) as engine:
        (row,) = await engine.get(["a"])
    assert row is not None


async def test_one_object_may_be_opened_again_but_not_twice_at_once(path: str):
    engine = SQLiteEngine(path)
    async with engine:
        with pytest.raises(ConfigurationError, match="open already"):
            await engine.__aenter__()
        await engine.insert([make_job(id="a")])
    async with engine:
        assert (await engine.get(["a"]))[0] is not None
    await engine.__aexit__()  # closing twice is closing once


async def test_many_may_open_a_new_file_at_once(path: str):
    engines = [SQLiteEngine(path) for _ in range(8)]
    await asyncio.gather(*(engine.__aenter__() for engine in engines))
    await asyncio.gather(*(engine.insert([make_job()]) for engine in engines))
    assert len(execute(path, "SELECT count(*) FROM jobs")) == 1
    assert execute(path, "SELECT count(*) FROM jobs") == [(8,)]
    await asyncio.gather(*(engine.__aexit__() for engine in engines))


async def test_migrate_works_on_a_closed_engine(path: str):
    assert await SQLiteEngine(path).migrate() == schema_version()
    assert execute(path, "PRAGMA user_version") == [(schema_version(),)]


async def test_a_closed_engine_answers_nothing(path: str):
    engine = SQLiteEngine(path)
    with pytest.raises(EngineUnavailable, match=r"insert: the engine on .* is not open"):
        await engine.insert([make_job()])
    with pytest.raises(EngineUnavailable, match=r"get: .* is not open"):
        await engine.get(["a"])


async def test_the_printed_schema_is_the_applied_one(path: str):
    await SQLiteEngine(path).migrate()
    printed = sqlite3.connect(":memory:")
    printed.executescript(migration_sql())
    applied = sqlite3.connect(path)
    query = "SELECT type, name, sql FROM sqlite_schema ORDER BY name"
    assert printed.execute(query).fetchall() == applied.execute(query).fetchall()
    printed.close()
    applied.close()


async def test_the_columns_are_those_of_a_row(path: str, look: sqlite3.Connection):
    await SQLiteEngine(path).migrate()
    found = look.execute("SELECT name, type FROM pragma_table_info('jobs')").fetchall()
    assert tuple(name for name, _ in found) == COLUMNS
    assert all(kind in ("TEXT", "INTEGER", "REAL", "BLOB") for _, kind in found)


@pytest.mark.parametrize(
    "statements",
    [
        ("CREATE TABLE theirs (x)",),
        ("CREATE TABLE theirs (x)", "PRAGMA user_version = 1"),
        ("PRAGMA application_id = 7",),
        ("PRAGMA user_version = 3",),
    ],
)
async def test_a_foreign_database_is_refused_untouched(path: str, statements: tuple[str, ...]):
    execute(path, *statements)
    before = content(path)
    assert "of another application" in await refusal(path, SchemaError)
    assert content(path) == before
    assert os.listdir(os.path.dirname(path)) == ["jobs.db"]


async def test_a_file_that_is_no_database_is_refused_untouched(path: str):
    notes = b"These are my notes, not a database. " * 100
    put(path, notes)
    assert "is not a database" in await refusal(path, SchemaError)
    assert content(path) == notes


async def test_an_empty_file_is_taken(path: str):
    put(path, b"")
    assert await SQLiteEngine(path).migrate() == schema_version()


async def test_a_folder_is_refused(tmp_path: Path):
    assert "is a folder" in await refusal(tmp_path, ConfigurationError)


async def test_a_missing_folder_is_refused_and_not_made(tmp_path: Path):
    assert "does not exist" in await refusal(tmp_path / "no" / "jobs.db", ConfigurationError)
    assert os.listdir(tmp_path) == []


async def test_a_read_only_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    deny(monkeypatch, str(tmp_path))
    assert "is read-only" in await refusal(tmp_path / "jobs.db", EngineUnavailable)


async def test_a_read_only_file_is_refused(path: str, monkeypatch: pytest.MonkeyPatch):
    await SQLiteEngine(path).migrate()
    deny(monkeypatch, path)
    assert "may not be read and written" in await refusal(path, EngineUnavailable)


async def test_a_read_only_database_is_refused(path: str, monkeypatch: pytest.MonkeyPatch):
    """Where the permissions look well and writing fails all the same."""

    def open_read_only(place: connection.Place, **_: object) -> sqlite3.Connection:
        return sqlite3.connect(f"file:{place.path}?mode=ro", uri=True, isolation_level=None)

    execute(path, "VACUUM")
    monkeypatch.setattr(connection, "_open", open_read_only)
    assert "cannot be opened for writing" in await refusal(path, EngineUnavailable)


async def test_a_newer_file_is_used_as_long_as_it_allows(path: str):
    await SQLiteEngine(path).migrate()
    newer = schema_version() + 5
    execute(
        path,
        f"PRAGMA user_version = {newer}",
        f"UPDATE tenure_schema SET version = {newer}",
        "ALTER TABLE jobs ADD COLUMN later TEXT DEFAULT 'x'",
    )
    async with SQLiteEngine(path) as engine:
        await engine.insert([make_job(id="a")])
        (row,) = await engine.get(["a"])
        assert row is not None
        assert row.log_success is None
    execute(path, f"UPDATE tenure_schema SET min_library = {newer}")
    message = await refusal(path, SchemaError)
    assert f"schema version {newer}" in message
    assert "upgrade tenure" in message


def test_an_old_sqlite_is_refused():
    check_library((3, 38, 0))
    with pytest.raises(SchemaError, match=r"SQLite 3\.38\.0 or newer is needed; .* has 3\.37\.2"):
        check_library((3, 37, 2))


async def test_a_failing_migration_leaves_an_empty_file(path: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connection, "read_text", lambda *_: "CREATE TABLE a (x);\nSELECT nonsense;")
    assert "nonsense" in await refusal(path, EngineUnavailable)
    assert execute(path, "SELECT count(*) FROM sqlite_schema") == [(0,)]


async def test_synchronous_is_as_asked(path: str):
    for asked, level in (("full", 2), ("normal", 1)):
        opened = connect(connection.Place(path, asked))
        assert opened.execute("PRAGMA synchronous").fetchone() == (level,)
        opened.close()


def test_a_script_is_split_into_statements():
    script = "-- one;\nCREATE TABLE a (\n  x -- ;\n);\n\nSELECT ';';\n"
    assert list(statements_of(script)) == ["CREATE TABLE a (\n  x -- ;\n);", "SELECT ';';"]
    with pytest.raises(ValueError, match="ends within a statement"):
        list(statements_of("SELECT 1; SELECT"))


def deny(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    """As for a user without rights; the one who runs tests may be root, who has them all."""
    access = os.access
    monkeypatch.setattr(os, "access", lambda p, mode, **more: p != path and access(p, mode, **more))
