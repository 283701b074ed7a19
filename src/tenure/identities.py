"""Keys that are taken for ever."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.core.identity import Reservation
from tenure.core.keys import check_key
from tenure.lookups import checked_ids

if TYPE_CHECKING:
    from tenure.service import QueueService


class Identities:
    """Unique keys that were taken for ever (`unique_until="forever"`): `jobs.identities`.

    They outlive their jobs and the removal of these. The key of a call with `unique_by` is
    `task.bind(...).unique_key()`.
    """

    def __init__(self, service: QueueService) -> None:
        self._service = service

    async def get(self, key: str) -> Reservation | None:
        """Who took this key for ever, and when; None if nobody did."""
        check_key(key, "key")
        return await self._service._run(lambda engine: engine.identity(key))

    async def release(self, key: str, expected_owner: str | None = None) -> bool:
        """Free a key that was taken for ever; whether it was freed.

        With `expected_owner`, the id of a job, only if that job took it. A job that has the key
        and still waits or runs keeps it until it ends.
        """
        check_key(key, "key")
        if expected_owner is not None:
            checked_ids((expected_owner,))
        return await self._service._run(lambda engine: engine.release_identity(key, expected_owner))
