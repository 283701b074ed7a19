"""A held lease, as its holder sees it."""

from __future__ import annotations

from collections.abc import Callable

from tenure.clock import SYSTEM_CLOCK, Clock
from tenure.core.job import Progress
from tenure.core.lease import LeaseTimes
from tenure.errors import LeaseLost

Post = Callable[[Callable[[], None]], object]
"""Hands a function to the holder's own thread or event loop, at once and from any thread."""

DEADLINE = "deadline"
"""The reason of a lease that was not renewed in time, as far as its holder can know."""


class Lease:
    """A right to work on something, which ends by itself. Thread-safe and free of locks.

    Times are seconds of `clock.monotonic()`. `sent_at` was read *before* the claim was sent, so
    the holder's deadline is never later than the store's; on top it is earlier by the margin.
    `granted` are the seconds the store granted (default: `times.length`). `token` is the fencing
    number to pass on with every write. A lease that was once seen lost stays lost.

    `on_signal(lease)` is called once when the lease is lost and once when a cancel is requested;
    it reads the properties to learn which. It is handed to `post` (asyncio:
    `loop.call_soon_threadsafe`), or else run on the keeper's one callback thread.
    """

    __slots__ = (
        "__weakref__",
        "_cancel",
        "_clock",
        "_deadline",
        "_grant",
        "_progress",
        "_reason",
        "_told_cancel",
        "_told_lost",
        "id",
        "on_signal",
        "owner",
        "post",
        "times",
        "token",
    )

    def __init__(
        self,
        id: str,
        token: int,
        owner: str,
        times: LeaseTimes,
        *,
        sent_at: float,
        granted: float | None = None,
        clock: Clock = SYSTEM_CLOCK,
        on_signal: Callable[[Lease], None] | None = None,
        post: Post | None = None,
    ) -> None:
        self.id = id
        self.token = token
        self.owner = owner
        self.times = times
        self.on_signal = on_signal
        self.post = post
        self._clock = clock
        self._reason: str | None = None
        self._cancel = False
        self._progress: Progress | None = None
        self._told_lost = False
        self._told_cancel = False
        self._grant = (sent_at, times.length if granted is None else granted)
        self._deadline = _own_deadline(times, *self._grant)

    def __repr__(self) -> str:
        state = self.reason or f"{self.remaining():.3f}s left"
        return f"<Lease {self.id} token={self.token} {state}>"

    @property
    def lost(self) -> bool:
        """Whether the holder must stop. Computed at the call: true right after a suspension."""
        return self._over(self._clock.monotonic())

    @property
    def reason(self) -> str | None:
        """Why the lease is lost: `deadline`, `closed`, or the word of the store. None: it holds."""
        return self._reason if self.lost else None

    @property
    def cancel_requested(self) -> bool:
        """Whether somebody asked the holder to stop. The lease holds on meanwhile."""
        return self._cancel

    @property
    def progress(self) -> Progress | None:
        """The last report."""
        return self._progress

    def remaining(self) -> float:
        """Seconds until the holder's own deadline (the store's less the margin); 0 when lost."""
        now = self._clock.monotonic()
        return 0.0 if self._over(now) else max(0.0, self._deadline - now)

    def check(self) -> None:
        """Raise `LeaseLost` if the lease is lost."""
        if self.lost:
            raise LeaseLost(f"the lease of {self.id} is lost ({self._reason})")

    def report(self, progress: Progress) -> None:
        """Let the next renewal carry `progress`; of several reports, the last."""
        self._progress = progress

    def _over(self, now: float) -> bool:
        """Whether the lease is lost at `now`."""
        if self._reason is None and now >= self._deadline:
            # Written down, so that a late renewal cannot bring back what was seen lost.
            self._reason = DEADLINE
        return self._reason is not None

    # What follows is the keeper's. One keeper at a time calls it, under its lock; holders read
    # on other threads without one, so every step leaves a state that is safe to read.

    def _prolong(self, sent_at: float, seconds: float, now: float) -> bool:
        """Move the deadline to what was granted; False if the lease was lost before."""
        if self._over(now):
            return False
        self._grant = (sent_at, seconds)
        self._deadline = _own_deadline(self.times, sent_at, seconds)
        # A reader may have seen the old deadline pass in this very moment: its word counts.
        return self._reason is None

    def _lose(self, reason: str) -> bool:
        """Mark as lost; True the first time, when the holder has to be told."""
        if self._reason is None:
            self._reason = reason
        first, self._told_lost = not self._told_lost, True
        return first

    def _request_cancel(self) -> bool:
        """Note that a cancel is wanted; True the first time, when the holder has to be told."""
        self._cancel = True
        first, self._told_cancel = not self._told_cancel, True
        return first

    def _next_renewal(self, jitter: float) -> float:
        """When to renew: an interval after the last grant was asked for, `jitter` (0-1) of it less.

        A grant that is shorter than asked for is still renewed after a third of it.
        """
        sent_at, seconds = self._grant
        return sent_at + min(self.times.interval, seconds / 3) * (1 - jitter)

    def _asks(self, now: float) -> float:
        """The seconds to ask for: the full length, and never less than what is still granted."""
        sent_at, seconds = self._grant
        return max(self.times.length, sent_at + seconds - now)


def _own_deadline(times: LeaseTimes, sent_at: float, seconds: float) -> float:
    """When the holder stops trusting a grant; the margin shrinks with a short one."""
    return sent_at + seconds - min(times.margin, max(0.2, seconds / 10))
