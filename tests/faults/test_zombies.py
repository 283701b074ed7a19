"""Zombies: a worker that lost its job finishes it all the same, and both think they won."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from functools import partial

import pytest

from tenure.core.job import JobRow
from tenure.core.lease import Beat, Extended
from tenure.core.outcomes import Completed, Verdict
from tenure.core.rules import decide
from tenure.engines.protocol import Arm, Claim
from tests.worker.kit import House

pytestmark = pytest.mark.anyio
Scaled = Callable[[int, int], int]

LEASE = 1_000_000


async def take(house: House, owner: str, now: int | None = None) -> JobRow:
    arms = frozenset({Arm.DUE, Arm.PROMOTE})
    claim = Claim(owner=owner, limit=1, lease=LEASE, arms=arms)
    [row] = await house.engine.claim(claim, now=now)
    return row


async def body() -> None:
    pass


async def test_at_the_end_of_a_lease_exactly_one_of_two_wins(house: House, scaled: Scaled):
    """One settles just as its lease runs out, the other takes the lapsed job at that moment."""
    task, dice, winners = house.task(body), random.Random(3), Counter[str]()
    async with house.engine.side() as other:
        for number in range(scaled(150, 10_000)):
            await house.put(task)
            row = await take(house, "first")
            assert row.lease_until is not None
            end = row.lease_until
            settlement = decide(row, Completed(b"1"), now=end)
            take_over = Claim(owner="second", limit=1, lease=LEASE, arms=frozenset({Arm.LAPSED}))
            one, two = (house.engine, other) if number % 2 else (other, house.engine)
            settling = partial(one.settle, [settlement], now=end)
            taking = partial(two.claim, take_over, now=end)
            order = dice.randrange(5)
            if order == 0:  # sometimes for sure, as an engine may be quicker with one of the two
                [settled], taken = await settling(), await taking()
            elif order == 1:
                taken, [settled] = await taking(), await settling()
            elif order == 2:
                [settled], taken = await asyncio.gather(settling(), taking())
            else:
                taken, [settled] = await asyncio.gather(taking(), settling())
            assert (settled.verdict is Verdict.APPLIED) != bool(taken)
            winners[settled.verdict] += 1
            if taken:
                done = decide(taken[0], Completed(b"2"), now=end)
                [again] = await house.engine.settle([done], now=end)
                assert again.verdict is Verdict.APPLIED
            job = await house.job(row.id)
            assert job.result == (2 if taken else 1)
    assert set(winners) == {Verdict.APPLIED, Verdict.LOST}


async def test_whoever_is_allowed_to_take_a_job_has_a_holder_that_may_not_renew(house: House):
    """Both ask the store's clock the same question, so no instant satisfies both."""
    task = house.task(body)
    for offset in (-1, 0, 1):
        await house.put(task)
        row = await take(house, "first")
        assert row.lease_until is not None
        now = row.lease_until + offset
        beat = Beat(id=row.id, token=row.token, owner="first", seconds=1.0)
        [extension] = await house.engine.extend([beat], now=now)
        taken = await house.steal(arms=frozenset({Arm.LAPSED}), now=now)
        assert isinstance(extension, Extended) != bool(taken)
        assert bool(taken) is (offset >= 0)
        await house.engine.cancel([row.id], force=True)


async def test_an_old_holder_is_refused_by_every_door(house: House):
    """The same worker id takes the job again, so that the token alone tells the two apart."""
    await house.put(house.task(body))
    old = await take(house, "w")
    assert old.lease_until is not None
    [new] = await house.steal(owner="w", arms=frozenset({Arm.LAPSED}), now=old.lease_until)
    before = await house.job(old.id)
    beat = Beat(id=old.id, token=old.token, owner="w", seconds=1.0)
    [extension] = await house.engine.extend([beat], now=old.lease_until)
    assert not isinstance(extension, Extended)
    settlements = [decide(old, Completed(b"1"), now=old.lease_until)] * 2
    answers = await house.engine.settle(settlements, now=old.lease_until)
    assert {answer.verdict for answer in answers} == {Verdict.LOST}
    assert await house.job(old.id) == before
    assert new.token > old.token
