"""Schedules as they are kept: saved by compare-and-set, one revision after the other."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from tenure.core.schedule import Overlap, Schedule, ScheduleChange
from tenure.engines.protocol import Engine, Facet
from tenure.errors import PayloadError
from tenure.testing.conformance.insert import STRANGE
from tenure.testing.conformance.kit import NOW, Conformance

FULL = Schedule(
    name="nightly",
    source="code:app",
    task="reports.build",
    definition={"cron": "0 3 * * *", "arguments": {"n": [1, 2.5, None, STRANGE]}, "": True},
    overlap=Overlap.CANCEL,
    next_at=NOW + 5,
    paused=True,
)


def schedule(name: str = "s", **fields: Any) -> Schedule:
    return Schedule(**{"name": name, "source": "api", "task": "mail", "next_at": NOW, **fields})


async def save(engine: Engine, new: Schedule, expected: int = 0) -> Schedule | None:
    """Save one schedule."""
    (answer,) = await engine.save_schedules([ScheduleChange(new.name, expected, new)])
    return answer


async def kept(engine: Engine, new: Schedule, expected: int = 0) -> Schedule:
    """Save one schedule, which must not be refused."""
    answer = await save(engine, new, expected)
    assert answer is not None
    return answer


async def remove(engine: Engine, name: str, expected: int) -> None:
    assert await engine.save_schedules([ScheduleChange(name, expected, None)]) == [None]


def as_saved(given: Schedule, answer: Schedule) -> Schedule:
    """What must be kept of `given`: its fields, with the revision that the store drew."""
    return msgspec.structs.replace(given, revision=answer.revision, last_at=answer.last_at)


class TestSchedules(Conformance):
    """`save_schedules(changes)`, `schedules()`"""

    facet = Facet.SCHEDULES

    async def test_there_are_none_at_first(self, engine: Engine) -> None:
        assert await engine.schedules() == []
        assert await engine.save_schedules([]) == []

    @pytest.mark.parametrize("given", [FULL, schedule(STRANGE), schedule(next_at=None)])
    async def test_what_is_saved_is_kept(self, engine: Engine, given: Schedule) -> None:
        answer = await kept(engine, given)
        assert answer == as_saved(given, answer)
        assert answer.revision > 0
        assert await engine.schedules() == [answer]

    async def test_they_are_sorted_by_name(self, engine: Engine) -> None:
        for name in ("b", "a", "C", "aa"):
            await kept(engine, schedule(name))
        assert [s.name for s in await engine.schedules()] == ["C", "a", "aa", "b"]

    async def test_a_save_needs_the_revision(self, engine: Engine) -> None:
        first = await kept(engine, schedule())
        for expected in (0, first.revision - 1, first.revision + 1):
            assert await save(engine, schedule(task="other"), expected) is None
        assert await engine.schedules() == [first]
        second = await kept(engine, schedule(task="other"), first.revision)
        assert second.revision > first.revision
        assert await save(engine, schedule(), first.revision) is None
        assert await engine.schedules() == [second]

    async def test_what_is_not_there_has_revision_zero(self, engine: Engine) -> None:
        assert await save(engine, schedule(), 1) is None
        assert await engine.schedules() == []

    async def test_a_removal_needs_the_revision(self, engine: Engine) -> None:
        first = await kept(engine, schedule())
        await remove(engine, "s", first.revision + 1)
        await remove(engine, "s", 0)
        assert await engine.schedules() == [first]
        await remove(engine, "s", first.revision)
        assert await engine.schedules() == []
        await remove(engine, "s", first.revision)
        await remove(engine, "never", 0)

    async def test_no_revision_is_drawn_twice(self, engine: Engine) -> None:
        drawn = []
        for _ in range(3):
            answer = await kept(engine, schedule())
            drawn.append(answer.revision)
            answer = await kept(engine, schedule(), answer.revision)
            drawn.append(answer.revision)
            await remove(engine, "s", answer.revision)
        assert drawn == sorted(set(drawn))

    async def test_fields_of_the_store_are_its_own(self, engine: Engine) -> None:
        answer = await kept(engine, schedule(revision=77, last_at=NOW))
        assert (answer.last_at, answer.revision == 77) == (None, False)

    async def test_it_is_saved_under_the_name_of_the_change(self, engine: Engine) -> None:
        change = ScheduleChange("right", 0, schedule("wrong"))
        await engine.save_schedules([change])
        assert [s.name for s in await engine.schedules()] == ["right"]

    async def test_each_change_is_answered_in_order(self, engine: Engine) -> None:
        old = await kept(engine, schedule("old"))
        bad = await kept(engine, schedule("bad"))
        answers = await engine.save_schedules(
            [
                ScheduleChange("new", 0, schedule("new")),
                ScheduleChange("bad", bad.revision + 1, None),
                ScheduleChange("old", old.revision, None),
                ScheduleChange("old", 0, schedule("old", task="again")),
                ScheduleChange("new", 0, schedule("new", task="never")),
            ]
        )
        assert [answer and answer.name for answer in answers] == ["new", None, None, "old", None]
        assert [(s.name, s.task) for s in await engine.schedules()] == [
            ("bad", "mail"),
            ("new", "mail"),
            ("old", "again"),
        ]

    async def test_a_definition_that_cannot_be_kept_saves_nothing(self, engine: Engine) -> None:
        bad = schedule("bad", definition={"x": float("nan")})
        changes = [ScheduleChange("good", 0, schedule("good")), ScheduleChange("bad", 0, bad)]
        with pytest.raises(PayloadError, match="definition"):
            await engine.save_schedules(changes)
        assert await engine.schedules() == []

    async def test_the_store_shares_no_object_with_the_caller(self, engine: Engine) -> None:
        definition: dict[str, Any] = {"list": [1]}
        await kept(engine, schedule(definition=definition))
        definition["list"].append(2)
        (first,) = await engine.schedules()
        assert first.definition == {"list": [1]}
        first.definition["list"].append(3)
        (again,) = await engine.schedules()
        assert again.definition == {"list": [1]}

    async def test_one_of_many_edits_wins(self, engine: Engine) -> None:
        first = await kept(engine, schedule())
        async with engine.side() as side:
            calls = [
                save(handle, schedule(task=f"t{n}"), first.revision)
                for n, handle in enumerate([engine, side] * 10)
            ]
            answers = await asyncio.gather(*calls)
        won = [answer for answer in answers if answer is not None]
        assert await engine.schedules() == won
        assert len(won) == 1
