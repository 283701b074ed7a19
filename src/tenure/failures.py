"""What a task says about exceptions: which are tried again, which are not, and when.

These rules are code, so they are read from the task when an attempt ends, and never stored.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from tenure.clock import SYSTEM_CLOCK
from tenure.core.directives import Cancel, Directive, Discard, Handoff, Retry, Snooze
from tenure.core.durations import SECOND
from tenure.core.job import Job
from tenure.errors import ConfigurationError

log = logging.getLogger("tenure.worker")

Answer = bool | Retry | Snooze | Cancel | Discard | None
"""True: try again; False: fail at once; a directive: as if the body had raised it; None: no
opinion, so the next rule is asked."""

Predicate = Callable[[BaseException, Job], Answer]

AFTER_MIN, AFTER_MAX = 1.0, 86_400.0
"""The shortest and the longest wait in seconds that `retry_after_of` takes from a server."""

SPREAD = 0.2
"""Up to this share of a wait is added, so that all who were told the same do not return at once."""


class FailureRules:
    """The rules of one task, asked in this order: `retry_if`, then the two lists of exceptions.

    Of the lists, the class nearest to the exception decides. If only some exceptions are worth
    another try (`retry_for`), the others are not.
    """

    def __init__(
        self,
        retry_for: tuple[type[BaseException], ...] = (),
        discard_for: tuple[type[BaseException], ...] = (),
        retry_if: Predicate | None = None,
    ) -> None:
        self._retry_for = retry_for
        self._discard_for = discard_for
        self._retry_if = retry_if

    def answer(self, error: BaseException, job: Job) -> Directive | bool:
        """What to do about this exception. A rule that fails itself is logged and has no say."""
        if self._retry_if is not None:
            said = self._ask(self._retry_if, error, job)
            if said is not None:
                return said
        for kind in type(error).__mro__:
            if kind in self._discard_for:
                return False
            if kind in self._retry_for:
                return True
        return not self._retry_for

    def _ask(self, predicate: Predicate, error: BaseException, job: Job) -> Directive | bool | None:
        try:
            said: Any = predicate(error, job)
        except Exception as failure:
            told = f"raised {type(failure).__qualname__}"
        else:
            allowed = isinstance(said, bool | Directive) and not isinstance(said, Handoff)
            if said is None or allowed:
                answer: Directive | bool | None = said
                return answer
            if inspect.iscoroutine(said):
                said.close()
            told = f"answered with a {type(said).__qualname__}"
        log.error(
            "retry_if of task %s %s when asked about a %s; the other rules decide",
            job.task,
            told,
            type(error).__qualname__,
            extra={"job_id": job.id, "task": job.task},
        )
        return None


def retry_after_of(error: BaseException, job: Job | None = None) -> Retry | None:
    """`retry_if=retry_after_of`: wait for as long as the server of an HTTP error asks.

    Understands errors of httpx, requests and whatever else has a `response` with `headers`: a
    `Retry-After` of seconds or of a date, from a second up to a day. None where there is none, so
    that the other rules decide. Up to a fifth of the wait is added at random: all who were told
    the same would come back at once otherwise.
    """
    response = getattr(error, "response", None)
    headers: Any = getattr(response, "headers", None)
    if not hasattr(headers, "get"):
        return None
    value = headers.get("Retry-After") or headers.get("retry-after")
    seconds = None if value is None else _seconds(value)
    if seconds is None:
        return None
    status = getattr(response, "status_code", "")
    return Retry(
        f"{type(error).__qualname__} {status}: the server asks for {seconds:g} seconds",
        after=min(max(seconds, AFTER_MIN), AFTER_MAX),
        spread=SPREAD,
    )


def _seconds(value: Any) -> float | None:
    """Seconds from now that a `Retry-After` asks for; None if it is neither a number nor a date."""
    text = value.decode("ascii", "replace") if isinstance(value, bytes) else str(value)
    text = text.strip()
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    now = datetime.fromtimestamp(SYSTEM_CLOCK.time_us() / SECOND, UTC)
    return max(0.0, (moment - now).total_seconds())


def exception_types(value: Any, name: str) -> tuple[type[BaseException], ...]:
    """Classes of exceptions, given as one or several. Raises `ConfigurationError`."""
    listed = (value,) if isinstance(value, type) else value
    if isinstance(listed, str) or not isinstance(listed, Iterable):
        raise ConfigurationError(f"{name} must be exception classes, not {value!r}")
    kinds = tuple(listed)
    for kind in kinds:
        if not isinstance(kind, type) or not issubclass(kind, BaseException):
            raise ConfigurationError(f"{name} must be exception classes, not {kind!r}")
        if issubclass(kind, Directive):
            raise ConfigurationError(f"{name}: {kind.__name__} is an instruction and needs no rule")
    return kinds


def check_rules(
    retry_for: tuple[type[BaseException], ...],
    discard_for: tuple[type[BaseException], ...],
    retry_if: Any,
) -> None:
    """Raise `ConfigurationError` for rules that contradict each other or cannot be asked."""
    both = [kind.__name__ for kind in retry_for if kind in discard_for]
    if both:
        raise ConfigurationError(f"{both[0]} is in retry_for and in discard_for")
    if retry_if is not None and (not callable(retry_if) or inspect.iscoroutinefunction(retry_if)):
        raise ConfigurationError(
            f"retry_if must be a plain function of the exception and the job, not {retry_if!r}"
        )
