"""What is known of queues and workers, and what is found wrong with a store."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum

import msgspec

from tenure.core.durations import SECOND
from tenure.core.limits import NO_LIMITS, Limits
from tenure.core.states import FINAL, State

UNKNOWN_TASK = "task-unknown"
"""The code of the finding that there are jobs which nobody can run."""


class QueueSettings(msgspec.Struct, frozen=True):
    """How a queue is treated by the whole fleet. Jobs of a paused queue are not claimed as due."""

    queue: str
    paused: bool = False
    limits: Limits = NO_LIMITS


class QueueChange(msgspec.Struct, frozen=True):
    """What to change in the settings of a queue; None: that stays as it is."""

    queue: str
    paused: bool | None = None
    limits: Limits | None = None

    def of(self, kept: QueueSettings | None) -> QueueSettings:
        """The settings after this change of what is `kept` (None: of the defaults)."""
        kept = kept or QueueSettings(self.queue)
        return QueueSettings(
            self.queue,
            kept.paused if self.paused is None else self.paused,
            kept.limits if self.limits is None else self.limits,
        )


class WorkerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that announced itself. Presence is shown to people; recovery never asks for it.

    `started_at` and `seen_at` are microseconds since the epoch, `seen_at` by the store's clock.
    """

    id: str
    queues: tuple[str, ...]
    tasks: tuple[str, ...]
    concurrency: int
    running: int = 0
    started_at: int = 0
    seen_at: int = 0


class Finding(msgspec.Struct, frozen=True):
    """Something that deserves attention. `problem`: jobs or data are in danger; else a hint.

    `code` is stable, for scripts; `text` says what was found, `remedy` what to do.
    """

    code: str
    text: str
    remedy: str
    problem: bool = True


class Inspection(msgspec.Struct, frozen=True):
    """What an engine says of its store. `tasks`: how many jobs wait or run, by the task's name."""

    findings: tuple[Finding, ...] = ()
    queues: tuple[QueueSettings, ...] = ()
    tasks: Mapping[str, int] = {}


class Flaw(StrEnum):
    """Conditions that no job should be in. No operation leaves one there but for the last, so it
    was somebody else who wrote to the store, or a defect. The values are codes of findings.
    """

    NO_STATE = "job-without-state"
    NO_HOLDER = "job-running-for-nobody"
    NO_END = "job-ended-without-time"
    TOO_EARLY = "job-ready-too-early"
    LEFT = "job-left-behind"


_EARLY = 60 * SECOND
_LEFT = 60 * SECOND
_MOST = 5
_TEXTS: Mapping[Flaw, tuple[str, str]] = {
    Flaw.NO_STATE: (
        "have a state that does not exist, so nothing will ever happen to them",
        "find out who wrote it, and delete these jobs or enqueue them anew",
    ),
    Flaw.NO_HOLDER: (
        "are running without an owner or a lease, so they are never taken over",
        "cancel them by force, then requeue them",
    ),
    Flaw.NO_END: (
        "have ended at no known time, so they are never pruned",
        "requeue them, or delete them by id",
    ),
    Flaw.TOO_EARLY: (
        "are ready more than a minute before their time",
        "compare the clocks of the hosts; the jobs start too early",
    ),
    Flaw.LEFT: (
        "lost their worker more than a minute ago, and no other one took them over",
        "start a worker for their queues and tasks, or run `tenure sweep`",
    ),
}


def flaw_of(
    *,
    state: str,
    ready: bool,
    available_at: int,
    owner: str | None,
    lease_until: int | None,
    finished_at: int | None,
    now: int,
) -> Flaw | None:
    """What is wrong with a row of these values at the store's time `now`."""
    if state not in _STATES:
        return Flaw.NO_STATE
    if state == State.RUNNING and (owner is None or lease_until is None):
        return Flaw.NO_HOLDER
    if state == State.RUNNING and lease_until is not None and lease_until + _LEFT < now:
        return Flaw.LEFT
    if state in FINAL and finished_at is None:
        return Flaw.NO_END
    # A clock that was set back a little is no flaw of the job.
    if state == State.PENDING and ready and available_at > now + _EARLY:
        return Flaw.TOO_EARLY
    return None


_STATES = frozenset(map(str, State))


def findings(flawed: Mapping[Flaw, Sequence[str]]) -> tuple[Finding, ...]:
    """What to tell of the flawed jobs, given by id, in the order of `Flaw`."""
    found = []
    for flaw in Flaw:
        ids = flawed.get(flaw, ())
        if ids:
            text, remedy = _TEXTS[flaw]
            text = f"{len(ids)} jobs {text}: {shown(sorted(ids))}"
            found.append(Finding(flaw, text, remedy, problem=flaw is not Flaw.LEFT))
    return tuple(found)


def notes(
    inspection: Inspection, known: Collection[str], workers: Iterable[WorkerInfo]
) -> tuple[Finding, ...]:
    """What else deserves attention: jobs that nobody can run, queues that are paused.

    `known` are the names of the tasks at hand; none of them means that it is not known who runs
    what, so nothing is said of that.
    """
    found = []
    names = {name for worker in workers for name in worker.tasks}.union(known)
    unknown = sorted(set(inspection.tasks) - names) if known else []
    if unknown:
        count = sum(inspection.tasks[name] for name in unknown)
        text = f"{count} jobs have tasks that this app does not know: {shown(unknown)}"
        remedy = "nothing, if another app has these tasks; else bring them back, as an alias of "
        remedy += "the task that replaced them, or cancel the jobs"
        found.append(Finding(UNKNOWN_TASK, text, remedy, problem=False))
    paused = sorted(settings.queue for settings in inspection.queues if settings.paused)
    if paused:
        text = f"{len(paused)} queues are paused: {shown(paused)}"
        found.append(Finding("queue-paused", text, "resume them when it is time", problem=False))
    return tuple(found)


def shown(names: Sequence[str]) -> str:
    """The first of these names."""
    return ", ".join(names[:_MOST]) + (", ..." if len(names) > _MOST else "")
