"""What the tests of the suite share: jobs, instants, and the shortest way to each operation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, ClassVar, TypeAlias

import msgspec
import pytest

from tenure.core.durations import SECOND
from tenure.core.identity import OnConflict, UniqueUntil
from tenure.core.ids import uuid7
from tenure.core.job import JobError, JobRow, NewJob, new_row
from tenure.core.lease import Beat
from tenure.core.outcomes import Completed, Outcome, Settled
from tenure.core.rules import decide
from tenure.engines.protocol import Arm, Claim, Engine, Facet

NOW = 1_700_000_000 * SECOND
LEASE = 30 * SECOND
OWNER, OTHER = "host:1:aaaa", "host:2:bbbb"

DUE = frozenset({Arm.DUE})
LAPSED = frozenset({Arm.LAPSED})
PROMOTE = frozenset({Arm.PROMOTE})
EXPIRED = frozenset({Arm.EXPIRED})
RESUME = frozenset({Arm.RESUME})

STARTED, FINISHED, FOREVER = UniqueUntil.STARTED, UniqueUntil.FINISHED, UniqueUntil.FOREVER
RETURN, REPLACE, RAISE = OnConflict.RETURN, OnConflict.REPLACE, OnConflict.RAISE

OpenEngine: TypeAlias = Callable[[], Awaitable[Engine]]


class Conformance:
    """Base of the test classes: async tests, each with one engine on a fresh store.

    The tests of a facet are skipped where the engine's traits say that it does not have it.
    """

    pytestmark = pytest.mark.anyio
    facet: ClassVar[Facet | None] = None

    @pytest.fixture
    async def engine(self, open_engine: OpenEngine) -> Engine:
        engine = await open_engine()
        if self.facet is not None and self.facet not in engine.traits.facets:
            pytest.skip(f"{engine.traits.name} has no facet {self.facet}")
        return engine


def job_id(n: int) -> str:
    """Ids that sort as their numbers do."""
    return uuid7(NOW // 1000, n, n)


def new(n: int, **fields: Any) -> NewJob:
    """The job number `n`, due at once unless `fields` say otherwise."""
    return NewJob(id=job_id(n), **{"task": "mail", **fields})


def keyed(n: int, key: str = "k", until: str = FINISHED, **fields: Any) -> NewJob:
    """The job number `n` with a unique key."""
    return new(n, unique_key=key, unique_until=until, **fields)


async def put(engine: Engine, *jobs: NewJob, now: int = NOW) -> list[JobRow]:
    """Insert new jobs; returns their rows as core defines them."""
    answers = await engine.insert(jobs, now=now)
    assert [(a.id, a.created) for a in answers] == [(job.id, True) for job in jobs]
    return [new_row(job, now) for job in jobs]


async def take(
    engine: Engine, limit: int = 1, *, now: int = NOW, owner: str = OWNER, **fields: Any
) -> list[JobRow]:
    """Claim up to `limit` jobs."""
    claim = Claim(**{"owner": owner, "limit": limit, "lease": LEASE, **fields})
    return await engine.claim(claim, now=now)


async def take_one(engine: Engine, *, now: int = NOW, owner: str = OWNER, **fields: Any) -> JobRow:
    """Claim one job, which must be there."""
    (row,) = await take(engine, 1, now=now, owner=owner, **fields)
    return row


async def running(engine: Engine, n: int = 1, *, now: int = NOW, **fields: Any) -> JobRow:
    """A new job number `n`, claimed by `OWNER` at `now`."""
    await put(engine, new(n, **fields), now=now)
    job = job_id(n)
    return await take_one(engine, now=now, ids=(job,), queues=(fields.get("queue", "default"),))


async def finished(engine: Engine, n: int = 1, *, now: int = NOW, **fields: Any) -> JobRow:
    """A new job number `n`, claimed and completed at `now`."""
    await finish(engine, await running(engine, n, now=now, **fields), now=now)
    return await stored(engine, n)


async def finish(
    engine: Engine, row: JobRow, outcome: Outcome | None = None, *, now: int = NOW
) -> Settled:
    """Settle one claimed row, completed unless another outcome is given."""
    chosen = Completed(b'"done"') if outcome is None else outcome
    (answer,) = await engine.settle([decide(row, chosen, now=now)], now=now)
    return answer


async def stored(engine: Engine, job: int | str) -> JobRow:
    """The row of a job, which must be there."""
    (row,) = await engine.get([job_id(job) if isinstance(job, int) else job])
    assert row is not None
    return row


async def snapshot(engine: Engine, numbers: Sequence[int]) -> list[JobRow | None]:
    """The rows of these jobs, to be compared with a later snapshot."""
    return await engine.get([job_id(n) for n in numbers])


def changed(row: JobRow, **fields: Any) -> JobRow:
    """The row with other values in these columns, and the same in every other one."""
    return msgspec.structs.replace(row, **fields)


def beat(row: JobRow, seconds: float = 30.0, **fields: Any) -> Beat:
    """The beat of the holder of a claimed row."""
    return Beat(row.id, row.token, row.owner or "", seconds)._replace(**fields)


def boom(text: str = "boom", at: int = NOW) -> JobError:
    """An error as a body would leave it."""
    return JobError(kind="ValueError", message=text, traceback="Traceback ...", attempt=1, at=at)


def ids(rows: Sequence[JobRow]) -> list[str]:
    return [row.id for row in rows]


def numbered(*numbers: int) -> list[str]:
    return [job_id(n) for n in numbers]
