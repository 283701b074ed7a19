"""Another store for a service, for the time of a test."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

from tenure.clock import SYSTEM_CLOCK
from tenure.engines.open import open_engine
from tenure.errors import ConfigurationError
from tenure.lifetime import Lifetime
from tenure.loops import Home
from tenure.receiving import Receiving
from tenure.service import QueueService
from tenure.sync import QueueService as SyncQueueService
from tenure.testing.clock import ManualClock
from tenure.testing.flaky import Flaky
from tenure.testing.kit import Kit

_PARTS = ("_life", "_home", "_receiving", "_inline")
_CLOCKED = ("memory", "sqlite")


class override:
    """Give a service another store, empty or not, until the block ends.

    `with override(jobs, "memory://") as kit:` in plain code and in fixtures, `async with` in
    coroutines. Everybody who has the service works on the other store meanwhile, by either face;
    its tasks and settings stay. At the end, by an error too, that store is closed and the service
    has its own again, as it was, open or not. Overrides nest.

    The store keeps a clock that stands still at the present time, to be turned by `Kit.advance`;
    `clock` is another one to use. PostgreSQL keeps its own. `inline` runs every due job before its
    `enqueue` returns. Raises `ConfigurationError`.
    """

    def __init__(
        self,
        service: QueueService | SyncQueueService,
        url: str = "memory://",
        *,
        inline: bool = False,
        clock: ManualClock | None = None,
    ) -> None:
        self._service = service if isinstance(service, QueueService) else service.async_service
        self._url = url
        self._inline = inline
        self._clock = clock
        self._saved: list[dict[str, Any]] = []

    def __enter__(self) -> Kit:
        if _loop_runs():
            raise ConfigurationError("in a coroutine, write `async with override(...)`")
        return self._begin()

    def __exit__(self, *exc: object) -> None:
        try:
            self._service._shut()
        finally:
            self._restore()

    async def __aenter__(self) -> Kit:
        return self._begin()

    async def __aexit__(self, *exc: object) -> None:
        try:
            await self._service.close()
        finally:
            self._restore()

    def _begin(self) -> Kit:
        service, clock = self._service, self._clock
        if clock is None and self._url.partition(":")[0] in _CLOCKED:
            clock = ManualClock(datetime.now(UTC))
        known = SYSTEM_CLOCK if clock is None else clock
        faults = Flaky(open_engine(self._url, clock=known))
        life = Lifetime(lambda: faults, service._at_exit, known)
        receiving = Receiving(service)
        life.before_close = receiving.close
        life.companion = service._life.companion
        self._saved.append({name: getattr(service, name) for name in _PARTS})
        changes = (life, Home(), receiving, self._inline)
        for name, value in zip(_PARTS, changes, strict=True):
            setattr(service, name, value)
        return Kit(service, clock, faults)

    def _restore(self) -> None:
        for name, value in self._saved.pop().items():
            setattr(self._service, name, value)


def _loop_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
