"""The targets of the design, by benchmark row and engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Target(NamedTuple):
    """A bound on the number of a row, in the row's own unit."""

    bound: float
    at_least: bool

    def met(self, value: float) -> bool:
        return value >= self.bound if self.at_least else value <= self.bound

    def text(self, unit: str) -> str:
        return f"{'>=' if self.at_least else '<='} {self.bound:,g}{unit}"


def _least(bound: float) -> Target:
    return Target(bound, at_least=True)


def _most(bound: float) -> Target:
    return Target(bound, at_least=False)


TARGETS: Mapping[tuple[str, str], Target] = {
    ("drain", "sqlite-full"): _least(0.45),
    ("drain-peer", "sqlite-full"): _least(5),
    ("cpu-per-job", "sqlite-full"): _most(40),
    ("enqueue", "sqlite-full"): _least(0.8),
    ("enqueue-sync-peer", "sqlite-full"): _least(1),
    ("enqueue-concurrent", "sqlite-full"): _least(0.5),
    ("enqueue-many", "sqlite-full"): _least(0.4),
    ("backlog", "sqlite-full"): _least(0.9),
    ("limits", "sqlite-full"): _least(0.33),
    ("fair", "sqlite-full"): _least(0.8),
    ("wakeup-p50", "sqlite-full"): _most(1),
    ("wakeup-p99", "sqlite-full"): _most(5),
    ("idle-cpu", "sqlite-full"): _most(0.2),
    ("idle-memory", "sqlite-full"): _most(45),
    ("lock-wait", "sqlite-full"): _most(50),
    ("lease-cpu", "sqlite-full"): _most(0.5),
    ("drain", "postgresql"): _least(0.6),
    ("drain-peer", "postgresql"): _least(1.3),
    ("cpu-per-job", "postgresql"): _most(55),
    ("limits", "postgresql"): _least(0.33),
    ("fair", "postgresql"): _least(0.8),
    ("enqueue", "postgresql"): _least(0.85),
    ("enqueue-concurrent", "postgresql"): _least(0.5),
    ("enqueue-many", "postgresql"): _least(0.4),
    ("backlog", "postgresql"): _least(0.85),
    ("processes", "postgresql"): _least(1.5),
    ("lease-cpu", "postgresql"): _most(1),
    ("wakeup-p50", "postgresql"): _most(1.6),
    ("wakeup-p99", "postgresql"): _most(5),
    ("idle-cpu", "postgresql"): _most(0.2),
    ("idle-memory", "postgresql"): _most(45),
    ("drain", "redis"): _least(0.4),
    ("drain-huey", "redis"): _least(5),
    ("drain-dramatiq", "redis"): _least(5),
    ("enqueue", "redis"): _least(0.8),
    ("enqueue-concurrent", "redis"): _least(4),
    ("enqueue-many", "redis"): _least(0.5),
    ("enqueue-sync", "redis"): _least(0.7),
    ("backlog", "redis"): _least(0.85),
    ("lease-one-by-one", "any"): _least(20_000),
    ("lease-in-bulk", "any"): _least(100_000),
    ("renewal-one-by-one", "any"): _least(20_000),
    ("renewal-async", "any"): _least(20_000),
    ("renewal-in-bulk", "any"): _least(100_000),
    ("import", "any"): _most(80),
    ("help", "any"): _most(200),
}
