"""A claim that may go along with settlements: one message, one transaction, one answer.

A worker whose jobs end settles them and asks for as many new ones in the same breath. So a claim
waits for one turn of the event loop, to see whether settlements are about to be written; if there
are none, it goes alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tenure.core.job import JobRow
from tenure.engines.postgres.steps import Effects, Steps

ClaimSteps = Steps[list[JobRow] | None]


class Companion:
    """One claim, until somebody takes it along."""

    def __init__(self, work: Callable[[Effects], ClaimSteps], now: int | None) -> None:
        self.work = work
        self.now = now
        self.answer: asyncio.Future[list[JobRow] | None] = (
            asyncio.get_running_loop().create_future()
        )


class Platform:
    """The claims that wait to be taken along, the first one first."""

    def __init__(self) -> None:
        self._waiting: list[Companion] = []

    def wait(self, claim: Companion) -> None:
        """Let this one be taken along, from now on until it is taken back."""
        self._waiting.append(claim)

    def take(self, now: int | None) -> Companion | None:
        """A claim of the same instant that somebody still wants, to be gone along with."""
        for claim in self._waiting:
            if claim.now == now and not claim.answer.done():
                self._waiting.remove(claim)
                return claim
        return None

    def take_back(self, claim: Companion) -> bool:
        """Whether it still waited: then it goes alone."""
        if claim not in self._waiting:
            return False
        self._waiting.remove(claim)
        return True
