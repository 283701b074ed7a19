"""What a worker says about its jobs: log lines and happenings. Nothing here changes an outcome."""

from __future__ import annotations

import logging
import traceback
from typing import Any

import msgspec

from tenure.core.job import Job, JobRow
from tenure.core.outcomes import Change, Settled, Settlement, Verdict
from tenure.core.query import Swept
from tenure.core.states import Event, State
from tenure.observe.hooks import Hooks

log = logging.getLogger("tenure.worker")

# The happening and the level of each end of an attempt.
_ENDS: dict[State, tuple[str, int]] = {
    State.COMPLETED: ("job.completed", logging.INFO),
    State.FAILED: ("job.failed", logging.ERROR),
    State.CANCELLED: ("job.cancelled", logging.INFO),
    State.EXPIRED: ("job.expired", logging.WARNING),
}
_RETURNS: dict[Event, tuple[str, int]] = {
    Event.RETRY: ("job.retrying", logging.WARNING),
    Event.SNOOZE: ("job.snoozed", logging.INFO),
    Event.RELEASE: ("job.released", logging.INFO),
}


class Reporter:
    """Tells log and hooks how attempts begin and end.

    A hook, a log filter or a record factory that raises changes nothing.
    """

    def __init__(self, hooks: Hooks, *, log_success: bool, log_level: int = logging.INFO) -> None:
        self._hooks = hooks
        self._log_success = log_success
        self._log_level = log_level

    def started(self, row: JobRow) -> None:
        """An attempt begins."""
        if self._hooks.hears("job.started"):
            self._hooks.emit("job.started", **_facts(row))

    def settled(self, row: JobRow, settlement: Settlement, answer: Settled) -> None:
        """An attempt's outcome was written, or refused."""
        if answer.verdict is Verdict.LOST:
            self.lost(row, "settle", "another holder has a newer token, or the job is gone")
            return
        change = applied(settlement, answer)
        name, level = _ENDS.get(change.state) or _RETURNS[change.event]
        if self._hooks.hears(name):
            self._hooks.emit(name, **_end_facts(row, change), error=change.error)
        if change.state is State.COMPLETED:
            if not (self._log_success if row.log_success is None else row.log_success):
                return
            level = self._log_level if row.log_level is None else row.log_level
        _say(level, _sentence(row, name, change), _end_facts(row, change))

    def handed_off(self, row: JobRow) -> None:
        """The body left the job to whoever has its receipt."""
        if self._hooks.hears("job.handed_off"):
            self._hooks.emit("job.handed_off", **_facts(row))

    def lost(self, row: JobRow, phase: str, why: str) -> None:
        """The lease is gone; `phase` says when that was noticed."""
        if self._hooks.hears("job.lease_lost"):
            self._hooks.emit("job.lease_lost", **_facts(row), phase=phase, reason=why)
        text = f"job {row.id} ({row.task}) lost its lease ({phase}): {why}"
        _say(logging.WARNING, text, _facts(row))

    def swept(self, item: Swept) -> None:
        """A job was taken back: it was overdue, or its worker vanished."""
        expired = item.state is State.EXPIRED
        facts = {"job_id": item.id, "state": str(item.state)}
        self._hooks.emit("job.expired" if expired else "job.lapsed", **facts)
        why = "was overdue" if expired else "was left by a worker that vanished"
        level = logging.ERROR if item.state is State.FAILED else logging.WARNING
        _say(level, f"job {item.id} {why}: now {item.state}", facts)


def _say(level: int, text: str, facts: dict[str, Any]) -> None:
    try:
        log.log(level, "%s", text, extra=facts)
    except Exception:
        # The application's own filter or record factory. Handlers are guarded by logging itself.
        if logging.raiseExceptions:
            traceback.print_exc()


def applied(settlement: Settlement, answer: Settled) -> Change:
    """What a settlement that was not refused has written."""
    if answer.verdict is Verdict.ALREADY and answer.state is State.COMPLETED:
        # The body completed its job in its own transaction, however it ended after that.
        done = {"event": Event.COMPLETE, "state": State.COMPLETED, "error": None}
        return msgspec.structs.replace(settlement.next, **done)
    flagged = settlement.if_cancel_requested
    return flagged if answer.state is flagged.state else settlement.next


def _facts(row: JobRow) -> dict[str, Any]:
    return {
        "job_id": row.id,
        "task": row.task,
        "queue": row.queue,
        "attempt": row.attempt,
        "max_attempts": row.max_attempts,
        "token": row.token,
        "description": row.description,
        "correlation_id": Job(row).correlation_id,
    }


def _end_facts(row: JobRow, change: Change) -> dict[str, Any]:
    return {**_facts(row), "state": str(change.state)}


def _sentence(row: JobRow, name: str, change: Change) -> str:
    what = name.removeprefix("job.")
    text = f"job {row.id} ({row.task}) {what}, attempt {row.attempt} of {row.max_attempts}"
    if change.state is State.PENDING and change.delay:
        text += f", again in {change.delay / 1e6:.3g} s"
    if change.error is not None and change.event in (Event.RETRY, Event.FAIL, Event.CANCEL):
        text += f": {change.error.kind}: {change.error.message}"
    return text
