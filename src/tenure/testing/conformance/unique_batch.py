"""Unique keys within a batch, between callers, and under repetition."""

from __future__ import annotations

import asyncio

import pytest

from tenure.core.job import NewJob, new_row
from tenure.core.outcomes import Verdict
from tenure.core.query import Filter, Page
from tenure.core.states import State
from tenure.engines.protocol import Engine, Inserted
from tenure.errors import DuplicateJob, PayloadError, UniquenessConflict
from tenure.testing.conformance.kit import (
    FINISHED,
    FOREVER,
    NOW,
    RAISE,
    REPLACE,
    RETURN,
    STARTED,
    Conformance,
    changed,
    finish,
    ids,
    job_id,
    keyed,
    new,
    numbered,
    put,
    snapshot,
    stored,
    take,
    take_one,
)

UNTILS = pytest.mark.parametrize("until", [STARTED, FINISHED])


class TestUniqueBatch(Conformance):
    """`insert(jobs)` with twins in one batch"""

    @UNTILS
    async def test_the_first_of_a_batch_has_the_key(self, engine: Engine, until: str) -> None:
        jobs = [keyed(3, until=until), new(1), keyed(2, until=until), keyed(4, "other", until)]
        assert await engine.insert(jobs, now=NOW) == [
            Inserted(job_id(3), True),
            Inserted(job_id(1), True),
            Inserted(job_id(3), False),
            Inserted(job_id(4), True),
        ]
        assert await engine.get(numbered(2)) == [None]
        assert await stored(engine, 3) == new_row(jobs[0], NOW)

    async def test_a_later_one_replaces_an_earlier_one(self, engine: Engine) -> None:
        jobs = [keyed(1, payload=b"1"), keyed(2, payload=b"2", delay=9, on_conflict=REPLACE)]
        assert await engine.insert(jobs, now=NOW) == [
            Inserted(job_id(1), True),
            Inserted(job_id(1), False),
        ]
        assert await stored(engine, 1) == changed(new_row(jobs[1], NOW), id=job_id(1))
        assert await take(engine, 10, now=NOW + 8) == []
        assert ids(await take(engine, 10, now=NOW + 9)) == numbered(1)

    async def test_the_last_replacement_stands(self, engine: Engine) -> None:
        await put(engine, keyed(1))
        jobs = [keyed(n, payload=b"%d" % n, delay=n, on_conflict=REPLACE) for n in (2, 3, 4)]
        answers = await engine.insert(jobs, now=NOW)
        assert answers == [Inserted(job_id(1), False)] * 3
        row = await stored(engine, 1)
        assert (row.payload, row.available_at, row.ready) == (b"4", NOW + 4, False)

    async def test_an_id_and_a_key_twice_are_one_job(self, engine: Engine) -> None:
        job = keyed(1, on_conflict=RAISE)
        answers = await engine.insert([job, job], now=NOW)
        assert answers == [Inserted(job_id(1), True), Inserted(job_id(1), False)]

    async def test_an_overdue_twin_of_the_batch_expires(self, engine: Engine) -> None:
        jobs = [keyed(1, expires_at=NOW), keyed(2)]
        answers = await engine.insert(jobs, now=NOW)
        assert [answer.created for answer in answers] == [True, True]
        first, second = await stored(engine, 1), await stored(engine, 2)
        assert (first.state, second.state) == (State.EXPIRED, State.PENDING)

    async def test_a_twin_that_was_replaced_and_is_overdue_expires(self, engine: Engine) -> None:
        await put(engine, keyed(1))
        jobs = [keyed(2, expires_at=NOW, on_conflict=REPLACE), keyed(3)]
        answers = await engine.insert(jobs, now=NOW)
        assert answers == [Inserted(job_id(1), False), Inserted(job_id(3), True)]
        first = await stored(engine, 1)
        assert (first.state, first.expires_at, first.finished_at) == (State.EXPIRED, NOW, NOW)

    @pytest.mark.parametrize(
        ("bad", "error"),
        [
            (keyed(5, on_conflict=RAISE), DuplicateJob),
            (keyed(5, until=STARTED), UniquenessConflict),
            (keyed(5, until=FOREVER), UniquenessConflict),
            (new(5, payload=b"x" * (2**20 + 1)), PayloadError),
        ],
    )
    async def test_a_batch_that_raises_writes_nothing(
        self, engine: Engine, bad: NewJob, error: type[Exception]
    ) -> None:
        """B147: an insert is all or nothing: rows, ends of twins, replacements, reservations."""
        await put(engine, keyed(1), keyed(2, "late", expires_in=5), keyed(3, "wait"))
        before = await snapshot(engine, [1, 2, 3])
        jobs = [
            new(6),
            keyed(7, "late"),
            keyed(8, "wait", payload=b"8", on_conflict=REPLACE),
            keyed(9, "fresh"),
            bad,
            new(10),
        ]
        with pytest.raises(error):
            await engine.insert(jobs, now=NOW + 10)
        assert await snapshot(engine, [1, 2, 3]) == before
        assert await engine.get(numbered(5, 6, 7, 8, 9, 10)) == [None] * 6
        await put(engine, keyed(11, "fresh"), keyed(12, "late"), now=NOW + 10)

    async def test_a_conflict_within_a_batch_writes_nothing(self, engine: Engine) -> None:
        with pytest.raises(DuplicateJob):
            await engine.insert([keyed(1), new(2), keyed(3, on_conflict=RAISE)], now=NOW)
        with pytest.raises(UniquenessConflict):
            await engine.insert([keyed(1), new(2), keyed(3, until=STARTED)], now=NOW)
        assert await engine.find(Filter(), Page()) == []
        await put(engine, keyed(1))

    async def test_a_replacement_that_cannot_be_kept_writes_nothing(self, engine: Engine) -> None:
        await put(engine, keyed(1), keyed(2, "b"))
        before = await snapshot(engine, [1, 2])
        fine = keyed(3, payload=b"3", on_conflict=REPLACE)
        bad = keyed(4, "b", metadata={"n": float("nan")}, on_conflict=REPLACE)
        with pytest.raises(PayloadError):
            await engine.insert([new(5), fine, bad], now=NOW)
        assert await snapshot(engine, [1, 2]) == before
        assert await engine.get(numbered(5)) == [None]

    async def test_many_keys_at_once(self, engine: Engine) -> None:
        jobs = [keyed(n, f"k{n % 700}") for n in range(2100)]
        answers = await engine.insert(jobs, now=NOW)
        assert [answer.id for answer in answers] == numbered(*range(700)) * 3
        assert sum(bool(answer.created) for answer in answers) == 700
        again = await engine.insert([keyed(5000 + n, f"k{n}") for n in range(700)], now=NOW)
        assert again == [Inserted(job, False) for job in numbered(*range(700))]

    async def test_a_lost_reply_is_repeated_without_a_trace(self, engine: Engine) -> None:
        batch = [keyed(1, on_conflict=RAISE), keyed(2, "b", on_conflict=REPLACE), new(3)]
        await engine.insert(batch, now=NOW)
        before = await snapshot(engine, [1, 2, 3])
        assert await engine.insert(batch, now=NOW + 5) == [
            Inserted(job, False) for job in numbered(1, 2, 3)
        ]
        assert await snapshot(engine, [1, 2, 3]) == before


