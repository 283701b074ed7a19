"""Which leases are kept, and by what they are found."""

from __future__ import annotations

from collections.abc import Iterable

from tenure.leases.client import LeaseClient
from tenure.leases.desk import Desk, Entry
from tenure.leases.holder import Holder
from tenure.leases.lease import Lease


class Kept:
    """Leases by themselves, by id, by client and by the event loop that holds them."""

    def __init__(self) -> None:
        self._desks: dict[int, Desk] = {}  # by identity: a client need not be hashable
        self._entries: dict[Lease, Entry] = {}
        self._ids: dict[str, tuple[Entry, ...]] = {}
        self.holders: dict[Holder, int] = {}
        """The event loops that hold leases, and how many each."""

    def __len__(self) -> int:
        return len(self._entries)

    def remove(self, leases: Iterable[Lease]) -> list[Lease]:
        """Forget these; returns those that were kept."""
        return [lease for lease in leases if self._drop(lease)]

    def held_by(self, holder: Holder) -> list[Lease]:
        """The leases of one event loop."""
        return [lease for lease in self._entries if lease.holder == holder]

    def move(self, lease: Lease, holder: Holder | None) -> None:
        """From now on the lease is held by this event loop."""
        if lease in self._entries:
            self._count(lease.holder, -1)
            self._count(holder, 1)
        lease.holder = holder

    def _desk(self, client: LeaseClient) -> Desk:
        desk = self._desks.get(id(client))
        if desk is None:
            desk = self._desks[id(client)] = Desk(client)
        return desk

    def _keep(self, lease: Lease, desk: Desk) -> Entry | None:
        """A new entry; None if the lease is kept already."""
        if lease in self._entries:
            return None
        entry = self._entries[lease] = Entry(lease, desk)
        self._ids[lease.id] = (*self._ids.get(lease.id, ()), entry)
        self._count(lease.holder, 1)
        desk.size += 1
        return entry

    def _drop(self, lease: Lease) -> bool:
        entry = self._entries.pop(lease, None)
        if entry is None:
            return False
        entry.leave()
        self._count(lease.holder, -1)
        if lease._doubt is not None:
            lease._doubt.over.set()  # nobody will clear it up any more
        left = tuple(other for other in self._ids[lease.id] if other is not entry)
        if left:
            self._ids[lease.id] = left
        else:
            del self._ids[lease.id]
        return True

    def _count(self, holder: Holder | None, change: int) -> None:
        if holder is None:
            return
        count = self.holders.get(holder, 0) + change
        if count > 0:
            self.holders[holder] = count
        else:
            self.holders.pop(holder, None)
