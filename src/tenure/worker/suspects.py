"""Jobs that may be what killed their processes: those whose next lapse would be the last."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from tenure.core.job import JobRow


class Suspects:
    """Lets one suspect run at a time in this process, beside no other.

    A crash costs every job a lapse that ran in the process, whoever caused it. Jobs that are always
    claimed together with the culprit would spend their budgets with it; apart from it they end.
    """

    def __init__(self) -> None:
        self._chosen: str | None = None
        self._put_off: set[str] = set()
        self._changed = asyncio.Event()

    def note(self, rows: Iterable[JobRow]) -> None:
        """These were claimed: choose one, if none is chosen; the others are put off."""
        for row in rows:
            if row.lapses and row.lapses >= row.max_lapses:
                if self._chosen is None:
                    self._chosen = row.id
                elif row.id != self._chosen:
                    self._put_off.add(row.id)

    def is_put_off(self, row: JobRow) -> bool:
        """Whether this job must not run now, beside a suspect."""
        return row.id in self._put_off

    async def until_alone(self, row: JobRow) -> None:
        """For the chosen one: wait until the others have been given back, so that they are safe."""
        while row.id == self._chosen and self._put_off:
            self._changed.clear()
            await self._changed.wait()

    def ended(self, row: JobRow) -> None:
        """This job is settled, whatever became of it."""
        if row.id == self._chosen:
            self._chosen = None
        self._put_off.discard(row.id)
        self._changed.set()
