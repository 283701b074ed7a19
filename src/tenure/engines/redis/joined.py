"""Enqueueing in a MULTI of the caller: see `engines.protocol.Joined`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redis import client
from redis.asyncio import client as async_client

from tenure.core.identity import OnConflict
from tenure.core.insertion import Inserted
from tenure.core.job import JobRow, NewJob, new_row
from tenure.core.outcomes import Settled, Settlement
from tenure.engines.redis import inserting
from tenure.engines.redis.link import encode
from tenure.engines.redis.place import Place
from tenure.engines.redis.rows import to_item
from tenure.engines.redis.scripts import script
from tenure.errors import ConfigurationError

_UNKNOWN = (
    "in a pipeline nothing is known before it ran, so this cannot be done there; "
    "settle the job after the pipeline was executed"
)


class JoinedPipeline:
    """Commands that are put into a pipeline, and done with it.

    Nothing is known before the pipeline ran: `created` of each answer is None. Whoever listens is
    told by the script itself.
    """

    def __init__(self, pipeline: object, place: Place, max_payload: int, about_now: int) -> None:
        self._pipeline = _checked(pipeline, place)
        self._place = place
        self._max_payload = max_payload
        self._about_now = about_now

    def insert(self, jobs: Sequence[NewJob], *, now: int | None = None) -> list[Inserted]:
        """As `Engine.insert`; an error of the store shows when the pipeline is executed.

        Where a key is taken the job is left out. Raises `ConfigurationError` for a keyed job that
        is to replace another one, or to raise if there is one.
        """
        inserting.check(jobs, self._max_payload)
        for job in jobs:
            new_row(job, self._about_now)
            if job.unique_key is not None and job.on_conflict != OnConflict.RETURN:
                raise ConfigurationError(
                    f"on_conflict={str(job.on_conflict)!r} is not possible in a pipeline, since "
                    "whether the key is taken is not known before it ran; use 'return'"
                )
        if jobs:
            data = encode([[to_item(job) for job in jobs], True])
            text = script("insert").text
            at = b"" if now is None else b"%d" % now
            self._pipeline.execute_command("EVAL", text, 1, self._place.prefix, at, data)
        return [Inserted(job.id, None) for job in jobs]

    def hold(self, row: JobRow) -> None:
        """Not possible: raises `ConfigurationError`."""
        raise ConfigurationError(_UNKNOWN)

    def settle(self, settlements: Sequence[Settlement], *, now: int | None = None) -> list[Settled]:
        """Not possible: raises `ConfigurationError`."""
        raise ConfigurationError(_UNKNOWN)

    def wake(self) -> None:
        """See `Joined.wake`; the pipeline does it."""


def _checked(pipeline: object, place: Place) -> Any:
    """The pipeline, if what is put into it becomes one transaction on this store."""
    if not isinstance(pipeline, client.Pipeline | async_client.Pipeline):
        kind = f"{type(pipeline).__module__}.{type(pipeline).__qualname__}"
        raise ConfigurationError(
            f"this service keeps its jobs in Redis, so what is joined must be a pipeline of "
            f"redis-py, as `client.pipeline(transaction=True)`, not {kind}"
        )
    if pipeline.watching and not pipeline.explicit_transaction:
        raise ConfigurationError("the pipeline watches keys; begin the transaction with multi()")
    name = "transaction" if isinstance(pipeline, client.Pipeline) else "is_transaction"
    if not (getattr(pipeline, name) or pipeline.explicit_transaction):
        raise ConfigurationError(
            "the pipeline is not a transaction, so nothing would be one with yours; make it with "
            "`client.pipeline(transaction=True)`"
        )
    given = pipeline.connection_pool.connection_kwargs
    if int(given.get("db") or 0) != place.db:
        raise ConfigurationError(
            f"the pipeline is on the database {given.get('db') or 0}, but the jobs of this service "
            f"are in {place.shown}"
        )
    return pipeline
