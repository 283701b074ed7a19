"""Unique keys of living jobs: how long a key is taken, and what an insert does then."""

from __future__ import annotations

from typing import Any

import pytest

from tenure.core.job import NewJob, new_row
from tenure.core.outcomes import Errored, Outcome, Snoozed
from tenure.core.states import State
from tenure.engines.protocol import Engine, Inserted
from tenure.errors import DuplicateJob, UniquenessConflict
from tenure.testing.conformance.cancel import ENDS
from tenure.testing.conformance.kit import (
    FINISHED,
    FOREVER,
    LEASE,
    NOW,
    OTHER,
    RAISE,
    REPLACE,
    RETURN,
    STARTED,
    Conformance,
    boom,
    changed,
    finish,
    finished,
    ids,
    job_id,
    keyed,
    new,
    numbered,
    put,
    running,
    snapshot,
    stored,
    take,
    take_one,
)

LIVING = pytest.mark.parametrize("until", [STARTED, FINISHED])


async def insert(engine: Engine, *jobs: NewJob, now: int = NOW) -> list[Inserted]:
    return await engine.insert(jobs, now=now)


async def refused(engine: Engine, job: NewJob, holder: int, now: int = NOW) -> None:
    """`job` must not be created, whatever the policy, as job number `holder` has its key."""
    assert await insert(engine, job, now=now) == [Inserted(job_id(holder), False)]
    with pytest.raises(DuplicateJob) as caught:
        await insert(engine, changed_job(job, on_conflict=RAISE), now=now)
    assert caught.value.existing == job_id(holder)
    assert await engine.get([job.id]) == [None]


def changed_job(job: NewJob, **fields: Any) -> NewJob:
    values = {name: getattr(job, name) for name in NewJob.__struct_fields__}
    return NewJob(**{**values, **fields})


