"""The same scenario from a plain thread, asyncio, uvloop and trio."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import anyio
import pytest

from tenure.core.durations import Seconds
from tenure.leases import Extension, LeaseRenewal


class Caller:
    """Uses the async face of a renewal."""

    def __init__(self, name: str) -> None:
        self.name = name

    def run(self, scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if self.name == "uvloop":
            anyio.run(scenario, backend_options={"use_uvloop": True})
        else:
            anyio.run(scenario, backend=self.name)

    async def start(self, renewal: LeaseRenewal) -> None:
        await renewal.astart()

    async def stop(self, renewal: LeaseRenewal, wait: bool = True) -> None:
        await renewal.astop(wait=wait)

    async def extend(self, renewal: LeaseRenewal, seconds: Seconds) -> Extension | None:
        return await renewal.extend_async(seconds)

    async def within(self, renewal: LeaseRenewal, body: Callable[[], object]) -> None:
        async with renewal:
            body()


class ThreadCaller(Caller):
    """Uses the sync face, so that no coroutine ever waits."""

    def run(self, scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
        work = scenario()
        with pytest.raises(StopIteration):
            work.send(None)

    async def start(self, renewal: LeaseRenewal) -> None:
        renewal.start()

    async def stop(self, renewal: LeaseRenewal, wait: bool = True) -> None:
        renewal.stop(wait=wait)

    async def extend(self, renewal: LeaseRenewal, seconds: Seconds) -> Extension | None:
        return renewal.extend(seconds)

    async def within(self, renewal: LeaseRenewal, body: Callable[[], object]) -> None:
        with renewal:
            body()


LOOPS = ["asyncio", "uvloop", "trio"]
ALL = ["thread", *LOOPS]


def caller(name: str) -> Caller:
    return ThreadCaller(name) if name == "thread" else Caller(name)


every_caller = pytest.mark.parametrize("by", [caller(name) for name in ALL], ids=ALL)
every_loop = pytest.mark.parametrize("by", [caller(name) for name in LOOPS], ids=LOOPS)


async def soon(condition: Callable[[], object], seconds: float = 10.0) -> None:
    """Wait in an event loop for something that happens elsewhere, or in another task."""
    with anyio.fail_after(seconds):
        while not condition():  # noqa: ASYNC110 (what is awaited is in another thread)
            await anyio.sleep(0.002)


Scenario = Callable[[], Awaitable[None]]
