"""Keeping one lease of any service alive while somebody works under it."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable
from typing import Self

import anyio

from tenure.core.durations import Seconds
from tenure.core.lease import (
    LONGEST_MESSAGE_LEASE,
    Extension,
    LeaseTimes,
    Lost,
    message_times,
    stepped,
)
from tenure.errors import EngineUnavailable, LeaseLost
from tenure.leases.client import LeaseClient
from tenure.leases.grant import Grant
from tenure.leases.holder import Holder
from tenure.leases.keeper import LeaseKeeper
from tenure.leases.lease import Lease, OnSignal
from tenure.leases.prime import prime, prime_async
from tenure.leases.process import default_keeper
from tenure.leases.request import PATIENCE, Errand

log = logging.getLogger("tenure.leases")

STOP_TIMEOUT = 5.0
"""Longest wait of a stop for an extension in flight, in seconds."""

_TOLERATED = frozenset({"gone", "settled"})


class LeaseRenewal:
    """Renews one lease from `start` to `stop`. A context manager, sync and async; single use.

        with LeaseRenewal(client, receipt) as renewal:
            ...  # renewal.check() between steps; renewal.lost, renewal.remaining()

    `receipt` is what the service knows the lease by; without one, starting, stopping and extending
    do nothing. `seconds` is the length of the lease (30 to 3,600, default 300; rounded up to the
    client's resolution); `times` replaces it for services with other habits.

    `grant` tells when the lease began and how long it is (see `Grant`); else it begins now.

    Raises `ConfigurationError` (a `ValueError`) for what is out of range.

    Used by `async with`, the block is cancelled when the lease is lost, and then raises
    `LeaseLost`. A handle that is forgotten unstopped ends its renewal with a `ResourceWarning`.
    """

    def __init__(
        self,
        client: LeaseClient,
        receipt: str | None,
        seconds: Seconds | None = None,
        *,
        token: int = 0,
        times: LeaseTimes | None = None,
        grant: Grant = Grant(),  # noqa: B008 (a named tuple)
        keeper: LeaseKeeper | None = None,
    ) -> None:
        self.client = client
        self.receipt = receipt
        self._keeper = default_keeper() if keeper is None else keeper
        self._tickets = [True]  # whoever takes the one ticket starts
        self._started = False
        self._closed = False
        self._scope: anyio.CancelScope | None = None
        self._grant = grant
        clock = self._keeper.clock
        self.lease = Lease(
            receipt or "",
            token,
            "",
            message_times(seconds, client.resolution) if times is None else times,
            sent_at=clock.monotonic() if grant.sent_at is None else grant.sent_at,
            granted=grant.seconds,
            clock=clock,
        )

    # What the holder sees

    @property
    def lost(self) -> bool:
        """Whether the holder must stop; see `Lease.lost`. Never without a receipt."""
        return bool(self.receipt) and self.lease.lost

    @property
    def reason(self) -> str | None:
        """Why the lease is lost; see `Lease.reason`."""
        return self.lease.reason if self.receipt else None

    @property
    def active(self) -> bool:
        """Whether the lease is being renewed, as far as this handle was told."""
        return self._started and not self._closed

    def remaining(self) -> float:
        """Seconds that the holder may rely on; infinite without a receipt."""
        return self.lease.remaining() if self.receipt else float("inf")

    def check(self) -> None:
        """Raise `LeaseLost` if the lease is lost."""
        if self.receipt:
            self.lease.check()

    async def wait_lost(self) -> str:
        """Wait until the lease is lost; returns the reason. Without a receipt, for ever."""
        if not self.receipt:
            await anyio.sleep_forever()
        return await self.lease.wait_lost()

    def on_lost(self, callback: OnSignal) -> None:
        """Have `callback(lease)` called once when the lease is lost; see `Lease.on_lost`."""
        self.lease.on_lost(callback)

    # Starting and stopping

    def start(self) -> None:
        """Renew from now on. Returns when that is recorded; never waits for renewals.

        Credentials are prepared first, for up to 5 s. Raises `RuntimeError` if the handle was used
        before, or if the keeper can't run; after the latter it may be started again.
        """
        if not self._take():
            return
        try:
            prime(self.client, self._note)
            self._keeper.register(self.client, [self.lease])
        except BaseException:
            self._give_back()
            raise
        self._begun()

    async def astart(self) -> None:
        """As `start`, on asyncio or trio. Takes no thread from their pools.

        Cancelled meanwhile, it leaves nothing behind and may be started again.
        """
        if not self._take():
            return
        self.lease.holder = Holder.find()
        try:
            await prime_async(self.client, self._note)
            await self._keeper.aregister(self.client, [self.lease])
        except BaseException:
            self._give_back()
            raise
        self._begun()

    def stop(self, *, wait: bool = True) -> None:
        """Renew no more. Idempotent, from any thread, any number of times at once.

        `wait` lets an extension in flight end (up to 5 s, then a warning), so that it can't undo a
        change of the lease that comes after; every caller that waits really does.
        """
        if self._end() and wait:
            self._landed(self._flight_over(STOP_TIMEOUT))

    async def astop(self, *, wait: bool = True) -> None:
        """As `stop`. Renewal has ended before anything is awaited, so cancellation leaves nothing
        behind; the waiting goes on through it, and then it is raised."""
        if not self._end() or not wait:
            return
        flight = self.lease._flight
        if flight is not None:
            self._landed(await flight.over.wait_shielded(STOP_TIMEOUT))

    @staticmethod
    def start_all(renewals: Iterable[LeaseRenewal]) -> None:
        """As `start` for each, in one step per client and keeper; all of them or none."""
        taken: list[LeaseRenewal] = []
        groups: dict[tuple[int, int], list[LeaseRenewal]] = {}
        try:
            for renewal in renewals:
                if renewal._take():
                    taken.append(renewal)
                    groups.setdefault((id(renewal.client), id(renewal._keeper)), []).append(renewal)
            for group in groups.values():
                prime(group[0].client, group[0]._note)
                leases = [renewal.lease for renewal in group]
                group[0]._keeper.register(group[0].client, leases)
        except BaseException:
            for renewal in taken:
                renewal._keeper.remove([renewal.lease])
                renewal._give_back()
            raise
        for renewal in taken:
            renewal._begun()

    @staticmethod
    def stop_all(renewals: Iterable[LeaseRenewal], *, wait: bool = True) -> None:
        """As `stop` for each, in one step per keeper; the wait is 5 s for all together."""
        all_of_them = [renewal for renewal in renewals if renewal.receipt]
        keepers: dict[int, tuple[LeaseKeeper, list[Lease]]] = {}
        for renewal in all_of_them:
            renewal._closed = True
            keeper = renewal._keeper
            keepers.setdefault(id(keeper), (keeper, []))[1].append(renewal.lease)
        for keeper, leases in keepers.values():
            keeper.remove(leases)
        if wait:
            end = all_of_them[0]._keeper.clock.monotonic() + STOP_TIMEOUT if all_of_them else 0.0
            for renewal in all_of_them:
                if renewal.lease._flight is not None:
                    left = max(0.0, end - renewal._keeper.clock.monotonic())
                    renewal._landed(renewal._flight_over(left))

    # Extending by hand

    def extend(self, seconds: Seconds) -> Extension | None:
        """Set the lease to `seconds` (0 to 3,600) from now, at once; 0 gives it back.

        Up to three tries within what is left of the lease, never beside a renewal. Renewals go on
        from there; 0 stops them first, waiting, and ends the lease. A lease that is gone already
        is tolerated with a warning. Raises `LeaseLost` if it is somebody else's, what the client
        raised if it can't be reached, and `ConfigurationError` for a bad duration. Works before
        start and after stop, too. None without a receipt.
        """
        errand = self._ask(seconds)
        if errand is None:
            return None
        errand.over.wait(self._bound(errand))
        return self._outcome(errand)

    async def extend_async(self, seconds: Seconds) -> Extension | None:
        """As `extend`. Cancelled meanwhile, the extension may or may not be made."""
        length = stepped(seconds, "seconds", self.client.resolution)
        if self.receipt and length == 0:
            await self.astop()
        errand = self._ask(seconds)
        if errand is None:
            return None
        await errand.over.wait_async(self._bound(errand))
        return self._outcome(errand)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        await self.astart()
        scope = self._scope = anyio.CancelScope()
        scope.__enter__()
        if self.receipt:
            self.lease.on_lost(lambda _: scope.cancel())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: object) -> bool:  # fmt: skip
        scope, self._scope = self._scope, None
        assert scope is not None
        try:
            await self.astop()
        finally:
            swallowed = bool(scope.__exit__(kind, error, trace))  # type: ignore[arg-type]
        if swallowed and error is not None:
            raise LeaseLost(f"the lease of {self.receipt} is lost ({self.lease.reason})")
        return False

    def __del__(self) -> None:
        # Not in the child of a fork, where the lease is nobody's.
        if getattr(self, "_started", False) and not self._closed and self.lease._keeper is not None:
            self._keeper.remove_later([self.lease])
            warnings.warn(f"{self!r} was never stopped", ResourceWarning, source=self, stacklevel=1)

    def __repr__(self) -> str:
        state = "stopped" if self._closed else "active" if self._started else "new"
        return f"<LeaseRenewal {self.receipt} {state}>"

    # Inside

    def _take(self) -> bool:
        """Take the one ticket; False without a receipt."""
        if not self.receipt:
            return False
        if self._closed:
            raise RuntimeError(f"the renewal of {self.receipt} is closed")
        try:
            self._tickets.pop()
        except IndexError:
            raise RuntimeError(f"the renewal of {self.receipt} is single-use") from None
        return True

    def _give_back(self) -> None:
        self.lease.holder = None
        self._tickets.append(True)

    def _begun(self) -> None:
        self._started = True
        if self._closed:
            # Stopped from another thread while it started: whichever comes last finds the other.
            self._keeper.remove([self.lease])
            raise RuntimeError(f"the renewal of {self.receipt} was closed while it started")
        if self._grant.urgent:
            self._keeper.nudge([self.lease.id])

    def _end(self) -> bool:
        """Renew no more, at once; False without a receipt."""
        if not self.receipt:
            return False
        self._closed = True
        self._keeper.remove([self.lease])
        return True

    def _flight_over(self, timeout: float) -> bool:
        flight = self.lease._flight
        if flight is None or self._keeper.interrupted:
            return True
        return flight.over.wait(timeout)

    def _landed(self, landed: bool) -> None:
        if not landed:
            self._keeper.journal.stop_timeout(f"the extension of {self.receipt}", STOP_TIMEOUT)

    def _ask(self, seconds: Seconds) -> Errand | None:
        length = stepped(seconds, "seconds", self.client.resolution)
        if not self.receipt:
            return None
        if length == 0:
            self.stop()
        return self._keeper.ask(self.client, self.lease, length)

    def _bound(self, errand: Errand) -> float:
        """Longer than all that may come of it takes."""
        return 2 * PATIENCE + STOP_TIMEOUT + min(self.lease.remaining(), LONGEST_MESSAGE_LEASE)

    def _outcome(self, errand: Errand) -> Extension:
        answer = errand.answer
        if answer is None:
            error = errand.error
            raise EngineUnavailable("the extension was not answered") if error is None else error
        if isinstance(answer, Lost):
            if answer.reason not in _TOLERATED:
                raise LeaseLost(f"the lease of {self.receipt} is lost ({answer.reason})")
            self._keeper.journal.gone(self.lease, answer.reason)
        return answer

    def _note(self, error: BaseException) -> None:
        self._keeper.journal.prime_failed(self.lease, error)
