"""Prolonging leases: who may, until when, and what the others are told."""

from __future__ import annotations

from typing import Any

import pytest

from tenure.core.durations import SECOND
from tenure.core.job import Progress
from tenure.core.lease import Extended, Lost
from tenure.core.outcomes import Completed, Errored, Outcome, Snoozed
from tenure.engines.protocol import Engine
from tenure.testing.conformance.kit import (
    LEASE,
    NOW,
    OTHER,
    Conformance,
    beat,
    boom,
    changed,
    finish,
    ids,
    job_id,
    new,
    put,
    running,
    stored,
    take,
    take_one,
)

LATE = NOW + LEASE


class TestExtend(Conformance):
    """`extend(beats)`"""

    async def test_nothing_is_no_error(self, engine: Engine) -> None:
        assert await engine.extend([], now=NOW) == []

    async def test_a_lease_counts_from_the_beat(self, engine: Engine) -> None:
        row = await running(engine)
        assert await engine.extend([beat(row, 50.0)], now=NOW + 7) == [Extended(50.0)]
        assert await stored(engine, 1) == changed(row, lease_until=NOW + 7 + 50 * SECOND)

    @pytest.mark.parametrize("seconds", [0.25, 1, 1.000001, 86_400.0])
    async def test_any_length_to_the_microsecond(self, engine: Engine, seconds: float) -> None:
        row = await running(engine)
        (answer,) = await engine.extend([beat(row, seconds)], now=NOW)
        assert answer == Extended(seconds)
        assert (await stored(engine, 1)).lease_until == NOW + round(seconds * SECOND)

    async def test_of_several_beats_for_one_lease_the_last_counts(self, engine: Engine) -> None:
        row = await running(engine)
        reported = Progress(1, 2, "half")
        beats = [beat(row, 50.0, progress=reported), beat(row, 70.0), beat(row, 50.0)]
        answers = await engine.extend(beats, now=NOW)
        assert answers == [Extended(50.0), Extended(70.0), Extended(50.0)]
        until = NOW + 50 * SECOND
        assert await stored(engine, 1) == changed(row, lease_until=until, progress=reported)

    async def test_a_lease_is_prolonged_again_and_again(self, engine: Engine) -> None:
        row = await running(engine)
        for n in range(1, 6):
            now = NOW + n * (LEASE - 1)
            assert await engine.extend([beat(row, 30.0)], now=now) == [Extended(30.0)]
            assert await take(engine, now=now + LEASE - 1, owner=OTHER) == []
        assert await engine.sweep(10, now=now + LEASE - 1) == []

    async def test_a_lease_that_ran_out_is_lost_at_the_very_instant(self, engine: Engine) -> None:
        first, second = await running(engine, 1), await running(engine, 2)
        assert await engine.extend([beat(first)], now=LATE - 1) == [Extended(30.0)]
        assert await engine.extend([beat(second)], now=LATE) == [Lost("lapsed")]
        assert await stored(engine, 2) == second

    async def test_progress_is_kept_with_the_beat(self, engine: Engine) -> None:
        row = await running(engine)
        progress = Progress(3, 10, "drei von zehn ✓")
        await engine.extend([beat(row, progress=progress)], now=NOW + 1)
        wanted = changed(row, progress=progress, lease_until=NOW + 1 + LEASE)
        assert await stored(engine, 1) == wanted
        await engine.extend([beat(row)], now=NOW + 2)
        assert (await stored(engine, 1)).progress == progress
        await engine.extend([beat(row, progress=Progress(0.5))], now=NOW + 3)
        assert (await stored(engine, 1)).progress == Progress(0.5)

    async def test_a_refused_beat_leaves_no_progress(self, engine: Engine) -> None:
        row = await running(engine)
        await engine.extend([beat(row, progress=Progress(1))], now=LATE)
        await engine.extend([beat(row, owner=OTHER, progress=Progress(1))], now=NOW)
        assert await stored(engine, 1) == row

    async def test_a_request_to_cancel_is_told(self, engine: Engine) -> None:
        row = await running(engine)
        await engine.cancel([row.id], now=NOW)
        (answer,) = await engine.extend([beat(row)], now=NOW + 1)
        assert answer == Extended(30.0, cancel_requested=True)
        assert (await stored(engine, 1)).lease_until == NOW + 1 + LEASE

    @pytest.mark.parametrize("wrong", [{"token": 0}, {"token": NOW + 1}, {"owner": OTHER}])
    async def test_a_wrong_token_or_owner_is_refused(
        self, engine: Engine, wrong: dict[str, Any]
    ) -> None:
        row = await running(engine)
        assert await engine.extend([beat(row, 99.0, **wrong)], now=NOW) == [Lost("taken")]
        assert await stored(engine, 1) == row

    @pytest.mark.parametrize(
        "outcome", [Completed(), Errored(boom()), Errored(boom(), after=5), Snoozed(5), Snoozed(0)]
    )
    async def test_a_settled_lease_is_lost(self, engine: Engine, outcome: Outcome) -> None:
        row = await running(engine, max_attempts=3)
        await finish(engine, row, outcome)
        settled = await stored(engine, 1)
        assert await engine.extend([beat(row)], now=NOW + 1) == [Lost("settled")]
        assert await stored(engine, 1) == settled

    async def test_a_settled_lease_is_settled_after_its_deadline_too(self, engine: Engine) -> None:
        row = await running(engine)
        await finish(engine, row)
        assert await engine.extend([beat(row)], now=LATE + 1) == [Lost("settled")]

    async def test_a_job_that_is_gone_is_lost(self, engine: Engine) -> None:
        row = await running(engine)
        assert await engine.extend([beat(row, id=job_id(9))], now=NOW) == [Lost("gone")]

    async def test_a_job_that_was_never_claimed_is_lost(self, engine: Engine) -> None:
        row = await running(engine, 1)
        await put(engine, new(2))
        before = await stored(engine, 2)
        for token in (row.token, 0):
            call = engine.extend([beat(row, id=job_id(2), token=token)], now=NOW)
            assert await call == [Lost("taken")]
        assert await stored(engine, 2) == before

    async def test_a_lease_that_was_taken_over_is_lost(self, engine: Engine) -> None:
        row = await running(engine)
        taken = await take_one(engine, now=LATE, owner=OTHER)
        assert await engine.extend([beat(row)], now=LATE) == [Lost("taken")]
        assert await stored(engine, 1) == taken
        assert await engine.extend([beat(taken)], now=LATE) == [Extended(30.0)]

    async def test_a_batch_is_answered_in_order(self, engine: Engine) -> None:
        rows = [await running(engine, n) for n in range(6)]
        await finish(engine, rows[1])
        await engine.extend([beat(rows[2], 1.0)], now=NOW)
        await engine.cancel([rows[4].id], now=NOW)
        beats = [beat(row, 10.0 + n) for n, row in enumerate(rows)]
        beats[3] = beats[3]._replace(token=1)
        beats[5] = beats[5]._replace(id=job_id(99))
        beats.append(beats[0]._replace(seconds=77.0))
        assert await engine.extend(beats, now=NOW + 5 * SECOND) == [
            Extended(10.0),
            Lost("settled"),
            Lost("lapsed"),
            Lost("taken"),
            Extended(14.0, cancel_requested=True),
            Lost("gone"),
            Extended(77.0),
        ]
        assert (await stored(engine, 0)).lease_until == NOW + 82 * SECOND
        assert (await stored(engine, 4)).lease_until == NOW + 19 * SECOND

    async def test_a_large_batch(self, engine: Engine) -> None:
        await put(engine, *(new(n) for n in range(2500)))
        rows = await take(engine, 2500)
        answers = await engine.extend([beat(row, 60.0) for row in rows], now=NOW + 1)
        assert answers == [Extended(60.0)] * 2500
        assert {row and row.lease_until for row in await engine.get(ids(rows))} == {
            NOW + 1 + 60 * SECOND
        }
