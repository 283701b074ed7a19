"""Receiving by hand without an event loop: the blocking twins of deliveries and receivers."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from tenure.core.durations import Seconds
from tenure.deliveries import PATIENCE, DeliveryFace, instruction, waits
from tenure.errors import TenureError
from tenure.leases.lease import Lease
from tenure.leases.renewal import STOP_TIMEOUT
from tenure.receiving import Batch, ReceiveOptions

if TYPE_CHECKING:
    from tenure.service import QueueService

log = logging.getLogger("tenure.deliveries")


class Delivery(DeliveryFace):
    """One job in your hands: the blocking twin of `tenure.deliveries.Delivery`.

        with delivery:
            work(**delivery.arguments)

    It ends as the async one does. Nothing can interrupt a thread, so look at `lease.lost` or call
    `lease.check()` between steps; a block that ends after its lease was taken over raises
    `LeaseLost`, and nothing is written.
    """

    def attach(self, stream: Any) -> None:
        """Have `stream.finalize()` called before the job is settled, however the block ends.

        Raises `InvalidArguments` for a stream that can only be finished asynchronously.
        """
        self._held.attach(stream, sync=True)

    def extend(self, seconds: Seconds) -> None:
        """Set the lease to `seconds` from now, at once; renewals go on from there.

        Raises `LeaseLost`, or `EngineUnavailable` after three tries.
        """
        errand = self._held.ask(seconds)
        errand.over.wait(PATIENCE)
        self._held.extended(errand)

    def __enter__(self) -> Self:
        held = self._held
        held.begin()
        held.lease.on_signal = self._signalled
        self._signalled(held.lease)  # what came before nobody was told
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: Any
    ) -> bool:
        held = self._held
        held.lease.on_signal = None
        held.keeper.remove([held.lease])
        flight = held.lease._flight
        if waits(error) and flight is not None:
            flight.over.wait(STOP_TIMEOUT)
        failure = None
        try:
            if held.stream is not None:
                held.stream.finalize()
        except Exception as caught:
            failure = caught
        try:
            held.service._home.run_sync(partial(held.close, error, failure))
        finally:
            held.leave()
        return instruction(error) is not None

    def _signalled(self, lease: Lease) -> None:
        """The lease is lost, or the job is to be cancelled. On a thread of the keeper's."""
        self._held.signalled()


class Receiver:
    """What the blocking `receive` returns: enter it with `with`, or loop with `for`."""

    def __init__(self, service: QueueService, options: ReceiveOptions) -> None:
        self._service = service
        self._options = options
        self._batch: Batch | None = None

    def __enter__(self) -> list[Delivery]:
        if self._batch is not None:
            raise RuntimeError("a receiver is entered once; call receive() again")
        self._batch = Batch(self._service)
        return _filled(self._service, self._batch, self._options)

    def __exit__(self, *exc: object) -> None:
        assert self._batch is not None
        _release(self._service, self._batch)

    def __iter__(self) -> Iterator[Delivery]:
        return _Stream(self._service, self._options)


class _Stream:
    """Hands out a batch one by one; what was not started when the loop ends is given back."""

    def __init__(self, service: QueueService, options: ReceiveOptions) -> None:
        self._service = service
        self._options = options
        self._batch = Batch(service)
        self._left: deque[Delivery] | None = None

    def __iter__(self) -> _Stream:
        return self

    def __next__(self) -> Delivery:
        if self._left is None:
            self._left = deque(_filled(self._service, self._batch, self._options))
        if not self._left:
            _release(self._service, self._batch)
            raise StopIteration
        return self._left.popleft()

    def __del__(self) -> None:
        self._batch.abandon()  # after a `break`, nobody else does


def _filled(service: QueueService, batch: Batch, options: ReceiveOptions) -> list[Delivery]:
    try:
        service._home.run_sync(partial(batch.fill, options))
    except BaseException:
        batch.abandon()
        raise
    return [Delivery(held) for held in batch.held]


def _release(service: QueueService, batch: Batch) -> None:
    try:
        service._home.run_sync(batch.release)
    except TenureError as error:
        log.warning("deliveries could not be given back; their leases will lapse: %s", error)
