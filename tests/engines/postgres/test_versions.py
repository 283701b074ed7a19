"""Libraries of neighbouring versions on one store, and migrations while workers work.

The next version is made up: one more column, one more index, in a process that is told of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import psycopg
import pytest

from tenure import QueueService
from tenure.engines.postgres import PostgresEngine, migrating, place_of
from tenure.engines.postgres.place import Place, migration_texts, schema_version
from tenure.engines.protocol import Claim
from tenure.errors import EngineUnavailable, SchemaError
from tests.engines.postgres.conftest import make_job
from tests.servers.schemas import migrated

pytestmark = pytest.mark.anyio

NEXT = schema_version() + 1
ADDED = f"""
ALTER TABLE {{jobs}} ADD COLUMN weight integer NOT NULL DEFAULT 1;
ALTER TABLE {{finished}} ADD COLUMN weight integer NOT NULL DEFAULT 1;
CREATE INDEX heavy ON {{jobs}} (weight) WHERE weight > 1;
UPDATE {{tenure_schema}} SET version = {NEXT};
"""
WORKER = f"""
import asyncio, sys
from tenure import QueueService
from tenure.engines.postgres import migrating
from tenure.engines.postgres.place import migration_texts

ADDED = '''{ADDED}'''

def become_next():
    migrating.migration_texts = lambda place: [*migration_texts(place), place.compose(ADDED)]
    migrating.schema_version = lambda: {NEXT}

async def main(url, version, own):
    if version == "next":
        become_next()
    jobs = QueueService(url)

    @jobs.task
    async def note(number: int) -> int:
        return number

    if version == "next":
        print(await jobs.migrate(), flush=True)
    async with jobs:
        worker = jobs.worker(queues=("common", own), concurrency=4)
        running = asyncio.create_task(worker.run())
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        worker.stop()
        await running

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture
def url(postgres_server) -> Iterator[str]:
    """A store of this version that is not used again."""
    yield migrated(postgres_server.create_database("versions"))
    postgres_server.drop_database("versions")


@pytest.fixture
def next_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process has the next version of the library."""

    def texts(place: Place) -> list[str]:
        return [*migration_texts(place), place.compose(ADDED)]

    monkeypatch.setattr(migrating, "migration_texts", texts)
    monkeypatch.setattr(migrating, "schema_version", lambda: NEXT)


async def test_old_workers_go_on_while_new_ones_migrate_and_join_them(url, python):
    """Every job completes, whoever runs it; each version runs what only it may."""
    async with QueueService(url) as jobs:

        @jobs.task
        async def note(number: int) -> int:
            return number

        async def batch(queue: str, count: int = 100) -> None:
            handles = await jobs.enqueue_many(
                [note.options(queue=queue).bind(number) for number in range(count)]
            )
            results = [await handle.result(30) for handle in handles]
            assert results == list(range(count))

        old = python(WORKER, url, "this", "old")
        assert await asyncio.to_thread(old.stdout.readline) == "ready\n"
        before = asyncio.create_task(batch("common", 300))
        new = [python(WORKER, url, "next", "new") for _ in range(3)]  # they start at once
        for process in new:
            assert await asyncio.to_thread(process.stdout.readline) == f"{NEXT}\n"
            assert await asyncio.to_thread(process.stdout.readline) == "ready\n"
        await before
        await asyncio.gather(batch("common"), batch("old"), batch("new"))
        late = python(WORKER, url, "this", "late")  # and one of this version comes after
        assert await asyncio.to_thread(late.stdout.readline) == "ready\n"
        await batch("late")
        for process in (old, late, *new):
            await asyncio.to_thread(process.communicate, "\n")
            assert process.returncode == 0
    with psycopg.connect(url) as look:
        found = look.execute("SELECT state, count(*), sum(weight) FROM tenure.finished GROUP BY 1")
        assert found.fetchall() == [("completed", 700, 700)]


async def test_a_newer_library_asks_for_the_migration(url, next_version):
    with pytest.raises(SchemaError, match="older schema; run `tenure migrate`"):
        async with PostgresEngine(place_of(url)):
            pass


async def test_a_migration_that_waits_holds_up_nobody(url, next_version):
    """A transaction has a job locked: the tables cannot be changed, but used as before."""
    claim = Claim(owner="w", limit=1, lease=60_000_000, tasks=("t",))
    place = place_of(f"{url}?timeout=30")
    engine = PostgresEngine(place)
    with pytest.MonkeyPatch.context() as patch:  # it was opened by the version before
        patch.setattr(migrating, "schema_version", lambda: NEXT - 1)
        await engine.__aenter__()
    await engine.insert([make_job()])
    with psycopg.connect(place.conninfo) as holder:
        holder.execute("SELECT FROM tenure.jobs FOR NO KEY UPDATE")
        migration = asyncio.create_task(PostgresEngine(place).migrate())
        for _ in range(20):
            await asyncio.sleep(0.05)  # the time in which it tries
            await engine.insert([make_job()])
            assert len(await engine.claim(claim)) == 1
        assert not migration.done()
        holder.commit()
    assert await migration == NEXT
    await engine.insert([make_job()])
    await engine.__aexit__()


async def test_a_migration_that_waits_too_long_is_given_up(url, next_version):
    place = place_of(f"{url}?timeout=0.5")
    with psycopg.connect(place.conninfo) as holder:
        holder.execute("SELECT FROM tenure.jobs")
        with pytest.raises(EngineUnavailable, match="migrate: a transaction held tables"):
            await PostgresEngine(place).migrate()
    assert await PostgresEngine(place).migrate() == NEXT
