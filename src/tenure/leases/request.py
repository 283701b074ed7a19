"""What is sent to a client: renewals in batches, and single extensions that a holder asked for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tenure.core.durations import SECOND
from tenure.core.lease import Beat, Busy, Extended, Extension, Failed, Lost, rounded_up
from tenure.core.retry import RetryPolicy
from tenure.leases.lease import Lease
from tenure.leases.once import Once

if TYPE_CHECKING:
    from tenure.leases.desk import Desk, Entry

LONGEST_REQUEST = 5.0
TRIES = 3
PATIENCE = 5.0
"""Seconds that an explicit extension waits for a renewal in flight before it overtakes it."""

_BACKOFF = RetryPolicy(base=0.1, factor=2.0, cap=2.0, jitter=0.5)


class Errand:
    """One explicit extension, from the asking until it is answered or given up.

    `over` is set at its end; then either `answer` or `error` is there.
    """

    __slots__ = (
        "answer", "asked_at", "at", "error", "lease", "over", "overtook", "request", "seconds",
        "tries",
    )  # fmt: skip

    def __init__(self, lease: Lease, seconds: float, now: float) -> None:
        self.lease = lease
        self.seconds = seconds
        self.asked_at = now
        self.at = now
        self.tries = TRIES
        self.request: Request | None = None
        self.overtook: Request | None = None
        """A request that was still under way when this one was sent over it."""
        self.answer: Extension | None = None
        self.error: BaseException | None = None
        self.over = Once()

    def due_at(self) -> float:
        """When to send it. Another extension of the lease lands first, up to a limit."""
        if self.lease._flight is None:
            return self.at
        return max(self.at, self.asked_at + PATIENCE)

    def backoff(self, roll: float) -> float:
        """Seconds until the next try."""
        return _BACKOFF.delay(TRIES - self.tries, roll) / SECOND

    def end(self, answer: Extension | None, error: BaseException | None = None) -> None:
        """Tell whoever asked."""
        self.answer, self.error = answer, error
        self.over.set()


class Request:
    """One `extend` to send: its beats, and how many seconds it may take.

    `over` is set when it has landed: its answer, or its failure, has been filed.
    """

    __slots__ = (
        "beats", "client", "desk", "entries", "errand", "leases", "over", "sent_at", "timeout",
    )  # fmt: skip

    def __init__(
        self, desk: Desk, entries: list[Entry], now: float, errand: Errand | None = None
    ) -> None:
        self.desk = desk
        self.client = desk.client
        self.entries = entries
        self.errand = errand
        self.sent_at = now
        self.over = Once()
        if errand is None:
            self.leases = [entry.lease for entry in entries]
            self.beats = [_beat(entry, now, desk.step) for entry in entries]
        else:
            self.leases = [errand.lease]
            self.beats = [_plain(errand.lease, errand.seconds)]
        self.timeout = min(LONGEST_REQUEST, *(lease.times.interval for lease in self.leases))

    def examine(self, answers: Sequence[object]) -> None:
        """Raise `ValueError` unless these are one sound answer per beat."""
        if len(answers) != len(self.beats):
            raise ValueError(f"{len(answers)} answers to {len(self.beats)} beats")
        for answer in answers:
            if not _sound(answer):
                raise ValueError(f"not an answer to a beat: {answer!r}")


def _sound(answer: object) -> bool:
    if isinstance(answer, Extended):
        # A NaN would make a deadline that never passes.
        return isinstance(answer.seconds, int | float) and math.isfinite(answer.seconds)
    if isinstance(answer, Failed):
        return answer.after is None or math.isfinite(answer.after)
    return isinstance(answer, Busy | Lost)


def _beat(entry: Entry, now: float, step: int) -> Beat:
    lease = entry.lease
    progress = lease.progress
    fresh = None if progress is entry.told else progress
    seconds = lease._asks(now)
    if step > 1:
        seconds = rounded_up(round(seconds * SECOND), step) / SECOND
    return Beat(lease.id, lease.token, lease.owner, seconds, fresh)


def _plain(lease: Lease, seconds: float) -> Beat:
    return Beat(lease.id, lease.token, lease.owner, seconds)


def told_to_wait(error: BaseException | None) -> float | None:
    """When the service wants to be asked again, in seconds, if the exception says so."""
    after = getattr(error, "retry_after", None)
    if isinstance(after, int | float) and math.isfinite(after):
        return float(after)
    return None
