"""Tells tasks what becomes of jobs that no worker runs: received by hand, or settled elsewhere."""

from __future__ import annotations

import asyncio
import os

import msgspec

from tenure.context import JobContext
from tenure.core.job import JobRow
from tenure.core.outcomes import Settled, Settlement, Verdict
from tenure.core.rules import settled_values
from tenure.core.states import State
from tenure.tasks import TaskSet
from tenure.worker.callbacks import Callbacks
from tenure.worker.report import applied
from tenure.worker.surroundings import Surroundings

_PATIENCE = 5.0


class Telling:
    """The `on_failure` and `on_lost` of a service's tasks, called on its home loop.

    `open` there comes first; `lost` may be called on any thread. A loop that is gone tells nobody.
    """

    def __init__(self, tasks: TaskSet, surroundings: Surroundings) -> None:
        self._tasks = tasks
        self._surroundings = surroundings
        self._here: tuple[int, asyncio.AbstractEventLoop, Callbacks] | None = None

    def open(self) -> Callbacks:
        """What calls them, on the running loop and in this process."""
        pid, loop = os.getpid(), asyncio.get_running_loop()
        if self._here is None or self._here[:2] != (pid, loop):
            callbacks = Callbacks(self._tasks, self._surroundings.describer)
            self._here = pid, loop, callbacks
        return self._here[2]

    def settled(self, row: JobRow, settlement: Settlement, answer: Settled, now: int) -> None:
        """An outcome was written, at about the store's time `now`, or refused. On the home loop."""
        if answer.verdict is Verdict.LOST:
            return
        change = applied(settlement, answer)
        if change.state is State.FAILED:
            values = settled_values(row.priority, change, now)
            self.open().failed(msgspec.structs.replace(row, **values))

    def lost(self, context: JobContext, reason: str) -> None:
        """The lease of this attempt is lost."""
        if self._here is None or self._here[0] != os.getpid():
            return
        _, loop, callbacks = self._here
        try:
            loop.call_soon_threadsafe(callbacks.lost, context, reason)
        except RuntimeError:
            pass  # the loop is closed

    def over(self, row: JobRow) -> None:
        """Nothing more will be told of this attempt. On the home loop."""
        if self._here is not None:
            self._here[2].over(row)

    async def close(self) -> None:
        """Wait a little for what was called, then cancel it. On the home loop."""
        here, self._here = self._here, None
        if here is not None and here[:2] == (os.getpid(), asyncio.get_running_loop()):
            await here[2].close(_PATIENCE)
