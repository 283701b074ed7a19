"""What the keeper writes down: happenings for hooks, and log lines.

Warnings are kept for what an operator should see: the start of a streak of failures, a lost lease,
a stop that took too long, a keeper that died. The rest is DEBUG. Where nobody listens, nothing is
gathered.
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Iterable, Sequence
from typing import Any

from tenure.errors import TenureError
from tenure.leases.filed import Filed
from tenure.leases.lease import Lease
from tenure.leases.request import Request
from tenure.leases.stalls import Stall
from tenure.observe.hooks import Hooks

_NAMED = 10
"""How many leases a line names when it concerns many."""

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
        if self._quiet("lease.extend_attempt"):
            return
        for request in requests:
            self._tell("lease.extend_attempt", leases=len(request.beats), timeout=request.timeout)

    def filed(self, filed: Filed) -> None:
        """What came of a step, but for failures of whole requests."""
        self._each("lease.extend_ok", filed.extended)
        self._each("lease.busy", filed.busy)
        self._each("lease.cancel_requested", filed.cancelled)
        if filed.failed:
            self._unanswered(filed)
        for lease in filed.lost:
            reason = lease.reason
            if reason not in ("deadline", "closed", "stalled"):
                self._tell("lease.refused", reason=reason, **_facts(lease))
            # Settled under this very token, by a receipt or in the holder's own transaction.
            level = logging.INFO if reason == "settled" else logging.WARNING
            log.log(
                level,
                "the lease of %s is lost: %s (token %d, owner %s)",
                lease.id, reason, lease.token, lease.owner,
            )  # fmt: skip
            self._hooks.emit("lease.lost", reason=reason, **_facts(lease))

    def failed(self, request: Request, error: BaseException | None, filed: Filed) -> None:
        """A request was not answered."""
        self._warn(len(request.beats), filed, f"{type(error).__name__}: {error}")
        name = "lease.transient_retry" if _expected(error) else "lease.unexpected_retry"
        if self._quiet(name):
            return
        self._tell(
            name,
            leases=len(request.beats),
            delay=filed.delay,
            streak=filed.streak,
            error=type(error).__name__,
            message=str(error),
        )

    def _unanswered(self, filed: Filed) -> None:
        """Single leases of an answered request failed."""
        self._warn(len(filed.failed), filed, filed.failed[0][1])
        if self._quiet("lease.transient_retry"):
            return
        for lease, text in filed.failed:
            self._tell("lease.transient_retry", delay=filed.delay, message=text, **_facts(lease))

    def _warn(self, count: int, filed: Filed, why: str) -> None:
        """Once per streak: while it lasts, neither the client nor the lease is new to it."""
        if filed.fresh and filed.streak <= 1:
            log.warning(
                "%d leases could not be renewed and are retried until they run out: %s", count, why
            )

    def gone(self, lease: Lease, reason: str) -> None:
        """An extension that a holder asked for came too late to matter."""
        log.warning("the lease of %s is gone already (%s); nothing was extended", lease.id, reason)
        self._hooks.emit("visibility.lease_gone", reason=reason, **_facts(lease))

    def prime_failed(self, lease: Lease, error: BaseException) -> None:
        """Credentials could not be fetched ahead."""
        self._tell(
            "lease.prime_failed",
            error=type(error).__name__,
            message=str(error),
            **_facts(lease),
        )

    def unverified(self, leases: Sequence[Lease]) -> None:
        """The wall clock jumped, so nothing is certain until it has been asked for."""
        log.warning("the wall clock jumped; %d leases are extended before use", len(leases))
        self._each("lease.unverified", leases)

    def overslept(self, seconds: float) -> None:
        log.warning(
            "no lease could be renewed for %.1f s: the process was stopped, the machine was "
            "suspended, or some code kept the interpreter to itself", seconds,
        )  # fmt: skip
        self._hooks.emit("lease.keeper_late", seconds=seconds)

    def stalled(self, stall: Stall, leases: Sequence[Lease]) -> None:
        """An event loop stands still; says where."""
        thread = stall.holder.thread
        frame = None if thread is None else sys._current_frames().get(thread)
        stack = "" if frame is None else "".join(traceback.format_stack(frame))
        ids = [lease.id for lease in leases[:_NAMED]]
        log.warning(
            "the event loop that holds %d leases (%s) has not run for %.1f s; it is here:\n%s",
            len(leases), ", ".join(ids), stall.seconds, stack,
        )  # fmt: skip
        self._hooks.emit(
            "worker.stalled", seconds=stall.seconds, leases=len(leases), ids=ids, stack=stack
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

    def _quiet(self, name: str) -> bool:
        return not (self._hooks.hears(name) or log.isEnabledFor(logging.DEBUG))

    def _each(self, name: str, leases: Iterable[Lease]) -> None:
        if self._quiet(name):
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
        **(lease.labels or {}),
    }


def _expected(error: BaseException | None) -> bool:
    """Whether this is what networks and services do, and no defect."""
    expected = isinstance(error, OSError | TenureError)  # a TimeoutError is an OSError
    return expected or getattr(error, "transient", False)