class TestUniqueKeys(Conformance):
    """`insert(jobs)` with unique keys until `started` or `finished`"""

    @LIVING
    async def test_the_row_is_what_core_defines(self, engine: Engine, until: str) -> None:
        (row,) = await put(engine, keyed(1, until=until))
        assert await stored(engine, 1) == row == new_row(keyed(1, until=until), NOW)

    @LIVING
    @pytest.mark.parametrize("delay", [0, 60])
    async def test_a_waiting_job_has_its_key(self, engine: Engine, until: str, delay: int) -> None:
        (row,) = await put(engine, keyed(1, until=until, delay=delay))
        await refused(engine, keyed(2, until=until, task="other", queue="other"), 1)
        assert await stored(engine, 1) == row

    async def test_other_keys_and_no_key_are_free(self, engine: Engine) -> None:
        await put(engine, keyed(1, "k"), keyed(2, "K"), keyed(3, "k "), new(4), new(5))

    async def test_a_running_job_has_its_key_until_finished(self, engine: Engine) -> None:
        await put(engine, keyed(1))
        row = await take_one(engine)
        assert (row.unique_key, row.unique_until) == ("k", "finished")
        await refused(engine, keyed(2), 1)

    async def test_a_lapsed_job_has_its_key(self, engine: Engine) -> None:
        """B021: a duplicate is refused during the whole run, whoever runs it."""
        await put(engine, keyed(1))
        await take_one(engine)
        await refused(engine, keyed(2), 1, now=NOW + 2 * LEASE)
        await take_one(engine, now=NOW + 2 * LEASE, owner=OTHER)
        await refused(engine, keyed(2), 1, now=NOW + 2 * LEASE)
        await engine.sweep(1, now=NOW + 4 * LEASE)
        await refused(engine, keyed(2), 1, now=NOW + 4 * LEASE)

    @pytest.mark.parametrize("outcome", [Errored(boom(), after=5), Snoozed(5)])
    async def test_a_job_that_waits_again_has_its_key(
        self, engine: Engine, outcome: Outcome
    ) -> None:
        await put(engine, keyed(1, max_attempts=3))
        await finish(engine, await take_one(engine), outcome)
        await refused(engine, keyed(2, max_attempts=3), 1)

    async def test_a_key_until_started_ends_at_the_first_claim_for_good(
        self, engine: Engine
    ) -> None:
        (before,) = await put(engine, keyed(1, until=STARTED, max_attempts=3))
        row = await take_one(engine)
        assert (row.unique_key, row.unique_until) == (None, None)
        assert row == changed(
            before,
            state=State.RUNNING,
            ready=False,
            token=NOW,
            owner=row.owner,
            lease_until=NOW + LEASE,
            claims=1,
            started_at=NOW,
            unique_key=None,
            unique_until=None,
        )
        await put(engine, keyed(2, until=STARTED, delay=99))
        await finish(engine, row, Errored(boom(), after=0))
        again = await stored(engine, 1)
        assert (again.state, again.unique_key) == (State.PENDING, None)
        await refused(engine, keyed(3, until=STARTED), 2)

    @pytest.mark.parametrize("end", ENDS)
    async def test_every_end_frees_the_key(self, engine: Engine, end: State) -> None:
        """B020, K08: no end of a job can leave its key taken, since nothing but the row has it."""
        await put(engine, keyed(1, expires_in=50))
        await finish(engine, await take_one(engine), ENDS[end])
        assert (await stored(engine, 1)).state is end
        await put(engine, keyed(2))

    @LIVING
    async def test_a_cancel_before_the_start_frees_the_key(
        self, engine: Engine, until: str
    ) -> None:
        await put(engine, keyed(1, until=until))
        await engine.cancel(numbered(1), now=NOW)
        await put(engine, keyed(2, until=until))

    async def test_a_forced_cancel_frees_the_key(self, engine: Engine) -> None:
        await put(engine, keyed(1))
        await take_one(engine)
        await engine.cancel(numbered(1), now=NOW)
        assert await insert(engine, keyed(2)) == [Inserted(job_id(1), False, cancelling=True)]
        await engine.cancel(numbered(1), force=True, now=NOW)
        await put(engine, keyed(2))

    async def test_a_crash_frees_the_key_once_its_budget_is_spent(self, engine: Engine) -> None:
        await put(engine, keyed(1, max_lapses=0))
        await take_one(engine)
        await engine.sweep(1, now=NOW + LEASE)
        assert (await stored(engine, 1)).state is State.FAILED
        await put(engine, keyed(2), now=NOW + LEASE)

    @LIVING
    async def test_expiring_frees_the_key(self, engine: Engine, until: str) -> None:
        await put(engine, keyed(1, until=until, expires_in=5))
        await engine.sweep(1, now=NOW + 5)
        await put(engine, keyed(2, until=until), now=NOW + 5)

    @LIVING
    async def test_an_insert_expires_an_overdue_twin(self, engine: Engine, until: str) -> None:
        (twin,) = await put(engine, keyed(1, until=until, expires_in=5))
        await refused(engine, keyed(2, until=until), 1, now=NOW + 4)
        await put(engine, keyed(2, until=until, on_conflict=RAISE), now=NOW + 5)
        wanted = changed(twin, state=State.EXPIRED, ready=False, finished_at=NOW + 5)
        assert await stored(engine, 1) == wanted

    async def test_an_overdue_twin_of_another_policy_is_gone_too(self, engine: Engine) -> None:
        await put(engine, keyed(1, until=STARTED, expires_in=5))
        await put(engine, keyed(2, until=FINISHED), now=NOW + 5)
        assert (await stored(engine, 1)).state is State.EXPIRED

    async def test_a_running_twin_never_counts_as_overdue(self, engine: Engine) -> None:
        await put(engine, keyed(1, expires_in=5))
        row = await take_one(engine)
        await refused(engine, keyed(2), 1, now=NOW + 10)
        assert await stored(engine, 1) == row

    @pytest.mark.parametrize("state", ["pending", "running", "final"])
    async def test_a_repeated_insert_is_no_twin(self, engine: Engine, state: str) -> None:
        await put(engine, keyed(1))
        if state != "pending":
            row = await take_one(engine)
            if state == "final":
                await finish(engine, row)
        before = await stored(engine, 1)
        for policy in (RETURN, REPLACE, RAISE):
            job = keyed(1, on_conflict=policy, payload=b"1")
            assert await insert(engine, job) == [Inserted(job_id(1), False)]
        assert await stored(engine, 1) == before

    @pytest.mark.parametrize(
        ("first", "second"),
        [(a, b) for a in (STARTED, FINISHED) for b in (STARTED, FINISHED, FOREVER) if a != b],
    )
    @pytest.mark.parametrize("policy", [RETURN, REPLACE, RAISE])
    async def test_a_key_across_policies_is_a_conflict(
        self, engine: Engine, first: str, second: str, policy: str
    ) -> None:
        (row,) = await put(engine, keyed(1, until=first))
        with pytest.raises(UniquenessConflict, match="'k'"):
            await insert(engine, keyed(2, until=second, on_conflict=policy))
        assert await stored(engine, 1) == row
        assert await engine.get(numbered(2)) == [None]


