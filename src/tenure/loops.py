"""Where a service lives: one event loop, reached from other loops, from trio and from threads."""

from __future__ import annotations

import asyncio
import concurrent.futures
import math
import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from tenure.clock import SYSTEM_CLOCK
from tenure.errors import EngineUnavailable

T = TypeVar("T")

_LOOK_SECONDS = 0.5
"""How often a waiting caller makes sure that the home loop is still there."""


class Portal:
    """An event loop in a daemon thread, for callers that have none."""

    loop: asyncio.AbstractEventLoop

    def __init__(self) -> None:
        self._ready = threading.Event()
        self._last: Callable[[], Awaitable[object]] | None = None
        self._thread = threading.Thread(target=self._run, name="tenure-portal", daemon=True)
        self._thread.start()
        self._ready.wait()

    def _run(self) -> None:
        asyncio.run(self._until_stopped())

    async def _until_stopped(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self._ready.set()
        await self._stopping.wait()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others)
        if self._last is not None:
            await self._last()

    def stop(self, last: Callable[[], Awaitable[object]] | None = None) -> None:
        """Cancel what still runs, then run `last()`, end the loop and wait for that."""
        self._last = last
        try:
            self.loop.call_soon_threadsafe(self._stopping.set)
        except RuntimeError:
            pass  # it has ended by itself
        self._thread.join()


class Home:
    """The loop that a service belongs to, settled by its first use.

    A call from that loop runs there at once. From another loop, from trio or from a plain thread
    it is posted there and awaited: that works, and costs a hop between threads. Without a loop, a
    portal is started. If the home loop ended or stands still, or this is a forked child, there is
    no home any more, and the next call makes a new one.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._portal: Portal | None = None
        self._ending: Portal | None = None
        self._steady = threading.Event()  # no portal is ending
        self._steady.set()
        self._inherited: list[Portal | None] = []
        self._pid = os.getpid()

    async def run(self, function: Callable[[], Awaitable[T]]) -> T:
        """Await `function()` on the home loop; the running asyncio loop becomes it if need be.

        Raises `EngineUnavailable` if the home loop, being another one, ends meanwhile.
        """
        running = _running_loop()
        home, future = self._post(function, running)
        if future is None:
            return await function()
        try:
            await (_in_trio(future, home) if running is None else _in_asyncio(future, home))
        except BaseException:
            _abandon(future, home)
            raise
        return _result(future)

    def run_sync(self, function: Callable[[], Awaitable[T]], timeout: float | None = None) -> T:
        """Block until `function()` has run on the home loop; starts a portal if need be.

        Raises `RuntimeError` on the home loop's own thread, where blocking would never end, and
        `EngineUnavailable` if the home loop ends meanwhile, or after `timeout` seconds.
        """
        self.refuse_to_block()
        home, future = self._post(function, None)
        assert future is not None
        return _wait(future, home, timeout)

    def run_last(self, function: Callable[[], Awaitable[T]], timeout: float | None = None) -> T:
        """As `run_sync`, and end the portal, if there is one, with whatever still runs there.

        `function()` is called once more when all is quiet. Who comes meanwhile waits for the end.
        """
        self.refuse_to_block()
        portal = self._take_portal()
        if portal is None:
            if self._alive() is not None:
                return self.run_sync(function, timeout)
            if _running_loop() is None:
                return asyncio.run(_call(function))  # at exit, threads can't be started any more
            with ThreadPoolExecutor(1) as pool:
                return pool.submit(asyncio.run, _call(function)).result()
        try:
            future = asyncio.run_coroutine_threadsafe(_call(function), portal.loop)
            return _wait(future, portal.loop, timeout)
        finally:
            self._end(portal, function)

    def leave(self) -> None:
        """End the portal, if there is one, with everything that still runs there."""
        if self._pid != os.getpid():
            return  # nothing here is ours, and the lock may be held for ever
        portal = self._take_portal()
        if portal is not None:
            self._end(portal, None)

    @property
    def has_portal(self) -> bool:
        """Whether the home loop is a portal of this process, and not the running loop."""
        portal = self._portal
        return (
            portal is not None and self._pid == os.getpid() and portal.loop is not _running_loop()
        )

    def _alive(self) -> asyncio.AbstractEventLoop | None:
        """The home loop, if it runs in this process."""
        loop = self._loop
        if loop is None or self._pid != os.getpid() or not loop.is_running():
            return None
        return loop

    def _take_portal(self) -> Portal | None:
        """From now on nothing is posted to the portal, and no other home is settled."""
        with self._lock:
            portal, self._portal = self._portal, None
            if portal is not None:
                self._loop, self._ending = None, portal
                self._steady.clear()
        return portal

    def _end(self, portal: Portal, last: Callable[[], Awaitable[object]] | None) -> None:
        try:
            portal.stop(last)
        finally:
            self._ending = None
            self._steady.set()

    def refuse_to_block(self) -> None:
        """Raise `RuntimeError` on the home loop's own thread."""
        here = _running_loop()
        if here is not None and here is self._loop:
            raise RuntimeError(
                "the sync face would block the event loop that the service runs on; "
                "await the async method instead"
            )

    def _post(
        self, function: Callable[[], Awaitable[T]], running: asyncio.AbstractEventLoop | None
    ) -> tuple[asyncio.AbstractEventLoop, Future[T] | None]:
        """Have `function()` run on the home loop, unless that is the running one.

        Under the lock, so that whatever was posted to a portal comes before its end.
        """
        if self._pid != os.getpid():
            self._forget_parent()
        while True:
            ending = self._ending
            if ending is not None and running is ending.loop:
                return running, None  # one of the last calls of a portal
            self._steady.wait()
            with self._lock:
                if self._ending is not None:
                    continue
                home = self._settle(running)
                if home is running:
                    return home, None
                coroutine = _call(function)
                try:
                    return home, asyncio.run_coroutine_threadsafe(coroutine, home)
                except RuntimeError:  # it was closed just now
                    coroutine.close()

    def _settle(self, running: asyncio.AbstractEventLoop | None) -> asyncio.AbstractEventLoop:
        home = self._alive()
        if home is not None:
            return home
        self._portal = None
        if running is None:
            self._portal = Portal()
        self._loop = running if self._portal is None else self._portal.loop
        assert self._loop is not None
        return self._loop

    def _forget_parent(self) -> None:
        """In a forked child: locks may be held for ever, and the portal's thread is not here."""
        self._inherited.append(self._portal)  # kept: its loop is not to be taken apart here
        self._lock = threading.Lock()
        self._steady = threading.Event()
        self._steady.set()
        self._loop = self._portal = self._ending = None
        self._pid = os.getpid()


