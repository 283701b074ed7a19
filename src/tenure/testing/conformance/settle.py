"""Settling: one fenced write that applies what core decided."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tenure.core.durations import SECOND
from tenure.core.job import ERRORS_KEPT, Progress
from tenure.core.outcomes import (
    Cancelled,
    Completed,
    Errored,
    Outcome,
    Released,
    ReleaseReason,
    Settled,
    Snoozed,
    Verdict,
)
from tenure.core.rules import decide, settled_values
from tenure.core.states import State
from tenure.engines.protocol import Engine
from tenure.testing.conformance.insert import STRANGE
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

OUTCOMES: dict[str, Outcome] = {
    "completed": Completed(b'{"rows": 3}'),
    "completed without result": Completed(),
    "completed with any bytes": Completed(bytes(range(256))),
    "errored, retried": Errored(boom()),
    "errored, retried at once": Errored(boom(), after=0),
    "errored, retried later": Errored(boom(STRANGE), after=3 * SECOND),
    "errored for good": Errored(boom(), retryable=False),
    "snoozed": Snoozed(5 * SECOND),
    "snoozed for no time": Snoozed(0),
    "snoozed past its deadline": Snoozed(7200 * SECOND),
    "released at shutdown": Released(ReleaseReason.SHUTDOWN),
    "released by the store": Released(ReleaseReason.STORE),
    "released unstarted": Released(ReleaseReason.UNSTARTED),
    "cancelled": Cancelled(),
    "cancelled with an error": Cancelled(boom()),
}
FIELDS: dict[str, Any] = {"max_attempts": 3, "priority": -4, "expires_in": 3600 * SECOND}


class TestSettle(Conformance):
    """`settle(settlements)`"""

    async def test_nothing_is_no_error(self, engine: Engine) -> None:
        assert await engine.settle([], now=NOW) == []

    @pytest.mark.parametrize("name", OUTCOMES)
    async def test_what_a_settlement_writes(self, engine: Engine, name: str) -> None:
        row = await running(engine, **FIELDS)
        settlement = decide(row, OUTCOMES[name], now=NOW + 3)
        (answer,) = await engine.settle([settlement], now=NOW + 5)
        change = settlement.next
        assert answer == Settled(row.id, Verdict.APPLIED, change.state, change.event)
        wanted = changed(row, **settled_values(row.priority, change, NOW + 5))
        assert await stored(engine, 1) == wanted

    @pytest.mark.parametrize("name", OUTCOMES)
    async def test_a_cancel_request_picks_the_other_branch(self, engine: Engine, name: str) -> None:
        row = await running(engine, **FIELDS)
        settlement = decide(row, OUTCOMES[name], now=NOW)
        await engine.cancel([row.id], now=NOW + 1)
        (answer,) = await engine.settle([settlement], now=NOW + 5)
        change = settlement.if_cancel_requested
        assert answer == Settled(row.id, Verdict.APPLIED, change.state, change.event)
        flagged = changed(row, cancel_requested=True)
        wanted = changed(flagged, **settled_values(row.priority, change, NOW + 5))
        assert await stored(engine, 1) == wanted
        finished_first = isinstance(OUTCOMES[name], Completed)
        assert wanted.state is (State.COMPLETED if finished_first else State.CANCELLED)

    @pytest.mark.parametrize("name", OUTCOMES)
    async def test_a_repeated_settlement_changes_nothing(self, engine: Engine, name: str) -> None:
        row = await running(engine, **FIELDS)
        settlement = decide(row, OUTCOMES[name], now=NOW)
        await engine.settle([settlement], now=NOW)
        settled = await stored(engine, 1)
        for now in (NOW, NOW + 10 * LEASE):
            answers = await engine.settle([settlement], now=now)
            assert answers == [Settled(row.id, Verdict.ALREADY, settled.state)]
        assert await stored(engine, 1) == settled

    async def test_a_settlement_twice_in_a_batch(self, engine: Engine) -> None:
        row = await running(engine)
        twice = [decide(row, Completed(b"1"), now=NOW), decide(row, Completed(b"2"), now=NOW)]
        answers = await engine.settle(twice, now=NOW)
        assert [a.verdict for a in answers] == [Verdict.APPLIED, Verdict.ALREADY]
        assert (await stored(engine, 1)).result == b"1"

    async def test_another_outcome_under_a_settled_token_is_already(self, engine: Engine) -> None:
        row = await running(engine, max_attempts=3)
        await finish(engine, row, Errored(boom(), after=0))
        settled = await stored(engine, 1)
        answer = await finish(engine, row, Completed(b"1"))
        assert (answer.verdict, answer.state) == (Verdict.ALREADY, State.PENDING)
        assert await stored(engine, 1) == settled

    @pytest.mark.parametrize("wrong", [{"token": 0}, {"token": NOW + 1}, {"owner": OTHER}])
    async def test_a_wrong_token_or_owner_is_refused(
        self, engine: Engine, wrong: dict[str, Any]
    ) -> None:
        row = await running(engine)
        settlement = msgspec.structs.replace(decide(row, Completed(), now=NOW), **wrong)
        answers = await engine.settle([settlement], now=NOW)
        assert answers == [Settled(row.id, Verdict.LOST, State.RUNNING)]
        assert await stored(engine, 1) == row

    @pytest.mark.parametrize("wrong", [{"token": 0}, {"token": NOW + 1}, {"owner": OTHER}])
    async def test_a_wrong_token_or_owner_is_not_already(
        self, engine: Engine, wrong: dict[str, Any]
    ) -> None:
        row = await running(engine)
        await finish(engine, row)
        settlement = msgspec.structs.replace(decide(row, Completed(), now=NOW), **wrong)
        answers = await engine.settle([settlement], now=NOW)
        assert answers == [Settled(row.id, Verdict.LOST, State.COMPLETED)]

    async def test_a_job_that_is_gone_is_lost(self, engine: Engine) -> None:
        row = await running(engine)
        settlement = msgspec.structs.replace(decide(row, Completed(), now=NOW), id=job_id(9))
        answers = await engine.settle([settlement], now=NOW)
        assert answers == [Settled(job_id(9), Verdict.LOST, None)]

    async def test_an_elapsed_lease_alone_does_not_refuse(self, engine: Engine) -> None:
        row = await running(engine)
        answer = await finish(engine, row, now=NOW + 100 * LEASE)
        assert answer.verdict is Verdict.APPLIED

    async def test_a_batch_is_answered_item_by_item(self, engine: Engine) -> None:
        rows = [await running(engine, n, max_attempts=2) for n in range(5)]
        await finish(engine, rows[1])
        await engine.cancel([rows[2].id, rows[3].id], force=False, now=NOW)
        await engine.cancel([rows[3].id], force=True, now=NOW)
        batch = [decide(row, Errored(boom(), after=9), now=NOW) for row in reversed(rows)]
        answers = await engine.settle(batch, now=NOW)
        assert [(a.id, a.verdict, a.state) for a in answers] == [
            (job_id(4), Verdict.APPLIED, State.PENDING),
            (job_id(3), Verdict.LOST, State.CANCELLED),
            (job_id(2), Verdict.APPLIED, State.CANCELLED),
            (job_id(1), Verdict.ALREADY, State.COMPLETED),
            (job_id(0), Verdict.APPLIED, State.PENDING),
        ]

    async def test_a_large_batch(self, engine: Engine) -> None:
        await put(engine, *(new(n) for n in range(2500)))
        rows = await take(engine, 2500)
        batch = [decide(row, Completed(row.id.encode()), now=NOW) for row in rows]
        answers = await engine.settle(batch, now=NOW + 1)
        assert [a.id for a in answers] == ids(rows)
        assert {a.verdict for a in answers} == {Verdict.APPLIED}
        settled = await engine.get(ids(rows))
        assert [row and row.result for row in settled] == [row.id.encode() for row in rows]

    async def test_a_retry_is_due_after_its_backoff(self, engine: Engine) -> None:
        row = await running(engine, max_attempts=3)
        await finish(engine, row, Errored(boom(), after=500), now=NOW + 7)
        assert await take(engine, 10, now=NOW + 506) == []
        again = await take_one(engine, now=NOW + 507)
        assert (again.id, again.failures, again.attempt) == (row.id, 1, 2)

    async def test_a_delay_counts_from_the_write(self, engine: Engine) -> None:
        row = await running(engine)
        settlement = decide(row, Snoozed(100), now=NOW)
        await engine.settle([settlement], now=NOW + 1000)
        assert (await stored(engine, 1)).available_at == NOW + 1100

    async def test_attempts_are_counted_until_the_budget_is_spent(self, engine: Engine) -> None:
        await put(engine, new(1, max_attempts=3))
        states = []
        for n in range(3):
            row = await take_one(engine, now=NOW + n)
            states.append((await finish(engine, row, Errored(boom(), after=0), now=NOW + n)).state)
        assert states == [State.PENDING, State.PENDING, State.FAILED]
        after = await stored(engine, 1)
        assert (after.failures, after.claims, after.finished_at) == (3, 3, NOW + 2)

    async def test_only_the_last_errors_are_kept(self, engine: Engine) -> None:
        await put(engine, new(1, max_attempts=100))
        for n in range(ERRORS_KEPT + 3):
            row = await take_one(engine, now=NOW + n)
            await finish(engine, row, Errored(boom(f"no {n}"), after=0), now=NOW + n)
        after = await stored(engine, 1)
        assert [e.message for e in after.errors] == [f"no {n}" for n in range(3, ERRORS_KEPT + 3)]
        assert after.error == after.errors[-1]
        assert after.failures == ERRORS_KEPT + 3

    async def test_progress_stays_after_the_end(self, engine: Engine) -> None:
        row = await running(engine)
        await engine.extend([beat(row, progress=Progress(9, 9))], now=NOW)
        await finish(engine, row)
        assert (await stored(engine, 1)).progress == Progress(9, 9)

    async def test_a_result_of_the_largest_size_is_kept(self, engine: Engine) -> None:
        row = await running(engine)
        result = b"r" * engine.traits.max_payload
        await finish(engine, row, Completed(result))
        assert (await stored(engine, 1)).result == result
