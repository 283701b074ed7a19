"""What the engine says of its file: nothing of a healthy one, and the right thing of each other."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from tenure.core.fleet import Finding, Flaw
from tenure.engines.optional import Checkable
from tenure.engines.protocol import Topic
from tenure.engines.sqlite import SQLiteEngine, health
from tests.engines.sqlite.conftest import make_job

pytestmark = pytest.mark.anyio

LISTEN = """
import asyncio, sys
from tenure.engines.protocol import Topic
from tenure.engines.sqlite import SQLiteEngine

async def main(path):
    async with SQLiteEngine(path) as engine, engine.listen({Topic.QUEUE}):
        print("listening", flush=True)
        await asyncio.Event().wait()

asyncio.run(main(sys.argv[1]))
"""


@pytest.fixture(autouse=True)
def no_word_about_the_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "SAFE_SQLITE", (0,))


async def findings(engine: SQLiteEngine) -> dict[str, Finding]:
    return {finding.code: finding for finding in (await engine.inspect()).findings}


async def only(engine: SQLiteEngine, code: str, *, problem: bool) -> Finding:
    found = await findings(engine)
    assert set(found) == {code}
    assert found[code].problem is problem
    assert found[code].remedy
    return found[code]


async def test_a_healthy_file(engine: SQLiteEngine):
    assert isinstance(engine, Checkable)
    await engine.insert([make_job() for _ in range(10)])
    async with engine.listen({Topic.QUEUE}):
        assert await findings(engine) == {}
    assert await engine.check() == []


async def test_an_old_sqlite(engine: SQLiteEngine, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(health, "SAFE_SQLITE", (3, 999, 1))
    finding = await only(engine, "sqlite-old", problem=False)
    assert sqlite3.sqlite_version in finding.text
    assert "3.999.1" in finding.text


async def test_another_journal_mode(path: str):
    engine = SQLiteEngine(path)
    async with engine:
        pass
    other = sqlite3.connect(path)
    async with engine:
        await engine.stats()
    other.execute("PRAGMA journal_mode = DELETE").fetchall()
    other.close()
    # Whoever opens the file makes it right again; so only the look itself can be tested.
    tx = Answers({"PRAGMA journal_mode": [("delete",)]})
    [finding] = [f for f in [health._mode(tx, path)] if f]  # type: ignore[arg-type]
    assert (finding.code, finding.problem) == ("file-not-wal", True)


class Answers:
    def __init__(self, answers: dict[str, list[tuple[object, ...]]]) -> None:
        self._answers = answers

    def execute(self, statement: str) -> list[tuple[object, ...]]:
        return self._answers[statement]


async def test_a_file_that_was_replaced(path: str, engine: SQLiteEngine):
    await engine.insert([make_job()])
    await engine.stats()
    os.rename(path, f"{path}.old")
    finding = await only(engine, "file-replaced", problem=True)
    assert "is lost" in finding.text
    touch(path)
    assert "file-replaced" in await findings(engine)
    os.rename(f"{path}.old", path)
    assert await findings(engine) == {}


async def test_a_second_name(path: str, engine: SQLiteEngine):
    os.link(path, f"{path}.too")
    await only(engine, "file-linked", problem=True)


async def test_a_rollback_journal(path: str, engine: SQLiteEngine):
    touch(f"{path}-journal")
    await only(engine, "file-journal", problem=True)


async def test_a_long_log(engine: SQLiteEngine, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(health, "LOG_ALARM", 10_000)
    await engine.insert([make_job() for _ in range(100)])
    await only(engine, "log-large", problem=False)


async def test_a_file_that_is_mostly_empty(engine: SQLiteEngine, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(health, "WASTE_ALARM", 10_000)
    await engine.insert([make_job() for _ in range(1_000)])
    assert await findings(engine) == {}
    await engine._write("empty", lambda tx, now: tx.write("DELETE FROM jobs"), None, 1)
    await only(engine, "file-sparse", problem=False)


async def test_rights(path: str, engine: SQLiteEngine, monkeypatch: pytest.MonkeyPatch):
    os.chmod(path, 0o666)
    await only(engine, "file-open-to-all", problem=False)
    os.chmod(path, 0o600)
    stat = os.stat

    def stat_of_others(path: str) -> os.stat_result:
        status = stat(path)
        if str(path).endswith("-shm"):
            status = os.stat_result((*status[:4], status.st_uid + 1, *status[5:]))
        return status

    monkeypatch.setattr(health.os, "stat", stat_of_others)  # type: ignore[attr-defined]
    finding = await only(engine, "file-owner", problem=False)
    assert "-shm belongs to another user" in finding.text


async def test_sockets_of_killed_processes(path: str, engine: SQLiteEngine, python):
    process = python(LISTEN, path)
    process.stdout.readline()
    assert await findings(engine) == {}
    process.kill()
    process.wait()
    await only(engine, "sockets-left", problem=False)
    await engine.insert([make_job()])
    assert await findings(engine) == {}


async def test_damage(path: str):
    async with SQLiteEngine(path) as engine:
        await engine.insert([make_job() for _ in range(2_000)])
    spoil(path, page=100)
    async with SQLiteEngine(path) as engine:
        [finding] = await engine.check()
    assert (finding.code, finding.problem) == ("file-damaged", True)
    assert "restore a backup" in finding.remedy


def spoil(path: str, page: int) -> None:
    with open(path, "r+b") as file:  # which nobody has open now
        file.seek(page * 4096)
        file.write(b"\x00" * 4096)


def touch(path: str) -> None:
    Path(path).touch()


async def test_jobs_are_looked_at_too(engine: SQLiteEngine):
    """B038: a job that is neither claimed nor claimable shows."""
    await engine.insert([make_job(id="a")])
    spoil = "UPDATE jobs SET state = 'lost'"
    await engine._write("spoil", lambda tx, now: tx.write(spoil), None, 1)
    finding = await only(engine, Flaw.NO_STATE, problem=True)
    assert "a" in finding.text
