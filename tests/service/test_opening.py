"""Opening and closing: once, together, again, and halfway."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tenure import QueueService
from tenure.errors import EngineUnavailable

pytestmark = pytest.mark.anyio


class Door:
    """Counts the openings and closings of a service's engine, and can hold or refuse them."""

    def __init__(self, jobs: QueueService) -> None:
        engine: Any = jobs._life.engine
        self._enter, self._leave = engine.__aenter__, engine.__aexit__
        engine.__aenter__, engine.__aexit__ = self.enter, self.leave
        self.moves: list[str] = []
        self.held = asyncio.Event()
        self.reached = asyncio.Event()
        self.error: Exception | None = None
        self.held.set()

    async def enter(self) -> None:
        await self._move("open")
        await self._enter()

    async def leave(self, *exc: object) -> None:
        await self._move("close")
        await self._leave(*exc)

    async def _move(self, name: str) -> None:
        self.moves.append(name)
        self.reached.set()
        await self.held.wait()
        self.reached.clear()
        if self.error is not None:
            error, self.error = self.error, None
            raise error

    def hold(self) -> None:
        self.held.clear()


@pytest.fixture
async def door(service: QueueService) -> Door:
    return Door(service)


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """asyncio complains about what nobody looked at in its log."""
    yield
    assert not [r for r in caplog.get_records("call") if r.name == "asyncio"]


def threads() -> set[str]:
    """Threads of engines that stay: what was closed answers just before it ends."""
    found = {t for t in threading.enumerate() if t.name.startswith("tenure-sqlite")}
    for thread in found:
        thread.join(1)
    return {thread.name for thread in found if thread.is_alive()}


async def test_constructing_does_nothing(url: str, tmp_path: Path) -> None:
    before = threading.enumerate()
    QueueService(url)
    assert threading.enumerate() == before
    assert os.listdir(tmp_path) == []


async def test_first_uses_that_come_together_open_once(service: QueueService, door: Door) -> None:
    door.hold()
    uses = [asyncio.create_task(use) for use in (service.find(), service.open(), service.sweep())]
    await door.reached.wait()
    door.held.set()
    await asyncio.gather(*uses)
    await service.open()
    assert door.moves == ["open"]


async def test_opening_that_fails_fails_everybody_and_may_be_tried_again(
    service: QueueService, door: Door
) -> None:
    door.hold()
    door.error = EngineUnavailable("open: away")
    uses = [asyncio.create_task(service.find()) for _ in range(3)]
    await door.reached.wait()
    door.held.set()
    for use in uses:
        with pytest.raises(EngineUnavailable, match="open: away"):
            await use
    assert (door.moves, threads()) == (["open"], set())
    await service.close()
    assert door.moves == ["open"]
    assert await service.find() == []
    assert door.moves == ["open", "open"]


async def test_a_file_that_cannot_be_opened_leaves_nothing_open(tmp_path: Path) -> None:
    jobs = QueueService(f"sqlite:///{tmp_path}/none/jobs.db")
    for _ in range(2):
        with pytest.raises(Exception, match="does not exist"):
            await jobs.find()
    assert threads() == set()
    (tmp_path / "none").mkdir()
    assert await jobs.find() == []
    await jobs.close()
    assert threads() == set()


async def test_an_opener_that_leaves_does_not_stop_the_opening(
    service: QueueService, door: Door
) -> None:
    door.hold()
    first, second = (asyncio.create_task(service.find()) for _ in range(2))
    await door.reached.wait()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    door.held.set()
    assert await second == []
    assert door.moves == ["open"]


async def test_an_opening_that_nobody_waits_for_may_fail(service: QueueService, door: Door) -> None:
    door.hold()
    door.error = EngineUnavailable("open: away")
    alone = asyncio.create_task(service.open())
    await door.reached.wait()
    alone.cancel()
    await asyncio.wait({alone})
    assert service._life._move is not None
    door.held.set()
    await asyncio.wait({service._life._move[1]})
    await service.open()
    assert door.moves == ["open", "open"]


async def test_closing_twice_does_nothing(service: QueueService, door: Door) -> None:
    await service.close()
    await service.open()
    for _ in range(3):
        await service.close()
    assert door.moves == ["open", "close"]
    assert threads() == set()


async def test_those_who_close_together_wait_together(service: QueueService, door: Door) -> None:
    await service.open()
    door.hold()
    closing = [asyncio.create_task(service.close()) for _ in range(2)]
    await door.reached.wait()
    await asyncio.sleep(0)
    assert not any(task.done() for task in closing)
    door.held.set()
    await asyncio.gather(*closing)
    assert door.moves == ["open", "close"]


async def test_closing_while_opening_ends_closed(service: QueueService, door: Door) -> None:
    door.hold()
    opening = asyncio.create_task(service.open())
    await door.reached.wait()
    closing = asyncio.create_task(service.close())
    await asyncio.sleep(0)
    door.held.set()
    await asyncio.gather(opening, closing)
    assert door.moves == ["open", "close"]
    assert not service._life.begun


async def test_a_use_while_closing_opens_anew(service: QueueService, door: Door) -> None:
    await service.open()
    door.hold()
    closing = asyncio.create_task(service.close())
    await door.reached.wait()
    using = asyncio.create_task(service.find())
    await asyncio.sleep(0)
    assert door.moves == ["open", "close"]
    door.held.set()
    await closing
    assert await using == []
    assert door.moves == ["open", "close", "open"]


async def test_whoever_gives_up_closing_does_not_stop_it(service: QueueService, door: Door) -> None:
    await service.open()
    door.hold()
    closing = asyncio.create_task(service.close())
    await door.reached.wait()
    closing.cancel()
    await asyncio.wait({closing})
    door.held.set()
    await service.close()
    assert threads() == set()
    assert not service._life.begun


async def test_an_error_of_closing_is_raised_once(service: QueueService, door: Door) -> None:
    await service.open()
    door.error = EngineUnavailable("close: away")
    with pytest.raises(EngineUnavailable, match="close: away"):
        await service.close()
    await service.close()
    assert door.moves == ["open", "close"]
    service._life._engine.__aexit__ = door._leave  # type: ignore[method-assign]
    await door._leave(None, None, None)


async def test_what_was_stored_is_there_after_reopening(service: QueueService) -> None:
    @service.task
    async def work() -> None: ...

    handle = await service.enqueue(work)
    await service.close()
    assert (await handle.job()).task == "work"
    await service.close()


async def test_a_block_closes_whatever_happens(service: QueueService, door: Door) -> None:
    async def fail() -> None:
        async with service as entered:
            assert entered is service
            assert door.moves == ["open"]
            _ = 1 / 0

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert door.moves == ["open", "close"]


async def test_the_lifespan_of_an_application(service: QueueService, door: Door) -> None:
    async with service.lifespan(object()):
        assert door.moves == ["open"]
    async with service.lifespan():
        pass
    assert door.moves == ["open", "close"] * 2


async def test_an_open_service_is_kept_for_the_exit_and_a_closed_one_is_not(url: str) -> None:
    jobs = QueueService(url)
    await jobs.open()
    seen = weakref.ref(jobs)
    del jobs
    gc.collect()
    kept = seen()
    assert kept is not None
    await kept.close()
    del kept
    gc.collect()
    assert seen() is None


async def test_migrating_says_the_version(service: QueueService) -> None:
    assert await service.migrate() == await service.migrate() >= 1


async def test_the_url_is_shown_without_being_open(service: QueueService, url: str) -> None:
    assert service.url == url
