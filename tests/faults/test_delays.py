"""Absurd delays: a time that nobody can compute with is accepted, and ends every worker later."""

from __future__ import annotations

import math
import sqlite3
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from tenure import QueueService
from tenure.core.states import State
from tenure.errors import ConfigurationError

pytestmark = pytest.mark.anyio

BAD_DELAYS: list[Any] = [
    -1,
    -1e12,
    1e12,
    1e300,
    10**30,
    math.inf,
    -math.inf,
    math.nan,
    timedelta.max,
    timedelta.min,
    timedelta(microseconds=-1),
    True,
    "5",
]
BAD_TIMES: list[Any] = [
    datetime(1, 1, 1),  # noqa: DTZ001 (naive is the point)
    datetime(2030, 1, 1),  # noqa: DTZ001
    date(2030, 1, 1),
    datetime.min.replace(tzinfo=UTC),
    datetime.max.replace(tzinfo=timezone(timedelta(hours=-14))),
    datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC),
    1e10,
    "2030-01-01T00:00:00Z",
]


async def body() -> str:
    return "ran"


@pytest.mark.parametrize("option", ["delay", "expires_in", "timeout"])
async def test_an_absurd_duration_is_refused_where_it_is_given(jobs: QueueService, option: str):
    task = jobs.task(body)
    for value in BAD_DELAYS:
        with pytest.raises(ConfigurationError, match=option):
            await jobs.enqueue(task.options(**{option: value}).bind())
    assert await jobs.find() == []


@pytest.mark.parametrize("option", ["run_at", "expires_at"])
async def test_an_absurd_time_is_refused_where_it_is_given(jobs: QueueService, option: str):
    task = jobs.task(body)
    for value in BAD_TIMES:
        with pytest.raises(ConfigurationError, match=option):
            await jobs.enqueue(task.options(**{option: value}).bind())
    assert await jobs.find() == []


async def test_the_last_hour_of_the_calendar_harms_no_worker(jobs: QueueService):
    task = jobs.task(body)
    last = datetime.max.replace(tzinfo=timezone(timedelta(hours=14)))
    far = await jobs.enqueue(task.options(run_at=last).bind())
    past = await jobs.enqueue(task.options(run_at=datetime(1970, 1, 2, tzinfo=UTC)).bind())
    zero = await jobs.enqueue(task.options(delay=0).bind())
    await jobs.worker(burst=True).run()
    assert await past.result(0) == await zero.result(0) == "ran"
    job = await far.job()
    assert (job.state, job.label) == (State.PENDING, "scheduled")
    assert job.available_at == last
    assert (await jobs.cancel(far.id)).cancelled == (far.id,)


ROWS = {
    "a policy that is no JSON": ("retry = 'x'", "'retry'"),
    "a policy out of range": ("""retry = '{"base": -1}'""", "'retry'"),
    "metadata of another shape": ("metadata = '[1]'", "'metadata'"),
    "tags of another shape": ("tags = '{}'", "'tags'"),
    "errors cut short": ("errors = '[{'", "'errors'"),
    "a payload of another encoding": ("payload = x'80045d942e'", "is not JSON"),
    "an encoding of a later version": ("codec = 'json2'", "'json2'"),
}


@pytest.mark.parametrize("kind", ROWS)
async def test_a_bad_row_in_the_store_fails_alone(tmp_path: Path, kind: str):
    """Somebody else wrote it, or a later version: it is named and ends, the others are run."""
    change, words = ROWS[kind]
    jobs = QueueService(f"sqlite:///{tmp_path}/jobs.db")
    task = jobs.task(body)
    async with jobs:
        handles = [await jobs.enqueue(task) for _ in range(5)]
        bad = handles.pop(0)
        file = sqlite3.connect(tmp_path / "jobs.db")
        file.execute(f"UPDATE jobs SET {change} WHERE id = ?", (bad.id,))
        file.commit()
        file.close()
        await jobs.worker(burst=True).run()
        assert [await handle.result(0) for handle in handles] == ["ran"] * 4
        job = await bad.wait(0)
        assert job.error is not None
        assert (job.state, job.error.kind) == (State.FAILED, "PayloadError")
        assert words in job.error.message


INSTANTS = ["0", "-9223372036854775808", "9223372036854775807"]


@pytest.mark.parametrize("column", ["available_at", "expires_at", "queued_at", "rank", "timeout"])
@pytest.mark.parametrize("value", INSTANTS)
async def test_a_bad_number_in_the_store_stops_nobody_else(tmp_path: Path, column: str, value: str):
    jobs = QueueService(f"sqlite:///{tmp_path}/jobs.db")
    task = jobs.task(body)
    async with jobs:
        handles = [await jobs.enqueue(task) for _ in range(5)]
        bad = handles.pop(0)
        file = sqlite3.connect(tmp_path / "jobs.db")
        file.execute(f"UPDATE jobs SET {column} = {value} WHERE id = ?", (bad.id,))
        file.commit()
        file.close()
        await jobs.worker(burst=True).run()
        assert [await handle.result(0) for handle in handles] == ["ran"] * 4
        assert (await bad.wait(0)).state.final
