"""Where claims begin to look, in lanes whose fronts are full of dead rows.

While some transaction stays open for long, dead rows are not removed, and each claim would step
over all those at the front of its lanes: the longer, the more. Then, and only then, claims go on
where the last ones ended, and look from the front once a second. So a job that comes to stand
before others (by its priority) may be passed over for a second; none is left behind, because a
claim that finds too little looks from the front at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from tenure.core.job import JobRow
from tenure.engines.postgres.arrays import Bigints

Lane = tuple[str, str]
"""A queue and a task."""

SLOW = 5_000
"""Microseconds that a look takes when it steps over tens of thousands of dead rows."""

SEVERAL = 4
"""So many slow looks in a row are no accident."""

SECONDS = 1.0
"""How long claims do without a look from the front."""

_FRONT = -(2**63)


class Floors:
    """The lowest ranks that are worth a look, by lane, for the claims of one handle; and where it
    is not worth to try the short way, because queues are limited."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._slow = 0
        self._raised: dict[Lane, int] = {}
        self._until = 0.0
        self._used = False
        self.limited: set[str] = set()
        """Queues that had limits when they were last claimed from."""

    def of(self, lanes: Sequence[Lane]) -> Bigints:
        """From which rank on to look, for each of these lanes."""
        if self._raised and self._monotonic() >= self._until:
            self._raised.clear()
        self._used = bool(self._raised)
        if not self._used:
            return Bigints([_FRONT] * len(lanes))
        return Bigints(self._raised.get(lane, _FRONT) for lane in lanes)

    def note(self, microseconds: int, rows: Iterable[JobRow]) -> None:
        """A look took so long, and took these."""
        if not self._used:
            self._slow = self._slow + 1 if microseconds > SLOW else 0
            if self._slow < SEVERAL:
                return
            self._slow = SEVERAL
            self._until = self._monotonic() + SECONDS
        for row in rows:
            lane = (row.queue, row.task)
            self._raised[lane] = max(self._raised.get(lane, _FRONT), row.rank)

    def lift(self) -> bool:
        """Look from the front again, if the last look did not; whether that is so."""
        if not self._used:
            return False
        self._raised.clear()
        self._used = False
        return True
