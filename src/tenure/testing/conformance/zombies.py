"""Holders that lost their lease: every later write of theirs is refused, whatever happened."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from tenure.core.job import JobRow, Progress
from tenure.core.lease import Lost
from tenure.core.outcomes import Completed, Errored, Released, ReleaseReason, Verdict
from tenure.core.rules import decide
from tenure.core.states import State
from tenure.engines.protocol import Engine
from tenure.testing.conformance.kit import (
    LEASE,
    NOW,
    OTHER,
    OWNER,
    Conformance,
    beat,
    boom,
    finish,
    running,
    stored,
    take_one,
)

LATE = NOW + LEASE


async def _taken_by_another(engine: Engine, row: JobRow) -> None:
    await take_one(engine, now=LATE, owner=OTHER)


async def _taken_by_its_own_process(engine: Engine, row: JobRow) -> None:
    await take_one(engine, now=LATE, owner=OWNER)


async def _taken_and_completed(engine: Engine, row: JobRow) -> None:
    await finish(engine, await take_one(engine, now=LATE, owner=OTHER), now=LATE)


async def _swept(engine: Engine, row: JobRow) -> None:
    assert len(await engine.sweep(10, now=LATE)) == 1


async def _swept_and_claimed(engine: Engine, row: JobRow) -> None:
    await engine.sweep(10, now=LATE)
    await take_one(engine, now=LATE, owner=OWNER)


async def _cancelled_by_force(engine: Engine, row: JobRow) -> None:
    await engine.cancel([row.id], force=True, now=NOW + 1)


async def _cancelled_by_force_and_requeued(engine: Engine, row: JobRow) -> None:
    await engine.cancel([row.id], force=True, now=NOW + 1)
    await engine.requeue([row.id], now=NOW + 1)


async def _released_and_claimed(engine: Engine, row: JobRow) -> None:
    await finish(engine, row, Released(ReleaseReason.STORE), now=NOW)
    await take_one(engine, now=NOW, owner=OWNER)


async def _completed_requeued_and_claimed(engine: Engine, row: JobRow) -> None:
    await finish(engine, row, now=NOW)
    await engine.requeue([row.id], now=NOW)
    await take_one(engine, now=NOW, owner=OWNER)


async def _completed_and_requeued(engine: Engine, row: JobRow) -> None:
    await finish(engine, row, now=NOW)
    await engine.requeue([row.id], now=NOW)


LOSSES: dict[str, Callable[[Engine, JobRow], Awaitable[None]]] = {
    loss.__name__.strip("_").replace("_", " "): loss
    for loss in (
        _taken_by_another,
        _taken_by_its_own_process,
        _taken_and_completed,
        _swept,
        _swept_and_claimed,
        _cancelled_by_force,
        _cancelled_by_force_and_requeued,
        _released_and_claimed,
        _completed_requeued_and_claimed,
        _completed_and_requeued,
    )
}


@pytest.mark.parametrize("loss", LOSSES)
class TestZombies(Conformance):
    """A zombie changes nothing."""

    async def test_it_cannot_settle(self, engine: Engine, loss: str) -> None:
        row = await running(engine, max_attempts=5)
        await LOSSES[loss](engine, row)
        before = await stored(engine, 1)
        for outcome in (Completed(b'"zombie"'), Errored(boom("zombie"))):
            (answer,) = await engine.settle([decide(row, outcome, now=NOW)], now=LATE)
            assert (answer.verdict, answer.state) == (Verdict.LOST, before.state)
        assert await stored(engine, 1) == before

    async def test_it_cannot_extend(self, engine: Engine, loss: str) -> None:
        row = await running(engine, max_attempts=5)
        await LOSSES[loss](engine, row)
        before = await stored(engine, 1)
        beats = [beat(row, 99.0, progress=Progress(1))]
        assert await engine.extend(beats, now=NOW + 1) == [Lost("taken")]
        assert await stored(engine, 1) == before

    async def test_the_token_has_grown(self, engine: Engine, loss: str) -> None:
        row = await running(engine, max_attempts=5)
        await LOSSES[loss](engine, row)
        after = await stored(engine, 1)
        # A requeue draws none: it takes the owner away, and the next claim draws one.
        assert after.token > row.token or (after.owner is None and after.state is State.PENDING)

    async def test_the_new_holder_is_not_disturbed(self, engine: Engine, loss: str) -> None:
        row = await running(engine, max_attempts=5)
        await LOSSES[loss](engine, row)
        await engine.settle([decide(row, Completed(b'"zombie"'), now=NOW)], now=LATE)
        await engine.extend([beat(row, 1.0)], now=LATE)
        holder = await stored(engine, 1)
        if holder.state is not State.RUNNING:
            return
        answer = await finish(engine, holder, Completed(b'"mine"'), now=LATE + 1)
        assert answer.verdict is Verdict.APPLIED
        assert (await stored(engine, 1)).result == b'"mine"'
