"""What is under way, and what comes next for what is kept."""

from __future__ import annotations

import math
from collections.abc import Callable

from tenure.leases.desk import Desk, Entry
from tenure.leases.kept import Kept
from tenure.leases.lease import Lease
from tenure.leases.request import Errand, Request

JITTER = 0.1
"""At most this part of an interval is taken off, the same for all leases of a process."""


class Traffic(Kept):
    """Sees that of one lease no two extensions are in flight, and that each lands once."""

    def __init__(self, jitter: float, roll: Callable[[], float]) -> None:
        """`jitter`: 0 to `JITTER`; `roll` returns random numbers in [0, 1)."""
        super().__init__()
        self._jitter = jitter
        self._roll = roll
        self._flying: set[Request] = set()
        self._overtaking: list[tuple[Errand, Desk]] = []

    def orphan(self) -> None:
        """This is a copy in the child of a fork: nothing that flies will land, nothing is kept."""
        for request in self._flying:
            for lease in request.leases:
                lease._flight = None
        for lease in self._entries:
            lease._suspended = 0
            lease._keeper = None

    def _renewal(self, lease: Lease) -> float:
        return min(lease._next_renewal(self._jitter), lease._deadline)

    def _hasten(self, entry: Entry, now: float) -> None:
        """Renew now, or as soon as what is in flight has landed."""
        if entry.lease._flight is None:
            entry.desk.place(entry, now)
        else:
            entry.again = True
            entry.desk.place(entry, entry.lease._deadline)

    def _replan(self, entry: Entry, now: float) -> None:
        """The next event of an entry that has nothing in flight."""
        again, entry.again = entry.again, False
        if entry.lease._suspended:
            entry.desk.place(entry, math.inf)
        else:
            entry.desk.place(entry, now if again else self._renewal(entry.lease))

    def _send(self, request: Request) -> Request:
        self._flying.add(request)
        request.desk.flights += 1
        for entry in request.entries:
            entry.flight = request
            entry.again = False
            request.desk.place(entry, entry.lease._deadline)
        for lease in request.leases:
            lease._flight = request
        return request

    def _land(self, request: Request, now: float) -> None:
        """The request is over, and its answer filed: whoever waited for that goes on."""
        self._flying.discard(request)
        request.desk.flights -= 1
        older = None if request.errand is None else request.errand.overtook
        for lease in request.leases:
            if lease._flight is not request:
                continue
            lease._flight = older if older in self._flying else None
            entry = self._entries.get(lease)
            if entry is not None and entry.flight is None and entry.again:
                self._hasten(entry, now)
        for pair in [pair for pair in self._overtaking if pair[0].overtook is request]:
            self._overtaking.remove(pair)
            errand, desk = pair
            desk.errands.append(Errand(errand.lease, errand.seconds, now))
        request.over.set()

    def _ground(self, now: float) -> None:
        """The loop is gone that carried what is in flight."""
        self._overtaking.clear()
        for request in list(self._flying):
            if request.errand is not None:
                request.errand.request = None
                request.errand.at = now
            self._land(request, now)
