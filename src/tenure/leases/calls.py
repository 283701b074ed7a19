"""Calls a client's functions from the keeper's loop, whether they are async or block."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import anyio
from anyio.to_thread import run_sync

THREADS = 32


class Calls:
    """Plain functions run in daemon threads of the keeper's loop, up to 32 at once.

    They hold up their caller until they return, even if that is cancelled.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._threads: anyio.CapacityLimiter | None = None

    async def __call__(self, function: Callable[..., Any], *args: Any) -> Any:
        """What the function returns; awaited, if it is awaitable."""
        if inspect.iscoroutinefunction(function):
            return await function(*args)
        result = await run_sync(function, *args, limiter=self._limiter())
        return await result if inspect.isawaitable(result) else result

    def _limiter(self) -> anyio.CapacityLimiter:
        loop = asyncio.get_running_loop()
        if self._threads is None or self._loop is not loop:
            self._loop, self._threads = loop, anyio.CapacityLimiter(THREADS)
        return self._threads
