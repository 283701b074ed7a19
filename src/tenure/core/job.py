"""The job: one persisted request to run a task.

`NewJob` is what an enqueue hands to an engine, `JobRow` is the row an engine keeps, and `Job` is
the same row as users read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from tenure.core import codec
from tenure.core.durations import HOUR, LAST_INSTANT, SECOND, moment
from tenure.core.reports import JobError as JobError
from tenure.core.reports import Progress as Progress
from tenure.core.retry import RetryPolicy
from tenure.core.states import State
from tenure.errors import ConfigurationError, PayloadError

RANK_STEP = HOUR
"""One unit of priority is worth this much waiting (microseconds)."""

PRIORITY_MIN, PRIORITY_MAX = -32_768, 32_767
ERRORS_KEPT = 10


class NewJob(msgspec.Struct, frozen=True, kw_only=True):
    """What to insert. Times travel as delays (microseconds) unless the user gave absolute ones."""

    id: str
    task: str
    queue: str = "default"
    priority: int = 0
    payload: bytes = b"{}"
    codec: str = codec.JSON
    delay: int = 0
    run_at: int | None = None
    expires_in: int | None = None
    expires_at: int | None = None
    max_attempts: int = 1
    max_lapses: int = 3
    max_interruptions: int = 3
    timeout: float | None = None
    retry: RetryPolicy | None = None
    tags: tuple[str, ...] = ()
    headers: Mapping[str, str] = {}
    metadata: Mapping[str, Any] = {}
    description: str | None = None
    actor: str | None = None
    on_shutdown: str | None = None
    log_level: int | None = None
    log_success: bool | None = None
    unique_key: str | None = None
    unique_until: str | None = None
    on_conflict: str = "return"
    concurrency_key: str | None = None
    rate_key: str | None = None
    fair_key: str | None = None
    schedule: str | None = None
    tick: int | None = None


class JobRow(msgspec.Struct, frozen=True, gc=False):
    """One row, every column, in the order of the table. Instants and delays are microseconds.

    `token` is the fence: it grows at every claim and every revocation and never goes back.
    `ready` is physical: false while the job waits for its time, or is held back by a limit; what
    limit that is, `blocked` says (see `core.limits.Blocked`).
    """

    id: str
    task: str
    queue: str
    priority: int
    rank: int
    ready: bool
    state: State
    token: int
    owner: str | None
    lease_until: int | None
    claims: int
    failures: int
    max_attempts: int
    lapses: int
    max_lapses: int
    releases: int
    max_interruptions: int
    available_at: int
    expires_at: int | None
    timeout: float | None
    retry: RetryPolicy | None
    cancel_requested: bool
    payload: bytes
    codec: str
    payload_size: int
    created_at: int
    queued_at: int
    started_at: int | None
    finished_at: int | None
    result: bytes | None
    error: JobError | None
    errors: tuple[JobError, ...]
    progress: Progress | None
    tags: tuple[str, ...]
    headers: Mapping[str, str]
    metadata: Mapping[str, Any]
    description: str | None
    actor: str | None
    on_shutdown: str | None
    executor: str | None
    profile: str | None
    remote_ref: str | None
    dispatched_at: int | None
    payload_ref: str | None
    unique_key: str | None
    unique_until: str | None
    concurrency_key: str | None
    rate_key: str | None
    fair_key: str | None
    schedule: str | None
    tick: int | None
    log_level: int | None
    log_success: bool | None
    blocked: str | None

    @property
    def attempt(self) -> int:
        """The number of the attempt that runs now or comes next, from 1."""
        return self.failures + 1


COLUMNS: tuple[str, ...] = JobRow.__struct_fields__


def rank_of(queued_at: int, priority: int, step: int = RANK_STEP) -> int:
    """The claim order: a lower rank is earlier, a higher priority is earlier; nothing starves."""
    return queued_at - priority * step


def next_token(old: int, now: int) -> int:
    """A token greater than every earlier one of this job, comparable between jobs of a store."""
    return max(old + 1, now)


def new_row(job: NewJob, now: int) -> JobRow:
    """The row that an insert at the store's time `now` writes.

    Raises `ConfigurationError` when a delay leads past the year 9999.
    """
    available_at = max(job.run_at, now) if job.run_at is not None else now + job.delay
    expires_at = job.expires_at if job.expires_in is None else now + job.expires_in
    if available_at > LAST_INSTANT or (expires_at is not None and expires_at > LAST_INSTANT):
        raise ConfigurationError(f"{_too_late(job, available_at)} leads past the year 9999")
    # In the order of the fields; naming all of them takes three times as long, for every job.
    # fmt: off
    return JobRow(
        job.id, job.task, job.queue, job.priority, rank_of(available_at, job.priority),
        available_at <= now,            # ready
        State.PENDING,
        0, None, None, 0,               # token, owner, lease_until, claims
        0, job.max_attempts,            # failures
        0, job.max_lapses,              # lapses
        0, job.max_interruptions,       # releases
        available_at, expires_at, job.timeout, job.retry,
        False,                          # cancel_requested
        job.payload, job.codec, len(job.payload),
        now, available_at, None, None,  # created_at, queued_at, started_at, finished_at
        None, None, (), None,           # result, error, errors, progress
        job.tags, job.headers, job.metadata, job.description, job.actor,
        job.on_shutdown, None, None,    # executor, profile
        None, None,                     # remote_ref, dispatched_at
        None,                           # payload_ref
        job.unique_key, job.unique_until,
        job.concurrency_key, job.rate_key, job.fair_key,
        job.schedule, job.tick,
        job.log_level, job.log_success, None,  # blocked
    )
    # fmt: on


def check_payload(payload: bytes | None, most: int) -> None:
    """Raise `PayloadError` for new arguments of more than `most` bytes."""
    if payload is not None and len(payload) > most:
        raise PayloadError(f"the arguments have {len(payload)} bytes; at most {most} are allowed")


def _too_late(job: NewJob, available_at: int) -> str:
    """The option that gave a time past the last instant."""
    if available_at > LAST_INSTANT:
        return "delay" if job.run_at is None else "run_at"
    return "expires_at" if job.expires_in is None else "expires_in"


class Job:
    """A job as users read it: decoded values and timezone-aware UTC times. A snapshot, not live."""

    __slots__ = ("row",)

    def __init__(self, row: JobRow) -> None:
        self.row = row

    @property
    def id(self) -> str:
        return self.row.id

    @property
    def task(self) -> str:
        return self.row.task

    @property
    def queue(self) -> str:
        return self.row.queue

    @property
    def priority(self) -> int:
        """Higher is earlier."""
        return self.row.priority

    @property
    def state(self) -> State:
        return self.row.state

    @property
    def label(self) -> str:
        """The state in words: a pending job that waits is "scheduled", "retrying" or "blocked"."""
        row = self.row
        if row.blocked is not None:
            return "blocked"
        if row.state is State.PENDING and not row.ready:
            return "retrying" if row.failures else "scheduled"
        if row.state is State.RUNNING and row.cancel_requested:
            return "cancelling"
        return str(row.state)

    @property
    def attempt(self) -> int:
        """The attempt that runs now, comes next, or was the last, counted from 1."""
        row = self.row
        return row.failures if row.state is State.FAILED and row.failures else row.attempt

    @property
    def max_attempts(self) -> int:
        return self.row.max_attempts

    @property
    def lapses(self) -> int:
        """How often a lease ran out under this job: crashed or frozen workers."""
        return self.row.lapses

    @property
    def claims(self) -> int:
        """How often a worker took the job."""
        return self.row.claims

    @property
    def token(self) -> int:
        """The fencing number of the last claim."""
        return self.row.token

    @property
    def owner(self) -> str | None:
        """The worker that holds the job, or held it last."""
        return self.row.owner

    @property
    def cancel_requested(self) -> bool:
        return self.row.cancel_requested

    @property
    def arguments(self) -> Any:
        """The arguments by parameter name, as plain JSON values."""
        return codec.decode(self.row.payload)

    @property
    def result(self) -> Any:
        """What the body returned, as a plain JSON value; None until completed."""
        return None if self.row.result is None else codec.decode(self.row.result)

    @property
    def error(self) -> JobError | None:
        """The last error; a job that completed in the end may have one of an earlier attempt."""
        return self.row.error

    @property
    def errors(self) -> tuple[JobError, ...]:
        """The last 10 errors, oldest first."""
        return self.row.errors

    @property
    def progress(self) -> Progress | None:
        return self.row.progress

    @property
    def blocked(self) -> str | None:
        """The limit that holds the job back: "concurrency" or "rate" of its key; else None."""
        return self.row.blocked

    @property
    def concurrency_key(self) -> str | None:
        """Of the jobs with this key, its queue runs a limited number at once."""
        return self.row.concurrency_key

    @property
    def rate_key(self) -> str | None:
        """Of the jobs with this key, its queue starts a limited number in a time."""
        return self.row.rate_key

    @property
    def fair_key(self) -> str | None:
        """Jobs of different keys take turns."""
        return self.row.fair_key

    @property
    def tags(self) -> tuple[str, ...]:
        return self.row.tags

    @property
    def metadata(self) -> Mapping[str, Any]:
        return self.row.metadata

    @property
    def description(self) -> str | None:
        return self.row.description

    @property
    def schedule(self) -> str | None:
        """The schedule that made it."""
        return self.row.schedule

    @property
    def tick(self) -> datetime | None:
        """The nominal instant of the schedule's tick that made it."""
        return _moment(self.row.tick)

    @property
    def unique_key(self) -> str | None:
        """The key that no other job may have meanwhile."""
        return self.row.unique_key

    @property
    def actor(self) -> str | None:
        """Who enqueued the job, as far as that was told."""
        return self.row.actor

    @property
    def correlation_id(self) -> str:
        """What this job has in common with all that came of the same request; else its own id."""
        return self.row.headers.get("correlation-id", self.row.id)

    @property
    def created_at(self) -> datetime:
        return moment(self.row.created_at)

    @property
    def available_at(self) -> datetime:
        """Not started before."""
        return moment(self.row.available_at)

    @property
    def expires_at(self) -> datetime | None:
        """Not started after."""
        return _moment(self.row.expires_at)

    @property
    def started_at(self) -> datetime | None:
        """When the last attempt was claimed."""
        return _moment(self.row.started_at)

    @property
    def finished_at(self) -> datetime | None:
        return _moment(self.row.finished_at)

    @property
    def lease_until(self) -> datetime | None:
        """When the holder's right ends unless it is renewed."""
        return _moment(self.row.lease_until)

    @property
    def duration(self) -> float | None:
        """Seconds from the last claim to the end; None until finished."""
        if self.row.started_at is None or self.row.finished_at is None:
            return None
        return (self.row.finished_at - self.row.started_at) / SECOND

    def describe_end(self) -> str:
        """One line: which job, how it ended, and, unless it completed, the stored error."""
        text = f"job {self.id} ({self.task}) {self.state}"
        if self.error is None or self.state is State.COMPLETED:
            return text
        return f"{text}: {self.error.kind}: {self.error.message}"

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready values of every field shown to people; times as ISO 8601 text in UTC."""
        values: dict[str, Any] = {"id": self.id, "label": self.label}
        for name in _SHOWN:
            value = getattr(self, name)
            if isinstance(value, datetime):
                value = value.isoformat().replace("+00:00", "Z")
            values[name] = msgspec.to_builtins(value)
        return values

    def __repr__(self) -> str:
        return f"<Job {self.id} {self.task} {self.label}>"

    def __eq__(self, other: object) -> bool:
        return self.row == other.row if isinstance(other, Job) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.row.id, self.row.token, self.row.state))


_SHOWN = (
    "task",
    "queue",
    "priority",
    "state",
    "attempt",
    "max_attempts",
    "claims",
    "lapses",
    "token",
    "owner",
    "cancel_requested",
    "blocked",
    "concurrency_key",
    "rate_key",
    "fair_key",
    "arguments",
    "result",
    "error",
    "errors",
    "progress",
    "tags",
    "metadata",
    "description",
    "schedule",
    "tick",
    "unique_key",
    "actor",
    "correlation_id",
    "created_at",
    "available_at",
    "expires_at",
    "started_at",
    "finished_at",
    "lease_until",
    "duration",
)


def _moment(value: int | None) -> datetime | None:
    return None if value is None else moment(value)
