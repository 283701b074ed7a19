"""Where the tables are, who makes them, and what is said when they are not there."""

from __future__ import annotations

import asyncio
import gc

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from tenure import QueueService
from tenure.core.insertion import Inserted
from tenure.core.job import JobRow
from tenure.engines.open import open_engine
from tenure.engines.postgres import PostgresEngine, place_of
from tenure.engines.postgres.link import Link, check_server
from tenure.engines.postgres.place import _RELATIONS, Place, PlacedStatements, schema_version
from tenure.engines.schema import schema_sql
from tenure.errors import ConfigurationError, EngineUnavailable, SchemaError
from tests.engines.postgres.conftest import make_job
from tests.worker.kit import until

pytestmark = pytest.mark.anyio


@pytest.fixture
def nowhere(postgres_server):
    """The URL of a database without any table."""
    url = postgres_server.create_database("nowhere")
    yield url
    postgres_server.drop_database("nowhere")


def tables(url: str) -> set[str]:
    with psycopg.connect(url, autocommit=True) as connection:
        found = connection.execute(
            "SELECT schemaname || '.' || tablename FROM pg_tables"
            " WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
        )
        return {row[0] for row in found}


async def test_opening_creates_nothing_and_names_the_command(nowhere):
    with pytest.raises(SchemaError, match="tenure migrate"):
        async with open_engine(nowhere):
            pass
    assert tables(nowhere) == set()


async def test_many_starters_migrate_at_once(nowhere):
    versions = await asyncio.gather(*(open_engine(nowhere).migrate() for _ in range(8)))
    assert versions == [schema_version()] * 8
    async with open_engine(nowhere) as engine:
        await engine.insert([make_job()])


async def test_stores_of_different_names_share_a_database(nowhere):
    names = ["", "?schema=other", "?prefix=tenure_", "?schema=other&prefix=b_"]
    for number, name in enumerate(names):
        await open_engine(nowhere + name).migrate()
        async with open_engine(nowhere + name) as engine:
            await engine.insert([make_job(queue=str(number))])
            assert [queue.queue for queue in await engine.stats()] == [str(number)]
    assert {"tenure.jobs", "other.jobs", "tenure.tenure_jobs", "other.b_jobs"} <= tables(nowhere)
    channels = {place_of(nowhere + name).channel for name in names}
    assert len(channels) == 4


async def test_the_printed_sql_makes_what_migrate_makes(nowhere):
    with psycopg.connect(nowhere, autocommit=True) as connection:
        connection.execute(schema_sql(f"{nowhere}?prefix=x_"), prepare=False)
    async with open_engine(f"{nowhere}?prefix=x_") as engine:
        await engine.insert([make_job()])
        assert await engine.migrate() == schema_version()


