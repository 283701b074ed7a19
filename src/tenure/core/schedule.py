"""Recurring jobs: what a store keeps of a schedule, and the step from one tick to the next."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from tenure.core.job import NewJob


class Overlap(StrEnum):
    """What a tick does while a job of an earlier one is pending or running."""

    ALLOW = "allow"
    SKIP = "skip"
    """Insert nothing; the next tick is planned all the same."""

    CANCEL = "cancel"
    """Cancel the earlier ones (running ones are asked to stop), then insert."""


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """One recurring job. `next_at` (microseconds since the epoch) None: no further tick.

    `source` says who defined it: `code:<app>` or `api`. `definition` is what is needed to compute
    ticks and jobs; the store does not look into it. `revision` is drawn by the store at each save.
    """

    name: str
    source: str
    task: str
    definition: Mapping[str, Any] = {}
    overlap: Overlap = Overlap.ALLOW
    next_at: int | None = None
    last_at: int | None = None
    paused: bool = False
    revision: int = 0


class ScheduleChange(msgspec.Struct, frozen=True):
    """Save `schedule` under `name`, or remove it (None), if its revision is `expected` (0: new)."""

    name: str
    expected: int
    schedule: Schedule | None


class Tick(msgspec.Struct, frozen=True):
    """Fire the tick at `at`: insert `job`, plan `next_at`.

    Done only if the schedule has this `revision`, is not paused, expects exactly this tick, and
    its time has come by the store's clock.
    """

    name: str
    revision: int
    at: int
    next_at: int | None
    job: NewJob


class Fired(StrEnum):
    """What became of one tick."""

    FIRED = "fired"
    SKIPPED = "skipped"
    """An earlier job still lives, and the schedule's `overlap` is `skip`."""

    EARLY = "early"
    """Its time has not come by the store's clock."""

    STALE = "stale"
    """Another fired it, or the schedule was edited, paused or removed."""
