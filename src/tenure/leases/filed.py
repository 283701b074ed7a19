"""What came of a step of the keeper."""

from __future__ import annotations

from tenure.leases.client import LeaseClient
from tenure.leases.lease import Lease
from tenure.leases.request import Request


class Filed:
    """Whom to tell, and what to write down."""

    __slots__ = (
        "busy", "cancelled", "delay", "extended", "failed", "fresh", "idle", "lost", "requests",
        "streak",
    )  # fmt: skip

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.extended: list[Lease] = []
        self.busy: list[Lease] = []
        self.lost: list[Lease] = []
        """Leases that were lost in this step and whose holders were not told before."""
        self.cancelled: list[Lease] = []
        """Leases whose cancel request came to be known in this step."""
        self.failed: list[tuple[Lease, str]] = []
        """Leases of which an answer said that nothing is known, and its words."""
        self.delay: float | None = None
        """Seconds until the retry of what failed; None if nothing is left to be tried."""
        self.streak = 0
        """How many requests of this client have failed in a row."""
        self.fresh = False
        """Whether a lease failed that had not failed just before."""
        self.idle: list[LeaseClient] = []
        """Clients that need not be remembered any more."""
