"""Something that happens once: threads wait for it, event loops are told of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from threading import Event, Thread
from typing import TypeVar

import anyio

from tenure.leases.holder import Holder

T = TypeVar("T")


class Once:
    """A one-shot event that any thread may set and any number of threads and tasks await.

    Free of locks of its own, so that it may be set from anywhere but a signal handler. A waiter
    whose loop is gone keeps no other from being told.
    """

    __slots__ = ("_done", "_tell")

    def __init__(self) -> None:
        self._done = False
        self._tell: list[Callable[[], object]] = []

    def is_set(self) -> bool:
        return self._done

    def set(self) -> None:
        """Let it have happened. Idempotent."""
        self._done = True
        self._drain()

    def call(self, tell: Callable[[], object]) -> None:
        """Have `tell()` called when it has happened, by whoever sets it; it must not block."""
        self._tell.append(tell)
        if self._done:
            self._drain()

    def wait(self, timeout: float | None = None) -> bool:
        """Block until it has happened; False if that took longer than `timeout` seconds."""
        if not self._done:
            event = Event()
            self.call(event.set)
            event.wait(timeout)
        return self._done

    async def wait_async(self, timeout: float | None = None) -> bool:
        """As `wait`, on asyncio or trio. Takes no thread; can be cancelled."""
        if not self._done:
            holder = Holder.here()
            event = anyio.Event()
            self.call(lambda: holder.post(event.set))
            with anyio.move_on_after(timeout):
                await event.wait()
        return self._done

    async def wait_shielded(self, timeout: float) -> bool:
        """As `wait_async`, to the end even if the caller is cancelled; then that is raised."""
        interrupted: BaseException | None = None
        end = time.monotonic() + timeout
        with anyio.CancelScope(shield=True):
            while not self._done and (left := end - time.monotonic()) > 0:
                try:
                    await self.wait_async(left)
                except anyio.get_cancelled_exc_class() as error:
                    # asyncio's own `Task.cancel` knows no shields.
                    interrupted = error
        if interrupted is not None:
            raise interrupted
        return self._done

    def _drain(self) -> None:
        # `list.pop` is atomic: of a setter and a late caller, one takes each entry.
        while self._tell:
            try:
                tell = self._tell.pop()
            except IndexError:
                return
            try:
                tell()
            except RuntimeError:
                pass  # the waiter's loop is closed


async def uninterrupted(work: Callable[[], Awaitable[T]]) -> T:
    """Await `work()` to its end even if the caller is cancelled; then that is raised.

    On asyncio it runs in a task of its own, since `Task.cancel` knows no shields.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:  # trio
        results = []
        with anyio.CancelScope(shield=True):
            results.append(await work())
        return results[0]
    return await _in_task(work)


async def _in_task(work: Callable[[], Awaitable[T]]) -> T:
    task = asyncio.ensure_future(work())
    interrupted: asyncio.CancelledError | None = None
    with anyio.CancelScope(shield=True):
        while not task.done():
            try:
                await asyncio.wait({task})
            except asyncio.CancelledError as error:
                interrupted = error
    if interrupted is not None:
        if not task.cancelled():
            task.exception()  # has to be looked at, or asyncio would complain
        raise interrupted
    return task.result()


async def in_thread(work: Callable[[], object]) -> None:
    """Await a function that blocks, in a daemon thread of its own; raises what it raises."""
    over = Once()
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)
        over.set()

    Thread(target=run, name="tenure-helper", daemon=True).start()
    await over.wait_async()
    if errors:
        raise errors[0]
