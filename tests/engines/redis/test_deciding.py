"""Operations that `core` decides: what was read must still stand when it is written."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import redis

from tenure.core.schedule import Fired, Schedule, ScheduleChange, Tick
from tenure.engines.redis import RedisEngine, deciding, inserting
from tenure.errors import EngineUnavailable
from tests.engines.redis.conftest import make_job

pytestmark = pytest.mark.anyio


async def test_what_changed_meanwhile_is_read_again(
    engine: RedisEngine, look: redis.Redis, monkeypatch: pytest.MonkeyPatch
):
    job = make_job(unique_key="k")
    await engine.insert([job])
    turns = 0

    def planned(*given: Any) -> Any:
        nonlocal turns
        turns += 1
        if turns == 1:  # somebody else writes between the look and the write
            look.hset(f"{engine._place.prefix}job:{job.id}", "token", "77")
        return plan(*given)

    plan = inserting.planned
    monkeypatch.setattr(inserting, "planned", planned)
    [answer] = await engine.insert([make_job(unique_key="k", on_conflict="replace", priority=5)])
    assert (answer.id, answer.created, turns) == (job.id, False, 2)
    [row] = await engine.get([job.id])
    assert row is not None
    assert (row.token, row.priority) == (77, 5)


async def test_a_store_that_never_rests_is_given_up(
    engine: RedisEngine, look: redis.Redis, monkeypatch: pytest.MonkeyPatch
):
    job = make_job(unique_key="k")
    await engine.insert([job])
    before = await engine.get([job.id])
    monkeypatch.setattr(deciding, "TURNS", 3)
    plan, turns = inserting.planned, 0

    def planned(*given: Any) -> Any:
        nonlocal turns
        turns += 1
        look.hset(f"{engine._place.prefix}job:{job.id}", "claims", str(turns))
        return plan(*given)

    monkeypatch.setattr(inserting, "planned", planned)
    with pytest.raises(EngineUnavailable, match="changing"):
        await engine.insert([make_job(unique_key="k", on_conflict="replace", priority=5)])
    [row] = await engine.get([job.id])
    assert row is not None
    assert (row.priority, row.claims) == (before[0].priority if before[0] else None, 3)


async def test_a_tick_that_was_fired_meanwhile_is_stale(engine: RedisEngine):
    schedule = Schedule(name="s", source="api", task="t", next_at=100)
    [kept] = await engine.save_schedules([ScheduleChange("s", 0, schedule)])
    assert kept is not None
    ticks = [Tick("s", kept.revision, 100, 200, make_job()) for _ in range(10)]
    answers = await asyncio.gather(*(engine.fire([tick], now=150) for tick in ticks))
    assert sorted(answer[0] for answer in answers) == [Fired.FIRED] + [Fired.STALE] * 9
