"""An exception as a readable, storable error, whatever the exception does when asked."""

from __future__ import annotations

import traceback

from tenure.core.codec import printable
from tenure.core.job import JobError

KIND_MAX = 255
MESSAGE_MAX = 4_000
TRACEBACK_MAX = 16_000
_CUT = "\n...\n"


def describe(error: BaseException, *, attempt: int, at: int, kind: str | None = None) -> JobError:
    """The error to store. Never raises, and never holds text that a store refuses.

    The message is cut to 4,000 characters, the traceback to 16,000 by leaving out its middle.
    """
    return JobError(
        kind=_start(kind or type(error).__qualname__, KIND_MAX),
        message=_start(_text(error), MESSAGE_MAX),
        traceback=_ends(_trace(error), TRACEBACK_MAX),
        attempt=attempt,
        at=at,
    )


# `str()` of an exception is foreign code, and so is what formatting a traceback may call. Whatever
# they raise, a SystemExit too, is their failure and not that of the job or the worker.


def _text(error: BaseException) -> str:
    try:
        text = str(error)
    except BaseException as second:
        return f"(its text cannot be shown: str() raised {type(second).__qualname__})"
    return text or f"{type(error).__qualname__} without a message"


def _trace(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error, limit=-30))
    except BaseException:
        # Formatting asks the exception for its text; the frames alone need no help of it.
        return _frames(error)


def _frames(error: BaseException) -> str:
    try:
        return "".join(traceback.format_tb(error.__traceback__, limit=-30))
    except BaseException:
        return ""


def _start(text: str, limit: int) -> str:
    # Cut before and after: what cannot be stored grows when it is escaped.
    return printable(text[:limit])[:limit]


def _ends(text: str, limit: int) -> str:
    """Beginning and end: where it happened is told first, what happened last."""
    if len(text) > limit:
        half = (limit - len(_CUT)) // 2
        text = text[:half] + _CUT + text[-half:]
    return printable(text)[:limit]
