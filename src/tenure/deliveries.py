"""A claimed job in somebody's hands, from the claim to its settlement."""

from __future__ import annotations

from functools import partial
from typing import Any, Self

import anyio

from tenure.core import codec
from tenure.core.durations import Seconds
from tenure.core.job import Job
from tenure.held import PATIENCE, Held, instruction, waits
from tenure.leases.holder import Holder
from tenure.leases.lease import Lease
from tenure.leases.once import in_thread, uninterrupted
from tenure.leases.renewal import STOP_TIMEOUT


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
