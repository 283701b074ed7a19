"""Middleware around enqueueing: what it sees, and how a whole batch goes through it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tenure.core import codec
from tenure.errors import ConfigurationError, InvalidArguments
from tenure.options import TaskOptions, changed
from tenure.tasks import BoundTask

if TYPE_CHECKING:
    from tenure.handles import JobHandle

log = logging.getLogger("tenure")


class Draft:
    """A job that is about to be enqueued.

    `arguments` (by parameter name), `metadata` and `headers` may be changed until `next()` is
    called; they are checked and encoded anew then.
    """

    __slots__ = ("_bound", "arguments", "headers", "metadata")

    def __init__(self, bound: BoundTask[Any], headers: Mapping[str, str]) -> None:
        self._bound = bound
        self.arguments: dict[str, Any] = codec.decode(bound.payload)
        self.metadata: dict[str, Any] = dict(bound.spec.metadata)
        self.headers: dict[str, str] = dict(headers)

    @property
    def task(self) -> str:
        """The name of the task."""
        return self._bound.name

    @property
    def options(self) -> TaskOptions:
        """The options of the job, as the task and the call give them."""
        return self._bound.spec

    def bound(self) -> BoundTask[Any]:
        """The draft as it is now. Raises what an enqueue with these values raises."""
        spec = self._bound.spec
        if self.metadata != spec.metadata:
            spec = changed(spec, {"metadata": self.metadata})
        if not isinstance(self.arguments, dict):
            kind = type(self.arguments).__name__
            raise InvalidArguments(f"{self.task}: the draft's arguments are a {kind}, not a dict")
        for name, text in self.headers.items():
            if not isinstance(name, str) or not isinstance(text, str):
                raise ConfigurationError("the draft's headers must be texts by name")
        return self._bound.rebound(self.arguments, spec)

    def __repr__(self) -> str:
        return f"<Draft of {self.task}>"


Enqueued = Callable[[], Awaitable["JobHandle[Any]"]]
EnqueueMiddleware = Callable[[Draft, Enqueued], Awaitable[Any]]


class Chains:
    """A batch of drafts on its way through the middleware, all on one event loop.

    `before` takes every draft up to its `next()`; then the batch is inserted, as a whole, and
    either `after` or `failed` lets the middleware go on.
    """

    def __init__(self, middleware: Sequence[EnqueueMiddleware], drafts: Sequence[Draft]) -> None:
        self._middleware = middleware
        self._drafts = drafts
        self._ready: list[asyncio.Future[None]] = []
        self._stored: list[asyncio.Future[JobHandle[Any]]] = []
        self._running: list[asyncio.Task[Any]] = []

    async def before(self) -> None:
        """Raises what a middleware raises before its `next()`; nothing is to be inserted then."""
        loop = asyncio.get_running_loop()
        for draft in self._drafts:
            self._ready.append(loop.create_future())
            self._stored.append(loop.create_future())
            step = self._last(len(self._running))
            for middleware in reversed(self._middleware):
                step = _bound(middleware, draft, step)
            self._running.append(loop.create_task(_run(step)))
        try:
            for index, task in enumerate(self._running):
                await asyncio.wait({task, self._ready[index]}, return_when="FIRST_COMPLETED")
                if not self._ready[index].done():
                    task.result()
                    raise ConfigurationError(
                        f"{self._drafts[index].task}: an enqueue middleware did not call next()"
                    )
        except BaseException:
            await self._give_up()
            raise

    async def after(self, handles: Sequence[JobHandle[Any]]) -> None:
        """The batch is stored: whatever fails now is logged."""
        for stored, handle in zip(self._stored, handles, strict=True):
            stored.set_result(handle)
        ends = await asyncio.gather(*self._running, return_exceptions=True)
        for handle, end in zip(handles, ends, strict=True):
            if isinstance(end, BaseException):
                log.error("an enqueue middleware failed after job %s was stored", handle.id,
                          exc_info=end)  # fmt: skip

    async def failed(self, error: BaseException) -> None:
        """The batch is not stored, or that is unknown: the middleware hears of it."""
        for stored in self._stored:
            stored.set_exception(error if isinstance(error, Exception) else RuntimeError("stopped"))
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _give_up(self) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _last(self, index: int) -> Enqueued:
        async def enqueued() -> JobHandle[Any]:
            if self._ready[index].done():
                raise RuntimeError("next() was called before; a job is enqueued once")
            self._ready[index].set_result(None)
            return await asyncio.shield(self._stored[index])

        return enqueued


def _bound(middleware: EnqueueMiddleware, draft: Draft, step: Enqueued) -> Enqueued:
    async def call() -> Any:
        return await middleware(draft, step)

    return call


async def _run(step: Enqueued) -> None:
    await step()
