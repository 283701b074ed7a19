"""A claimed job in somebody's hands, from the claim to its settlement."""

from __future__ import annotations

import logging
import random
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import anyio

from tenure.ambient import Entered
from tenure.clock import SYSTEM_CLOCK
from tenure.context import JobContext
from tenure.core import codec, receipts
from tenure.core.directives import Cancel, Directive, Discard, Handoff, Retry, Snooze, alone
from tenure.core.durations import SECOND, Seconds, micros
from tenure.core.job import Job, JobRow
from tenure.core.lease import LONGEST_LEASE, SHORTEST_LEASE, Lost
from tenure.core.outcomes import (
    Cancelled,
    Completed,
    Errored,
    Outcome,
    Released,
    ReleaseReason,
    Settled,
    Settlement,
    Snoozed,
    Verdict,
)
from tenure.core.retry import RetryPolicy
from tenure.core.rules import decide
from tenure.engines.protocol import Engine
from tenure.errors import EngineUnavailable, InvalidArguments, LeaseLost
from tenure.leases.client import LeaseClient
from tenure.leases.holder import Holder
from tenure.leases.keeper import LeaseKeeper
from tenure.leases.lease import Lease
from tenure.leases.once import in_thread, uninterrupted
from tenure.leases.renewal import STOP_TIMEOUT
from tenure.leases.request import Errand

if TYPE_CHECKING:
    from tenure.service import QueueService

log = logging.getLogger("tenure.deliveries")

TRIES = 3
PATIENCE = 60.0
"""Seconds to wait for an explicit extension, which gives up earlier by itself."""
_BACKOFF = RetryPolicy(base=0.1, factor=2.0, cap=2.0, jitter=0.5)


