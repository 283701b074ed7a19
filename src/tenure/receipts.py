"""Settling and extending with a receipt, from another thread or process."""

from __future__ import annotations

import logging
import random
from typing import TYPE_CHECKING, Any

from tenure.clock import SYSTEM_CLOCK
from tenure.core import codec, receipts
from tenure.core.durations import SECOND, Seconds, micros
from tenure.core.job import JobError
from tenure.core.lease import LONGEST_LEASE, SHORTEST_LEASE, Beat, Busy, Extended
from tenure.core.outcomes import Completed, Errored, Outcome, Released, ReleaseReason, Verdict
from tenure.core.rules import decide
from tenure.core.states import State
from tenure.deliveries import written
from tenure.engines.protocol import Engine
from tenure.errors import LeaseLost
from tenure.telling import Telling

if TYPE_CHECKING:
    from tenure.service import QueueService

log = logging.getLogger("tenure.deliveries")


class Receipts:
    """What can be done with the `receipt` of a delivery or a job context: `jobs.receipts`.

    Every method raises `InvalidReceipt` for a text that is none or was changed, and `LeaseLost` if
    somebody else has the job by now. A job that is not there any more is no error: a warning is
    logged and False returned. Repeating what was done already is fine.
    """

    def __init__(self, service: QueueService) -> None:
        self._service = service

    async def ack(self, receipt: str, result: Any = None) -> bool:
        """Complete the job, with a result that JSON can hold. Raises `PayloadError`."""
        data = None if result is None else codec.encode(result, "result")
        return await self._settle(receipt, Completed(data))

    async def retry(self, receipt: str, after: Seconds | None = None) -> bool:
        """Have the job tried again: spends an attempt. `after` (seconds) replaces the backoff."""
        wait = None if after is None else micros(after, "after")
        at = SYSTEM_CLOCK.time_us()
        error = JobError(kind="Retry", message="retry requested by receipt", attempt=1, at=at)
        return await self._settle(receipt, Errored(error, after=wait))

    async def release(self, receipt: str) -> bool:
        """Give the job back as it was: due now, with nothing counted."""
        return await self._settle(receipt, Released(ReleaseReason.UNSTARTED))

    async def extend(self, receipt: str, seconds: Seconds) -> bool:
        """Let the lease end `seconds` (1 to 86,400) from now. Raises `ConfigurationError`."""
        known = receipts.read(receipt)
        length = micros(seconds, "seconds", minimum=SHORTEST_LEASE, maximum=LONGEST_LEASE)
        beat = Beat(known.id, known.token, known.owner, length / SECOND)
        [answer] = await self._service._run(lambda engine: engine.extend([beat]))
        if isinstance(answer, Extended | Busy):
            return True
        reason = getattr(answer, "reason", "")
        if reason == "gone":
            return _unknown(known)
        raise LeaseLost(f"job {known.id}: the lease is over ({reason})")

    async def _settle(self, receipt: str, outcome: Outcome) -> bool:
        known = receipts.read(receipt)

        async def settle(engine: Engine) -> bool:
            telling = self._service._receiving.telling
            return await _settled(engine, known, outcome, telling)

        return await self._service._run(settle)


async def _settled(
    engine: Engine, known: receipts.Receipt, outcome: Outcome, telling: Telling
) -> bool:
    [row] = await engine.get([known.id])
    if row is None:
        return _unknown(known)
    if (row.token, row.owner) != (known.token, known.owner):
        raise LeaseLost(f"job {known.id}: another holder has it, so nothing was written")
    if row.state is not State.RUNNING:
        return True
    if isinstance(outcome, Errored):
        at = JobError(
            kind=outcome.error.kind, message=outcome.error.message, attempt=row.attempt,
            at=outcome.error.at,
        )  # fmt: skip
        outcome = Errored(at, after=outcome.after)
    # The row may change until it is written, but for its holder's columns: the token sees to that.
    now = max(row.started_at or 0, SYSTEM_CLOCK.time_us())
    settlement = decide(row, outcome, now=now, roll=random.random())
    answer = await written(engine, settlement)
    telling.settled(row, settlement, answer, now)
    if answer.verdict is Verdict.LOST:
        if answer.state is None:
            return _unknown(known)
        raise LeaseLost(f"job {known.id}: another holder has it, so nothing was written")
    return True


def _unknown(known: receipts.Receipt) -> bool:
    log.warning("nobody knows the lease of job %s any more; nothing was done", known.id)
    return False
