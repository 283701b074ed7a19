"""Every kind of connection that a caller may have, on every engine that takes it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tenure import JobContext, QueueService, TaskRef
from tenure.core.job import JobRow
from tenure.core.lease import lease_times
from tenure.core.outcomes import Completed, Verdict
from tenure.core.rules import decide
from tenure.core.states import State
from tenure.engines.answers import awaited
from tenure.engines.open import open_engine
from tenure.engines.postgres import place_of
from tenure.engines.protocol import Claim, Engine, Signal, Topic
from tenure.errors import ConfigurationError, DuplicateJob, LeaseLost
from tenure.leases.lease import Lease
from tests.engines.callers import POSTGRES, SQLITE, Own
from tests.engines.postgres.conftest import make_job
from tests.servers.postgres import PostgresServer
from tests.servers.schemas import Schemas

pytestmark = pytest.mark.anyio

KINDS = [("postgres", kind) for kind in POSTGRES] + [("sqlite", kind) for kind in SQLITE]
TELLING = [pair for pair in KINDS if (POSTGRES | SQLITE)[pair[1]].tells]  # type: ignore[attr-defined]
AWAITED = [pair for pair in KINDS if not (POSTGRES | SQLITE)[pair[1]].blocking]  # type: ignore[attr-defined]
CLOSING = [pair for pair in KINDS if "session" not in pair[1]]
"""Sessions begin anew when they were closed."""

SESSIONS = [pair for pair in KINDS if "session" in pair[1]]
HEARD = frozenset({Signal(Topic.QUEUE, "default")})

Make = Callable[..., Awaitable[Own]]


@pytest.fixture(params=KINDS, ids="-".join)
def pair(request: pytest.FixtureRequest) -> tuple[str, str]:
    """An engine, and a kind of connection."""
    found: tuple[str, str] = request.param
    return found


@pytest.fixture
def store(pair: tuple[str, str], request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty store."""
    if pair[0] == "sqlite":
        yield f"sqlite:///{tmp_path}/jobs.db"
        return
    schemas: Schemas = request.getfixturevalue("postgres_schemas")
    borrowed = schemas.borrow()
    yield borrowed.url
    borrowed.give_back()


@pytest.fixture
async def engine(pair: tuple[str, str], store: str) -> AsyncIterator[Engine]:
    engine = open_engine(store)
    if pair[0] == "sqlite":
        await engine.migrate()
    async with engine:
        yield engine


@pytest.fixture
async def make(
    pair: tuple[str, str], store: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Make]:
    """Makes connections of this kind, to another address too; closes them at the end."""
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")  # as these tests run on an event loop
    made: list[Own] = []

    async def make(url: str = "", **options: Any) -> Own:
        kinds = SQLITE if pair[0] == "sqlite" else POSTGRES
        own = kinds[pair[1]](url or _address(store), **options)
        await own.open()
        made.append(own)
        return own

    yield make
    for own in made:
        await own.close()


@pytest.fixture
def effects(store: str) -> str:
    """The name of a table of the caller's."""
    return "effects" if store.startswith("sqlite") else "callers.effects"


@pytest.fixture
async def own(make: Make, engine: Engine, store: str, effects: str) -> Own:
    """A connection in a transaction, and a table of the caller's."""
    made: Own = await make()
    await made.begin()
    if not store.startswith("sqlite"):
        await made.execute("CREATE SCHEMA IF NOT EXISTS callers")
    await made.execute(f"CREATE TABLE IF NOT EXISTS {effects} (id INTEGER)")
    await made.execute(f"DELETE FROM {effects}")
    await made.commit()
    await made.begin()
    return made


def _address(store: str) -> str:
    """Where the store is, as others name it."""
    return store if store.startswith("sqlite") else place_of(store).conninfo


async def insert(engine: Engine, own: Own, *ids: str, **options: Any) -> Any:
    jobs = [make_job(id=job_id, **options) for job_id in ids]
    return await awaited(engine.join(own.given).insert(jobs))


async def stored(engine: Engine, *ids: str) -> list[bool]:
    return [row is not None for row in await engine.get(ids)]


