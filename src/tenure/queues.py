"""What concerns whole queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.core.fleet import QueueChange, QueueSettings
from tenure.core.limits import Limits, Rate, check_count
from tenure.core.query import QueueStats
from tenure.errors import ConfigurationError
from tenure.lookups import names
from tenure.options import check_name

if TYPE_CHECKING:
    from tenure.service import QueueService


class Queues:
    """What concerns whole queues: `jobs.queues`. Settings are kept in the store: they hold for
    every worker of the fleet, from its next look for jobs on, until they are changed."""

    def __init__(self, service: QueueService) -> None:
        self._service = service

    async def stats(self, *queues: str) -> list[QueueStats]:
        """The depth of these queues by state; of all that hold jobs, if none is named."""
        chosen = names(queues, "queues")
        return await self._service._run(lambda engine: engine.stats(chosen))

    async def settings(self) -> list[QueueSettings]:
        """How queues are treated: all that were ever paused or limited, sorted by name."""
        found = await self._service._run(lambda engine: engine.inspect())
        return list(found.queues)

    async def pause(self, queue: str) -> QueueSettings:
        """Start none of its jobs until `resume`. What runs goes on; jobs may still be enqueued."""
        return await self._change(QueueChange(check_name(queue, "queue"), paused=True))

    async def resume(self, queue: str) -> QueueSettings:
        """Start its jobs again."""
        return await self._change(QueueChange(check_name(queue, "queue"), paused=False))

    async def limit(
        self,
        queue: str,
        *,
        concurrency: int | None = None,
        rate: Rate | None = None,
        key_concurrency: int | None = None,
        key_rate: Rate | None = None,
    ) -> QueueSettings:
        """Set the limits of a queue, in place of those it had; with nothing but its name, none.

        `concurrency`: how many of its jobs run at once, in the whole fleet. `rate`: how many start
        in a time, as in `tenure.rate(100, per=60)`. `key_concurrency` and `key_rate` bound the jobs
        of each `concurrency_key` and each `rate_key` of the queue in the same way; jobs without a
        key are bound by the first two alone. Counts are from 1 to 1,000,000.

        Jobs beyond a limit wait; none is dropped. Who runs already goes on, also beyond a limit
        that is new. Raises `ConfigurationError`.
        """
        for name, count in (("concurrency", concurrency), ("key_concurrency", key_concurrency)):
            if count is not None:
                check_count(count, name)
        for name, given in (("rate", rate), ("key_rate", key_rate)):
            if given is not None and not isinstance(given, Rate):
                raise ConfigurationError(
                    f"{name} must be a rate, as in tenure.rate(100, per=60), not {given!r}"
                )
        limits = Limits(concurrency, rate, key_concurrency, key_rate)
        return await self._change(QueueChange(check_name(queue, "queue"), limits=limits))

    async def _change(self, change: QueueChange) -> QueueSettings:
        return await self._service._run(lambda engine: engine.configure(change))
