"""What passes in a test passes in production: no mode of testing skips what the store does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tenure import QueueService
from tenure.errors import InvalidArguments, PayloadError
from tenure.testing import override

pytestmark = pytest.mark.anyio

Mode = Callable[[QueueService], Any]
MODES: dict[str, Mode] = {
    "inline task": lambda jobs: override(jobs, "memory://"),
    "inline service": lambda jobs: override(jobs, "memory://", inline=True),
    "drain": lambda jobs: override(jobs, "memory://"),
}


async def ran(mode: str, kit: Any, task: Any, *arguments: Any) -> Any:
    """The job of a task, after it was run in this mode."""
    chosen = task.options(executor="inline") if mode == "inline task" else task
    handle = await kit.service.enqueue(chosen, *arguments)
    if mode == "drain":
        await kit.drain()
    return await handle.job()


@pytest.mark.parametrize("mode", MODES)
async def test_what_the_store_cannot_hold_is_refused(mode: str):
    """B142: the modes for tests skip serialisation, and errors appear only in production."""
    jobs = QueueService("memory://")

    @jobs.task
    async def take(value: Any) -> None:
        raise AssertionError("it must not run")

    async with MODES[mode](jobs) as kit:
        for value in (object(), ValueError("x"), float("nan"), "\x00", {1: 2}):
            with pytest.raises((PayloadError, InvalidArguments), match="value"):
                await ran(mode, kit, take, value)
        with pytest.raises(PayloadError, match="bytes"):
            await ran(mode, kit, take, "x" * (1024 * 1024 + 1))
        await kit.assert_not_enqueued(take)


@pytest.mark.parametrize("mode", MODES)
async def test_no_object_is_shared_with_the_body(mode: str):
    jobs = QueueService("memory://")
    given = {"list": [1, 2]}

    @jobs.task
    async def change(value: dict[str, list[int]]) -> dict[str, list[int]]:
        assert value is not given
        value["list"].append(3)
        return value

    async with MODES[mode](jobs) as kit:
        job = await ran(mode, kit, change, given)
        assert job.result == {"list": [1, 2, 3]}
        assert given == {"list": [1, 2]}
        assert job.arguments == {"value": {"list": [1, 2]}}


@pytest.mark.parametrize("mode", MODES)
async def test_a_result_that_cannot_be_stored_fails_the_job(mode: str):
    jobs = QueueService("memory://")

    @jobs.task
    async def give() -> Any:
        return object()

    async with MODES[mode](jobs) as kit:
        job = await ran(mode, kit, give)
        assert job.label == "failed"
        assert job.error.kind == "PayloadError"