async def test_a_commit_stores_and_nothing_is_there_before(engine, own):
    [answer] = await insert(engine, own, "a")
    assert answer.created
    await insert(engine, own, "b", unique_key="k", priority=3, tags=("x",), payload=b"\0")
    assert await stored(engine, "a", "b") == [False, False]
    await own.commit()
    first, second = await engine.get(["a", "b"])
    assert first is not None
    assert second is not None
    assert (second.unique_key, second.priority, second.tags, second.payload) == (
        "k",
        3,
        ("x",),
        b"\0",
    )


async def test_a_rollback_leaves_nothing(engine, own, effects):
    await own.execute(f"INSERT INTO {effects} VALUES (1)")
    await insert(engine, own, "a", "b")
    await own.rollback()
    assert await stored(engine, "a", "b") == [False, False]
    await own.begin()
    assert await own.execute(f"SELECT count(*) FROM {effects}") == 0
    await own.rollback()


async def test_savepoints_count(engine, own):
    await insert(engine, own, "a")
    async with own.savepoint(keep=False):
        await insert(engine, own, "b")
    async with own.savepoint(keep=True):
        await insert(engine, own, "c")
    await own.commit()
    assert await stored(engine, "a", "b", "c") == [True, False, True]


async def test_the_first_statement_may_be_ours_and_so_may_the_first_of_the_next(engine, own):
    joined = engine.join(own.given)
    for turn, end in enumerate((own.commit, own.rollback, own.commit)):
        if turn:
            await own.begin()
        await awaited(joined.insert([make_job(id=f"{turn}")]))
        await end()
    assert await stored(engine, "0", "1", "2") == [True, False, True]


async def test_what_is_refused_leaves_the_transaction_as_it_was(engine, own, effects):
    await own.execute(f"INSERT INTO {effects} VALUES (1)")
    await insert(engine, own, "a", unique_key="k")
    with pytest.raises(DuplicateJob):
        await insert(engine, own, "b", "c", unique_key="k", on_conflict="raise")
    await own.commit()
    assert await stored(engine, "a", "b", "c") == [True, False, False]
    await own.begin()
    assert await own.execute(f"SELECT count(*) FROM {effects}") == 1
    await own.rollback()


async def test_an_end_and_its_effect_are_one(engine, own):
    await own.rollback()
    await engine.insert([make_job(id="a")])
    [row] = await engine.claim(Claim(owner="w", limit=1, lease=60_000_000, tasks=("t",)))
    settlement = decide(row, Completed(b"1"), now=row.started_at or 0)
    for end, verdict in ((own.rollback, Verdict.APPLIED), (own.commit, Verdict.ALREADY)):
        await own.begin()
        joined = engine.join(own.given)
        await awaited(joined.hold(row))
        [answer] = await awaited(joined.settle([settlement]))
        assert answer.verdict is Verdict.APPLIED
        await end()
        if verdict is Verdict.ALREADY:
            [answer] = await engine.settle([settlement])
            assert answer.verdict is verdict


async def test_a_holder_that_lost_its_lease_gets_no_hold(engine, own):
    await own.rollback()
    await engine.insert([make_job(id="a")])
    [row] = await engine.claim(Claim(owner="w", limit=1, lease=60_000_000, tasks=("t",)))
    await engine.cancel(["a"], force=True)
    await own.begin()
    with pytest.raises(LeaseLost):
        await awaited(engine.join(own.given).hold(row))
    await own.rollback()


async def test_listeners_are_told_after_the_commit(engine, own):
    async with engine.listen({Topic.QUEUE}) as listener:
        joined = engine.join(own.given)
        await awaited(joined.insert([make_job()]))
        joined.wake()
        assert await listener.wait(0) == frozenset()
        await own.commit()
        if not own.tells:
            joined.wake()
        assert await listener.wait(20) == HEARD


@pytest.mark.parametrize("pair", CLOSING, indirect=True, ids="-".join)
async def test_they_are_told_when_the_connection_is_closed_by_then(engine, own):
    async with engine.listen({Topic.QUEUE}) as listener:
        joined = engine.join(own.given)
        await awaited(joined.insert([make_job()]))
        await own.commit()
        await own.close()
        joined.wake()
        assert await listener.wait(20) == HEARD


