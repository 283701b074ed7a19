"""Group commit: operations of several callers in one transaction, none of which fails another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from tenure.engines.sqlite import limiting
from tenure.engines.sqlite.database import Database
from tenure.engines.sqlite.thread import Request, Transaction

GROUP_CALLS, GROUP_ROWS = 512, 5_000
"""A group takes no further call once it has this many, or this many rows."""

Told = Callable[[Transaction], None]


class Group:
    """Does requests on one connection. `told` hears of each transaction that took effect.

    `patience`: seconds for which those are waited for who write without taking turns.
    """

    def __init__(self, time_us: Callable[[], int], patience: float, told: Told) -> None:
        self._time_us = time_us
        self._patience = patience
        self._told = told

    def begin(self, database: Database, requests: Sequence[Request]) -> bool:
        """Start a transaction; if that is not possible, it is what all of these get to hear."""
        try:
            database.begin(self._patience)
        except Exception as error:
            for request in requests:
                request.fail(error)
            return False
        return True

    def finish(self, database: Database, requests: Sequence[Request]) -> None:
        """Do these in the transaction that has begun, and end it. Each has its answer after that,
        or its error. Never raises.
        """
        tx = Transaction(database.cursor())
        try:
            for request in requests:
                now = self._time_us() if request.now is None else request.now
                request.answer = request.work(tx, now)
                limiting.pass_on(tx)
            database.commit()
        except Exception as error:
            database.roll_back()
            self._apart(database, requests, error)
        else:
            with suppress(Exception):  # a hint may be lost; what was written stands
                self._told(tx)

    def _apart(self, database: Database, requests: Sequence[Request], error: Exception) -> None:
        """After an error: each in its own transaction, so that it fails its caller only."""
        if len(requests) == 1:
            requests[0].fail(error)
            return
        for request in requests:
            if self.begin(database, [request]):
                self.finish(database, [request])
