"""What an exception that left a body says: whose it is, and whether the worker may go on."""

from __future__ import annotations

import asyncio

from tenure.errors import LeaseLost, Stopped

_DEPTH_MAX = 100


def deadly(error: BaseException) -> bool:
    """Whether it must end the worker: SystemExit, KeyboardInterrupt and their like.

    Alone or anywhere in a group. A cancellation is not: it concerns the body only.
    """
    if isinstance(error, BaseExceptionGroup):
        return any(deadly(inner) for inner in error.exceptions)
    return not isinstance(error, Exception | asyncio.CancelledError)


def single(error: BaseException) -> BaseException:
    """The one exception in a group, or in groups of one, as task groups make them."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def interruption(error: BaseException) -> bool:
    """Whether the body ended because it was stopped: cancelled, or told so by `ctx.check()`."""
    return isinstance(single(error), asyncio.CancelledError | Stopped | LeaseLost)


def follows_cancellation(error: BaseException) -> bool:
    """Whether it was raised while a cancellation was handled, as clean-up that fails does."""
    for _ in range(_DEPTH_MAX):
        if isinstance(error, asyncio.CancelledError):
            return True
        if isinstance(error, BaseExceptionGroup):
            return all(follows_cancellation(inner) for inner in error.exceptions)
        before = error.__cause__ or error.__context__
        if before is None:
            return False
        error = before
    return False
