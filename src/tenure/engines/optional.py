"""What some engines can do besides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, cast, runtime_checkable

from tenure.core.fleet import Finding
from tenure.core.insertion import Inserted
from tenure.core.job import NewJob


class Direct(Protocol):
    """Inserts on a connection of its own, which the first use opens. Blocking, from any thread."""

    def insert(self, jobs: Sequence[NewJob], *, now: int | None = None) -> list[Inserted]:
        """As `Engine.insert`, signals and deadline included."""
        ...

    def close(self) -> None:
        """Let go of the connection; the next insert opens another. Closing twice does nothing."""
        ...


@runtime_checkable
class Checkable(Protocol):
    """An engine that can look for damage."""

    async def check(self) -> Sequence[Finding]:
        """Read the whole store; what is damaged. Takes as long as it takes: up to an hour."""
        ...


@runtime_checkable
class Blocking(Protocol):
    """An engine that can insert without an event loop."""

    def direct(self) -> Direct:
        """The way to insert so: always the same object, whether the engine is open or not.

        It is closed with the engine.
        """
        ...


def direct_of(engine: object) -> Direct | None:
    """The way to insert without an event loop, if the engine has one."""
    # Not by isinstance, which takes some 10 us for a protocol: this is on the path of every insert.
    make = getattr(engine, "direct", None)
    return None if make is None else cast(Blocking, engine).direct()
