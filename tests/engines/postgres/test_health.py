"""What the engine says of its server: nothing of a healthy one, and the right thing of others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import psycopg
import pytest

from tenure.core.fleet import Finding
from tenure.core.outcomes import Completed
from tenure.core.rules import decide
from tenure.engines.postgres import PostgresEngine, health, place_of
from tenure.engines.postgres.health import _server, _table, _transaction
from tenure.engines.protocol import Claim
from tests.engines.postgres.conftest import Look, make_job
from tests.servers.postgres import PostgresServer, running
from tests.servers.schemas import migrated

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


async def test_an_index_that_is_invalid(engine, look):
    """As a CREATE INDEX CONCURRENTLY leaves it that failed."""
    broken = "UPDATE pg_index SET indisvalid = %s WHERE indexrelid = 'jobs_waiting'::regclass"
    look.execute(broken, (False,))
    try:
        found = await findings(engine)
        assert set(found) == {"index-missing"}
        assert "jobs_waiting" in found["index-missing"].text
    finally:
        look.execute(broken, (True,))


async def test_an_index_that_is_mostly_empty(engine, look, monkeypatch):
    await engine.insert([make_job() for _ in range(2000)])
    claim = Claim(owner="w", limit=1000, lease=60_000_000, tasks=("t",))
    while rows := await engine.claim(claim):
        await engine.settle([decide(row, Completed(), now=row.started_at or 0) for row in rows])
    monkeypatch.setattr(health, "INDEX_ALARM", 10 * 8192)

    async def told() -> list[Finding]:
        found = (await engine.inspect()).findings
        return [f for f in found if f.code == "index-bloated" and "jobs_ready has" in f.text]

    look.execute("VACUUM ANALYZE jobs")
    [finding] = await told()
    assert not finding.problem
    look.execute("REINDEX TABLE jobs")
    assert await told() == []


async def test_a_table_full_of_dead_rows(engine, look, monkeypatch):
    look.execute("ALTER TABLE jobs SET (autovacuum_enabled = false)")
    monkeypatch.setattr(health, "DEAD_ALARM", 100)
    try:
        await engine.insert([make_job() for _ in range(300)])
        look.execute("UPDATE jobs SET priority = priority")
        look.execute("DELETE FROM jobs")
        async with asyncio.timeout(20):
            while "table-bloated" not in (found := await findings(engine)):
                pass  # sessions report what they did now and then
        assert not found["table-bloated"].problem
    finally:
        look.execute("ALTER TABLE jobs RESET (autovacuum_enabled)")
        look.execute("VACUUM jobs")


async def test_a_schema_of_a_later_library(engine, look):
    look.execute("UPDATE tenure_schema SET version = version + 1")
    try:
        found = await findings(engine)
        assert (set(found), found["schema-newer"].problem) == ({"schema-newer"}, False)
    finally:
        look.execute("UPDATE tenure_schema SET version = version - 1")


@pytest.mark.parametrize(
    ("change", "codes"),
    [
        ("state = 'lost'", {"job-without-state", "job-misplaced"}),
        ("state = 'running'", {"job-running-for-nobody"}),
        ("state = 'completed', finished_at = 1", {"job-misplaced"}),
    ],
)
async def test_jobs_in_no_state_of_ours(engine, look, change: str, codes: set[str]):
    await engine.insert([make_job(), make_job()])
    look.execute(f"UPDATE jobs SET {change} WHERE id = (SELECT min(id) FROM jobs)")
    assert set(await findings(engine)) == codes


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


async def test_transactions_of_other_databases_are_no_matter(engine, postgres_server, monkeypatch):
    text = engine._statements["open_transactions"]
    monkeypatch.setitem(
        engine._statements._composed, "open_transactions", text.replace("1 minute", "0.1 seconds")
    )
    with psycopg.connect(postgres_server.create_database("elsewhere")) as other:
        other.execute("SELECT txid_current()")
        time.sleep(0.2)
        assert await findings(engine) == {}
    postgres_server.drop_database("elsewhere")


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    """A server to be set as nobody should."""
    with running("max_prepared_transactions = 2") as server:
        migrated(server.url())
        yield server


@pytest.fixture
def own_look(own_server: PostgresServer) -> Iterator[Look]:
    with psycopg.connect(own_server.url(), autocommit=True) as connection:
        yield connection


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("autovacuum", "autovacuum-off"),
        ("fsync", "server-unsafe"),
        ("full_page_writes", "server-unsafe"),
        ("synchronous_commit", "commit-not-awaited"),
    ],
)
async def test_a_server_that_is_set_as_nobody_should(own_server, own_look, name: str, code: str):
    async def codes_at(value: str, wanted: set[str]) -> None:
        own_look.execute(f"ALTER SYSTEM SET {name} = {value}")
        own_look.execute("SELECT pg_reload_conf()")
        async with asyncio.timeout(20):
            while True:
                async with PostgresEngine(place_of(own_server.url())) as engine:
                    if set(await findings(engine)) == wanted:
                        return

    await codes_at("off", {code})
    await codes_at("on", set())


async def test_a_transaction_that_was_prepared_and_forgotten(own_server, own_look, monkeypatch):
    async with PostgresEngine(place_of(own_server.url())) as engine:
        text = engine._statements["prepared_transactions"]
        composed = engine._statements._composed
        monkeypatch.setitem(
            composed, "prepared_transactions", text.replace("1 minute", "0.1 seconds")
        )
        own_look.execute("BEGIN")
        own_look.execute("SELECT txid_current()")
        own_look.execute("PREPARE TRANSACTION 'left'")
        time.sleep(0.2)
        found = (await findings(engine))["transaction-prepared"]
        assert "left" in found.text
        assert found.problem
        own_look.execute("ROLLBACK PREPARED 'left'")
        assert await findings(engine) == {}


async def test_a_clock_of_this_host_that_is_wrong(own_server, monkeypatch):
    async with PostgresEngine(place_of(own_server.url())) as engine:
        clock = engine._clock

        class Early:
            def time_us(self) -> int:
                return clock.time_us() - 3_600_000_000

            def monotonic(self) -> float:
                return clock.monotonic()

        monkeypatch.setattr(engine, "_clock", Early())
        found = await findings(engine)
        assert set(found) == {"clock-differs"}
        assert "3600 s ahead of" in found["clock-differs"].text


async def test_a_standby(own_server):
    """Comes last in this module: the server stays one."""
    own_server.stop()
    own_server.become_standby()
    own_server.start()
    async with PostgresEngine(place_of(own_server.url())) as engine:
        found = await findings(engine)
        assert (set(found), found["server-read-only"].problem) == ({"server-read-only"}, True)


@pytest.mark.parametrize(
    ("change", "code", "problem"),
    [
        ({0: health.MAINTAINED - 1}, "server-old", False),
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
