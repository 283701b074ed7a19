"""NOTIFY: once per flush, never in the transaction that has something to tell."""

from __future__ import annotations

import asyncio
import json

import psycopg
import pytest

from tenure.engines.postgres import PostgresEngine, place_of
from tenure.engines.postgres.link import Link
from tenure.engines.postgres.signalling import (
    MESSAGE_MAX,
    PACE,
    PACE_MAX,
    Mouth,
    messages,
    pace,
)
from tenure.engines.protocol import Claim, Signal, Topic
from tests.engines.postgres.conftest import make_job

pytestmark = pytest.mark.anyio

IDLE = psycopg.pq.TransactionStatus.IDLE


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    """Every statement that was asked, and whether that was within a transaction."""
    found = []
    ask = Link.ask

    async def noted(self, what):
        inside = self.connection.info.transaction_status is not IDLE
        found.append((what.name, inside))
        return await ask(self, what)

    monkeypatch.setattr(Link, "ask", noted)
    return found


async def drained(engine) -> None:
    await engine._handle.all_told()


async def test_a_flush_is_told_once_and_after_its_transaction(engine, asked):
    """Also one of several statements in one transaction."""
    await engine.insert([make_job() for _ in range(2500)])
    await drained(engine)
    names = [name for name, _ in asked]
    assert names.count("tell") == 1
    assert names.index("tell") > max(n for n, name in enumerate(names) if name == "insert_plain")
    assert ("insert_plain", True) in asked
    assert ("tell", True) not in asked


@pytest.mark.parametrize("job", [make_job(unique_key="k"), make_job(schedule="s", tick=1)])
async def test_other_operations_tell_apart_from_their_transaction_too(engine, asked, job):
    await engine.insert([job])
    await drained(engine)
    await engine.cancel([job.id])
    await drained(engine)
    assert asked.count(("tell", False)) == 2
    assert ("tell", True) not in asked


async def test_a_session_hears_one_message_of_a_flush(engine, store):
    place = place_of(store)
    async with await psycopg.AsyncConnection.connect(place.conninfo, autocommit=True) as other:
        await other.execute(f"LISTEN {place.channel}")
        await asyncio.gather(*(engine.insert([make_job()]) for _ in range(50)))
        await drained(engine)
        heard = [notice async for notice in other.notifies(timeout=10, stop_after=1)]
        await other.execute("SELECT")
        heard += [notice async for notice in other.notifies(timeout=0)]
    assert len(heard) == 1


async def test_a_failed_insert_tells_nothing(engine, asked):
    job = make_job()
    await engine.insert([job])
    await drained(engine)
    asked.clear()
    await engine.insert([job])  # known already
    assert await engine.claim(Claim(owner="w", limit=1, lease=1, tasks=("other",))) == []
    await drained(engine)
    assert "tell" not in [name for name, _ in asked]


async def test_what_comes_while_something_is_told_goes_into_the_next_message():
    sent: list[int] = []
    going, may_go_on = asyncio.Event(), asyncio.Event()

    async def send(texts: list[str]) -> None:
        sent.append(len(texts))
        going.set()
        await may_go_on.wait()

    mouth = Mouth("me", send)
    mouth.tell([Signal(Topic.QUEUE, "q")])
    await going.wait()
    for number in range(100):
        mouth.tell([Signal(Topic.QUEUE, f"q{number}")])
    may_go_on.set()
    await mouth.drained()
    assert sent == [1, 1]


def test_no_message_is_longer_than_the_server_takes():
    """B105: many names make several messages, and a name that fits into none makes a wider hint."""
    signals = [Signal(Topic.QUEUE, f"queue-{number}-\u20ac") for number in range(5000)]
    found = messages("me", [*signals, Signal(Topic.QUEUE, "x" * 9000)])
    assert all(len(text.encode()) <= MESSAGE_MAX < 8000 for text in found)
    heard = [Signal(*signal) for text in found for signal in json.loads(text)[1]]
    assert heard == [*signals, Signal(Topic.ANY)]


async def test_a_queue_of_any_name_is_told_of(engine, store):
    async with (
        PostgresEngine(place_of(store)) as other,
        other.listen({Topic.QUEUE}) as listener,
    ):
        await engine.insert([make_job(queue="x" * 9000)])
        assert Signal(Topic.ANY) in await listener.wait(20)


def test_the_more_was_told_the_longer_it_is_until_more_is_told_within_a_limit():
    """So one job that somebody waits for is told as soon as ever."""
    paces = [pace(told) for told in range(1, 200)]
    assert paces == sorted(paces)
    assert (paces[0], pace(5), paces[-1]) == (PACE, PACE, PACE_MAX)
    assert PACE < pace(25) < PACE_MAX


async def test_what_there_is_to_take_is_told_while_many_ends_are(engine, monkeypatch):
    """Jobs that end have a pace of their own, and take none of the time of those to take."""
    handle = engine._handle
    told: list[list[list[str]]] = []
    going, may_go_on = asyncio.Event(), asyncio.Event()

    async def send(texts: list[str]) -> None:
        told.extend(json.loads(text)[1] for text in texts)
        if told[-1][0][0] == Topic.DONE:
            going.set()
            await may_go_on.wait()

    monkeypatch.setattr(handle._mouth, "_send", send)
    monkeypatch.setattr(handle._ends, "_send", send)
    handle.tell([Signal(Topic.DONE, "a"), Signal(Topic.CANCEL, "b")])
    await going.wait()
    handle.tell([Signal(Topic.QUEUE, "q"), Signal(Topic.DONE, "c")])
    async with asyncio.timeout(20):
        await handle._mouth.drained()
    assert [["queue", "q"]] in told
    assert [["done", "c"]] not in told
    may_go_on.set()
    await handle.all_told()
    assert [["done", "c"]] in told
