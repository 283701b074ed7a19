"""The states of a job, and the only ways from one to another."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from tenure.errors import InvalidTransition


class State(StrEnum):
    """Where a job stands. "Scheduled" and "retrying" are computed labels, not states."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"

    @property
    def final(self) -> bool:
        """True when only an explicit requeue or prune can change the job again."""
        return self in FINAL


class Event(StrEnum):
    """What moves a job. `PRUNE` removes it, so it has no target state."""

    PROMOTE = "promote"
    CLAIM = "claim"
    CANCEL = "cancel"
    REARM = "rearm"
    EXPIRE = "expire"
    REQUEST_CANCEL = "request-cancel"
    LAPSE = "lapse"
    COMPLETE = "complete"
    RETRY = "retry"
    FAIL = "fail"
    SNOOZE = "snooze"
    RELEASE = "release"
    REQUEUE = "requeue"
    PRUNE = "prune"


FINAL = frozenset({State.COMPLETED, State.FAILED, State.CANCELLED, State.EXPIRED})

_P, _R = State.PENDING, State.RUNNING
_C, _F, _X, _E = State.COMPLETED, State.FAILED, State.CANCELLED, State.EXPIRED


class Transition(NamedTuple):
    """From any of `sources`, `event` leads to one of `targets` (none: the row is removed)."""

    sources: frozenset[State]
    event: Event
    targets: frozenset[State]
    meaning: str


def _transition(sources: set[State], event: Event, targets: set[State], why: str) -> Transition:
    return Transition(frozenset(sources), event, frozenset(targets), why)


TRANSITIONS = (
    _transition({_P}, Event.PROMOTE, {_P}, "its time has come: ready to be claimed"),
    _transition({_P}, Event.CLAIM, {_R}, "a worker takes it under a new token and lease"),
    _transition({_P}, Event.CANCEL, {_X}, "cancelled before it started"),
    _transition({_P}, Event.REARM, {_P}, "new arguments and times on the waiting job"),
    _transition({_P}, Event.EXPIRE, {_E}, "expires_at passed before a start"),
    _transition({_R}, Event.REQUEST_CANCEL, {_R}, "the holder is asked to stop"),
    _transition({_R}, Event.CLAIM, {_R}, "the lease lapsed; another worker takes over"),
    _transition({_R}, Event.EXPIRE, {_E}, "taken over after expires_at"),
    _transition({_R}, Event.LAPSE, {_P, _F, _E, _X}, "the lease lapsed; taken back by a sweep"),
    _transition({_R}, Event.COMPLETE, {_C}, "the body returned"),
    _transition({_R}, Event.RETRY, {_P}, "the attempt errored; due again after the backoff"),
    _transition({_R}, Event.FAIL, {_F}, "budget spent, or not retryable"),
    _transition({_R}, Event.SNOOZE, {_P, _E}, "try again later; no budget spent"),
    _transition({_R}, Event.RELEASE, {_P}, "given back unfinished"),
    _transition({_R}, Event.CANCEL, {_X}, "stopped on request, or by force"),
    _transition(set(FINAL), Event.REQUEUE, {_P}, "explicitly run again"),
    _transition(set(FINAL), Event.PRUNE, set(), "removed by age or id"),
)

_ALLOWED = frozenset(
    (source, row.event, target)
    for row in TRANSITIONS
    for source in row.sources
    for target in (row.targets or {None})
)


def check(source: State, event: Event, target: State | None) -> None:
    """Do nothing if the step is in the table; raise `InvalidTransition` if it is not."""
    if (source, event, target) not in _ALLOWED:
        raise InvalidTransition(f"a {source} job cannot {event} to {target or 'nothing'}")


def diagram() -> str:
    """The table as a Mermaid state diagram, for the docs."""
    lines = ["stateDiagram-v2", "    [*] --> pending: enqueue"]
    arrows: dict[tuple[str, str], list[str]] = {}
    for row in TRANSITIONS:
        names = [str(s) for s in State if s in row.sources]
        for source in names:
            for target in [str(s) for s in State if s in row.targets] or ["[*]"]:
                arrows.setdefault((source, target), []).append(row.event)
    lines += [f"    {a} --> {b}: {', '.join(events)}" for (a, b), events in arrows.items()]
    return "\n".join(lines) + "\n"
