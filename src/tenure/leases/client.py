"""What the keeper needs of a store or a service that grants leases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tenure.core.lease import Beat, Extension
from tenure.core.retry import RetryPolicy


class LeaseClient(Protocol):
    """A way to prolong leases, used by the keeper in its own event loop (asyncio) only.

    Whatever these calls raise is taken for transient; only a `Lost` answer ends a lease. A call
    may be cancelled. One that resists cancellation holds up the leases it carries, no others.
    """

    @property
    def retry(self) -> RetryPolicy:
        """The waits between transient failures; the keeper shortens them as a deadline nears."""
        ...

    async def open(self) -> None:
        """Connect. Called before the first `extend`, and again only after it failed.

        A client that outlives a crash of the keeper's loop is opened again in the next one, without
        a `close` in between: connections of the first are of no use there.
        """
        ...

    async def close(self) -> None:
        """Disconnect. Called once, after a successful `open`, when no `extend` is running."""
        ...

    async def extend(self, beats: Sequence[Beat]) -> Sequence[Extension]:
        """Prolong up to 1,000 leases; one answer per beat, in order.

        Cancelled after min(5 s, the shortest renewal interval in the batch). Calls for different
        leases may overlap; two calls never carry the same lease.
        """
        ...
