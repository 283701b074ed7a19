"""An exception as a readable, storable error, whatever the exception does when asked."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable

from tenure.core.codec import printable
from tenure.core.job import Job, JobError, JobRow

log = logging.getLogger("tenure.worker")

KIND_MAX = 255
MESSAGE_MAX = 4_000
TRACEBACK_MAX = 16_000
_CUT = "\n...\n"


Sanitizer = Callable[[BaseException, Job], str | tuple[str, str]]
"""Gives the text of an exception as it may be kept and shown, or the text and a traceback."""


class Describer:
    """Exceptions of bodies as text, everywhere they go; `sanitizer` has the say, if there is one.

    A sanitizer that fails, or gives no text, leaves the type of the exception and nothing else.
    """

    def __init__(self, sanitizer: Sanitizer | None = None) -> None:
        self._sanitizer = sanitizer

    @property
    def sanitizes(self) -> bool:
        """Whether texts of exceptions must not be shown as they are."""
        return self._sanitizer is not None

    def error(
        self, error: BaseException, row: JobRow, *, at: int, kind: str | None = None
    ) -> JobError:
        """The error to store. Never raises."""
        if self._sanitizer is None:
            return describe(error, attempt=row.attempt, at=at, kind=kind)
        message, trace = self._sanitized(self._sanitizer, error, row)
        return JobError(
            kind=_start(kind or type(error).__qualname__, KIND_MAX),
            message=_start(message, MESSAGE_MAX),
            traceback=_ends(trace, TRACEBACK_MAX),
            attempt=row.attempt,
            at=at,
        )

    def log(self, text: str, error: BaseException, row: JobRow) -> None:
        """Log at ERROR that `error` came up, with its traceback as far as that may be shown."""
        facts = {"job_id": row.id, "task": row.task}
        if self._sanitizer is None:
            log.error("%s", text, exc_info=error, extra=facts)
            return
        message, trace = self._sanitized(self._sanitizer, error, row)
        told = f"{type(error).__qualname__}: {message}"
        log.error("%s: %s", text, f"{told}\n{trace}" if trace else told, extra=facts)

    def _sanitized(
        self, sanitizer: Sanitizer, error: BaseException, row: JobRow
    ) -> tuple[str, str]:
        kind = type(error).__qualname__
        try:
            said = sanitizer(error, Job(row))
        except Exception as failure:
            told = f"raised {type(failure).__qualname__}"
        else:
            pair = (said, "") if isinstance(said, str) else said
            if isinstance(pair, tuple) and [type(part) for part in pair] == [str, str]:
                return pair[0] or kind, pair[1]
            told = f"gave a {type(said).__qualname__}"
        log.error(
            "the error sanitizer %s; of a %s of job %s only the type is kept", told, kind, row.id
        )
        return kind, ""


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
