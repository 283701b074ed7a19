"""The whole of it on engines that processes share: services, workers, signals of the store."""

from __future__ import annotations

import asyncio

import pytest

from tenure import QueueService
from tenure.core.states import State
from tenure.worker import ticker
from tests.worker.kit import NEVER, until

pytestmark = pytest.mark.anyio


async def test_one_service_declares_and_another_looks_after(
    url: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(ticker, "LOOK", NEVER)
    ran: list[str] = []

    def service() -> QueueService:
        jobs = QueueService(url, app_name="shop")

        @jobs.task(interval=0.1)
        async def beat() -> None:
            ran.append("beat")

        @jobs.task
        async def hello(name: str) -> str:
            ran.append(name)
            return f"hello {name}"

        return jobs

    async with service() as works, service() as looks:
        worker = works.worker(poll_max=0.2)
        running = asyncio.create_task(worker.run())
        await until(lambda: ran.count("beat") >= 2)

        # Another handle on the store: the worker hears of it by a signal; it never looks by itself.
        hello = looks.tasks.get("hello").bind("you")
        await looks.schedules.add("s", hello, interval=3600, initial_delay=0)
        await until(lambda: "you" in ran)
        [job] = await looks.schedules.history("s")
        assert (await looks.wait(job.id, timeout=10)).result == "hello you"

        before = (await looks.schedules.get("s")).next_at
        handle = await looks.schedules.run_now("s")
        assert (await handle.wait(timeout=10)).state is State.COMPLETED
        assert (await looks.schedules.get("s")).next_at == before

        assert (await looks.schedules.pause("beat")).state == "paused"
        count = len(await looks.schedules.history("beat"))
        await looks.schedules.edit("s", looks.tasks.get("hello").bind("me"), interval=0.2)
        await until(lambda: ran.count("me") >= 2)
        assert len(await looks.schedules.history("beat")) == count
        worker.stop()
        await running
