"""How an attempt ended, and what a settlement writes for it."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from tenure.core.reports import JobError
from tenure.core.states import Event, State


class ReleaseReason(StrEnum):
    """Why a job is given back unfinished."""

    SHUTDOWN = "shutdown"
    """The worker stops: counted, and past `max_interruptions` an error."""

    STORE = "store"
    """The store was away longer than the lease: not the job's fault, so nothing is counted."""

    UNSTARTED = "unstarted"
    """Claimed but never begun: nothing is counted."""


class OnShutdown(StrEnum):
    """What becomes of a job that runs when its worker is shut down."""

    RELEASE = "release"
    """After the worker's `shutdown_timeout` it is cancelled and given back."""

    RUN_OUT = "run_out"
    """The worker waits for it, however long it takes, unless it is told a second time."""

    FAIL = "fail"
    """After the worker's `shutdown_timeout` it is cancelled and has failed, attempts or not."""


class Completed(msgspec.Struct, frozen=True, gc=False):
    """The body returned; `result` is encoded."""

    result: bytes | None = None


class Errored(msgspec.Struct, frozen=True):
    """The attempt failed. `after` (microseconds) replaces the backoff of the policy.

    Up to `spread` (a share of `after`) is added at random.
    """

    error: JobError
    retryable: bool = True
    after: int | None = None
    spread: float = 0.0


class Snoozed(msgspec.Struct, frozen=True):
    """Not now: due again after `delay` microseconds; no attempt is spent."""

    delay: int


class Released(msgspec.Struct, frozen=True):
    """Given back, due now."""

    reason: ReleaseReason


class Cancelled(msgspec.Struct, frozen=True):
    """Stopped on request. `error` may say more."""

    error: JobError | None = None


class Expired(msgspec.Struct, frozen=True):
    """Taken over after its `expires_at`; made only by `admit`."""


Outcome = Completed | Errored | Snoozed | Released | Cancelled | Expired


class Change(msgspec.Struct, frozen=True, gc=False):
    """The next values of a row that its holder owns: one branch of a settlement.

    `delay` (microseconds) counts from the store's time of the write, and matters when `state` is
    pending. The counters are absolute. `error` is appended to the row's errors.
    """

    event: Event
    state: State
    delay: int
    failures: int
    lapses: int
    releases: int
    result: bytes | None = None
    error: JobError | None = None
    errors: tuple[JobError, ...] = ()


class Settlement(msgspec.Struct, frozen=True, gc=False):
    """One fenced write: applied only where id, token, owner and `running` all match.

    Others may raise the cancel flag while a job runs, so both branches are computed beforehand and
    the engine picks by the column, in the same write.
    """

    id: str
    token: int
    owner: str
    next: Change
    if_cancel_requested: Change


class Verdict(StrEnum):
    """What became of one settlement."""

    APPLIED = "applied"
    ALREADY = "already"
    """Settled before under this very token: a repeated request whose first reply was lost."""

    BUSY = "busy"
    """The row is locked by the holder's own transaction: try again."""

    LOST = "lost"
    """The token is no longer valid; nothing was changed."""


class Settled(msgspec.Struct, frozen=True, gc=False):
    """The answer to one settlement. `state` is the row's state after it; None if it is gone."""

    id: str
    verdict: Verdict
    state: State | None = None
    event: Event | None = None
