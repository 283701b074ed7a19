"""Connections of Django: `django.db.connection`, `connections[alias]`."""

from __future__ import annotations

from typing import Any

from tenure.engines.callers.base import Caller, Told
from tenure.errors import ConfigurationError


class Connection(Caller):
    """A connection of this thread, or the proxy for it."""

    advice = "use it inside `with transaction.atomic()`"
    immediately = 'set `"transaction_mode": "IMMEDIATE"` in its OPTIONS'

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def opened(self) -> Any:
        """See `Caller.opened`."""
        connection = self._connection
        connection.validate_thread_sharing()
        if connection.connection is None or connection.autocommit:
            raise ConfigurationError(
                f"Django's connection {connection.alias!r} is not in a transaction; {self.advice}"
            )
        return connection.connection

    def after_commit(self, told: Told) -> bool:
        """See `Caller.after_commit`. Without `atomic` Django does not say."""
        if self._connection.in_atomic_block:
            self._connection.on_commit(told)
            return True
        return False
