"""Text that PostgreSQL cannot hold: refused where it is given, escaped where it must be kept."""

from __future__ import annotations

import pytest

from tenure import QueueService
from tenure.core.states import State
from tenure.errors import ConfigurationError, PayloadError

pytestmark = pytest.mark.anyio

AWKWARD = pytest.mark.parametrize("text", ["a\x00b", "a\ud800b"], ids=["NUL", "lone surrogate"])


@AWKWARD
async def test_it_is_refused_at_enqueue(store, text: str):
    async with QueueService(store) as jobs:

        @jobs.task
        async def echo(text: str) -> str:
            return text

        with pytest.raises(PayloadError, match="text"):
            await jobs.enqueue(echo, text)
        with pytest.raises((PayloadError, ConfigurationError)):
            await jobs.enqueue(echo.options(description=text), "a")
        assert await jobs.queues.stats() == []


@AWKWARD
async def test_in_an_error_it_is_replaced(store, text: str):
    async with QueueService(store) as jobs:

        @jobs.task
        async def fail() -> None:
            raise ValueError(text)

        handle = await jobs.enqueue(fail)
        await jobs.worker(burst=True).run()
        job = await jobs.get(handle.id)
        assert job.state is State.FAILED
        assert job.error is not None
        assert job.error.message == text.encode("ascii", "backslashreplace").decode().replace(
            "\x00", "\\x00"
        )


@AWKWARD
async def test_a_result_with_it_fails_the_job_with_words(store, text: str):
    async with QueueService(store) as jobs:

        @jobs.task
        async def give() -> str:
            return text

        handle = await jobs.enqueue(give)
        await jobs.worker(burst=True).run()
        job = await jobs.get(handle.id)
        assert job.state is State.FAILED
        assert job.error is not None
        assert "cannot be stored" in job.error.message
