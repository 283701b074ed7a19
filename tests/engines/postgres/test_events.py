"""A reader of events misses none, in whatever order transactions commit."""

from __future__ import annotations

import pytest

from tenure.core.event import EventFilter, NewEvent

pytestmark = pytest.mark.anyio

ALL = EventFilter()


def named(events) -> list[str]:
    return [event.name for event in events]


@pytest.mark.parametrize("where", [ALL, EventFilter(job_ids=("j",))], ids=["all", "of a job"])
async def test_a_transaction_that_commits_late_is_not_skipped(engine, look, where):
    """Its number is lower than that of another one that is committed and could be read."""
    await engine.append([NewEvent(name="first", job_id="j")])
    [first] = await engine.read(where)
    look.execute("BEGIN")
    look.execute("INSERT INTO events (at, name, job_id, facts) VALUES (1, 'late', 'j', '{}')")
    await engine.append([NewEvent(name="early", job_id="j")])
    assert await engine.read(where, first.cursor) == []
    look.execute("COMMIT")
    assert named(await engine.read(where, first.cursor)) == ["late", "early"]


async def test_a_transaction_that_is_rolled_back_hides_nothing_for_long(engine, look):
    look.execute("BEGIN")
    look.execute("SELECT pg_current_xact_id()")
    await engine.append([NewEvent(name="early")])
    assert await engine.read(ALL) == []
    look.execute("ROLLBACK")
    assert named(await engine.read(ALL)) == ["early"]
