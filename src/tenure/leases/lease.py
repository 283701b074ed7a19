"""A held lease, as its holder sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tenure.clock import SYSTEM_CLOCK, Clock
from tenure.core.job import Progress
from tenure.core.lease import LeaseTimes
from tenure.errors import LeaseLost
from tenure.leases.holder import Holder
from tenure.leases.once import Once

if TYPE_CHECKING:
    from tenure.leases.keeper import LeaseKeeper
    from tenure.leases.request import Request
    from tenure.leases.suspension import Suspension

OnSignal = Callable[["Lease"], None]

DEADLINE = "deadline"
"""The reason of a lease that was not renewed in time, as far as its holder can know."""

_LONGEST_SLEEP = 60.0


class Doubt:
    """Since when a lease is not to be trusted: only a later extension tells whether it holds."""

    __slots__ = ("over", "since")

    def __init__(self, since: float) -> None:
        self.since = since
        self.over = Once()


class Lease:
    """A right to work on something, which ends by itself. Thread-safe and free of locks.

    Times are seconds of `clock.monotonic()`. `sent_at` was read *before* the claim was sent, so
    the holder's deadline is never later than the store's; on top it is earlier by the margin.
    `granted` are the seconds the store granted (default: `times.length`). `token` is the fencing
    number to pass on with every write. A lease that was once seen lost stays lost.

    `on_signal(lease)` is called once when the lease is lost and once when a cancel is requested;
    it reads the properties to learn which. It is handed to the `holder`'s event loop, or else run
    on the keeper's one callback thread. `labels` (queue, topic, group) go with every diagnostic.
    `limit`, if set, is when the holder should have ended: an event loop that is blocked beyond it
    loses the lease.
    """

    __slots__ = (
        "__weakref__",
        "_cancel",
        "_clock",
        "_deadline",
        "_doubt",
        "_flight",
        "_grant",
        "_keeper",
        "_listeners",
        "_progress",
        "_reason",
        "_suspended",
        "_told_cancel",
        "_told_lost",
        "holder",
        "id",
        "labels",
        "limit",
        "on_signal",
        "owner",
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
        on_signal: OnSignal | None = None,
        holder: Holder | None = None,
    ) -> None:
        self.id = id
        self.token = token
        self.owner = owner
        self.times = times
        self.on_signal = on_signal
        self.holder = holder
        self.labels: Mapping[str, str] | None = None
        self.limit: float | None = None
        self._clock = clock
        self._reason: str | None = None
        self._cancel = False
        self._progress: Progress | None = None
        self._told_lost = False
        self._told_cancel = False
        self._listeners: list[tuple[Holder | None, OnSignal]] = []
        self._suspended = 0
        self._doubt: Doubt | None = None
        self._flight: Request | None = None
        self._keeper: LeaseKeeper | None = None
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
        """Why the lease is lost: `deadline`, `closed`, `released`, `stalled`, or the word of the
        store (`taken`, `settled`, `lapsed`, `gone`, `refused`). None: it holds."""
        return self._reason if self.lost else None

    @property
    def verified(self) -> bool:
        """Whether the lease is known to hold or to be lost.

        False after a jump of the wall clock or the end of a suspension, until an extension has
        told. Meanwhile `lost` is not true yet, but `remaining()` promises nothing.
        """
        return self._doubt is None or self.lost

    @property
    def cancel_requested(self) -> bool:
        """Whether somebody asked the holder to stop. The lease holds on meanwhile."""
        return self._cancel

    @property
    def progress(self) -> Progress | None:
        """The last report."""
        return self._progress

    def remaining(self) -> float:
        """Seconds until the holder's own deadline (the store's less the margin).

        0 when lost or not verified; infinite while suspended.
        """
        now = self._clock.monotonic()
        if self._over(now) or self._doubt is not None:
            return 0.0
        return float("inf") if self._suspended else max(0.0, self._deadline - now)

    def check(self) -> None:
        """Raise `LeaseLost` if the lease is lost."""
        if self.lost:
            raise LeaseLost(f"the lease of {self.id} is lost ({self._reason})")

    def report(self, progress: Progress) -> None:
        """Let the next renewal carry `progress`; of several reports, the last."""
        self._progress = progress

    def on_lost(self, callback: OnSignal) -> None:
        """Have `callback(lease)` called once when the lease is lost.

        On the event loop that runs here now, or else on the keeper's callback thread. At once and
        in this thread if the holder was told before. A lease that is stopped calls nobody.
        """
        entry = (Holder.find(), callback)
        self._listeners.append(entry)
        if self._told_lost and self._unlisten(entry):
            callback(self)

    async def wait_lost(self) -> str:
        """Wait, on asyncio or trio, until the lease is lost; returns the reason.

        A lease that nobody renews any more is lost when its deadline passes.
        """
        told = Once()
        entry: tuple[None, OnSignal] = (None, lambda _: told.set())
        self._listeners.append(entry)
        try:
            while not self.lost:
                await told.wait_async(min(_LONGEST_SLEEP, max(0.01, self.remaining())))
        finally:
            self._unlisten(entry)
        return self._reason or DEADLINE

    def suspended(self) -> Suspension:
        """`with`, `async with`: work under a lock on the row itself, in one's own transaction.

        While it is open the deadline stands still and nothing is renewed: nobody can take over
        what is locked. At its end one extension decides whether the lease still holds; the block
        is left when that is known. It may be nested. Raises `LeaseLost` at once if the lease is
        lost, `RuntimeError` if no keeper keeps it.
        """
        from tenure.leases.suspension import Suspension

        return Suspension(self)

    def _unlisten(self, entry: tuple[Holder | None, OnSignal]) -> bool:
        """Take a listener out; False if it is taken already. Of several callers one gets True."""
        try:
            self._listeners.remove(entry)
        except ValueError:
            return False
        return True

    def _over(self, now: float) -> bool:
        """Whether the lease is lost at `now`."""
        if self._reason is None and now >= self._deadline and not self._suspended:
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
        if self._reason is not None:
            return False
        if self._doubt is not None and sent_at >= self._doubt.since:
            self._settle_doubt()
        return True

    def _end(self, reason: str) -> None:
        """Mark as lost; the holder knows, or does not want to."""
        if self._reason is None:
            self._reason = reason
        self._settle_doubt()

    def _lose(self, reason: str) -> bool:
        """Mark as lost; True the first time, when the holder has to be told."""
        self._end(reason)
        first, self._told_lost = not self._told_lost, True
        return first

    def _question(self, now: float, until: float | None = None) -> Doubt:
        """Trust the lease again only after an extension that is sent from `now` on.

        `until`: the deadline is not earlier than this, however long ago the last grant was.
        """
        doubt = self._doubt
        if doubt is None:
            doubt = self._doubt = Doubt(now)
        doubt.since = now
        if until is not None and self._deadline < until:
            self._deadline = until
        return doubt

    def _settle_doubt(self) -> None:
        doubt, self._doubt = self._doubt, None
        if doubt is not None:
            doubt.over.set()

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
