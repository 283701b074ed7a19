"""An exception as a readable, storable error, whatever the exception does when asked."""

from __future__ import annotations

import traceback

from tenure.core.codec import printable
from tenure.core.job import JobError

MESSAGE_MAX = 4_000
TRACEBACK_MAX = 16_000


def describe(error: BaseException, *, attempt: int, at: int, kind: str | None = None) -> JobError:
    """The error to store. Never raises, and never holds text that a store refuses.

    The message is cut to 4,000 characters, the traceback to its last 16,000.
    """
    return JobError(
        kind=printable(kind or type(error).__qualname__),
        message=printable(_text(error))[:MESSAGE_MAX],
        traceback=printable(_trace(error))[-TRACEBACK_MAX:],
        attempt=attempt,
        at=at,
    )


def _text(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception as second:
        return f"(its text cannot be shown: str() raised {type(second).__qualname__})"
    return text or f"{type(error).__qualname__} without a message"


def _trace(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error, limit=-30))
    except Exception:
        # Formatting asks the exception for its text; the frames alone need no help of it.
        return "".join(traceback.format_tb(error.__traceback__, limit=-30))
