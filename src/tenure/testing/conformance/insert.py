"""Inserting: the row is what core defines, and a batch is written whole or not at all."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tenure.core.durations import LAST_INSTANT, SECOND
from tenure.core.job import PRIORITY_MAX, PRIORITY_MIN, NewJob, new_row
from tenure.core.query import Filter, Page
from tenure.core.retry import RetryPolicy
from tenure.engines.protocol import Claim, Engine
from tenure.errors import ConfigurationError, PayloadError
from tenure.testing.conformance.kit import (
    LEASE,
    NOW,
    OWNER,
    Conformance,
    job_id,
    new,
    numbered,
    put,
    stored,
    take_one,
)

STRANGE = "näme 名前 🦀 'quoted' \"double\" %s {} ; -- \\ \t\n end"

FULL: dict[str, Any] = {
    "task": "reports.build",
    "queue": "slow",
    "priority": 7,
    "payload": b'{"a": 1}',
    "codec": "json",
    "delay": 5 * SECOND,
    "expires_in": 60 * SECOND,
    "max_attempts": 4,
    "max_lapses": 5,
    "max_interruptions": 6,
    "timeout": 1.25,
    "retry": RetryPolicy(base=1.5, factor=2.0, cap=60.0, jitter=0.1),
    "tags": ("red", "green"),
    "headers": {"traceparent": "00-abc", "x": ""},
    "metadata": {"n": 1, "f": 1.5, "list": [1, None, True], "map": {"k": "v"}},
    "description": "nightly",
    "actor": "clerk:7",
    "on_shutdown": "run_out",
    "log_level": 15,
    "log_success": False,
}

VARIANTS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "every field": FULL,
    "delay": {"delay": 1},
    "run_at ahead": {"run_at": NOW + 10},
    "run_at passed": {"run_at": NOW - 10},
    "expires_in": {"expires_in": 1},
    "expires_at": {"expires_at": NOW + 9},
    "expires_at passed": {"expires_at": NOW - 9},
    "lowest priority": {"priority": PRIORITY_MIN},
    "highest priority": {"priority": PRIORITY_MAX},
    "empty payload": {"payload": b""},
    "any bytes": {"payload": bytes(range(256))},
    "strange names": {"task": STRANGE, "queue": STRANGE, "description": STRANGE},
    "strange texts": {
        "tags": (STRANGE, ""),
        "headers": {STRANGE: STRANGE},
        "metadata": {STRANGE: STRANGE, "": None},
        "payload": STRANGE.encode(),
    },
    "empty texts": {"description": "", "retry": RetryPolicy()},
}


class TestInsert(Conformance):
    """`insert(jobs)`"""

    async def test_answers_every_job_in_order(self, engine: Engine) -> None:
        answers = await engine.insert([new(3), new(1), new(2)], now=NOW)
        assert [(a.id, a.created) for a in answers] == [(i, True) for i in numbered(3, 1, 2)]

    async def test_nothing_is_no_error(self, engine: Engine) -> None:
        assert await engine.insert([], now=NOW) == []

    @pytest.mark.parametrize("name", VARIANTS)
    async def test_the_row_is_what_core_defines(self, engine: Engine, name: str) -> None:
        job = new(1, **VARIANTS[name])
        await engine.insert([job], now=NOW)
        assert await stored(engine, 1) == new_row(job, NOW)

    async def test_rows_of_one_batch_keep_apart(self, engine: Engine) -> None:
        jobs = [new(n, **fields) for n, fields in enumerate(VARIANTS.values())]
        await engine.insert(jobs, now=NOW)
        rows = await engine.get([job.id for job in jobs])
        assert rows == [new_row(job, NOW) for job in jobs]

    async def test_the_store_shares_no_object_with_the_caller(self, engine: Engine) -> None:
        metadata: dict[str, Any] = {"list": [1]}
        await engine.insert([new(1, metadata=metadata)], now=NOW)
        metadata["list"].append(2)
        first = await stored(engine, 1)
        assert first.metadata == {"list": [1]}
        first.metadata["list"].append(3)
        assert (await stored(engine, 1)).metadata == {"list": [1]}

    async def test_a_payload_of_the_largest_size_is_kept(self, engine: Engine) -> None:
        await put(engine, new(1, payload=b"x" * engine.traits.max_payload))
        row = await stored(engine, 1)
        assert len(row.payload) == row.payload_size == engine.traits.max_payload

    async def test_a_larger_payload_is_refused_and_nothing_written(self, engine: Engine) -> None:
        large = new(2, payload=b"x" * (engine.traits.max_payload + 1))
        with pytest.raises(PayloadError):
            await engine.insert([new(1), large, new(3)], now=NOW)
        assert await engine.get(numbered(1, 2, 3)) == [None, None, None]

    async def test_a_time_past_the_calendar_is_refused_and_nothing_written(
        self, engine: Engine
    ) -> None:
        with pytest.raises(ConfigurationError, match="delay"):
            await engine.insert([new(1), new(2, delay=LAST_INSTANT)], now=NOW)
        assert await engine.get(numbered(1, 2)) == [None, None]

    async def test_a_refused_insert_can_be_repeated(self, engine: Engine) -> None:
        large = new(2, payload=b"x" * (engine.traits.max_payload + 1))
        with pytest.raises(PayloadError):
            await engine.insert([new(1), large], now=NOW)
        await put(engine, new(1), new(2))
        assert (await take_one(engine)).id == job_id(1)

    async def test_a_large_batch_is_written_whole(self, engine: Engine) -> None:
        jobs = [new(n, queue="a" if n % 2 else "b") for n in range(20_000)]
        answers = await engine.insert(jobs, now=NOW)
        assert [a.id for a in answers] == [job.id for job in jobs]
        assert all(a.created for a in answers)
        depths = await engine.stats(now=NOW)
        assert [(s.queue, s.pending) for s in depths] == [("a", 10_000), ("b", 10_000)]

    async def test_a_large_batch_with_a_bad_job_writes_nothing(self, engine: Engine) -> None:
        jobs = [new(n) for n in range(20_000)]
        jobs.append(new(20_000, payload=b"x" * (engine.traits.max_payload + 1)))
        with pytest.raises(PayloadError):
            await engine.insert(jobs, now=NOW)
        assert await engine.find(Filter(), Page()) == []

    async def test_without_now_the_engine_has_a_clock(self, engine: Engine) -> None:
        await engine.insert([new(1)])
        row = await stored(engine, 1)
        assert abs(row.created_at - time.time_ns() // 1000) < 300 * SECOND
        assert row.ready
        (claimed,) = await engine.claim(Claim(owner=OWNER, limit=1, lease=LEASE))
        assert claimed.started_at is not None
        assert claimed.lease_until == claimed.started_at + LEASE
        assert claimed.started_at >= row.created_at

    async def test_names_that_differ_in_case_or_blanks_are_different(self, engine: Engine) -> None:
        names = ["mail", "Mail", "mail ", " mail", "máil"]
        for n, name in enumerate(names):
            await put(engine, NewJob(id=job_id(n), task=name, queue=name))
        for n, name in enumerate(names):
            row = await take_one(engine, queues=(name,), tasks=tuple(reversed(names)))
            assert (row.id, row.task, row.queue) == (job_id(n), name, name)
