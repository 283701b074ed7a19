"""The rules of the life cycle: what an attempt's end does to its job.

The holder of a lease owns its row but for the cancel flag, so the next state is computed here from
the claimed snapshot and written by one fenced update. Engines apply; they do not decide.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tenure.core import codec
from tenure.core.durations import LAST_INSTANT
from tenure.core.identity import UniqueUntil
from tenure.core.job import ERRORS_KEPT, JobError, JobRow, next_token, rank_of
from tenure.core.outcomes import (
    Cancelled,
    Change,
    Completed,
    Errored,
    Expired,
    OnShutdown,
    Outcome,
    Released,
    ReleaseReason,
    Settlement,
    Snoozed,
)
from tenure.core.retry import DEFAULT_RETRY
from tenure.core.states import Event, State, check


def decide(row: JobRow, outcome: Outcome, *, now: int, roll: float = 0.0) -> Settlement:
    """The settlement of the attempt that `row` (as claimed) describes.

    `now` is the store's time as the holder knows it; `roll` in [0, 1) is the backoff's jitter.
    Total: every outcome of every running row has a settlement.
    """
    change = _next(row, outcome, now, roll)
    if isinstance(outcome, Completed):
        cancelled = change  # a handler that finished first has completed
    else:
        error = outcome.error if isinstance(outcome, Errored | Cancelled) else None
        cancelled = _change(row, Event.CANCEL, State.CANCELLED, error=error)
    owner = row.owner or ""
    for branch in (change, cancelled):
        check(row.state, branch.event, branch.state)
    return Settlement(row.id, row.token, owner, next=change, if_cancel_requested=cancelled)


def admit(row: JobRow) -> Outcome | None:
    """None if a just claimed job may run; else the outcome to settle it with at once.

    Only the lapsed arm brings rows that may not run; `started_at` is the store's time of the claim.
    """
    now = row.started_at or 0
    if row.cancel_requested:
        return Cancelled()
    if row.expires_at is not None and row.expires_at <= now:
        return Expired()
    if row.lapses > row.max_lapses:
        return Errored(_lapsed_error(row, now), retryable=False)
    return None


def lapse(row: JobRow, now: int) -> Change:
    """What a sweep does to a running row whose lease ran out: budget, deadline and flag decide."""
    lapses, failures = row.lapses + 1, row.failures
    if row.cancel_requested:
        event_state = State.CANCELLED
    elif row.expires_at is not None and row.expires_at <= now:
        event_state = State.EXPIRED
    elif lapses > row.max_lapses:
        event_state = State.FAILED
    else:
        event_state = State.PENDING
    error = None
    if event_state is State.FAILED:
        error = _lapsed_error(row, now, lapses)
        failures += 1  # as where `admit` finds the same: whoever comes first, one end
    check(row.state, Event.LAPSE, event_state)
    return _change(row, Event.LAPSE, event_state, failures=failures, lapses=lapses, error=error)


def settled_values(row_priority: int, change: Change, now: int) -> dict[str, Any]:
    """The columns, with their values, that applying `change` at the store's time `now` writes."""
    values: dict[str, Any] = {
        "state": change.state,
        "failures": change.failures,
        "lapses": change.lapses,
        "releases": change.releases,
        "result": change.result,
        "error": change.error,
        "errors": change.errors,
        "lease_until": None,
    }
    if change.state is State.PENDING:
        due = min(now + change.delay, LAST_INSTANT)
        values |= {
            "ready": change.delay == 0,
            "available_at": due,
            "queued_at": due,
            "rank": rank_of(due, row_priority),
            "finished_at": None,
        }
    else:
        values |= {"ready": False, "finished_at": now}
    return values


def requeued_values(
    row: JobRow, now: int, payload: bytes | None = None, rank: int | None = None
) -> dict[str, Any]:
    """The columns that requeueing a final job writes: budgets, flag and deadline start afresh.

    The token stays: it never goes back. So do the arguments, unless a `payload` replaces them.
    `rank`: of a job that takes turns, see `core.fair`.
    """
    check(row.state, Event.REQUEUE, State.PENDING)
    edited: dict[str, Any] = {}
    if payload is not None:
        edited = {"payload": payload, "codec": codec.JSON, "payload_size": len(payload)}
    return edited | {
        "state": State.PENDING,
        "ready": True,
        "failures": 0,
        "lapses": 0,
        "releases": 0,
        "cancel_requested": False,
        "available_at": now,
        "queued_at": now,
        "rank": rank_of(now, row.priority) if rank is None else rank,
        "expires_at": None,
        "started_at": None,
        "finished_at": None,
        "result": None,
        "progress": None,
        "owner": None,
        "lease_until": None,
    }


def revoked_token(row: JobRow, now: int) -> Mapping[str, Any]:
    """The columns that take a running job from its holder: every later write of it is refused."""
    return {"token": next_token(row.token, now), "owner": None, "lease_until": None}


def promoted_values(available_at: int, rank: int) -> dict[str, Any]:
    """The columns that promoting a waiting job writes: it counts from its own time.

    `rank`: by that time, or by its turn, see `core.fair`.
    """
    check(State.PENDING, Event.PROMOTE, State.PENDING)
    return {"ready": True, "queued_at": available_at, "rank": rank}