async def _call(function: Callable[[], Awaitable[T]]) -> T:
    return await function()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _wait(future: Future[T], home: asyncio.AbstractEventLoop, timeout: float | None = None) -> T:
    """Block until the future is done."""
    deadline = math.inf if timeout is None else SYSTEM_CLOCK.monotonic() + timeout
    try:
        while not future.done():
            concurrent.futures.wait([future], _LOOK_SECONDS)
            _check_alive(home, future)
            if SYSTEM_CLOCK.monotonic() > deadline:
                raise EngineUnavailable(f"no answer within {timeout:g} seconds")
    except BaseException:
        _abandon(future, home)
        raise
    return _result(future)


async def _in_asyncio(future: Future[T], home: asyncio.AbstractEventLoop) -> None:
    """Until the future is done. Raises `EngineUnavailable` if `home` ended without doing it."""
    done = asyncio.Event()
    _tell(future, asyncio.get_running_loop().call_soon_threadsafe, done.set)
    while not future.done():
        try:
            async with asyncio.timeout(_LOOK_SECONDS):
                await done.wait()
        except TimeoutError:
            _check_alive(home, future)


async def _in_trio(future: Future[T], home: asyncio.AbstractEventLoop) -> None:
    """As `_in_asyncio`. No thread waits, so any number of callers may."""
    import trio

    done = trio.Event()
    _tell(future, trio.lowlevel.current_trio_token().run_sync_soon, done.set)
    while not future.done():
        with trio.move_on_after(_LOOK_SECONDS):
            await done.wait()
        _check_alive(home, future)


def _tell(
    future: Future[T],
    post: Callable[[Callable[[], None]], object],
    call: Callable[[], None],
) -> None:
    """Have `post(call)` done when the future is, unless the loop behind it is gone by then."""

    def tell(_: object) -> None:
        try:
            post(call)
        except RuntimeError:  # asyncio's word; trio's RunFinishedError is one, too
            pass

    future.add_done_callback(tell)


def _check_alive(home: asyncio.AbstractEventLoop, future: Future[T]) -> None:
    if home.is_closed() and not future.done():
        raise EngineUnavailable(_ENDED)


def _abandon(future: Future[T], home: asyncio.AbstractEventLoop) -> None:
    """End the call at home, too, if there is one any more."""
    if not home.is_closed():
        future.cancel()


def _result(future: Future[T]) -> T:
    try:
        return future.result()
    except concurrent.futures.CancelledError:
        raise EngineUnavailable(_ENDED) from None


_ENDED = "the service was closed, or its event loop ended, during the call"
