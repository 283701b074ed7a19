"""A lease service that is not ours, without a network: the other side of many tests."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable

from tenure.leases import FunctionClient, client_from
from tests.leases.kit import ManualClock


class Status(Exception):
    """An HTTP status, as the exceptions of common clients carry it."""

    def __init__(self, status_code: int, retry_after: float | None = None) -> None:
        self.status_code = status_code
        self.retry_after = retry_after
        super().__init__(f"status {status_code}")


Fault = Callable[[], Awaitable[None]]


class Service:
    """Grants leases by receipt, writes down what it was asked, and fails as it is told."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.until: dict[str, float] = {}
        self.renewals: list[tuple[str, float]] = []
        self.changes: list[tuple[str, float]] = []
        self.faults: deque[Exception | Fault] = deque()
        self.applied: list[tuple[str, float]] = []
        """What took effect, in the order in which it did."""

    def lease(self, receipt: str, seconds: float = 300.0) -> str:
        self.until[receipt] = self.clock.now + seconds
        return receipt

    async def renew(self, receipt: str, seconds: float) -> float:
        self.renewals.append((receipt, seconds))
        return await self._serve(receipt, seconds)

    async def change(self, receipt: str, seconds: float) -> float:
        self.changes.append((receipt, seconds))
        return await self._serve(receipt, seconds)

    async def _serve(self, receipt: str, seconds: float) -> float:
        if self.faults:
            fault = self.faults.popleft()
            if isinstance(fault, Exception):
                raise fault
            await fault()
        until = self.until.get(receipt)
        if until is None:
            raise Status(404)
        if until <= self.clock.now:
            raise Status(409)
        self.until[receipt] = self.clock.now + seconds
        self.applied.append((receipt, seconds))
        return seconds

    def client(self, **options) -> FunctionClient:
        return client_from(self.renew, self.change, **options)