class Held:
    """What both faces of a delivery share: the row, its lease, and how it is settled."""

    def __init__(
        self,
        service: QueueService,
        keeper: LeaseKeeper,
        client: LeaseClient,
        engine: Engine,
        row: JobRow,
        lease: Lease,
        sent_at: float,
    ) -> None:
        self.service = service
        self.keeper = keeper
        self.row = row
        self.lease = lease
        self.result: bytes | None = None
        self.stream: Any = None
        self.owned = True
        """Whether the delivery settles the job; not after `accept` or its end."""
        self.client = client
        self.context = JobContext(row, lease, keeper.clock, engine)
        self._telling = service._receiving.telling
        self._sent_at = sent_at
        self._entered: Entered | None = None
        self._tickets = [True]  # whoever takes the one ticket starts it, or gives it back

    @property
    def receipt(self) -> str:
        row = self.row
        return receipts.write(receipts.Receipt(row.id, row.token, row.owner or ""))

    @property
    def started(self) -> bool:
        """Whether somebody works on it, or did."""
        return not self._tickets

    def take(self) -> bool:
        """Take what nobody has taken yet."""
        try:
            self._tickets.pop()
        except IndexError:
            return False
        return True

    def begin(self) -> None:
        """Start to work on it. Raises `RuntimeError` the second time."""
        self.lease.check()  # unstarted, it is given back at the end, if it still can be
        if not self.take():
            what = "was started before" if self.owned else "was accepted or given back"
            raise RuntimeError(f"the delivery of job {self.row.id} {what}")
        self._entered = Entered(self.context)

    def leave(self) -> None:
        """The block is over: what runs from now on is not for this job."""
        if self._entered is not None:
            self._entered.leave()

    def signalled(self) -> bool:
        """Hear what the keeper learned of the lease; whether the block is to end."""
        lease = self.lease
        if lease.lost and not self.context.completed:
            self.context.stop("lost")
            self.tell_lost(lease.reason or "unknown")
        elif lease.cancel_requested and not lease.lost:
            self.context.stop("cancel")
        return self.context.stopping is not None

    def tell_lost(self, reason: str) -> None:
        """Tell the task, once, that this attempt lost its lease."""
        self._telling.lost(self.context, reason)

    def accept(self) -> None:
        """From now on whoever has the receipt settles. Raises `RuntimeError` the second time."""
        if not self.owned:
            raise RuntimeError(f"the delivery of job {self.row.id} is settled or accepted already")
        self.take()
        self.owned = False
        self.keeper.remove([self.lease])

    def outcome(self, error: BaseException | None) -> Outcome | None:
        """How it ended, by the exception that left the block; None for a hand-off."""
        directive = None if error is None else alone(error)
        match directive:
            case None:
                return Completed(self.result)
            case Handoff():
                return None
            case Retry():
                return self.errored(directive, after=directive.after, spread=directive.spread)
            case Snooze():
                return Snoozed(directive.delay)
            case Cancel():
                at = SYSTEM_CLOCK.time_us()
                describer = self.service._surroundings.describer
                return Cancelled(describer.error(directive, self.row, at=at, kind="cancelled"))
            case Discard():
                return self.errored(directive, retryable=False)
            case Exception():
                return self.errored(directive)
            case _:
                # Cancelled from outside, or the process ends: somebody else goes on.
                return Released(ReleaseReason.SHUTDOWN)

    def errored(
        self,
        error: BaseException,
        *,
        retryable: bool = True,
        after: int | None = None,
        spread: float = 0.0,
    ) -> Errored:
        describer = self.service._surroundings.describer
        described = describer.error(error, self.row, at=SYSTEM_CLOCK.time_us())
        return Errored(described, retryable=retryable, after=after, spread=spread)

    def settlement(self, outcome: Outcome) -> Settlement:
        return decide(self.row, outcome, now=self._now(), roll=random.random())

    def _now(self) -> int:
        """The store's time, as far as it is known here."""
        elapsed = round((self.keeper.clock.monotonic() - self._sent_at) * SECOND)
        return (self.row.started_at or 0) + elapsed

    async def close(
        self, error: BaseException | None, failure: Exception | None, *, stopped: bool = False
    ) -> None:
        """Write how the block ended, and raise what it does not raise by itself.

        `error` left the block; `failure` is that of finishing the stream; `stopped`: the block was
        cancelled because the lease is lost, or the job to be cancelled.
        """
        primary = None if instruction(error) is not None else error
        if failure is not None and error is not None:
            text = (
                f"after {type(error).__name__}, finishing the payload of job {self.row.id} failed"
            )
            self.service._surroundings.describer.log(text, failure, self.row)
        if self.owned:
            self.owned = False
            if stopped and self.lease.lost:
                raise LeaseLost(f"job {self.row.id}: the lease is lost ({self.lease.reason})")
            outcome = Cancelled() if stopped else self.outcome(error or failure)
            try:
                if outcome is not None:
                    await self.settle(outcome)
            except (LeaseLost, EngineUnavailable) as refused:
                if primary is None and failure is None:
                    raise
                log.warning("the end of job %s could not be written: %s", self.row.id, refused)
        if failure is not None and error is None:
            raise failure

    async def settle(self, outcome: Outcome) -> None:
        """Write the outcome. Raises `LeaseLost` if the job is somebody else's by now."""
        answer = await self.service._run(partial(self.write, outcome=outcome))
        if answer.verdict is Verdict.LOST and answer.state is not None:
            self.tell_lost("taken")
            raise LeaseLost(f"job {self.row.id}: another holder has it, so nothing was written")
        if answer.verdict is not Verdict.APPLIED:
            log.debug("job %s was settled before, or is gone (%s)", self.row.id, answer.verdict)

    async def write(self, engine: Engine, outcome: Outcome) -> Settled:
        """Write the outcome, and tell the task if the job has failed by it. On the home loop."""
        settlement = self.settlement(outcome)
        answer = await written(engine, settlement)
        self._telling.settled(self.row, settlement, answer, self._now())
        return answer

    def ask(self, seconds: Seconds) -> Errand:
        """Extend the lease once."""
        length = micros(seconds, "seconds", minimum=SHORTEST_LEASE, maximum=LONGEST_LEASE)
        return self.keeper.ask(self.client, self.lease, length / SECOND)

    def extended(self, errand: Errand) -> None:
        """What came of it. Raises `LeaseLost`, or what the engine raised."""
        if isinstance(errand.answer, Lost):
            raise LeaseLost(f"job {self.row.id}: the lease is lost ({errand.answer.reason})")
        if errand.answer is None:
            raise errand.error or EngineUnavailable("the extension was not answered")

    def attach(self, stream: Any, *, sync: bool) -> None:
        if sync and hasattr(stream, "afinalize") and not hasattr(stream, "finalize"):
            raise InvalidArguments(
                "this payload can only be finished asynchronously: "
                "receive it with `async with`, from an event loop"
            )
        self.stream = stream


def instruction(error: BaseException | None) -> Directive | None:
    """The directive that left a block, if one did: it ends there."""
    directive = None if error is None else alone(error)
    return directive if isinstance(directive, Directive) else None


def waits(error: BaseException | None) -> bool:
    """Whether a late renewal would undo what is done at this end."""
    return isinstance(instruction(error), Retry | Snooze | Handoff)


async def written(engine: Engine, settlement: Settlement) -> Settled:
    """Settle one attempt: three tries, and longer while the row is locked."""
    failures = 0
    while True:
        try:
            [answer] = await engine.settle([settlement])
        except EngineUnavailable:
            failures += 1
            if failures == TRIES:
                raise
        else:
            if answer.verdict is not Verdict.BUSY:
                return answer
            failures = min(failures, TRIES - 1)
        await anyio.sleep(_BACKOFF.delay(max(failures, 1), random.random()) / SECOND)


