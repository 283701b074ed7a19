"""What every kind of connection of a caller has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Told = Callable[[], None]


class _Kind:
    advice = "begin one, as with `connection.transaction()`"
    """What to do where there is no transaction, for messages."""

    immediately = "start it with `BEGIN IMMEDIATE`"
    """The same for SQLite, whose transactions must begin as writing ones."""

    def after_commit(self, told: Told) -> bool:
        """Have `told` called once what is written now is committed; False if nobody says when.

        After a rollback, that of a savepoint too, it is not called.
        """
        return False


class Caller(_Kind):
    """What a caller gave, blocking."""

    def opened(self) -> Any:
        """The connection of the driver; what is written on it is part of the caller's transaction.

        Raises `ConfigurationError` if it is closed, or if its library commits by itself.
        """
        raise NotImplementedError


class AsyncCaller(_Kind):
    """The same, awaited."""

    async def opened(self) -> Any:
        """As `Caller.opened`."""
        raise NotImplementedError


class Given(Caller):
    """A connection of a driver itself."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def opened(self) -> Any:
        return self._connection


class AsyncGiven(AsyncCaller):
    """The same, awaited."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def opened(self) -> Any:
        return self._connection
