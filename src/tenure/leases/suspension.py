"""A lease that need not be renewed for a while, because the row itself is locked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from tenure.leases.lease import Lease

if TYPE_CHECKING:
    from tenure.leases.keeper import LeaseKeeper

PATIENCE = 15.0
"""Seconds the end waits to hear whether the lease holds; what is unknown then stays unverified."""


class Suspension:
    """See `Lease.suspended`. A context manager, sync and async."""

    __slots__ = ("_keeper", "_lease")

    def __init__(self, lease: Lease) -> None:
        self._lease = lease
        self._keeper: LeaseKeeper | None = None

    def __enter__(self) -> Self:
        keeper = self._lease._keeper
        if keeper is None:
            raise RuntimeError(f"the lease of {self._lease.id} is not kept by a keeper")
        keeper.suspend(self._lease)
        self._keeper = keeper
        return self

    def __exit__(self, *exc: object) -> None:
        keeper, self._keeper = self._keeper, None
        doubt = None if keeper is None else keeper.resume(self._lease)
        if doubt is not None:
            doubt.over.wait(PATIENCE)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(self, *exc: object) -> None:
        keeper, self._keeper = self._keeper, None
        # The suspension ends before anything is awaited: cancelled, this leaves nothing behind.
        doubt = None if keeper is None else keeper.resume(self._lease)
        if doubt is not None:
            await doubt.over.wait_async(PATIENCE)