class TestReplace(Conformance):
    """`insert(jobs)` with the policy `replace`"""

    async def test_a_waiting_job_gets_the_new_arguments_and_times(self, engine: Engine) -> None:
        await put(engine, keyed(1, delay=50, priority=1, tags=("a",), description="one"))
        again = keyed(
            2, on_conflict=REPLACE, payload=b"[2]", delay=9, max_attempts=7, metadata={"n": 2}
        )
        assert await insert(engine, again, now=NOW + 5) == [Inserted(job_id(1), False)]
        wanted = changed(new_row(again, NOW + 5), id=job_id(1), created_at=NOW)
        assert await stored(engine, 1) == wanted
        assert await engine.get(numbered(2)) == [None]

    async def test_it_is_claimed_where_and_when_it_is_now(self, engine: Engine) -> None:
        await put(engine, keyed(1))
        later = keyed(2, on_conflict=REPLACE, queue="b", task="other", delay=50)
        await insert(engine, later, now=NOW + 5)
        assert await take(engine, 10, now=NOW + 60) == []
        assert await take(engine, 10, now=NOW + 54, queues=("b",), tasks=("other",)) == []
        assert ids(await take(engine, 10, now=NOW + 55, queues=("b",), tasks=("other",))) == (
            numbered(1)
        )

    async def test_each_repetition_starts_the_wait_anew(self, engine: Engine) -> None:
        await put(engine, keyed(1, delay=10))
        for turn in range(1, 5):
            await insert(engine, keyed(1 + turn, delay=10, on_conflict=REPLACE), now=NOW + 9 * turn)
            assert await take(engine, 1, now=NOW + 9 * turn + 9) == []
        assert ids(await take(engine, 1, now=NOW + 46)) == numbered(1)

    async def test_counters_and_token_stay(self, engine: Engine) -> None:
        await put(engine, keyed(1, max_attempts=5))
        row = await take_one(engine)
        await finish(engine, row, Errored(boom(), after=50))
        before = await stored(engine, 1)
        await insert(engine, keyed(2, on_conflict=REPLACE, max_attempts=5))
        after = await stored(engine, 1)
        kept = ("token", "claims", "failures", "lapses", "releases", "errors", "started_at")
        assert [getattr(after, n) for n in kept] == [getattr(before, n) for n in kept]

    async def test_a_deadline_is_replaced_too(self, engine: Engine) -> None:
        await put(engine, keyed(1, expires_in=5))
        await insert(engine, keyed(2, on_conflict=REPLACE), now=NOW + 1)
        assert (await stored(engine, 1)).expires_at is None
        assert await engine.sweep(9, now=NOW + 99) == []
        await insert(engine, keyed(3, on_conflict=REPLACE, expires_in=5), now=NOW + 2)
        assert [job.id for job in await engine.sweep(9, now=NOW + 7)] == numbered(1)

    async def test_a_running_job_is_not_replaced(self, engine: Engine) -> None:
        await put(engine, keyed(1))
        row = await take_one(engine)
        with pytest.raises(DuplicateJob) as caught:
            await insert(engine, keyed(2, on_conflict=REPLACE))
        assert caught.value.existing == row.id
        assert await stored(engine, 1) == row

    async def test_a_free_key_is_simply_taken(self, engine: Engine) -> None:
        await put(engine, keyed(1, on_conflict=REPLACE))

    async def test_a_job_of_a_schedule_stays_the_job_of_its_tick(self, engine: Engine) -> None:
        await put(engine, keyed(1, schedule="s", tick=NOW))
        await insert(engine, keyed(2, on_conflict=REPLACE, payload=b"2"))
        row = await stored(engine, 1)
        assert (row.schedule, row.tick, row.payload) == ("s", NOW, b"2")
        await insert(engine, keyed(3, on_conflict=REPLACE, schedule="s", tick=NOW + 1))
        row = await stored(engine, 1)
        assert (row.schedule, row.tick) == ("s", NOW)


