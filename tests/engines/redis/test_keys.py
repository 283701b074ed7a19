"""Every key is documented, and none is left behind."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import redis

from tenure.core.event import NewEvent
from tenure.core.fleet import QueueChange, WorkerInfo
from tenure.core.limits import NO_LIMITS, Limits, Rate
from tenure.core.outcomes import Completed, Errored
from tenure.core.query import Filter, Page
from tenure.core.reports import JobError
from tenure.core.rules import decide
from tenure.core.schedule import Schedule, ScheduleChange, Tick
from tenure.engines.protocol import Claim, Prunable, Topic
from tenure.engines.redis import RedisEngine
from tests.engines.redis.conftest import keys_of, kinds_of, make_job

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).resolve().parents[3]
FIXED = {"meta", "settings", "forever"}
"""What stays when there is no job, worker, listener, schedule and event any more."""
NOW = 1_700_000_000_000_000


def documented() -> set[str]:
    text = (ROOT / "docs/reference/redis-keys.md").read_text("utf-8")
    return {re.sub(r"<.*", "", name) for name in re.findall(r"^\| `([^`!]+)`", text, re.M)}


async def use(engine: RedisEngine, look: redis.Redis, url: str) -> set[str]:
    """Have a key of each kind; the kinds that were met on the way."""
    jobs = [
        make_job(unique_key="a", expires_in=10**12),
        make_job(unique_key="b", unique_until="started"),
        make_job(unique_key="c", unique_until="forever"),
        make_job(delay=10**9, expires_in=10**12, schedule="s", tick=1),
        make_job(queue="other", task="u", priority=3),
        *(make_job(max_attempts=1) for _ in range(4)),
    ]
    await engine.insert(jobs, now=NOW)
    met = kinds_of(keys_of(look, url))
    async with engine.listen({Topic.QUEUE, Topic.DONE}, ["default", "other"]):
        met |= kinds_of(keys_of(look, url))
        claim = Claim(owner="w", limit=7, lease=10**7, queues=("default", "other"))
        rows = await engine.claim(claim, now=NOW)
        met |= kinds_of(keys_of(look, url))
        error = JobError(kind="E", message="boom")
        await engine.settle([decide(row, Completed(b"1"), now=NOW) for row in rows[:2]], now=NOW)
        await engine.settle([decide(row, Errored(error), now=NOW) for row in rows[2:3]], now=NOW)
        await engine.configure(QueueChange("default", paused=True))
        info = WorkerInfo(id="w", queues=(), tasks=(), concurrency=1)
        await engine.announce(info, 10**9, now=NOW)
        await engine.append([NewEvent(name="e", job_id=jobs[0].id), NewEvent(name="f")], now=NOW)
        schedule = Schedule(name="s", source="api", task="t", next_at=NOW)
        [kept] = await engine.save_schedules([ScheduleChange("s", 0, schedule)])
        assert kept is not None
        await engine.fire([Tick("s", kept.revision, NOW, None, make_job())], now=NOW)
        met |= kinds_of(keys_of(look, url))
        met |= await use_limits(engine, look, url)
        await engine.sweep(100, now=NOW + 2 * 10**12)
        met |= kinds_of(keys_of(look, url))
        await engine.announce(info, 0, now=NOW)
        await engine.configure(QueueChange("default", paused=False))
        await engine.save_schedules([ScheduleChange("s", kept.revision, None)])
    return met


async def use_limits(engine: RedisEngine, look: redis.Redis, url: str) -> set[str]:
    """Have a key of each kind that limits and fair share need."""
    limits = Limits(key_concurrency=1, key_rate=Rate(1, 10**6))
    await engine.configure(QueueChange("limited", limits=limits))
    keyed = {"queue": "limited", "concurrency_key": "c", "fair_key": "f"}
    paced = {"queue": "limited", "rate_key": "r"}
    jobs = [make_job(**keys) for keys in (keyed, keyed, paced, paced)]
    jobs.append(make_job(**paced | {"rate_key": "alone"}))
    await engine.insert(jobs, now=NOW)
    met = kinds_of(keys_of(look, url))
    assert len(await engine.claim(Claim(owner="v", limit=9, lease=9, queues=("limited",)), now=NOW))
    met |= kinds_of(keys_of(look, url))
    # As if the process had died before the blocked jobs were let go; a sweep does that.
    look.hset(f"{engine._place.prefix}freeing", "limited", "")
    met |= kinds_of(keys_of(look, url))
    await engine.configure(QueueChange("limited", limits=NO_LIMITS))
    return met


async def test_every_kind_of_key_is_documented(
    engine: RedisEngine, look: redis.Redis, valkey_store: str
):
    met = await use(engine, look, valkey_store)
    assert met == documented()


async def test_nothing_is_left_behind(engine: RedisEngine, look: redis.Redis, valkey_store: str):
    await use(engine, look, valkey_store)
    ids = [row.id for row in await engine.find(Filter(), Page(1000))]
    await engine.cancel(ids, force=True, now=NOW)
    later = NOW + 10**13
    assert await engine.prune(Prunable.JOBS, later) == len(ids)
    await engine.prune(Prunable.EVENTS, later)
    assert keys_of(look, valkey_store) <= FIXED
    await engine.release_identity("c")
    assert keys_of(look, valkey_store) <= FIXED - {"forever"}


async def test_what_came_back_meanwhile_is_not_removed(engine: RedisEngine):
    """A prune looks and then removes; a job that ended anew in between is not old any more."""
    jobs = [make_job(), make_job()]
    await engine.insert(jobs, now=NOW)
    rows = await engine.claim(Claim(owner="w", limit=2, lease=10**6), now=NOW)
    await engine.settle([decide(row, Completed(), now=NOW) for row in rows], now=NOW)
    await engine.requeue([jobs[1].id], now=NOW)
    ids = [job.id for job in jobs]
    assert await engine._ask("remove", lambda link: link.run("remove", [str(NOW), ids])) == 0
    assert await engine._ask("remove", lambda link: link.run("remove", [str(NOW + 1), ids])) == 1
    assert [row is None for row in await engine.get(ids)] == [True, False]
