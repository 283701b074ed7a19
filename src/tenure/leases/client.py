"""What the keeper needs of a store or a service that grants leases."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Protocol

from tenure.core.durations import Seconds
from tenure.core.lease import Beat, Extension
from tenure.core.retry import RetryPolicy


class LeaseClient(Protocol):
    """A way to prolong leases, used by the keeper in its own event loop (asyncio) only.

    Whatever these calls raise is taken for transient; only a `Lost` answer ends a lease. A finite
    number `retry_after` on the exception is when to come back, in seconds. A call may be
    cancelled. One that resists cancellation holds up the leases it carries, no others.

    `open`, `close` and `extend` may be plain functions that block: they run in threads of the
    keeper, up to 32 at once for one client. A thread can't be cancelled, so give a blocking
    client time limits well below the renewal interval.

    A client may have more, which the keeper looks for:

    - `prepare()`: see `Preparing`.
    - `change(beats)`: as `extend`, for what holders ask for themselves: it may shorten a lease
      and, with 0 seconds, give it back. Without it `extend` is called.
    - `batch`: how many leases one call takes (1 to 1,000; default 1,000). Calls run side by side.
    - `stateless = True`: it is forgotten, and opened again, whenever it has no leases.
    """

    @property
    def resolution(self) -> Seconds:
        """The smallest step of a duration: what lies between two steps is rounded up. 0: any."""
        ...

    @property
    def retry(self) -> RetryPolicy:
        """The waits between transient failures; the keeper shortens them as a deadline nears."""
        ...

    def open(self) -> Awaitable[None] | None:
        """Connect. Called before the first `extend`, and again only after it failed.

        A client that outlives a crash of the keeper's loop is opened again in the next one, without
        a `close` in between: connections of the first are of no use there.
        """
        ...

    def close(self) -> Awaitable[None] | None:
        """Disconnect. Called once, after a successful `open`, when no `extend` is running."""
        ...

    def extend(
        self, beats: Sequence[Beat], /
    ) -> Awaitable[Sequence[Extension]] | Sequence[Extension]:
        """Prolong up to `batch` leases; one answer per beat, in order.

        Cancelled after min(5 s, the shortest renewal interval in the batch). Calls for different
        leases may overlap; two calls never carry the same lease.
        """
        ...


class Preparing(Protocol):
    """A client that fetches credentials where its user is, for renewals elsewhere."""

    def prepare(self) -> Awaitable[None] | None:
        """Called before a `LeaseRenewal` starts, in the caller's context, for up to 5 s.

        May be cancelled. A failure is noted at DEBUG and stops nothing.
        """
        ...