class TestRequeueKeys(Conformance):
    """`requeue(ids)` of jobs with unique keys"""

    async def test_a_free_key_is_taken_again(self, engine: Engine) -> None:
        await finished(engine, 1, unique_key="k", unique_until=FINISHED)
        assert (await engine.requeue(numbered(1), now=NOW)).requeued == (job_id(1),)
        await refused(engine, keyed(2), 1)

    @pytest.mark.parametrize("state", ["pending", "running"])
    async def test_a_taken_key_refuses_the_requeue(self, engine: Engine, state: str) -> None:
        await finished(engine, 1, unique_key="k", unique_until=FINISHED)
        await put(engine, keyed(2))
        if state == "running":
            await take_one(engine)
        before = await snapshot(engine, [1, 2])
        answer = await engine.requeue(numbered(1, 9), now=NOW)
        assert (answer.requeued, answer.not_found) == ((), (job_id(9),))
        assert answer.taken == {job_id(1): job_id(2)}
        assert await snapshot(engine, [1, 2]) == before
        await engine.cancel(numbered(2), force=True, now=NOW)
        assert (await engine.requeue(numbered(1), now=NOW)).requeued == (job_id(1),)

    async def test_of_two_with_one_key_the_first_gets_it(self, engine: Engine) -> None:
        for n in (1, 2, 3):
            await finished(engine, n, unique_key="k", unique_until=FINISHED)
        answer = await engine.requeue(numbered(2, 1, 3), now=NOW)
        assert answer.requeued == (job_id(2),)
        assert answer.taken == {job_id(1): job_id(2), job_id(3): job_id(2)}

    async def test_a_key_until_started_does_not_come_back(self, engine: Engine) -> None:
        await finished(engine, 1, unique_key="k", unique_until=STARTED)
        await put(engine, keyed(2, until=STARTED))
        assert (await engine.requeue(numbered(1), now=NOW)).requeued == (job_id(1),)
        assert (await stored(engine, 1)).unique_key is None

    async def test_a_key_until_started_of_a_job_that_never_did_is_taken_again(
        self, engine: Engine
    ) -> None:
        await put(engine, keyed(1, until=STARTED))
        await engine.cancel(numbered(1), now=NOW)
        await engine.requeue(numbered(1), now=NOW)
        await refused(engine, keyed(2, until=STARTED), 1)

    async def test_jobs_without_a_key_are_not_in_the_way(self, engine: Engine) -> None:
        await finished(engine, 1)
        await running(engine, 2)
        assert (await engine.requeue(numbered(1), now=NOW)).taken == {}