async def test_a_role_that_may_not_create_can_work(nowhere):
    await open_engine(nowhere).migrate()
    with psycopg.connect(nowhere, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS clerk")
        connection.execute("CREATE ROLE clerk LOGIN PASSWORD 'clerk'")
        connection.execute("GRANT USAGE ON SCHEMA tenure TO clerk")
        connection.execute(
            "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA tenure TO clerk"
        )
    host = nowhere.partition("@")[2]
    async with open_engine(f"postgresql://clerk:clerk@{host}") as engine:
        await engine.insert([make_job()])
        assert await engine.migrate() == schema_version()


async def test_a_newer_schema_is_used_as_long_as_it_allows(nowhere):
    await open_engine(nowhere).migrate()
    with psycopg.connect(nowhere, autocommit=True) as connection:
        connection.execute("ALTER TABLE tenure.jobs ADD COLUMN more text")
        connection.execute("UPDATE tenure.tenure_schema SET version = version + 1")
        async with open_engine(nowhere) as engine:
            await engine.insert([make_job()])
            assert len(await engine.stats()) == 1
        connection.execute("UPDATE tenure.tenure_schema SET min_library = version")
        with pytest.raises(SchemaError, match="upgrade tenure"):
            async with open_engine(nowhere):
                pass


async def test_a_change_of_the_schema_disturbs_no_open_engine(nowhere):
    """B144: prepared statements are made anew."""
    await open_engine(nowhere).migrate()
    async with open_engine(nowhere) as engine:
        for _ in range(7):
            await engine.insert([make_job()])
            await engine.stats()
        with psycopg.connect(nowhere, autocommit=True) as connection:
            connection.execute("ALTER TABLE tenure.jobs ADD COLUMN more text")
            connection.execute("DROP INDEX tenure.jobs_ready")
            connection.execute(
                "CREATE INDEX jobs_ready ON tenure.jobs (queue, task, rank, id)"
                " WHERE state = 'pending' AND ready"
            )
            connection.execute("ALTER TABLE tenure.jobs ALTER COLUMN owner TYPE varchar")
        await engine.insert([make_job()])
        [queue] = await engine.stats()
        assert queue.pending == 8


async def test_the_service_migrates_what_it_cannot_open(nowhere):
    service = QueueService(nowhere)

    @service.task
    async def add(a: int, b: int) -> int:
        return a + b

    with pytest.raises(SchemaError):
        await service.enqueue(add, 1, 2)
    assert await service.migrate() == schema_version()
    async with service:
        handle = await service.enqueue(add, 1, 2)
        await service.worker(burst=True).run()
        assert await handle.result(10) == 3


async def test_an_unreachable_server_is_told_at_once():
    engine = open_engine("postgresql://ann:hush@127.0.0.1:9/db?timeout=5")
    with pytest.raises(EngineUnavailable) as caught:
        async with engine:
            pass
    assert "hush" not in str(caught.value)
    assert "127.0.0.1" in str(caught.value)
    with pytest.raises(EngineUnavailable):
        await engine.stats()


async def test_a_wrong_password_is_not_shown(postgres_server):
    url = postgres_server.url()
    password = url.partition("@")[0].rpartition(":")[2]
    with pytest.raises(EngineUnavailable) as caught:
        async with open_engine(url.replace(password, "s3cret")):
            pass
    assert "s3cret" not in str(caught.value)
    engine = open_engine(f"{url}?sslpassword=s3cret")
    assert "s3cret" not in engine.url + repr(engine)
    assert password not in engine.url


async def test_an_open_engine_is_not_opened_twice(engine):
    with pytest.raises(ConfigurationError, match="open already"):
        async with engine:
            pass


async def test_it_can_be_opened_again(store):
    engine = PostgresEngine(place_of(store))
    for _ in range(2):
        async with engine:
            await engine.insert([make_job()])
    with pytest.raises(EngineUnavailable, match="not open"):
        await engine.stats()


async def test_it_is_used_from_other_loops(engine):
    job = make_job()
    await engine.insert([job])

    async def elsewhere() -> tuple[list[JobRow | None], list[Inserted]]:
        return await engine.get([job.id]), await engine.insert([make_job()])

    [row], [answer] = await asyncio.to_thread(asyncio.run, elsewhere())
    assert row is not None
    assert answer.created


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("postgresql://h/d?schema=a-b", "schema must be lower-case"),
        ("postgresql://h/d?schema=", "schema must be"),
        ("postgresql://h/d?prefix=1a", "prefix must be"),
        ('postgresql://h/d?prefix=a"', "prefix must be"),
        ("postgresql://h/d?prefix=" + "a" * 41, "prefix must be"),
        ("postgresql://h/d?timeout=soon", "timeout must be a number"),
        ("postgresql://h/d?timeout=0", "timeout must be above 0"),
        ("postgresql://h/d?connections=0", "connections must be 1 to 100"),
        ("postgresql://h/d?connections=many", "connections must be a number"),
        ("postgresql://h/d?schema=a&schema=b", "given twice"),
        ("postgresql://ann:hush@h/d?colour=red", "colour"),
    ],
)
def test_what_is_wrong_with_a_url_is_named(url: str, complaint: str):
    with pytest.raises(ConfigurationError, match=complaint) as caught:
        open_engine(url)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "shown", "conninfo"),
    [
        ("postgresql:///shop", "postgresql:///shop", "postgresql:///shop"),
        ("postgres://h", "postgresql://h", "postgresql://h"),
        (
            "postgresql://ann:hu%40sh@h:1,i:2/d?schema=a&sslmode=require&timeout=3",
            "postgresql://ann:***@h:1,i:2/d?schema=a&sslmode=require&timeout=3",
            "postgresql://ann:hu%40sh@h:1,i:2/d?sslmode=require",
        ),
        (
            "postgresql:///d?host=/run/pg&password=hush&options=-c%20x%3D1",
            "postgresql:///d?host=/run/pg&password=***&options=-c%20x%3D1",
            "postgresql:///d?host=/run/pg&password=hush&options=-c%20x%3D1",
        ),
    ],
)
def test_what_libpq_gets_of_a_url_and_what_is_shown(url: str, shown: str, conninfo: str):
    engine = open_engine(url)
    assert isinstance(engine, PostgresEngine)
    assert engine.url == shown
    found = conninfo_to_dict(engine._place.conninfo)
    assert found == conninfo_to_dict(conninfo)


async def test_a_connection_that_nobody_waits_for_any_more_is_closed(store, monkeypatch):
    connected = asyncio.Event()
    made: list[Link] = []

    async def adopt(link: Link, place: Place) -> None:
        made.append(link)
        connected.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(Link, "_adopt", adopt)
    place = place_of(store)
    opening = asyncio.create_task(Link.open(place, PlacedStatements(place), 60))
    await connected.wait()
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert made[0].connection.closed


def test_a_server_that_is_too_old_is_refused():
    check_server(140_000)
    with pytest.raises(SchemaError, match="PostgreSQL 14 or newer is needed; this is 13"):
        check_server(130_012)


def test_every_name_fits_into_what_postgresql_keeps():
    place = Place("", "", schema="s" * 40, prefix="p" * 40)
    for text in schema_names(place):
        assert len(text.encode()) <= 63


def schema_names(place: Place) -> list[str]:
    return [place.channel, place.schema, *(place.prefix + name for name in _RELATIONS)]


def open_connections() -> set[int]:
    return {
        id(found)
        for found in gc.get_objects()
        if issubclass(type(found), psycopg.AsyncConnection) and not found.closed
    }


async def test_an_opening_that_is_given_up_twice_leaves_no_connection(store):
    """As where a worker ends while its leases connect: nobody waits for the closing either."""
    before = open_connections()
    for steps in range(0, 60, 3):
        opening = asyncio.create_task(PostgresEngine(place_of(store)).__aenter__())
        for _ in range(steps):
            await asyncio.sleep(0)
        opening.cancel()
        for _ in range(3):
            await asyncio.sleep(0)
        opening.cancel()
        [engine] = await asyncio.gather(opening, return_exceptions=True)
        if isinstance(engine, PostgresEngine):
            await engine.__aexit__(None, None, None)
    await until(lambda: open_connections() <= before)
