"""Calls of several callers in one statement: those that come while one runs share the next."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from tenure.errors import EngineUnavailable

Item = TypeVar("Item")
Answer = TypeVar("Answer")

ITEMS_MAX = 1000
"""A group takes no further call once it would have more items than this."""

BYTES_MAX = 4 * 1024 * 1024
"""Nor once its payloads would be larger than this."""


class _Call(Generic[Item, Answer]):
    __slots__ = ("answer", "items", "now", "size")

    def __init__(self, items: Sequence[Item], now: int | None, size: int) -> None:
        self.items = items
        self.now = now
        self.size = size
        self.answer: asyncio.Future[list[Answer]] = asyncio.get_running_loop().create_future()


class Flow(Generic[Item, Answer]):
    """One kind of operation of one handle. `flush` does some calls, all given at one instant.

    A group whose flush fails is done again call by call, so that a bad item fails its own caller
    only; a store that is away fails them all. A caller that leaves stops nobody else's.
    """

    def __init__(
        self,
        flush: Callable[[list[Sequence[Item]], int | None], Awaitable[list[list[Answer]]]],
    ) -> None:
        self._flush = flush
        self._calls: deque[_Call[Item, Answer]] = deque()
        self._task: asyncio.Task[None] | None = None

    def submit(
        self, items: Sequence[Item], now: int | None, size: int = 0
    ) -> asyncio.Future[list[Answer]]:
        """The answers, once they are there. Cancelling the future takes back what was not sent."""
        call: _Call[Item, Answer] = _Call(items, now, size)
        self._calls.append(call)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
        return call.answer

    async def drained(self) -> None:
        """Wait until nothing is left to do."""
        if self._task is not None:
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        try:
            while self._calls:
                group = self._group()
                if group:
                    await self._do(group)
        finally:
            self._task = None

    def _group(self) -> list[_Call[Item, Answer]]:
        """The first calls that go together."""
        group: list[_Call[Item, Answer]] = []
        items = size = 0
        while self._calls:
            call = self._calls[0]
            if call.answer.done():
                self._calls.popleft()
                continue
            items, size = items + len(call.items), size + call.size
            if group and (call.now != group[0].now or items > ITEMS_MAX or size > BYTES_MAX):
                break
            group.append(self._calls.popleft())
        return group

    async def _do(self, group: list[_Call[Item, Answer]]) -> None:
        try:
            answers = await self._flush([call.items for call in group], group[0].now)
        except Exception as error:
            if len(group) == 1 or isinstance(error, EngineUnavailable):
                for call in group:
                    if not call.answer.done():
                        call.answer.set_exception(_own(error))
                return
            for call in group:
                if not call.answer.done():
                    await self._do([call])
        else:
            for call, answer in zip(group, answers, strict=True):
                if not call.answer.done():
                    call.answer.set_result(answer)


def _own(error: Exception) -> Exception:
    """An error that is raised for several callers: each gets one that only it adds traces to."""
    if isinstance(error, EngineUnavailable):
        copy = EngineUnavailable(*error.args)
        copy.__cause__ = error.__cause__
        return copy
    return error