class DeliveryFace:
    """What both kinds of deliveries show."""

    def __init__(self, held: Held) -> None:
        self._held = held

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self.task}>"

    @property
    def job(self) -> Job:
        """The job as it was claimed."""
        return Job(self._held.row)

    @property
    def id(self) -> str:
        return self._held.row.id

    @property
    def task(self) -> str:
        """The name of the task."""
        return self._held.row.task

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments by the names of their parameters, as plain JSON values.

        Only those that were given: a default is up to the code that uses it.
        Raises `PayloadError` if they cannot be read.
        """
        arguments: dict[str, Any] = codec.decode(self._held.row.payload)
        return arguments

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""
        return self._held.row.attempt

    @property
    def lease(self) -> Lease:
        """The right to work on the job: `lost`, `remaining()`, `check()`, `token`, `on_lost`."""
        return self._held.lease

    @property
    def receipt(self) -> str:
        """A string with which any process can settle or extend; see `QueueService.receipts`."""
        return self._held.receipt

    @property
    def result(self) -> Any:
        """What the job completes with: None, or any value that JSON can hold."""
        data = self._held.result
        return None if data is None else codec.decode(data)

    @result.setter
    def result(self, value: Any) -> None:
        self._held.result = None if value is None else codec.encode(value, "result")

    def accept(self) -> Lease:
        """Take over the settlement: from now on whoever has the `receipt` ends the job.

        A hand-off without leaving the block. The lease is renewed no more, and nothing is written
        when the block ends. Raises `RuntimeError` the second time, and after the end.
        """
        self._held.accept()
        return self.lease


class Delivery(DeliveryFace):
    """One job in your hands. An async context manager: its block ends the job.

    Within it `current_job()` is this job, and its correlation is carried on. Its task, if the
    service knows it, is told by `on_failure` and `on_lost` as it is by a worker.

        async with delivery:
            await work(**delivery.arguments)

    Its lease is kept from the claim on, and renewed until the block ends. A block that ends well
    completes the job, with `result`; `Retry`, `Snooze`, `Cancel`, `Discard` and `Handoff` end it
    as in a task, and go no further; any other exception counts as a failure of the attempt, under
    the job's retry policy, and goes on. A block that is cancelled gives the job back.

    When the lease is lost, the block is cancelled and raises `LeaseLost`, and nothing is written;
    when somebody cancels the job, the block is cancelled and the job with it.
    """

    def __init__(self, held: Held) -> None:
        super().__init__(held)
        self._scope: anyio.CancelScope | None = None

    def attach(self, stream: Any) -> None:
        """Have `stream.afinalize()`, or else `stream.finalize()`, called before the job is settled.

        However the block ends. A failure there is one of the block, unless it failed before.
        """
        self._held.attach(stream, sync=False)

    async def extend(self, seconds: Seconds) -> None:
        """Set the lease to `seconds` from now, at once; renewals go on from there.

        Raises `LeaseLost`, or `EngineUnavailable` after three tries.
        """
        errand = self._held.ask(seconds)
        await errand.over.wait_async(PATIENCE)
        self._held.extended(errand)

    async def __aenter__(self) -> Self:
        held = self._held
        held.begin()
        self._scope = anyio.CancelScope()
        self._scope.__enter__()
        held.keeper.move(held.lease, Holder.find())
        held.lease.on_signal = self._signalled
        self._signalled(held.lease)  # what came before nobody was told
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: Any
    ) -> bool:
        held = self._held
        held.lease.on_signal = None
        held.keeper.remove([held.lease])  # before anything is awaited
        stopped, left = self._leave(kind, error, trace)
        try:
            await uninterrupted(partial(self._end, left, stopped))
        finally:
            held.leave()
        if left is not None and left is not error:
            raise left
        return stopped or instruction(left) is not None

    def _leave(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: Any
    ) -> tuple[bool, BaseException | None]:
        """End the scope: whether it was we who cancelled the block, and what else left it."""
        scope, self._scope = self._scope, None
        assert scope is not None
        try:
            swallowed = bool(scope.__exit__(kind, error, trace)) and error is not None
        except BaseException as remaining:  # an exception group without our cancellations
            return False, remaining
        return (True, None) if swallowed else (False, error)

    async def _end(self, error: BaseException | None, stopped: bool) -> None:
        flight = self.lease._flight
        if waits(error) and flight is not None:
            await flight.over.wait_async(STOP_TIMEOUT)
        failure = None
        try:
            with anyio.fail_after(max(1.0, self.lease.remaining())):
                await self._finish()
        except Exception as caught:
            failure = caught
        await self._held.close(error, failure, stopped=stopped)

    async def _finish(self) -> None:
        stream = self._held.stream
        afinalize = getattr(stream, "afinalize", None)
        finalize = getattr(stream, "finalize", None)
        if afinalize is not None:
            await afinalize()
        elif finalize is not None:
            await in_thread(finalize)

    def _signalled(self, lease: Lease) -> None:
        """The lease is lost, or the job is to be cancelled. On the loop of the block."""
        if self._scope is not None and self._held.signalled():
            self._scope.cancel()
