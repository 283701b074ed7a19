"""One client in the keeper's loop: its connection and the requests under way."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import anyio
from anyio.abc import TaskGroup

from tenure.core.lease import Extension
from tenure.errors import EngineUnavailable
from tenure.leases.calls import Calls
from tenure.leases.client import LeaseClient
from tenure.leases.once import Once
from tenure.leases.request import Request

log = logging.getLogger("tenure.leases")

OPEN_TIMEOUT = 10.0
CLOSE_TIMEOUT = 5.0

File = Callable[[Request, list[Extension] | None, BaseException | None], None]
"""Takes what came of a request: answers, or the error."""


class Link:
    """Opens a client at its first request, runs requests side by side, and closes it at the end.

    A client that is never asked to extend anything is never opened: most jobs end within a
    renewal interval.
    """

    def __init__(self, client: LeaseClient, file: File) -> None:
        self._client = client
        self._file = file
        self._call = Calls()
        self._opened = False
        self._opening: anyio.Event | None = None
        self._error: BaseException | None = None
        self._tasks: TaskGroup | None = None
        self._early: list[Request] = []  # sent before `run` had its first turn
        self._ended: list[Once] = []

    async def run(self) -> None:
        """Serve until `end` or the cancellation of the loop."""
        try:
            async with anyio.create_task_group() as self._tasks:
                for request in self._early:
                    self.send(request)
                if self._ended:
                    self._tasks.cancel_scope.cancel()
                await anyio.sleep_forever()
        finally:
            await self._close()
            for event in self._ended:
                event.set()

    def end(self, ended: Once) -> None:
        """Cut off what runs and close; `ended` is set afterwards. Nothing may be sent any more."""
        self._ended.append(ended)
        if self._tasks is not None:
            self._tasks.cancel_scope.cancel()

    def send(self, request: Request) -> None:
        """Start a request. It is filed once, however it ends."""
        if self._tasks is None:
            self._early.append(request)
        else:
            self._tasks.start_soon(self._send, request)

    async def _send(self, request: Request) -> None:
        answers: list[Extension] | None = None
        error: BaseException | None = None
        try:
            with anyio.fail_after(request.timeout):
                await self._ready()
                answers = list(await self._call(self._function(request), request.beats))
                request.examine(answers)
        except BaseException as caught:
            # Cancellation too: a client that cancels itself would end the whole loop, and for a
            # cancellation from outside it is enough that the task ends here.
            answers, error = None, caught
        self._file(request, answers, error)

    def _function(self, request: Request) -> Callable[..., Any]:
        if request.errand is None:
            return self._client.extend
        change: Callable[..., Any] = getattr(self._client, "change", self._client.extend)
        return change

    async def _ready(self) -> None:
        """Wait for the connection. Its time is its own: a short lease must not cut it off."""
        if self._opened:
            return
        opening = self._opening
        if opening is None:
            opening = self._opening = anyio.Event()
            assert self._tasks is not None  # this runs in one of them
            self._tasks.start_soon(self._open, opening)
        await opening.wait()
        if not self._opened:
            raise EngineUnavailable("the lease client did not open") from self._error

    async def _open(self, opening: anyio.Event) -> None:
        try:
            with anyio.fail_after(OPEN_TIMEOUT):
                await self._call(self._client.open)
            self._opened = True
        except BaseException as caught:
            self._error = caught  # as above
        finally:
            self._opening = None
            opening.set()

    async def _close(self) -> None:
        if not self._opened:
            return
        try:
            with anyio.move_on_after(CLOSE_TIMEOUT, shield=True):
                await self._call(self._client.close)
        except BaseException:
            log.debug("a lease client failed to close", exc_info=True)
