"""Claims over fronts full of dead rows: they go on where the last ones ended, and miss nothing."""

from __future__ import annotations

import random
import time

import psycopg
import pytest

from tenure.core.fleet import QueueChange
from tenure.core.job import JobRow, new_row
from tenure.core.outcomes import Completed
from tenure.core.rules import decide
from tenure.engines.postgres import floors, place_of
from tenure.engines.postgres.claiming import is_simple
from tenure.engines.postgres.floors import SEVERAL, SLOW, Floors
from tenure.engines.protocol import ALL_ARMS, Arm, Claim
from tests.engines.postgres.conftest import make_job

LANE, OTHER = ("q", "t"), ("q", "u")
FRONT = -(2**63)


def row(rank: int) -> JobRow:
    return new_row(make_job(queue="q", run_at=rank), 0)


class Hand:
    """Time that is turned by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def look(claims: Floors, microseconds: int, *ranks: int) -> list[int | None]:
    """One look at both lanes: from where it went."""
    begun = list(claims.of([LANE, OTHER]))
    claims.note(microseconds, [row(rank) for rank in ranks])
    return begun


def test_quick_looks_always_begin_at_the_front():
    claims = Floors(Hand())
    for rank in range(100):
        assert look(claims, SLOW if rank % SEVERAL else SLOW + 1, rank) == [FRONT, FRONT]


def test_after_several_slow_looks_claims_go_on_where_they_were_for_a_second():
    hand = Hand()
    claims = Floors(hand)
    for rank in range(SEVERAL):
        assert look(claims, SLOW + 1, rank) == [FRONT, FRONT]
    assert look(claims, 10, 7, 6) == [SEVERAL - 1, FRONT]
    assert look(claims, 10, 8) == [7, FRONT]
    hand.now = 1.0
    assert look(claims, SLOW + 1, 9) == [FRONT, FRONT]  # and if that was slow again
    assert look(claims, 10) == [9, FRONT]
    hand.now = 2.0
    assert look(claims, 10, 10) == [FRONT, FRONT]  # but not, once it is quick
    assert look(claims, 10, 11) == [FRONT, FRONT]


def test_who_finds_too_little_looks_from_the_front():
    claims = Floors(Hand())
    assert not claims.lift()
    for rank in range(SEVERAL):
        look(claims, SLOW + 1, rank)
    look(claims, 10)
    assert claims.lift()
    assert look(claims, 10) == [FRONT, FRONT]
    assert not claims.lift()


@pytest.mark.anyio
@pytest.mark.parametrize("seed", range(3))
async def test_nothing_is_left_behind(engine, monkeypatch, seed: int):
    """As if every look were slow, with jobs that come to stand before others."""
    monkeypatch.setattr(floors, "SLOW", -1)
    dice = random.Random(seed)
    expected, taken = set[str](), list[str]()
    for _ in range(60):
        jobs = [
            make_job(task=dice.choice("tu"), priority=dice.choice((0, 0, 5, -5)))
            for _ in range(dice.randrange(12))
        ]
        await engine.insert(jobs)
        expected |= {job.id for job in jobs}
        claim = Claim(owner="w", limit=dice.randint(1, 9), lease=60_000_000, tasks=("t", "u"))
        rows = await engine.claim(claim)
        taken += [row.id for row in rows]
        if len(rows) < claim.limit:
            assert set(taken) == expected
    last = Claim(owner="w", limit=7, lease=60_000_000, tasks=("t", "u"))
    while rows := await engine.claim(last):
        taken += [row.id for row in rows]
    assert sorted(taken) == sorted(expected)


@pytest.mark.anyio
async def test_a_quick_claim_leaves_paused_queues_alone(engine):
    """One that one statement is enough for, as workers make them."""
    await engine.insert([make_job(queue="a"), make_job(queue="b")])
    claim = Claim(owner="w", limit=5, lease=60_000_000, tasks=("t",), queues=("a", "b"))
    assert is_simple(claim, Floors())
    await engine.configure(QueueChange("a", paused=True))
    assert [row.queue for row in await engine.claim(claim)] == ["b"]
    await engine.configure(QueueChange("a", paused=False))
    assert [row.queue for row in await engine.claim(claim)] == ["a"]


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.anyio
async def test_an_old_snapshot_costs_claims_little_and_is_told_of(
    engine, store, monkeypatch, record_property
):
    """B046, K17: while 200,000 jobs pass, claims take less than three times as long."""
    text = engine._statements["open_transactions"].replace("1 minute", "1 second")
    monkeypatch.setitem(engine._statements._composed, "open_transactions", text)
    place = place_of(store)
    claim = Claim(
        owner="w", limit=100, lease=60_000_000, tasks=("t",), arms=ALL_ARMS - {Arm.LAPSED}
    )

    async def median(count: int) -> float:
        times = []
        for _ in range(count):
            await engine.insert([make_job() for _ in range(1000)])
            for _ in range(10):
                started = time.perf_counter()
                rows = await engine.claim(claim)
                times.append(time.perf_counter() - started)
                await engine.settle([decide(r, Completed(), now=r.started_at or 0) for r in rows])
        return sorted(times)[len(times) // 2]

    with psycopg.connect(place.conninfo) as old:
        old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        old.execute(f"SELECT count(*) FROM {place.schema}.jobs")
        first = await median(10)
        await median(180)
        last = await median(10)
        record_property("median seconds of a claim, first and last", (first, last))
        assert last < 3 * first
        texts = [f.text for f in (await engine.inspect()).findings if f.code == "transaction-open"]
        assert any(f"session {old.info.backend_pid} of" in text for text in texts)