@pytest.mark.parametrize("pair", TELLING, indirect=True, ids="-".join)
async def test_a_rollback_wakes_nobody_whenever_a_commit_follows(engine, own, effects):
    async with engine.listen({Topic.QUEUE}) as listener:
        await insert(engine, own, "a")
        await own.rollback()
        await own.begin()
        async with own.savepoint(keep=False):
            await insert(engine, own, "b")
            async with own.savepoint(keep=True):
                await insert(engine, own, "c")
        await own.execute(f"INSERT INTO {effects} VALUES (1)")
        await own.commit()
        assert await listener.wait(0) == frozenset()
        await own.begin()
        async with own.savepoint(keep=True):
            await insert(engine, own, "d")
        assert await listener.wait(0) == frozenset()
        await own.commit()
        assert await listener.wait(20) == HEARD


@pytest.mark.parametrize("pair", SESSIONS, indirect=True, ids="-".join)
async def test_a_session_that_is_closed_wakes_nobody_whenever_a_commit_follows(
    engine, own, effects
):
    async with engine.listen({Topic.QUEUE}) as listener:
        await insert(engine, own, "a")
        await own.close()
        await own.begin()
        await own.execute(f"INSERT INTO {effects} VALUES (1)")
        await own.commit()
        assert await listener.wait(0) == frozenset()
    assert await stored(engine, "a") == [False]


async def test_a_connection_that_commits_by_itself_is_refused(engine, pair, make):
    own = await make(autocommit=True)
    advice = r"transaction\.atomic" if pair[1] == "django" else ""
    with pytest.raises(ConfigurationError, match=f"not in a transaction.*{advice}"):
        await insert(engine, own, "a")
    assert await stored(engine, "a") == [False]


@pytest.mark.parametrize("pair", CLOSING, indirect=True, ids="-".join)
async def test_a_connection_that_is_closed_is_refused(engine, make):
    own = await make()
    await own.begin()
    await own.rollback()
    await own.close()
    with pytest.raises(ConfigurationError, match=r"closed|not in a transaction"):
        await insert(engine, own, "a")


@pytest.fixture(scope="module")
def another(postgres_server: PostgresServer) -> Iterator[str]:
    """Another database of the same server."""
    yield postgres_server.create_database("another")
    postgres_server.drop_database("another")


async def test_another_database_is_refused(engine, pair, make, request, tmp_path):
    if pair[0] == "sqlite":
        url = f"sqlite:///{tmp_path}/other.db"
        await open_engine(url).migrate()
        expected = r"other\.db, but the jobs of this service are in .*jobs\.db"
    else:
        url = request.getfixturevalue("another")
        expected = "another database"
    own = await make(url)
    await own.begin()
    with pytest.raises(ConfigurationError, match=expected):
        await insert(engine, own, "a")
    await own.rollback()


@pytest.mark.parametrize("pair", AWAITED, indirect=True, ids="-".join)
async def test_what_is_awaited_is_refused_where_nothing_waits(engine, own, store):
    refused = pytest.raises(ConfigurationError, match=r"await jobs\.using")
    with QueueService(store).sync as jobs, refused:
        jobs.using(own.given).enqueue(TaskRef("t"))


def context(engine: Engine, row: JobRow) -> JobContext:
    """What the body of a claimed job is given."""
    lease = Lease(row.id, row.token, "w", lease_times(60), sent_at=time.monotonic())
    return JobContext(row, lease, engine=engine)


async def test_a_body_completes_itself_with_its_effect_or_not_at_all(engine, own, effects):
    await own.rollback()
    await engine.insert([make_job(id="a"), make_job(id="b")])
    rows = await engine.claim(Claim(owner="w", limit=2, lease=60_000_000, tasks=("t",)))
    await engine.cancel(["b"], force=True)
    held, lost = sorted(rows, key=lambda row: row.id)
    for row, end in ((held, own.commit), (lost, own.rollback)):
        await own.begin()
        await own.execute(f"INSERT INTO {effects} VALUES (1)")
        ended = context(engine, row).complete_in(own.given, "paid")
        if row is held:
            await ended
        else:
            with pytest.raises(LeaseLost, match="job b is no longer held"):
                await ended
        await end()
    first, second = await engine.get(["a", "b"])
    assert first is not None
    assert second is not None
    assert (first.state, first.result) == (State.COMPLETED, b'"paid"')
    assert second.state is State.CANCELLED
    await own.begin()
    assert await own.execute(f"SELECT count(*) FROM {effects}") == 1
    await own.rollback()
