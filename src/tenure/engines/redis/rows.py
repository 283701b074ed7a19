"""Rows as they are kept: a few fields that scripts look at, and the rest as msgpack.

Numbers are decimal text, since Lua's are exact up to 2**53 only. What is absent is zero or None.
`queued_at` is not kept: in every row it is `available_at`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tenure.core.columns import from_columns, to_column_values, to_columns
from tenure.core.job import COLUMNS, JobRow, NewJob
from tenure.core.limits import Blocked
from tenure.core.states import State

FIELDS = tuple(
    """state lane rank at made pri token owner lease claims failures lapses releases until stop
    began ended error errors prog key keep sched tick ckey rkey fkey""".split()
)
"""The fields of a row's hash, but for `body` and `result`. Scripts know them by place."""

INSIDE = ("tags", "metadata", "actor")
"""What a search looks at in `body`, at its beginning."""

BODY = (
    *INSIDE,
    *"""max_attempts max_lapses max_interruptions timeout retry payload codec payload_size headers
    description on_shutdown executor profile remote_ref dispatched_at payload_ref log_level
    log_success""".split(),
)
"""The columns in `body`, which only a whole new row changes."""

BODY_HEAD = 3
"""The bytes of `body` before its first value, as it has from 16 to 65,535 of them."""

READY, WAITING = "ready", "waiting"
"""How the state pending is kept: with the flag `ready` in it, or with what blocks the job."""

BLOCKED = tuple(map(str, Blocked))
PENDING_STATES = (READY, WAITING, *BLOCKED)

_encode = msgspec.msgpack.Encoder().encode
_STATES = {**dict.fromkeys(PENDING_STATES, "pending"), **{str(s): str(s) for s in State}}
_NOT_YET = (None,) * len(("executor", "profile", "remote_ref", "dispatched_at", "payload_ref"))
_PLACES = {name: place for place, name in enumerate(COLUMNS)}

Packed = tuple[str, list[Any], list[Any], Any]
"""A row in an answer: id, fields, body, result."""


def opaque(data: bytes) -> msgspec.Raw:
    """Bytes as Lua's msgpack takes them: as text."""
    return msgspec.Raw(b"\xdb" + len(data).to_bytes(4, "big") + data)


def lane_of(queue: str, task: str) -> str:
    """The name of a lane: the jobs of one queue and task."""
    return f"{len(queue.encode())}:{queue}{task}"


def of_lane(lane: str) -> tuple[str, str]:
    """Queue and task of a lane."""
    length, _, names = lane.partition(":")
    if names.isascii():
        size = int(length)
        return names[:size], names[size:]
    data = names.encode()
    return data[: int(length)].decode(), data[int(length) :].decode()


def to_item(job: NewJob) -> tuple[Any, ...]:
    """A new job as the script `insert` takes it; `PayloadError` for what JSON cannot hold."""
    if job.tags or job.headers or job.metadata or job.retry is not None:
        texts = to_column_values(
            {
                "retry": job.retry,
                "tags": job.tags,
                "headers": job.headers,
                "metadata": job.metadata,
            }
        )
        retry, tags, headers, metadata = texts.values()
    else:
        retry = tags = headers = metadata = None
    body = (
        tags,
        metadata,
        job.actor,
        job.max_attempts,
        job.max_lapses,
        job.max_interruptions,
        job.timeout,
        retry,
        job.payload,
        job.codec,
        len(job.payload),
        headers,
        job.description,
        job.on_shutdown,
        *_NOT_YET,
        job.log_level,
        None if job.log_success is None else int(job.log_success),
    )
    return (
        job.id,
        job.queue,
        job.task,
        str(job.priority) if job.priority else False,
        str(job.delay) if job.delay else False,
        _given(job.run_at),
        _given(job.expires_in),
        _given(job.expires_at),
        False if job.unique_key is None else job.unique_key,
        False if job.unique_until is None else job.unique_until,
        False if job.schedule is None else job.schedule,
        _given(job.tick),
        False if job.concurrency_key is None else job.concurrency_key,
        False if job.rate_key is None else job.rate_key,
        False if job.fair_key is None else job.fair_key,
        opaque(_encode(body)),
    )


