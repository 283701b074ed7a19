"""Working inside the caller's own transaction."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from tenure.core.outcomes import Completed, Verdict
from tenure.core.rules import decide
from tenure.core.states import State
from tenure.engines.protocol import Claim, Signal, Topic
from tenure.engines.sqlite import SQLiteEngine
from tenure.errors import (
    ConfigurationError,
    DuplicateJob,
    LeaseLost,
    PayloadError,
    SchemaError,
)
from tests.engines.sqlite.conftest import make_job

pytestmark = pytest.mark.anyio


@pytest.fixture
def own(engine: SQLiteEngine, look: sqlite3.Connection) -> sqlite3.Connection:
    """The caller's connection, with a table of the caller's."""
    look.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, token INTEGER)")
    return look


async def claim(engine: SQLiteEngine, owner: str = "w"):
    [row] = await engine.claim(Claim(owner=owner, limit=1, lease=30_000_000))
    return row


async def test_jobs_are_there_with_the_commit_and_not_before(engine, own):
    own.execute("BEGIN IMMEDIATE")
    own.execute("INSERT INTO orders (id) VALUES (1)")
    joined = engine.join(own)
    [answer] = joined.insert([make_job(id="a")])
    assert answer.created
    assert await engine.get(["a"]) == [None]
    own.execute("COMMIT")
    [row] = await engine.get(["a"])
    assert row is not None
    assert row.state is State.PENDING


async def test_a_rollback_takes_the_jobs_along(engine, own):
    own.execute("BEGIN IMMEDIATE")
    engine.join(own).insert([make_job(id="a"), make_job(id="b")])
    own.execute("ROLLBACK")
    assert await engine.get(["a", "b"]) == [None, None]


async def test_a_savepoint_of_the_caller_counts(engine, own):
    own.execute("BEGIN IMMEDIATE")
    joined = engine.join(own)
    joined.insert([make_job(id="a")])
    own.execute("SAVEPOINT mine")
    joined.insert([make_job(id="b")])
    own.execute("ROLLBACK TO mine")
    own.execute("COMMIT")
    first, second = await engine.get(["a", "b"])
    assert first is not None
    assert second is None


async def test_what_is_refused_leaves_the_transaction_as_it_was(engine, own):
    await engine.insert([make_job(id="a", unique_key="k", unique_until="finished")])
    own.execute("BEGIN IMMEDIATE")
    own.execute("INSERT INTO orders (id) VALUES (1)")
    joined = engine.join(own)
    twin = make_job(unique_key="k", unique_until="finished", on_conflict="raise")
    with pytest.raises(DuplicateJob):
        joined.insert([make_job(id="b"), twin])
    with pytest.raises(PayloadError):
        joined.insert([make_job(id="c", payload=b"x" * 2_000_000)])
    own.execute("COMMIT")
    assert await engine.get(["b", "c"]) == [None, None]
    assert own.execute("SELECT count(*) FROM orders").fetchone() == (1,)


async def test_a_settlement_and_its_effect_are_one(engine, own):
    await engine.insert([make_job(id="a")])
    row = await claim(engine)
    own.execute("BEGIN IMMEDIATE")
    joined = engine.join(own)
    joined.hold(row)
    own.execute("INSERT INTO orders (id, token) VALUES (1, ?)", (row.token,))
    settlement = decide(row, Completed(b"1"), now=row.started_at)
    [answer] = joined.settle([settlement])
    assert answer.verdict is Verdict.APPLIED
    own.execute("COMMIT")
    [after] = await engine.get(["a"])
    assert after.state is State.COMPLETED
    [again] = await engine.settle([settlement])
    assert again.verdict is Verdict.ALREADY


async def test_after_a_rollback_the_job_still_runs_under_its_token(engine, own):
    await engine.insert([make_job(id="a")])
    row = await claim(engine)
    own.execute("BEGIN IMMEDIATE")
    engine.join(own).settle([decide(row, Completed(), now=row.started_at)])
    own.execute("ROLLBACK")
    [answer] = await engine.settle([decide(row, Completed(), now=row.started_at)])
    assert answer.verdict is Verdict.APPLIED


async def test_a_holder_that_lost_its_lease_gets_no_hold(engine, own):
    await engine.insert([make_job(id="a")])
    row = await claim(engine)
    await engine.cancel(["a"], force=True)
    own.execute("BEGIN IMMEDIATE")
    joined = engine.join(own)
    with pytest.raises(LeaseLost):
        joined.hold(row)
    [answer] = joined.settle([decide(row, Completed(), now=row.started_at)])
    assert answer.verdict is Verdict.LOST
    own.execute("COMMIT")


async def test_listeners_are_told_after_the_commit(engine, own):
    async with engine.listen({Topic.QUEUE}) as listener:
        own.execute("BEGIN IMMEDIATE")
        joined = engine.join(own)
        joined.insert([make_job(), make_job(queue="mail")])
        joined.wake()
        assert await listener.wait(0) == frozenset()  # there is nothing to be seen yet
        own.execute("COMMIT")
        joined.wake()
        told = {Signal(Topic.QUEUE, "default"), Signal(Topic.QUEUE, "mail")}
        assert told <= await listener.wait(5)


async def test_the_callers_row_factory_is_no_matter(engine, own):
    own.row_factory = sqlite3.Row
    own.execute("BEGIN IMMEDIATE")
    joined = engine.join(own)
    joined.insert([make_job(id="a", unique_key="k"), make_job(id="b")])
    own.execute("COMMIT")
    assert None not in await engine.get(["a", "b"])


async def test_a_connection_without_a_transaction_is_refused(engine, own):
    with pytest.raises(ConfigurationError, match="BEGIN IMMEDIATE"):
        engine.join(own)


async def test_a_transaction_that_only_read_is_told_how_to_begin(engine, own):
    own.execute("BEGIN")
    own.execute("SELECT count(*) FROM orders").fetchone()
    await engine.insert([make_job()])  # somebody else writes meanwhile
    joined = engine.join(own)
    with pytest.raises(ConfigurationError, match="BEGIN IMMEDIATE"):
        joined.insert([make_job()])
    own.execute("ROLLBACK")


@pytest.mark.parametrize("wrong", [None, "jobs.db", object()])
async def test_a_connection_of_another_kind_is_refused(engine, wrong):
    with pytest.raises(ConfigurationError, match=r"sqlite3\.Connection"):
        engine.join(wrong)


async def test_a_connection_to_another_file_is_refused(engine, tmp_path: Path):
    for place in (str(tmp_path / "other.db"), ":memory:"):
        other = sqlite3.connect(place, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(ConfigurationError, match=r"jobs\.db"):
            engine.join(other)
        other.close()


async def test_a_text_factory_that_changes_values_is_refused(engine, own):
    own.text_factory = bytes
    own.execute("BEGIN IMMEDIATE")
    with pytest.raises(ConfigurationError, match="text_factory"):
        engine.join(own)


async def test_a_file_without_a_schema_is_refused(tmp_path: Path):
    path = tmp_path / "new.db"
    own = sqlite3.connect(path, isolation_level=None)
    own.execute("CREATE TABLE orders (id INTEGER)")
    own.execute("BEGIN IMMEDIATE")
    with pytest.raises(SchemaError, match="tenure migrate"):
        SQLiteEngine(str(path)).join(own)
    own.close()
