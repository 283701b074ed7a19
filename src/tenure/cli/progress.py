"""Acting on many jobs in parts, and showing on a terminal how far that is."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, Self, TypeVar

import click

PART = 500


class Result(Protocol):
    """What came of one part; results of several parts make one."""

    def and_then(self, more: Self, /) -> Self: ...


R = TypeVar("R", bound=Result)


async def in_parts(
    ids: Sequence[str], act: Callable[[Sequence[str]], Awaitable[R]], label: str
) -> R:
    """Act on ids, some at a time. What was done before an error or an interrupt stays done."""
    parts = [ids[start : start + PART] for start in range(0, len(ids), PART)] or [ids]
    if len(parts) == 1 or not sys.stderr.isatty():
        return await _joined(parts, act, lambda _: None)
    with click.progressbar(length=len(ids), label=label, file=sys.stderr) as bar:
        return await _joined(parts, act, bar.update)


async def _joined(
    parts: Sequence[Sequence[str]],
    act: Callable[[Sequence[str]], Awaitable[R]],
    done: Callable[[int], None],
) -> R:
    result = await act(parts[0])
    done(len(parts[0]))
    for part in parts[1:]:
        result = result.and_then(await act(part))
        done(len(part))
    return result
