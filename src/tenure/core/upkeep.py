"""What a run of maintenance tells of itself."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class PhaseState(StrEnum):
    """How far a phase came."""

    DONE = "done"
    """There is nothing left to do."""

    PARTIAL = "partial"
    """Its time was over first; the next run goes on."""

    FAILED = "failed"
    """A step raised an error; what was done before it stays done."""


class PhaseReport(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one phase: how far it came, how many things it moved, and its error."""

    name: str
    state: PhaseState
    count: int = 0
    error: str | None = None


class Maintained(msgspec.Struct, frozen=True, kw_only=True):
    """What `maintain` did. `runner`: whoever does it; at most one in a fleet at a time.

    `already_running` tells that it was somebody else, so nothing was done here.
    """

    runner: str | None = None
    already_running: bool = False
    phases: tuple[PhaseReport, ...] = ()

    @property
    def state(self) -> str:
        """`already running`, or the worst of its phases: `failed`, `partial` or `done`."""
        if self.already_running:
            return "already running"
        states = {phase.state for phase in self.phases}
        worst = (PhaseState.FAILED, PhaseState.PARTIAL)
        return str(next((state for state in worst if state in states), PhaseState.DONE))
