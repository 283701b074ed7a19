"""Lost replies: what took effect and was not heard of is found again, and costs nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from tenure.core.durations import SECOND
from tenure.core.job import JobRow
from tenure.core.lease import Extended
from tenure.core.outcomes import Completed, Verdict
from tenure.core.rules import admit, decide
from tenure.core.states import State
from tenure.engines.protocol import Claim, Engine
from tenure.errors import EngineUnavailable
from tenure.testing.conformance.kit import (
    LEASE,
    NOW,
    OTHER,
    OWNER,
    Conformance,
    beat,
    finish,
    job_id,
    keyed,
    new,
    numbered,
    put,
    stored,
    take,
    take_one,
)
from tenure.testing.flaky import Flaky, Rates

T = TypeVar("T")


class Holder:
    """A worker as simple as can be: claims, extends, settles, and repeats what got no reply."""

    def __init__(self, engine: Engine, owner: str) -> None:
        self._engine = engine
        self._owner = owner
        self._held: dict[str, JobRow] = {}
        self.verdicts: list[Verdict] = []
        self.done: list[str] = []

    async def turn(self, now: int) -> bool:
        """One round of work; whether there was any."""
        claim = Claim(owner=self._owner, limit=3, lease=LEASE, held=tuple(self._held))
        for row in await self._again(lambda: self._engine.claim(claim, now=now)):
            assert row.id not in self._held, "what is held is not given again"
            assert admit(row) is None
            self._held[row.id] = row
        if not self._held:
            return False
        beats = [beat(row) for row in self._held.values()]
        for answer in await self._again(lambda: self._engine.extend(beats, now=now)):
            assert isinstance(answer, Extended), "a false loss"
        rows = list(self._held.values())[:2]
        batch = [decide(row, Completed(), now=now) for row in rows]
        for settled in await self._again(lambda: self._engine.settle(batch, now=now)):
            self.verdicts.append(settled.verdict)
            self.done.append(settled.id)
            del self._held[settled.id]
        return True

    async def _again(self, call: Callable[[], Awaitable[T]]) -> T:
        for _ in range(50):
            try:
                return await call()
            except EngineUnavailable:
                continue
        raise AssertionError("the store never came back")


class TestLostReplies(Conformance):
    """Operations that took effect, and whose reply was lost"""

    async def test_a_settlement_is_repeated(self, engine: Engine) -> None:
        flaky = Flaky(engine)
        await put(flaky, new(1))
        row = await take_one(flaky)
        flaky.fail("settle", after=True)
        with pytest.raises(EngineUnavailable):
            await finish(flaky, row)
        again = await finish(flaky, row, now=NOW + 9 * LEASE)
        assert (again.verdict, again.state) == (Verdict.ALREADY, State.COMPLETED)

    async def test_a_settlement_is_repeated_after_a_requeue(self, engine: Engine) -> None:
        flaky = Flaky(engine)
        await put(flaky, new(1))
        row = await take_one(flaky)
        flaky.fail("settle", after=True)
        with pytest.raises(EngineUnavailable):
            await finish(flaky, row)
        await flaky.requeue([row.id], now=NOW)
        assert (await finish(flaky, row)).verdict is Verdict.LOST
        assert (await stored(flaky, 1)).state is State.PENDING

    async def test_a_beat_is_repeated(self, engine: Engine) -> None:
        flaky = Flaky(engine)
        await put(flaky, new(1))
        row = await take_one(flaky)
        flaky.fail("extend", after=True)
        with pytest.raises(EngineUnavailable):
            await flaky.extend([beat(row)], now=NOW + 1)
        assert await flaky.extend([beat(row)], now=NOW + LEASE) == [Extended(30.0)]

    async def test_a_claim_is_repeated_within_the_lease(self, engine: Engine) -> None:
        flaky = Flaky(engine)
        await put(flaky, *(new(n) for n in range(3)))
        flaky.fail("claim", times=2, after=True)
        for _ in range(2):
            with pytest.raises(EngineUnavailable):
                await take(flaky, 2, held=())
        rows = await take(flaky, 9, now=NOW + 1, held=())
        assert [row.id for row in rows] == numbered(0, 1, 2)
        assert [(row.claims, row.lapses) for row in rows] == [(1, 0)] * 3

    async def test_an_insert_is_repeated_under_a_key(self, engine: Engine) -> None:
        flaky = Flaky(engine)
        flaky.fail("insert", after=True)
        job = keyed(1, on_conflict="raise")
        with pytest.raises(EngineUnavailable):
            await flaky.insert([job], now=NOW)
        (answer,) = await flaky.insert([job], now=NOW + 1)
        assert (answer.id, answer.created) == (job_id(1), False)

    async def test_a_sweep_between_claim_and_start_touches_nothing(self, engine: Engine) -> None:
        """B010, B145, B146: a claim is one step; there is no half-claimed job to clean up."""
        flaky = Flaky(engine)
        await put(flaky, *(new(n) for n in range(3)))
        gate = flaky.hold("claim", after=True)
        claiming = asyncio.create_task(take(flaky, 3))
        await gate.reached()
        for _ in range(20):
            assert await engine.sweep(10, now=NOW + LEASE - 1) == []
            assert await take(engine, 3, now=NOW + LEASE - 1, owner=OTHER) == []
        gate.let_go()
        rows = await claiming
        assert [row.state for row in rows] == [State.RUNNING] * 3
        assert await engine.get(numbered(0, 1, 2)) == rows

    @pytest.mark.parametrize("seed", range(10))
    async def test_no_claim_is_stranded_and_no_loss_is_false(
        self, engine: Engine, seed: int
    ) -> None:
        """Two holders, replies lost and calls failed at random: each job runs exactly once."""
        rates = Rates(fail=0.15, lose=0.25)
        flaky = Flaky(engine, seed=seed, rates=dict.fromkeys(("claim", "extend", "settle"), rates))
        await put(flaky, *(new(n) for n in range(40)))
        now, busy = NOW, True
        async with flaky.side() as side:
            holders = [Holder(flaky, OWNER), Holder(side, OTHER)]
            while busy:
                now += SECOND
                turns = [await holder.turn(now) for holder in holders]
                busy = any(turns)
        rows = await engine.get(numbered(*range(40)))
        assert {row and row.state for row in rows} == {State.COMPLETED}
        assert {row and (row.claims, row.lapses) for row in rows} == {(1, 0)}
        assert sorted(holders[0].done + holders[1].done) == numbered(*range(40))
        verdicts = holders[0].verdicts + holders[1].verdicts
        assert set(verdicts) == {Verdict.APPLIED, Verdict.ALREADY}
        assert flaky.faults["claim"] > 0
        assert now < NOW + LEASE