def to_kept(row: JobRow) -> tuple[str, list[Any], msgspec.Raw, Any]:
    """A whole row as the script `write` takes it."""
    c = dict(zip(COLUMNS, to_columns(row), strict=True))
    state = c["state"]
    if state == "pending":
        state = row.blocked or (READY if c["ready"] else WAITING)
    fields = [
        state,
        lane_of(row.queue, row.task),
        str(row.rank) if row.rank != row.available_at else False,
        str(row.available_at),
        str(row.created_at),
        *(_counted(c[name]) for name in ("priority", "token")),
        False if row.owner is None else row.owner,
        _given(row.lease_until),
        *(_counted(c[name]) for name in ("claims", "failures", "lapses", "releases")),
        _given(row.expires_at),
        "1" if row.cancel_requested else False,
        _given(row.started_at),
        _given(row.finished_at),
        *(False if c[n] is None else c[n] for n in ("error", "errors", "progress")),
        *(False if c[n] is None else c[n] for n in ("unique_key", "unique_until", "schedule")),
        _given(row.tick),
        *(False if c[n] is None else c[n] for n in ("concurrency_key", "rate_key", "fair_key")),
    ]
    body = opaque(_encode([c[name] for name in BODY]))
    result = False if row.result is None else opaque(_encode(row.result))
    return row.id, fields, body, result


def to_row(packed: Packed) -> JobRow:
    """The row of an answer."""
    job_id, fields, body, result = packed
    f: list[Any] = [None if value is False else value for value in fields]
    state = f[0]
    queue, task = of_lane(f[1])
    at = int(f[3])
    values: list[Any] = [None] * len(COLUMNS)
    values[:14] = (
        job_id,
        task,
        queue,
        _whole(f[5]),
        at if f[2] is None else int(f[2]),
        state == READY,
        _STATES[state],
        _whole(f[6]),
        f[7],
        int(f[8]) if state == "running" and f[8] is not None else None,
        _whole(f[9]),
        _whole(f[10]),
        body[_ATTEMPTS],
        _whole(f[11]),
    )
    for name, value in zip(_NAMES, body, strict=True):
        values[name] = value
    values[_RELEASES] = _whole(f[12])
    values[_AVAILABLE] = values[_QUEUED] = at
    values[_EXPIRES] = _instant(f[13])
    values[_STOP] = f[14] is not None
    values[_CREATED] = int(f[4])
    values[_STARTED], values[_FINISHED] = _instant(f[15]), _instant(f[16])
    values[_RESULT] = result
    values[_ERROR], values[_ERRORS], values[_PROGRESS] = f[17], f[18], f[19]
    values[_KEY], values[_UNTIL], values[_SCHEDULE] = f[20], f[21], f[22]
    values[_TICK] = _instant(f[23])
    values[_SLOT], values[_RATE], values[_FAIR] = f[24:]
    if state in BLOCKED:
        values[_BLOCKED] = state
    return from_columns(values)


_NAMES = tuple(_PLACES[name] for name in BODY)
_ATTEMPTS = BODY.index("max_attempts")
_RELEASES, _AVAILABLE, _QUEUED = (_PLACES[n] for n in ("releases", "available_at", "queued_at"))
_EXPIRES, _STOP, _CREATED = (_PLACES[n] for n in ("expires_at", "cancel_requested", "created_at"))
_STARTED, _FINISHED, _RESULT = (_PLACES[n] for n in ("started_at", "finished_at", "result"))
_ERROR, _ERRORS, _PROGRESS = (_PLACES[n] for n in ("error", "errors", "progress"))
_SLOT, _RATE, _FAIR, _BLOCKED = (
    _PLACES[n] for n in ("concurrency_key", "rate_key", "fair_key", "blocked")
)
_KEY, _UNTIL, _SCHEDULE, _TICK = (
    _PLACES[n] for n in ("unique_key", "unique_until", "schedule", "tick")
)


def kept_states(states: Sequence[State]) -> list[str]:
    """These states as they are kept."""
    found: list[str] = []
    for state in states:
        found += PENDING_STATES if state is State.PENDING else (str(state),)
    return found


def _given(value: int | None) -> str | bool:
    return False if value is None else str(value)


def _counted(value: int) -> str | bool:
    return str(value) if value else False


def _whole(value: str | None) -> int:
    return 0 if value is None else int(value)


def _instant(value: str | None) -> int | None:
    return None if value is None else int(value)
