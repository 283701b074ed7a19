"""One job, in full, for people."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from tenure.cli.text import block, line
from tenure.core.job import Job, JobError
from tenure.errors import PayloadError

_INDENT = 4


def details(job: Job) -> str:
    """Every fact there is about the job, one a line, then its errors."""
    facts = [(name, value) for name, value in _facts(job) if value not in (None, "")]
    width = max(len(name) for name, _ in facts)
    lines = [f"{name.ljust(width)}  {line(value)}" for name, value in facts]
    return "\n".join([*lines, *_arguments(job), *_errors(job)])


def _facts(job: Job) -> Iterator[tuple[str, Any]]:
    yield "id", job.id
    yield "state", job.label
    yield "task", job.task
    yield "queue", job.queue
    yield "description", job.description
    yield "priority", job.priority or None
    yield "attempt", f"{job.attempt} of {job.max_attempts}"
    yield "claims", f"{job.claims}{_lapsed(job)}"
    yield "worker", job.owner
    yield "token", job.token or None
    yield "schedule", job.schedule
    yield "tick", _time(job.tick)
    yield "progress", _progress(job)
    yield "tags", ", ".join(job.tags)
    yield "metadata", _json(job.metadata) if job.metadata else None
    yield "created", _time(job.created_at)
    yield "available", _time(job.available_at) if job.available_at != job.created_at else None
    yield "expires", _time(job.expires_at)
    yield "started", _time(job.started_at)
    yield "lease until", _time(job.lease_until)
    yield "finished", _time(job.finished_at)
    yield "took", None if job.duration is None else f"{job.duration:.3f} s"
    yield "result", _stored(lambda: job.result) if job.row.result is not None else None


def _arguments(job: Job) -> Iterator[str]:
    try:
        arguments = job.arguments
    except PayloadError as error:
        yield f"arguments  ({line(error)})"
        return
    if not isinstance(arguments, dict):
        yield f"arguments  {_json(arguments)}"
        return
    yield "arguments" if arguments else "arguments  none"
    for name, value in arguments.items():
        yield f"{' ' * _INDENT}{line(name)} = {_json(value)}"


def _errors(job: Job) -> Iterator[str]:
    errors = job.errors or ((job.error,) if job.error else ())
    for error in errors:
        yield from _error(error)


def _error(error: JobError) -> Iterator[str]:
    yield ""
    yield f"error of attempt {error.attempt}: {line(error.kind)}: {block(error.message)}"
    for part in block(error.traceback).splitlines():
        yield " " * _INDENT + part


def _lapsed(job: Job) -> str:
    return f", of which {job.lapses} lapsed" if job.lapses else ""


def _progress(job: Job) -> str | None:
    progress = job.progress
    if progress is None:
        return None
    total = "" if progress.total is None else f" of {progress.total:g}"
    return f"{progress.current:g}{total} {progress.message}".rstrip()


def _time(value: datetime | None) -> str | None:
    """Local time, as a person at this terminal reads a clock."""
    return None if value is None else value.astimezone().isoformat(" ", "milliseconds")


def _stored(read: Any) -> str:
    try:
        return _json(read())
    except PayloadError as error:
        return f"({error})"


def _json(value: Any) -> str:
    return line(json.dumps(value, ensure_ascii=False))
