"""What surrounds running code: its job, the correlation id, and the trace it is part of.

Kept in context variables, so concurrent jobs, their tasks and their threads see each their own.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

from tenure.context import JobContext
from tenure.core import codec
from tenure.errors import ConfigurationError, PayloadError

CORRELATION = "correlation-id"
TRACEPARENT = "traceparent"
TRACESTATE = "tracestate"

ID_MAX = 255
STATE_MAX = 512
_TRACEPARENT = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
)
_NONE: Mapping[str, str] = MappingProxyType({})

_job: ContextVar[JobContext | None] = ContextVar("tenure.job", default=None)
_headers: ContextVar[Mapping[str, str]] = ContextVar("tenure.headers", default=_NONE)


def current_job() -> JobContext | None:
    """The context of the job that the running code belongs to, by a body or a delivery; else None.

    For code far from the task's function, where no parameter reaches: `current_job().progress(1)`.
    """
    return _job.get()


@contextmanager
def correlation(
    id: str, *, traceparent: str | None = None, tracestate: str | None = None
) -> Iterator[None]:
    """Give what is enqueued in this block a correlation id, and a place in a W3C trace.

    Both travel with the jobs to each of their attempts, and on to what these enqueue. `id` has 1
    to 255 characters. Raises `ConfigurationError` for one that has not, and for a `traceparent`
    that is not of the form `00-<32 hex>-<16 hex>-<2 hex>`.
    """
    headers = {CORRELATION: _text(id, "correlation id", ID_MAX)}
    if traceparent is not None:
        if not isinstance(traceparent, str) or not _TRACEPARENT.fullmatch(traceparent):
            raise ConfigurationError(
                f"traceparent must be as 00-<32 hex>-<16 hex>-<2 hex>, not {traceparent!r}"
            )
        headers[TRACEPARENT] = traceparent
        if tracestate:
            headers[TRACESTATE] = _text(tracestate, "tracestate", STATE_MAX)
    elif TRACEPARENT in _headers.get():
        headers = {**_headers.get(), **headers}  # another correlation within the same trace
    token = _headers.set(headers)
    try:
        yield
    finally:
        _headers.reset(token)


def correlation_id() -> str | None:
    """The correlation id of the running code: of the block or the job that it is in."""
    return _headers.get().get(CORRELATION)


def headers_now() -> Mapping[str, str]:
    """What a job that is enqueued now carries along."""
    return _headers.get()


def enter_job(context: JobContext) -> None:
    """The running task, and what it starts from now on, works for this job and no other."""
    _job.set(context)
    _headers.set({CORRELATION: context.correlation_id, **context.headers})


class Entered:
    """The running code works for this job until `leave`, which brings back what was before."""

    def __init__(self, context: JobContext) -> None:
        self._before = _job.get(), _headers.get()
        enter_job(context)

    def leave(self) -> None:
        """Not by tokens: a block may be left in another context than it was entered in."""
        job, headers = self._before
        _job.set(job)
        _headers.set(headers)


class JobFilter(logging.Filter):
    """Gives each record of a body `job_id`, `task`, `attempt` and `correlation_id`.

    On a handler, as in `handler.addFilter(JobFilter())`, it works for every logger. Outside of
    jobs the values are empty texts, but for the correlation id of a `correlation` block. What a
    record has already is kept.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        context = _job.get()
        values: dict[str, Any] = {"job_id": "", "task": "", "attempt": ""}
        if context is not None:
            values = {
                "job_id": context.job_id,
                "task": context.task,
                "attempt": context.attempt,
            }
        values["correlation_id"] = correlation_id() or ""
        for name, value in values.items():
            if not hasattr(record, name):
                setattr(record, name, value)
        return True


def _text(value: Any, name: str, most: int) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= most:
        raise ConfigurationError(f"the {name} must be text of 1 to {most} characters")
    try:
        return codec.check_text(value, name)
    except PayloadError as error:
        raise ConfigurationError(str(error)) from error
