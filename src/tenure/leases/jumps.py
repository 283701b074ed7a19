"""Whether the wall clock jumped, as it does when a machine is set back or moved in its sleep."""

from __future__ import annotations

JUMP = 1.0
"""Seconds between two looks that no ordinary correction of a clock explains."""


class Jumps:
    """Compares the wall clock with the one that measures leases."""

    def __init__(self) -> None:
        self._offset: float | None = None

    def look(self, now: float, wall_us: int) -> bool:
        """Whether the two clocks went apart since the last look."""
        offset = wall_us / 1e6 - now
        before, self._offset = self._offset, offset
        return before is not None and abs(offset - before) > JUMP

    def rest(self) -> None:
        """There is nothing at stake for a while."""
        self._offset = None
