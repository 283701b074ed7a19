"""What the keeper writes down: happenings for hooks, and log lines.

Warnings are kept for what an operator should see: the start of a streak of failures, a lost lease,
a stop that took too long, a keeper that died. The rest is DEBUG. Where nobody listens, nothing is
gathered.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from tenure.leases.book import Filed, Request
from tenure.leases.lease import Lease
from tenure.observe.hooks import Hooks

log = logging.getLogger("tenure.leases")


class Journal:
    """Tells hooks and the log; never raises an `Exception`, never under the keeper's lock."""

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks

    def registered(self, leases: Iterable[Lease]) -> None:
        self._each("lease.registered", leases)

    def stopped(self, leases: Iterable[Lease]) -> None:
        self._each("lease.stopped", leases)

    def attempts(self, requests: Iterable[Request]) -> None:
        """Requests are about to be sent."""
        if self._quiet():
            return
        for request in requests:
            self._tell("lease.extend_attempt", leases=len(request.beats), timeout=request.timeout)

    def filed(self, filed: Filed) -> None:
        """What came of a step, but for failures of requests."""
        self._each("lease.extend_ok", filed.extended)
        self._each("lease.busy", filed.busy)
        self._each("lease.cancel_requested", filed.cancelled)
        for lease in filed.lost:
            reason = lease.reason
            log.warning(
                "the lease of %s is lost: %s (token %d, owner %s)",
                lease.id, reason, lease.token, lease.owner,
            )  # fmt: skip
            self._hooks.emit("lease.lost", reason=reason, **_facts(lease))

    def failed(self, request: Request, error: BaseException | None, filed: Filed) -> None:
        """A request was not answered."""
        if filed.streak == 1:
            log.warning(
                "%d leases could not be renewed and are retried until they run out: %s: %s",
                len(request.beats), type(error).__name__, error,
            )  # fmt: skip
        if self._quiet():
            return
        self._tell(
            "lease.transient_retry",
            leases=len(request.beats),
            delay=filed.delay,
            streak=filed.streak,
            error=type(error).__name__,
            message=str(error),
        )

    def signal_failed(self, lease: Lease, error: Exception) -> None:
        self._tell(
            "lease.signal_failed", error=type(error).__name__, message=str(error), **_facts(lease)
        )

    def keeper(self, what: str) -> None:
        """The keeper's own life: `start`, `ready`, `shutdown`."""
        self._tell(f"lease.keeper_{what}")

    def died(self, error: BaseException, active: int) -> None:
        log.error(
            "the lease keeper died with %d leases; the next registration starts it again",
            active, exc_info=error,
        )  # fmt: skip
        self._hooks.emit(
            "lease.keeper_died", leases=active, error=type(error).__name__, message=str(error)
        )

    def stop_timeout(self, what: str, timeout: float) -> None:
        log.warning("%s did not end within %g s; it is left behind", what, timeout)
        self._hooks.emit("lease.stop_timeout", what=what, timeout=timeout)

    def _quiet(self) -> bool:
        return not (self._hooks.listening or log.isEnabledFor(logging.DEBUG))

    def _each(self, name: str, leases: Iterable[Lease]) -> None:
        if self._quiet():
            return
        for lease in leases:
            self._tell(name, **_facts(lease))

    def _tell(self, name: str, **facts: Any) -> None:
        log.debug("%s %s", name, facts)
        self._hooks.emit(name, **facts)


def _facts(lease: Lease) -> dict[str, Any]:
    return {
        "id": lease.id,
        "token": lease.token,
        "owner": lease.owner,
        "seconds": lease.times.length,
    }
