"""Answers of a joined transaction, whose driver blocks or is awaited."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable
from typing import TypeVar

from tenure.errors import ConfigurationError

T = TypeVar("T")


async def awaited(answer: T | Awaitable[T]) -> T:
    """The answer, once it is there."""
    return await answer if inspect.isawaitable(answer) else answer


def at_once(answer: T | Awaitable[T]) -> T:
    """The answer of a driver that blocks. Raises `ConfigurationError` for one that does not."""
    if not inspect.isawaitable(answer):
        return answer
    if inspect.iscoroutine(answer):
        answer.close()
    raise ConfigurationError(
        "this connection is an async one, so what uses it must be awaited: `await "
        "jobs.using(connection).enqueue(...)`, `await ctx.complete_in(connection)`, "
        "`async with ctx.join(connection)`"
    )
