"""An operation as a series of statements, apart from who runs them.

An operation is a generator: it yields what it asks and is sent the rows. So one text of it serves
the engine's own connections, which are awaited, and the caller's, which may block.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

from tenure.core.limits import Key
from tenure.core.states import State
from tenure.engines.protocol import Signal, Topic
from tenure.engines.signals import signals_of

T = TypeVar("T")


class Ask(NamedTuple):
    """One statement, by name. With `many` it is run once per item, and no rows are wanted."""

    name: str
    values: Mapping[str, Any] = {}
    many: Sequence[Mapping[str, Any]] | None = None


Rows: TypeAlias = list[tuple[Any, ...]]
Steps: TypeAlias = Generator[Ask, Rows, T]
Identity: TypeAlias = tuple[int, int]
"""Which database: its cluster, and its number there."""


class Again(Exception):
    """Somebody changed what the operation was decided on: roll it back, and do it once more."""


class Effects:
    """What an operation wrote, to be told once that has taken effect."""

    __slots__ = ("changes", "doubtful", "freed", "hints", "now")

    def __init__(self, now: int | None) -> None:
        self.now = now
        """The instant that the caller gave; None means the store's clock."""
        self.changes: list[tuple[str, str, State, bool]] = []
        """Rows written as (id, queue, new state, ready)."""
        self.hints: list[str] = []
        """Ids of running jobs whose holder should look at its lease."""
        self.freed: Counter[Key] = Counter()
        """How many slots of each key were freed."""
        self.doubtful: set[Key] = set()
        """Keys of which a slot was freed by somebody who may not have passed it on."""

    def leave(self, queue: str, key: str | None) -> None:
        """Note that an attempt ended in a limited queue, of a job with this concurrency key."""
        self.changes.append(("", queue, State.PENDING, True))
        if key is not None:
            self.freed[queue, key] += 1

    def signals(self) -> list[Signal]:
        """What is to be told."""
        hints = [Signal(Topic.CANCEL, job_id) for job_id in dict.fromkeys(self.hints)]
        return signals_of(self.changes) + hints
