"""What a service puts around every body: dependencies, middleware, and a say in errors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple

import msgspec

from tenure.context import JobContext
from tenure.core.job import Job, JobRow
from tenure.worker.failure import Describer

Resolver = Callable[[JobContext], Awaitable[Mapping[str, Any]]]
Provider = Callable[[JobContext], AbstractAsyncContextManager[Mapping[str, Any]]]
Next = Callable[[], Awaitable[Any]]
Middleware = Callable[[Job, Next], Awaitable[Any]]


class End(NamedTuple):
    """How a body ended: by a result, or by an exception.

    `cleanup`: the body ended well, and what was provided to it did not.
    """

    result: Any = None
    error: BaseException | None = None
    cleanup: bool = False


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What the bodies of one service are run in. Without anything, they are run as they are."""

    resolver: Resolver | None = None
    provider: Provider | None = None
    middleware: tuple[Middleware, ...] = ()
    describer: Describer = Describer()

    @property
    def plain(self) -> bool:
        """Whether there is nothing around a body."""
        return self.resolver is None and self.provider is None and not self.middleware


PLAIN = Surroundings()

Call = Callable[[Mapping[str, Any]], Awaitable[End]]
"""Runs a body with these dependencies to its end, whatever that is."""


class Course:
    """One body on its way through all that surrounds it.

    `end` is how it ended, dependencies included, as soon as that is known: what middleware does
    after that changes nothing. `told` is what was read then of `stopping`.
    """

    def __init__(
        self,
        surroundings: Surroundings,
        row: JobRow,
        context: JobContext,
        stopping: Callable[[], Any],
    ) -> None:
        self.end: End | None = None
        self.told: Any = None
        self._around = surroundings
        self._row = row
        self._context = context
        self._stopping = stopping
        self._begun = False

    async def run(self, call: Call) -> End:
        """Run the body once, whatever middleware does or leaves out."""

        async def body() -> Any:
            if self._begun:
                raise RuntimeError("next() was called before; a body runs once")
            end = await self._run(call)
            if end.error is not None:
                raise end.error
            return end.result

        step: Next = body
        for middleware in reversed(self._around.middleware):
            step = _bound(middleware, Job(self._row), step)
        try:
            await step()
        except BaseException as error:
            if self.end is None:
                if not isinstance(error, Exception):
                    return self._ended(End(error=error))  # stopped before the body began
                self._tell("a middleware failed before the body", error)
            elif error is not self.end.error and isinstance(error, Exception):
                self._tell(f"a middleware failed after {self._primary()}", error)
        else:
            if self.end is None:
                failure = RuntimeError("a middleware did not call next()")
                self._tell("the body is run without its middleware", failure)
        return self.end or await self._run(call)

    async def _run(self, call: Call) -> End:
        self._begun = True
        return self._ended(await self._provided(call))

    def _ended(self, end: End) -> End:
        self.end, self.told = end, self._stopping()
        return end

    async def _provided(self, call: Call) -> End:
        """Run the body with its dependencies; each is entered and left once."""
        around = self._around
        try:
            if around.provider is None:
                values = {} if around.resolver is None else await around.resolver(self._context)
                leave = None
            else:
                manager = around.provider(self._context)
                leave = manager.__aexit__
                values = await manager.__aenter__()
        except BaseException as error:
            return End(error=error)
        end = await call(values)
        return end if leave is None else await self._left(leave, end)

    async def _left(self, leave: Callable[..., Awaitable[Any]], end: End) -> End:
        error = end.error
        try:
            if error is None:
                await leave(None, None, None)
            else:
                await leave(type(error), error, error.__traceback__)
        except BaseException as failure:
            if error is None:
                return End(error=failure, cleanup=True)
            if failure is not error:
                text = f"what was provided could not be left after {type(error).__qualname__}"
                self._tell(text, failure)
        return end

    def _primary(self) -> str:
        error = None if self.end is None else self.end.error
        return "the body returned" if error is None else f"{type(error).__qualname__} of the body"

    def _tell(self, text: str, error: BaseException) -> None:
        row = self._row
        self._around.describer.log(f"job {row.id} ({row.task}): {text}", error, row)


def _bound(middleware: Middleware, job: Job, step: Next) -> Next:
    async def call() -> Any:
        return await middleware(job, step)

    return call
