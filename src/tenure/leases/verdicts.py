"""What an exception of somebody's client says about a lease."""

from __future__ import annotations

import math
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from tenure.clock import SYSTEM_CLOCK
from tenure.core.durations import moment
from tenure.core.lease import Failed, Lost
from tenure.errors import LeaseLost

UNAUTHORIZED = Lost("unauthorized")
"""This very object: worth another try with fresh credentials."""

Verdict = Lost | Failed | None
"""`Lost`: definitive. `Failed`: try again, perhaps at a given time. None: something unexpected."""

_REASONS = {404: "gone", 409: "taken", 410: "settled"}


def verdict(error: BaseException) -> Verdict:
    """The usual reading of an exception, by the HTTP status it carries.

    401 asks for fresh credentials once; 408, 429 and 5xx are transient, with the `Retry-After`
    they may bring; any other 4xx is definitive: 404 `gone`, 409 `taken`, 410 `settled`, the rest
    `refused`. `LeaseLost` is definitive. Connection errors and time-outs are transient, and so is
    what is not known. The status is looked for where the common clients have it: `status_code`,
    `status`, `code`, on the exception or its `response`.
    """
    if isinstance(error, LeaseLost):
        return Lost("taken")
    code = status(error)
    if code == 401:
        return UNAUTHORIZED
    if code is None:
        return Failed(_text(error), retry_after(error)) if isinstance(error, OSError) else None
    if 400 <= code < 500 and code not in (408, 429):
        return Lost(_REASONS.get(code, "refused"))
    return Failed(_text(error), retry_after(error))


def status(error: BaseException) -> int | None:
    """The HTTP status that an exception carries, if any."""
    response = getattr(error, "response", None)
    if isinstance(response, Mapping):  # botocore
        metadata = response.get("ResponseMetadata")
        code = metadata.get("HTTPStatusCode") if isinstance(metadata, Mapping) else None
        return code if isinstance(code, int) else None
    for source in (error, response):
        for name in ("status_code", "status", "code"):
            code = getattr(source, name, None)
            if isinstance(code, int) and not isinstance(code, bool) and 100 <= code < 600:
                return int(code)
    return None


def retry_after(error: BaseException) -> float | None:
    """Seconds after which the service wants to be asked again, if the exception says so."""
    value: Any = getattr(error, "retry_after", None)
    if value is None:
        for source in (getattr(error, "response", None), error):
            headers = getattr(source, "headers", None)
            if headers is not None and hasattr(headers, "get"):
                value = headers.get("Retry-After") or headers.get("retry-after")
                if value is not None:
                    return _seconds(value, headers.get("Date") or headers.get("date"))
    return _seconds(value, None)


def _seconds(value: Any, served_at: str | None) -> float | None:
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        seconds = _until(value, served_at)
    return seconds if math.isfinite(seconds) else None


def _until(value: Any, served_at: str | None) -> float:
    """Seconds to a date; by the service's own clock, if its answer tells what that showed."""
    try:
        until = parsedate_to_datetime(value)
        now = parsedate_to_datetime(served_at) if served_at else moment(SYSTEM_CLOCK.time_us())
        return (until - now).total_seconds()
    except (TypeError, ValueError):
        return math.nan


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