def claimed_values(row: JobRow, owner: str, lease: int, now: int) -> dict[str, Any]:
    """The columns that give a pending job, or a running one whose lease ran out, to `owner`.

    A key that is unique until the start ends here for good.
    """
    check(row.state, Event.CLAIM, State.RUNNING)
    values: dict[str, Any] = {
        "state": State.RUNNING,
        "ready": False,
        "token": next_token(row.token, now),
        "owner": owner,
        "lease_until": now + lease,
        "claims": row.claims + 1,
        "started_at": now,
    }
    if row.state is State.RUNNING:
        values["lapses"] = row.lapses + 1
    if row.unique_until == UniqueUntil.STARTED:
        values |= {"unique_key": None, "unique_until": None}
    return values


def resumed_values(lease: int, now: int) -> dict[str, Any]:
    """The columns that repeat a claim to its owner: the token stays, the lease starts anew."""
    return {"lease_until": now + lease}


def expired_values(now: int) -> dict[str, Any]:
    """The columns that end a pending job whose `expires_at` passed."""
    return _ended_values(State.PENDING, Event.EXPIRE, State.EXPIRED, now)


def cancelled_values(row: JobRow, now: int, *, force: bool) -> dict[str, Any]:
    """The columns that cancelling a job that is not final writes.

    They hold a `state` unless the holder is only asked to stop.
    """
    if row.state is State.RUNNING and not force:
        check(row.state, Event.REQUEST_CANCEL, row.state)
        return {"cancel_requested": True}
    values = _ended_values(row.state, Event.CANCEL, State.CANCELLED, now)
    if row.state is State.RUNNING:
        values |= revoked_token(row, now)
    return values


def _ended_values(source: State, event: Event, target: State, now: int) -> dict[str, Any]:
    check(source, event, target)
    return {"state": target, "ready": False, "blocked": None, "finished_at": now}


def _next(row: JobRow, outcome: Outcome, now: int, roll: float) -> Change:
    match outcome:
        case Completed(result):
            return _change(row, Event.COMPLETE, State.COMPLETED, result=result)
        case Errored(error, retryable, after, spread):
            wait = None if after is None else after + round(after * spread * roll)
            return _errored(row, error, retryable, wait, roll)
        case Snoozed(delay):
            if row.expires_at is not None and now + delay > row.expires_at:
                return _change(row, Event.SNOOZE, State.EXPIRED)
            return _change(row, Event.SNOOZE, State.PENDING, delay=delay)
        case Released(reason):
            return _released(row, reason, now, roll)
        case Cancelled(error):
            return _change(row, Event.CANCEL, State.CANCELLED, error=error)
        case Expired():
            return _change(row, Event.EXPIRE, State.EXPIRED)


def _errored(
    row: JobRow, error: JobError, retryable: bool, after: int | None, roll: float
) -> Change:
    failures = row.failures + 1
    if not retryable or failures >= row.max_attempts:
        return _change(row, Event.FAIL, State.FAILED, failures=failures, error=error)
    delay = (row.retry or DEFAULT_RETRY).delay(failures, roll) if after is None else after
    return _change(row, Event.RETRY, State.PENDING, delay=delay, failures=failures, error=error)


def _released(row: JobRow, reason: ReleaseReason, now: int, roll: float) -> Change:
    if reason is not ReleaseReason.SHUTDOWN:
        return _change(row, Event.RELEASE, State.PENDING)
    releases = row.releases + 1
    if row.on_shutdown == OnShutdown.FAIL:
        error = JobError(
            kind="interrupted",
            message="its worker was shut down, and the job is not to be begun twice",
            attempt=row.attempt,
            at=now,
        )
        failures = row.failures + 1
        return _change(
            row, Event.FAIL, State.FAILED, failures=failures, releases=releases, error=error
        )
    if releases <= row.max_interruptions:
        return _change(row, Event.RELEASE, State.PENDING, releases=releases)
    error = JobError(
        kind="interrupted",
        message=f"interrupted by {releases} shutdowns; the limit is {row.max_interruptions}",
        attempt=row.attempt,
        at=now,
    )
    change = _errored(row, error, retryable=True, after=None, roll=roll)
    return _change(
        row,
        change.event,
        change.state,
        delay=change.delay,
        failures=change.failures,
        releases=releases,
        error=error,
    )


def _change(
    row: JobRow,
    event: Event,
    state: State,
    *,
    delay: int = 0,
    failures: int | None = None,
    lapses: int | None = None,
    releases: int | None = None,
    result: bytes | None = None,
    error: JobError | None = None,
) -> Change:
    return Change(
        event=event,
        state=state,
        delay=delay,
        failures=row.failures if failures is None else failures,
        lapses=row.lapses if lapses is None else lapses,
        releases=row.releases if releases is None else releases,
        result=result,
        error=row.error if error is None else error,
        errors=row.errors if error is None else (*row.errors, error)[-ERRORS_KEPT:],
    )


def _lapsed_error(row: JobRow, now: int, lapses: int | None = None) -> JobError:
    count = row.lapses if lapses is None else lapses
    return JobError(
        kind="lapsed",
        message=f"its worker vanished {count} times (crashed, killed or frozen); "
        f"the limit is {row.max_lapses}",
        attempt=row.attempt,
        at=now,
    )
