"""The keeper's thread: an event loop that waits and does I/O, and decides nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from threading import Thread, current_thread
from typing import NamedTuple

import anyio
from anyio.abc import TaskGroup

from tenure.core.lease import Extension
from tenure.leases.client import LeaseClient
from tenure.leases.link import Link
from tenure.leases.once import Once
from tenure.leases.request import Request

THREAD_NAME = "tenure-lease-keeper"
SHORTEST_WAIT = 0.001
"""The clock may be finer than the loop's timers; without a floor they would spin."""


class Plan(NamedTuple):
    """What to do now: requests to send, and the seconds to wait then (None: until woken).

    `idle` are clients that need not be remembered.
    """

    requests: list[Request]
    wait: float | None
    idle: list[LeaseClient]


class Master(NamedTuple):
    """Who decides. All of these are called in the runner's thread, with the runner."""

    ready: Callable[[Runner], None]
    plan: Callable[[Runner], Plan | None]
    """What to do now; None ends the loop."""
    file: Callable[[Runner, Request, list[Extension] | None, BaseException | None], None]
    """Takes what came of a request."""
    ended: Callable[[Runner, BaseException | None], None]
    """The thread ends now; the error is what broke the loop."""


class Runner:
    """One thread with one loop; ends for good when told to, or when something breaks in it."""

    def __init__(self, master: Master) -> None:
        self._master = master
        self._loop: asyncio.AbstractEventLoop | None = None
        self._since: float | None = None
        self._links: dict[int, Link] = {}
        self._stopping = False
        self._thread = Thread(target=self._run, name=THREAD_NAME, daemon=True)
        self.reported = Once()
        """Set when the loop runs, or has failed to."""
        self.over = Once()
        self.error: BaseException | None = None
        self.ready = False
        """Whether the loop came to run at all."""

    @property
    def alive(self) -> bool:
        """Whether it runs or is about to."""
        return not self.over.is_set() and (self._thread.ident is None or self._thread.is_alive())

    @property
    def lasted(self) -> bool:
        """Whether it ran for at least a second; one that breaks at once would do so again."""
        return self._since is not None and time.monotonic() - self._since >= 1.0

    @property
    def here(self) -> bool:
        """Whether this is the runner's own thread, which must not wait for itself."""
        return current_thread() is self._thread

    def start(self) -> None:
        """Raises `RuntimeError` if the system gives no thread."""
        self._thread.start()

    def wake(self) -> None:
        """Make it plan again."""
        self._post(self._ring)

    def stop(self) -> None:
        """Ask it to cut off requests, close its clients and end."""
        self._post(self._halt)

    def end_link(self, client: LeaseClient) -> Once:
        """Close one client; the event tells when that is done."""
        ended = Once()
        if not self._post(lambda: self._end_link(client, ended)):
            ended.set()  # its loop is gone, and its connections with it
        return ended

    def join(self, timeout: float) -> bool:
        """Wait for the end of the thread; False if it did not come in time."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _post(self, call: Callable[[], object]) -> bool:
        loop = self._loop
        if loop is None:
            return False
        try:
            loop.call_soon_threadsafe(call)
        except RuntimeError:  # closed
            return False
        return True

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            anyio.run(self._main, backend="asyncio")
        except BaseException as caught:
            error = caught
        finally:
            self.error = error
            self.over.set()
            self._master.ended(self, error)
            self.reported.set()

    async def _main(self) -> None:
        self._wake = anyio.Event()
        self._loop = asyncio.get_running_loop()
        self._since = time.monotonic()
        self.ready = True
        self._master.ready(self)
        self.reported.set()
        async with anyio.create_task_group() as links:
            try:
                await self._work(links)
            except BaseException:
                self.over.set()  # at once: closing the clients may take a while
                raise
            while self._links:
                self._links.popitem()[1].end(Once())

    async def _work(self, links: TaskGroup) -> None:
        file = partial(self._master.file, self)
        while not self._stopping:
            self._wake = anyio.Event()
            plan = self._master.plan(self)
            if plan is None:
                return
            for request in plan.requests:
                link = self._links.get(id(request.client))
                if link is None:
                    link = self._links[id(request.client)] = Link(request.client, file)
                    links.start_soon(link.run)
                link.send(request)
            for client in plan.idle:
                self._end_link(client, Once())
            await self._rest(plan.wait)

    async def _rest(self, seconds: float | None) -> None:
        if seconds is None:
            await self._wake.wait()
            return
        with anyio.move_on_after(max(SHORTEST_WAIT, seconds)):
            await self._wake.wait()

    def _ring(self) -> None:
        self._wake.set()

    def _halt(self) -> None:
        self._stopping = True
        self._wake.set()

    def _end_link(self, client: LeaseClient, ended: Once) -> None:
        link = self._links.pop(id(client), None)
        if link is None:
            ended.set()
        else:
            link.end(ended)
