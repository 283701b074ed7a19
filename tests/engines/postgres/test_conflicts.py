"""Transactions that get in each other's way are done again, and what is shared fails apart."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tenure.core.outcomes import Completed
from tenure.core.rules import decide
from tenure.engines.postgres import handle, link
from tenure.engines.postgres.settling import CHUNK, waves
from tenure.engines.protocol import Claim
from tenure.errors import EngineUnavailable, PayloadError
from tests.engines.postgres.conftest import Look, make_job

pytestmark = pytest.mark.anyio

CLAIM = Claim(owner="w", limit=1, lease=60_000_000, tasks=("t",))


@pytest.fixture(params=["40P01", "40001"], ids=["deadlock", "serialization failure"])
def conflicts(request: pytest.FixtureRequest, look: Look) -> Iterator[Look]:
    """Every fourth write of a row fails, as if another transaction had been in its way.

    Counted by a sequence, which goes on though the transaction is rolled back.
    """
    look.execute("CREATE SEQUENCE turns")
    look.execute(
        f"""CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF nextval(TG_TABLE_SCHEMA || '.turns') % 4 = 1 THEN
                RAISE EXCEPTION 'in the way' USING ERRCODE = '{request.param}';
            END IF;
            RETURN coalesce(NEW, OLD);
        END $$"""
    )
    for table in ("jobs", "finished"):
        look.execute(
            f"CREATE TRIGGER fail BEFORE INSERT OR UPDATE OR DELETE ON {table}"
            " FOR EACH ROW EXECUTE FUNCTION fail()"
        )
    yield look
    look.execute("DROP FUNCTION fail CASCADE")
    look.execute("DROP SEQUENCE turns")


async def test_what_another_transaction_was_in_the_way_of_is_done_again(engine, conflicts):
    """Each statement, each transaction of several, and each time it happens."""
    await engine.insert([make_job()])
    await engine.insert([make_job(unique_key="k")])
    for expected in (1, 0):
        [row] = await engine.claim(CLAIM)
        [answer] = await engine.settle([decide(row, Completed(), now=row.started_at or 0)])
        assert answer.verdict == "applied"
        [queue] = await engine.stats()
        assert queue.pending == expected
    assert (await engine.requeue([row.id])).requeued == (row.id,)
    assert (await engine.cancel([row.id])).cancelled == (row.id,)


async def test_what_is_always_in_the_way_is_given_up(engine, look, monkeypatch):
    monkeypatch.setattr(link, "TRIES", 2)
    monkeypatch.setattr(handle, "TRIES", 2)
    look.execute(
        """CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            RAISE EXCEPTION 'in the way' USING ERRCODE = '40P01';
        END $$"""
    )
    look.execute("CREATE TRIGGER fail BEFORE INSERT ON jobs FOR EACH ROW EXECUTE FUNCTION fail()")
    try:
        with pytest.raises(EngineUnavailable, match="insert: in the way"):
            await engine.insert([make_job()])
    finally:
        look.execute("DROP FUNCTION fail CASCADE")
    await engine.insert([make_job()])


async def test_a_bad_item_fails_its_own_caller_only(engine):
    """Calls of one moment share a statement; each has its own answer all the same."""
    texts = ["fine"] * 5 + ["a \x00 in it"] + ["fine"] * 5
    calls = [engine.insert([make_job(description=text)]) for text in texts]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(answers.pop(5), PayloadError)
    assert not any(isinstance(answer, BaseException) for answer in answers)
    [queue] = await engine.stats()
    assert queue.pending == 10


@pytest.mark.parametrize("ids", [700, 1500])
def test_a_statement_locks_no_more_rows_than_allowed(ids: int):
    class Item:
        def __init__(self, number: int) -> None:
            self.id = str(number)

    found = waves([Item(number % ids) for number in range(3 * CHUNK)])
    assert sorted(place for wave in found for place in wave) == list(range(3 * CHUNK))
    for wave in found:
        assert len({place % ids for place in wave}) == len(wave) <= CHUNK
    # What is written twice is written in order.
    where = {place: number for number, wave in enumerate(found) for place in wave}
    assert all(where[place] < where[place + ids] for place in range(3 * CHUNK - ids))
