"""What concerns whole queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.core.query import QueueStats
from tenure.lookups import names

if TYPE_CHECKING:
    from tenure.service import QueueService


class Queues:
    """What concerns whole queues: `jobs.queues`."""

    def __init__(self, service: QueueService) -> None:
        self._service = service

    async def stats(self, *queues: str) -> list[QueueStats]:
        """The depth of these queues by state; of all that hold jobs, if none is named."""
        chosen = names(queues, "queues")
        return await self._service._run(lambda engine: engine.stats(chosen))
