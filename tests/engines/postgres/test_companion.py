"""A claim and settlements that are asked for at once share a transaction, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from typing import Any

import psycopg
import pytest

from tenure.core.job import JobRow
from tenure.core.outcomes import Completed, Settlement
from tenure.core.rules import decide
from tenure.engines.postgres import PostgresEngine
from tenure.engines.postgres.link import Link
from tenure.engines.protocol import Claim
from tenure.errors import EngineUnavailable, PayloadError
from tests.engines.postgres.conftest import Look, make_job

pytestmark = pytest.mark.anyio

CLAIM = Claim(owner="w", limit=2, lease=60_000_000, tasks=("t",))


def done(*rows: JobRow) -> list[Settlement]:
    return [decide(row, Completed(), now=row.started_at or 0) for row in rows]


async def ends(*calls: Awaitable[Any]) -> list[Any]:
    """What calls of one moment return or raise."""
    return await asyncio.gather(*calls, return_exceptions=True)


async def started(engine: PostgresEngine, *ids: str) -> list[JobRow]:
    """These jobs, of which the first two run."""
    await engine.insert([make_job(id=job_id) for job_id in ids])
    return await engine.claim(CLAIM)


def writers(look: Look) -> dict[str, int]:
    """By which transaction each job was last written."""
    found = look.execute(
        "SELECT id, xmin::text::bigint FROM jobs UNION ALL"
        " SELECT id, xmin::text::bigint FROM finished"
    )
    return dict(found.fetchall())


async def test_they_share_a_transaction(engine, look):
    rows = await started(engine, "a", "b", "c", "d", "e")
    answers, taken = await asyncio.gather(engine.settle(done(*rows)), engine.claim(CLAIM))
    assert [answer.verdict for answer in answers] == ["applied", "applied"]
    assert [row.id for row in taken] == ["c", "d"]
    found = writers(look)
    assert len({found[job_id] for job_id in "abcd"}) == 1


async def test_so_they_do_when_the_claim_was_first(engine, look):
    rows = await started(engine, "a", "b", "c")
    taken, _ = await asyncio.gather(engine.claim(CLAIM), engine.settle(done(*rows)))
    assert [row.id for row in taken] == ["c"]
    found = writers(look)
    assert len({found[job_id] for job_id in "abc"}) == 1


async def test_calls_of_different_instants_share_none(engine, look):
    rows = await started(engine, "a", "b", "c")
    later = (rows[0].started_at or 0) + 30_000_000
    answers, taken = await asyncio.gather(
        engine.settle(done(*rows)), engine.claim(CLAIM, now=later)
    )
    assert [answer.verdict for answer in answers] == ["applied", "applied"]
    assert [row.started_at for row in taken] == [later]
    found = writers(look)
    assert found["a"] == found["b"] != found["c"]


async def test_a_claim_with_more_to_do_is_done_by_itself(engine, look):
    """Here it has to promote a job whose time has come."""
    rows = await started(engine, "a", "b")
    now = (rows[0].started_at or 0) + 10
    await engine.insert([make_job(id="c", run_at=now + 5)], now=now)
    answers, taken = await asyncio.gather(
        engine.settle(done(*rows), now=now + 9), engine.claim(CLAIM, now=now + 9)
    )
    assert [answer.verdict for answer in answers] == ["applied", "applied"]
    assert [row.id for row in taken] == ["c"]


@pytest.fixture
def cursed(look: Look) -> Iterator[None]:
    """No job "bad" can be written: neither begun nor ended."""
    look.execute(
        """CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF NEW.id = 'bad' THEN RAISE EXCEPTION 'bad' USING ERRCODE = '22000'; END IF;
            RETURN NEW;
        END $$"""
    )
    look.execute("CREATE TRIGGER f BEFORE INSERT ON finished FOR EACH ROW EXECUTE FUNCTION fail()")
    look.execute("CREATE TRIGGER f BEFORE UPDATE ON jobs FOR EACH ROW EXECUTE FUNCTION fail()")
    yield
    look.execute("DROP FUNCTION fail CASCADE")


async def test_a_settlement_that_fails_harms_no_claim(engine, look, request):
    rows = await started(engine, "a", "bad", "c", "d")
    request.getfixturevalue("cursed")
    first, second, taken = await ends(
        engine.settle(done(rows[0])), engine.settle(done(rows[1])), engine.claim(CLAIM)
    )
    assert first[0].verdict == "applied"
    assert isinstance(second, PayloadError)
    assert [(row.id, row.claims) for row in taken] == [("c", 1), ("d", 1)]


async def test_a_claim_that_fails_harms_no_settlement(engine, look, request):
    rows = await started(engine, "a", "b", "bad")
    request.getfixturevalue("cursed")
    answers, failure = await ends(engine.settle(done(*rows)), engine.claim(CLAIM))
    assert [answer.verdict for answer in answers] == ["applied", "applied"]
    assert isinstance(failure, PayloadError)
    assert str(failure).startswith("claim: ")


async def test_a_lost_reply_fails_both_and_neither_is_done_twice(engine, look, monkeypatch):
    rows = await started(engine, "a", "b", "c", "d", "e")
    both = Link.ask_both

    async def lost(self, *asked):
        await both(self, *asked)
        await self.connection.close()
        raise psycopg.OperationalError("the connection was lost")

    monkeypatch.setattr(Link, "ask_both", lost)
    failures = await ends(engine.settle(done(*rows)), engine.claim(CLAIM))
    assert [type(failure) for failure in failures] == [EngineUnavailable] * 2
    assert [str(failure).partition(":")[0] for failure in failures] == ["settle", "claim"]
    monkeypatch.undo()
    again = Claim(owner="w", limit=3, lease=60_000_000, tasks=("t",), held=())
    answers, taken = await asyncio.gather(engine.settle(done(*rows)), engine.claim(again))
    assert [answer.verdict for answer in answers] == ["already", "already"]
    assert [(row.id, row.claims) for row in taken] == [("c", 1), ("d", 1), ("e", 1)]


async def test_where_there_is_no_connection_both_fail(engine, monkeypatch):
    rows = await started(engine, "a", "b", "c")

    async def none(deadline):
        raise EngineUnavailable("there is none")

    monkeypatch.setattr(engine._handle._pool, "take", none)
    failures = await ends(engine.settle(done(*rows)), engine.claim(CLAIM))
    assert [str(failure) for failure in failures] == ["there is none"] * 2
    assert failures[0] is not failures[1]


async def test_a_claim_whose_caller_left_before_it_was_sent_takes_nothing(engine):
    rows = await started(engine, "a", "b", "c")
    claim = asyncio.ensure_future(engine.claim(CLAIM))
    settle = asyncio.ensure_future(engine.settle(done(*rows)))
    await asyncio.sleep(0)
    claim.cancel()
    assert [answer.verdict for answer in await settle] == ["applied", "applied"]
    with pytest.raises(asyncio.CancelledError):
        await claim
    assert [(await engine.stats())[0].pending] == [1]
