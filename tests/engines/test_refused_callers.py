"""What is said about connections that cannot be used."""

from __future__ import annotations

from collections.abc import Iterator

import asyncpg
import pytest
import sqlalchemy
from django.db import connections
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, sessionmaker

from tenure.engines.open import open_engine
from tenure.engines.postgres import PostgresEngine, place_of
from tenure.errors import ConfigurationError, EngineUnavailable
from tests.engines.postgres.conftest import make_job, python
from tests.servers.schemas import Schemas

__all__ = ["python"]

pytestmark = pytest.mark.anyio


@pytest.fixture
def engine(postgres_schemas: Schemas) -> Iterator[PostgresEngine]:
    """One that is not open, as using a connection does not need that."""
    borrowed = postgres_schemas.borrow()
    yield PostgresEngine(place_of(borrowed.url))
    borrowed.give_back()


@pytest.fixture
def url(engine: PostgresEngine) -> str:
    """The address of its database."""
    return engine._place.conninfo


async def test_what_makes_connections_is_told_what_to_give(engine, url):
    blocking = sqlalchemy.create_engine(url.replace("postgresql", "postgresql+psycopg", 1))
    awaiting = create_async_engine(url.replace("postgresql", "postgresql+asyncpg", 1))
    async with asyncpg.create_pool(url, min_size=0) as pool:
        for wrong, right in (
            (blocking, r"`with engine.begin\(\) as connection`"),
            (awaiting, r"`async with engine.begin\(\) as connection`"),
            (sessionmaker(blocking), r"`with make_session.begin\(\) as session`"),
            (async_sessionmaker(awaiting), r"`async with make_session.begin\(\) as session`"),
            (pool, r"`async with pool.acquire\(\) as connection"),
            (connections, r"connections\["),
        ):
            with pytest.raises(ConfigurationError, match=right):
                engine.join(wrong)


async def test_a_session_that_cannot_give_its_connection_says_why(engine, url):
    with pytest.raises(ConfigurationError, match=r"not bound.*bind_arguments"):
        engine.join(Session()).insert([make_job()])
    maker = sqlalchemy.create_engine(url.replace("postgresql", "postgresql+psycopg", 1))
    session = Session(maker, close_resets_only=False)
    session.close()
    with pytest.raises(ConfigurationError, match="permanently closed"):
        engine.join(session).insert([make_job()])
    away = sqlalchemy.create_engine("postgresql+psycopg://127.0.0.1:1/none")
    with pytest.raises(EngineUnavailable, match="refused"):
        engine.join(Session(away)).insert([make_job()])


async def test_a_blocking_face_of_an_awaited_connection_is_refused(engine, url):
    for driver in ("asyncpg", "psycopg"):
        maker = create_async_engine(url.replace("postgresql", f"postgresql+{driver}", 1))
        async with maker.connect() as connection:
            with pytest.raises(ConfigurationError, match="the AsyncConnection or AsyncSession"):
                await connection.run_sync(lambda c: engine.join(c).insert([make_job()]))
        await maker.dispose()


async def test_advice_is_that_of_the_library(engine, url, tmp_path):
    maker = sqlalchemy.create_engine(
        url.replace("postgresql", "postgresql+psycopg", 1), isolation_level="AUTOCOMMIT"
    )
    refused = pytest.raises(ConfigurationError, match="than AUTOCOMMIT")
    with maker.connect() as connection, refused:
        engine.join(connection).insert([make_job()])
    maker.dispose()
    file = f"sqlite:///{tmp_path}/jobs.db"
    await open_engine(file).migrate()
    maker = sqlalchemy.create_engine(file)
    refused = pytest.raises(ConfigurationError, match=r"session\.connection\(\)\.exec_driver_sql")
    with Session(maker) as session, refused:
        open_engine(file).join(session).insert([make_job()])
    maker.dispose()


def test_no_library_is_loaded_that_the_caller_has_not(python, tmp_path):
    script = """
import sqlite3, sys
import psycopg
from tenure.engines.open import open_engine

for url, connection in (
    ("sqlite:///jobs.db", object()), ("postgresql:///x", sqlite3.connect(":memory:"))
):
    try:
        open_engine(url).join(connection)
    except Exception as error:
        print(type(error).__name__)
print([name for name in ("sqlalchemy", "django", "asyncpg", "aiosqlite") if name in sys.modules])
"""
    assert python(script).communicate()[0] == "ConfigurationError\nConfigurationError\n[]\n"
