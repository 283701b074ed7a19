"""Where a service lives: one event loop, reached from other loops, from trio and from threads."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio.to_thread

T = TypeVar("T")


class Portal:
    """An event loop in a daemon thread, for callers that have none."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        ready = threading.Event()
        self._thread = threading.Thread(
            target=self._run, args=(ready,), name="tenure-portal", daemon=True
        )
        self._thread.start()
        ready.wait()

    def _run(self, ready: threading.Event) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.call_soon(ready.set)
        self.loop.run_forever()
        self.loop.close()

    def stop(self) -> None:
        """End the loop and its thread; waits for both."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()


class Home:
    """The loop that a service belongs to, settled by its first use.

    A call from that loop runs there at once. From another loop, from trio or from a plain thread
    it is posted there and awaited: that works, and costs a hop between threads. Without a loop, a
    portal is started. If the home loop was closed, or this is a forked child, there is no home
    any more, and the next call makes a new one.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._portal: Portal | None = None
        self._pid = os.getpid()

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The home loop, if it is there and alive in this process."""
        loop = self._loop
        if loop is None or loop.is_closed() or self._pid != os.getpid():
            return None
        return loop

    async def run(self, function: Callable[[], Awaitable[T]]) -> T:
        """Await `function()` on the home loop; the running asyncio loop becomes it if need be."""
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:  # trio
            return await anyio.to_thread.run_sync(self.run_sync, function, abandon_on_cancel=True)
        home = self._settle(running)
        if home is running:
            return await function()
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_call(function), home))

    def run_sync(self, function: Callable[[], Awaitable[T]]) -> T:
        """Block until `function()` has run on the home loop; starts a portal if need be.

        Raises `RuntimeError` on the home loop's own thread, where blocking would never end.
        """
        home = self._settle(None)
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        if here is home:
            raise RuntimeError(
                "the sync face would block the event loop that the service runs on; "
                "await the async method instead"
            )
        if not home.is_running():
            raise RuntimeError("the event loop that the service was opened on is not running")
        return asyncio.run_coroutine_threadsafe(_call(function), home).result()

    def leave(self) -> None:
        """Forget the home loop; a portal ends. Not from the portal's own thread."""
        with self._lock:
            portal, self._portal, self._loop = self._portal, None, None
            if portal is not None and self._pid == os.getpid():
                portal.stop()

    @property
    def on_portal(self) -> bool:
        """Whether the home loop is a portal of ours."""
        return self._portal is not None and self._pid == os.getpid()

    def _settle(self, running: asyncio.AbstractEventLoop | None) -> asyncio.AbstractEventLoop:
        if self._pid != os.getpid():
            self._lock = threading.Lock()  # the inherited one may be held for ever
        with self._lock:
            home = self.loop
            if home is not None and (home.is_running() or home is running):
                return home
            self._pid = os.getpid()
            if running is not None:
                # The portal of a parent process, or of a loop that is gone, is left alone.
                self._portal, self._loop = None, running
                return running
            if home is not None:
                return home
            self._portal = Portal()
            self._loop = self._portal.loop
            return self._loop


async def _call(function: Callable[[], Awaitable[T]]) -> T:
    return await function()