class TestUniqueRaces(Conformance):
    """Unique keys, wanted by many at the same time"""

    @pytest.mark.parametrize("until", [STARTED, FINISHED, FOREVER])
    async def test_one_of_many_gets_the_key(self, engine: Engine, until: str) -> None:
        async with engine.side() as side:
            calls = [
                handle.insert([new(100 + n), keyed(n, until=until)], now=NOW)
                for n, handle in enumerate([engine, side] * 20)
            ]
            answers = await asyncio.gather(*calls)
        assert all(plain.created for plain, _ in answers)
        created = [answer.id for _, answer in answers if answer.created]
        assert len(created) == 1
        assert {answer.id for _, answer in answers} == set(created)
        rows = await engine.find(Filter(), Page())
        assert [row.id for row in rows if row.unique_key == "k"] == created

    async def test_all_but_one_of_many_are_refused(self, engine: Engine) -> None:
        async with engine.side() as side:
            calls = [
                handle.insert([new(100 + n), keyed(n, on_conflict=RAISE)], now=NOW)
                for n, handle in enumerate([engine, side] * 20)
            ]
            answers = await asyncio.gather(*calls, return_exceptions=True)
        won = [n for n, answer in enumerate(answers) if not isinstance(answer, BaseException)]
        assert len(won) == 1
        refusals = [answer for answer in answers if isinstance(answer, DuplicateJob)]
        assert [error.existing for error in refusals] == numbered(*won) * 39
        # A refusal is its own caller's, with its whole batch.
        assert ids(await engine.find(Filter(), Page())) == numbered(100 + won[0], won[0])

    async def test_twins_of_two_policies_never_both_live(self, engine: Engine) -> None:
        async with engine.side() as side:
            calls = [
                handle.insert([keyed(n, until=(STARTED, FINISHED)[n % 2])], now=NOW)
                for n, handle in enumerate([engine, side] * 10)
            ]
            answers = await asyncio.gather(*calls, return_exceptions=True)
        kinds = {type(answer) for answer in answers}
        assert kinds == {list, UniquenessConflict}
        assert len(await engine.find(Filter(), Page())) == 1

    async def test_an_insert_against_the_end_of_the_holder(self, engine: Engine) -> None:
        """Either the key is still taken, or free: never two that live, never a key that leaks."""
        twins = created = 0
        async with engine.side() as side:
            for n in range(0, 60, 2):
                await put(engine, keyed(n))
                row = await take_one(engine)
                late = side.insert([keyed(n + 1)], now=NOW)
                if n % 4:
                    settled, (answer,) = await asyncio.gather(finish(engine, row), late)
                else:
                    (answer,), settled = await asyncio.gather(late, finish(engine, row))
                assert settled.verdict is Verdict.APPLIED
                if answer.created:
                    created += 1
                    await finish(engine, await take_one(engine))
                else:
                    twins += 1
                    assert answer == Inserted(row.id, False)
                    assert await engine.get(numbered(n + 1)) == [None]
        assert twins + created == 30

    async def test_an_insert_against_a_requeue(self, engine: Engine) -> None:
        async with engine.side() as side:
            for n in range(0, 40, 2):
                await put(engine, keyed(n))
                await finish(engine, await take_one(engine))
                again, (answer,) = await asyncio.gather(
                    engine.requeue(numbered(n), now=NOW), side.insert([keyed(n + 1)], now=NOW)
                )
                assert answer.created == (again.taken == {job_id(n): job_id(n + 1)})
                assert answer.created != (again.requeued == (job_id(n),))
                await finish(engine, await take_one(engine))

    async def test_a_debounce_against_a_claim(self, engine: Engine) -> None:
        """The claim gets the old arguments and the insert is refused, or it gets the new ones."""
        async with engine.side() as side:
            for n in range(0, 40, 2):
                await put(engine, keyed(n, payload=b"old"))
                rows, answer = await asyncio.gather(
                    take(engine),
                    side.insert([keyed(n + 1, payload=b"new", on_conflict=REPLACE)], now=NOW),
                    return_exceptions=True,
                )
                assert not isinstance(rows, BaseException)
                (row,) = rows
                assert row.id == job_id(n)
                if isinstance(answer, DuplicateJob):
                    assert row.payload == b"old"
                else:
                    assert (answer, row.payload) == ([Inserted(row.id, False)], b"new")
                await finish(engine, row)

    async def test_policies_of_return_agree_with_each_other(self, engine: Engine) -> None:
        calls = [engine.insert([keyed(n, on_conflict=RETURN)], now=NOW) for n in range(30)]
        answers = [answer for (answer,) in await asyncio.gather(*calls)]
        assert len({answer.id for answer in answers}) == 1
        assert sum(bool(answer.created) for answer in answers) == 1
