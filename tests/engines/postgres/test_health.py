"""What the engine says of its server: nothing of a healthy one, and the right thing of others."""

from __future__ import annotations

import time

import pytest

from tenure.core.fleet import Finding
from tenure.engines.postgres import PostgresEngine, health, place_of
from tenure.engines.postgres.health import _server, _table, _transaction
from tests.engines.postgres.conftest import make_job

pytestmark = pytest.mark.anyio

SERVER = (180000, "on", "on", "on", "on", False, 1_000_000)


async def findings(engine: PostgresEngine) -> dict[str, Finding]:
    found = (await engine.inspect()).findings
    assert all(finding.text and finding.remedy for finding in found)
    return {finding.code: finding for finding in found}


async def test_a_healthy_server(engine):
    await engine.insert([make_job() for _ in range(10)])
    assert await findings(engine) == {}


async def test_names_of_ones_own_are_no_matter(postgres_server):
    url = f"{postgres_server.url()}?schema=healthy&prefix=my_"
    engine = PostgresEngine(place_of(url))
    await engine.migrate()
    async with engine:
        assert await findings(engine) == {}


async def test_an_index_that_is_missing(engine, look):
    look.execute("ALTER INDEX jobs_ready RENAME TO gone")
    try:
        found = await findings(engine)
        assert set(found) == {"index-missing"}
        assert "jobs_ready" in found["index-missing"].text
    finally:
        look.execute("ALTER INDEX gone RENAME TO jobs_ready")


async def test_autovacuum_that_was_turned_off(engine, look):
    look.execute("ALTER TABLE jobs SET (autovacuum_enabled = false)")
    try:
        assert set(await findings(engine)) == {"autovacuum-off"}
    finally:
        look.execute("ALTER TABLE jobs RESET (autovacuum_enabled)")


async def test_jobs_in_the_wrong_table(engine, look):
    job = make_job()
    await engine.insert([job, make_job()])
    look.execute("INSERT INTO finished SELECT * FROM jobs WHERE id = %s", (job.id,))
    found = await findings(engine)
    assert job.id in found["job-misplaced"].text
    assert found["job-misplaced"].problem


async def test_a_transaction_that_is_long_open(engine, look, monkeypatch):
    text = engine._statements["open_transactions"]
    monkeypatch.setitem(
        engine._statements._composed, "open_transactions", text.replace("1 minute", "0.1 seconds")
    )
    await engine.insert([make_job()])
    look.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    look.execute("SELECT FROM jobs FOR UPDATE")
    time.sleep(0.2)
    found = (await findings(engine))["transaction-open"]
    look.execute("ROLLBACK")
    assert f"session {look.info.backend_pid} of tenure" in found.text
    assert "locked jobs" in found.text
    assert "dead rows" in found.text
    assert not found.problem


@pytest.mark.parametrize(
    ("change", "code", "problem"),
    [
        ({1: "off"}, "autovacuum-off", True),
        ({2: "off"}, "server-unsafe", True),
        ({3: "off"}, "server-unsafe", True),
        ({4: "off"}, "commit-not-awaited", False),
        ({5: True}, "server-read-only", True),
        ({6: 1_000_000 + health.SKEW + 1}, "clock-differs", False),
        ({6: 1_000_000 - health.SKEW - 1}, "clock-differs", False),
    ],
)
def test_settings_that_endanger(change: dict[int, object], code: str, problem: bool):
    row = tuple(change.get(place, value) for place, value in enumerate(SERVER))
    [finding] = _server(row, 1_000_000)
    assert (finding.code, finding.problem) == (code, problem)
    assert list(_server(SERVER, 1_000_000)) == []


def test_a_table_that_is_mostly_dead():
    assert list(_table("jobs", "", 10, health.DEAD_ALARM)) == []
    [finding] = _table("jobs", "", 10, health.DEAD_ALARM + 1)
    assert finding.code == "table-bloated"


def test_a_transaction_that_only_waits():
    assert _transaction(1, "", "", "idle", 70, False, False).text.endswith("it waits")
