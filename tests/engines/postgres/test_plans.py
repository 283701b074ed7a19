"""What statements cost: each hot one has its index, whatever the statistics say."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tenure.core.job import COLUMNS, JobRow
from tenure.core.lease import Beat
from tenure.engines.postgres import PostgresEngine
from tenure.engines.postgres.link import Link
from tenure.engines.postgres.place import STATEMENTS, Place, PlacedStatements, place_of
from tenure.engines.protocol import Claim
from tests.engines.postgres.conftest import Look, make_job
from tests.servers.schemas import Schemas

ARRAYS: dict[str, Any] = {
    "ids": ["a", "b"],
    "queues": ["q"],
    "tasks": ["t0"],
    "lane_queues": ["q", "q"],
    "lane_tasks": ["t0", "t1"],
    "floors": [-(2**63), 5],
    "tokens": [1, 2],
    "owners": ["w", "w"],
    "lengths": [1, 1],
    "progress": [None, None],
    "flags": [None, False],
    "states": ["completed", "failed"],
    "delays": [0, 0],
    "failures": [0, 0],
    "lapses": [0, 0],
    "releases": [0, 0],
    "results": [None, b"1"],
    "error": [None, None],
    "errors": [None, None],
    "keys": ["k"],
    "schedules": ["s"],
    "ticks": [1],
    "names": ["s"],
    "job_ids": ["a"],
    "held": ["a"],
    "counts": [1],
    "slots": [1],
    "ranks": [1, 1],
    "priorities": [0],
    "reasons": ["rate", "rate"],
}
SCALARS: dict[str, Any] = {
    "now": None,
    "most": 50,
    "reach": 82,
    "lease": 1,
    "promote": True,
    "expire": True,
    "lapsed": True,
    "key": "k",
    "job_id": "a",
    "at": 1,
    "xid": "0",
    "number": 0,
    "before": "z",
    "name": "s",
    "floor": "a",
    "scan": 50,
    "actors": None,
    **dict.fromkeys(("created_from", "created_to", "finished_from", "finished_to")),
    "queue": "q",
    "limited": False,
}
JOB: dict[str, Any] = dict.fromkeys(COLUMNS) | {"id": "a", "token": 1, "owner": "w"}
JOB |= {"schedule": "s", "tick": 1}
NEW: dict[str, Any] = {"payload": [b""], "now": None}
for _names, _value in (
    ("run_at expires_in expires_at timeout retry tags headers metadata description actor", None),
    ("concurrency_key rate_key", None),
    ("on_shutdown log_level log_success", None),
    ("id task queue codec", "x"),
    ("priority delay max_attempts max_lapses max_interruptions", 1),
):
    NEW |= {name: [_value] for name in _names.split()}

READY, RUNNING, PRIMARY = {"jobs_ready"}, {"jobs_running"}, {"jobs_pkey"}
BOTH = {"jobs_pkey", "finished_pkey"}
PLANS: dict[str, set[str]] = {
    "known_ids": BOTH,
    "insert_plain": BOTH,
    "claim_due": {
        "jobs_waiting",
        "jobs_overdue",
        "jobs_running",
        "jobs_ready",
        "queues_pkey",
    },
    "ready_lanes": READY,
    "due_candidates": READY,
    "due_by_id": PRIMARY,
    "take_due": PRIMARY,
    "lapsed_candidates": RUNNING,
    "take_lapsed": PRIMARY,
    "resume": RUNNING,
    "chores": {"jobs_waiting", "jobs_overdue"},
    "promote": {"jobs_waiting", "jobs_turns"} | PRIMARY,
    "take_turns": PRIMARY,
    "last_turns": {"jobs_turns"},
    "running_in_queues": RUNNING,
    "slots_taken": {"jobs_slots"},
    "limited_candidates": READY,
    "limited_by_id": PRIMARY,
    "lock_lapsed_others": RUNNING,
    "block": PRIMARY,
    "unblock_queue": {"jobs_blocked_slot", "jobs_blocked_rate"} | PRIMARY,
    "give_slots": {"jobs_blocked_slot"} | PRIMARY,
    "give_starts": {"jobs_blocked_rate"} | PRIMARY,
    "repair_slots": {"jobs_blocked_slot", "jobs_slots", "jobs_next"} | PRIMARY,
    "repair_keys": {"jobs_blocked_slot", "jobs_slots", "jobs_next"} | PRIMARY,
    "beyond_rate": {"jobs_blocked_rate"},
    "overdue_queues": {"jobs_overdue"},
    "expire": {"jobs_overdue"} | PRIMARY,
    "extend": PRIMARY,
    "settle_final": PRIMARY,
    "settle_pending": PRIMARY,
    "fences": BOTH,
    "unlocked": PRIMARY,
    "hold": PRIMARY,
    "rows": BOTH,
    "lock_living": PRIMARY,
    "await_living": PRIMARY,
    "lock_finished": {"finished_pkey"},
    "lock_lapsed": RUNNING,
    "write_row": PRIMARY,
    "remove_living": PRIMARY,
    "remove_finished": {"finished_pkey"},
    "request_cancel": PRIMARY,
    "next_due_in_lanes": READY | {"jobs_waiting_lane", "queues_pkey"},
    "next_due_in_queues": READY | {"jobs_waiting", "queues_pkey"},
    "scan_end": BOTH,
    "find_in_range": BOTH,
    "find_among_ids": BOTH,
    "inside_in_range": BOTH,
    "inside_among_ids": BOTH,
    "twins": {"jobs_unique"},
    "jobs_of_ticks": {"jobs_tick", "finished_tick"},
    "living_of_schedule": {"jobs_tick"},
    "prune_jobs": {"finished_at", "finished_pkey"},
    "prune_jobs_of_ids": {"finished_pkey"},
}
READS_ALL = {"stats", "conditions", "living_tasks", "misplaced"}
NOT_HOT = {"find_in_range", "inside_in_range", "scan_end", "prune_jobs"}
"""Where a plan that is made for its very arguments may read a small table from end to end."""
INSERTS = {"insert_row", "insert_finished"}


@pytest.fixture(scope="module")
def filled(postgres_schemas) -> Iterator[Place]:
    """A store with many jobs, analysed at a moment in which nothing ran."""
    borrowed = postgres_schemas.borrow()
    place = place_of(borrowed.url)
    with psycopg.connect(place.conninfo, autocommit=True) as connection:
        connection.execute("SELECT set_config('search_path', %s, false)", (place.schema,))
        fill(connection, 30_000)
        connection.execute("INSERT INTO finished SELECT * FROM jobs ORDER BY id LIMIT 20000")
        connection.execute("UPDATE finished SET state = 'completed', finished_at = rank")
        for table in ("jobs", "finished"):
            connection.execute(f"ANALYZE {table}")
    yield place
    borrowed.give_back()


def fill(look: Look, count: int, *, first: int = 1, mine: bool = False) -> None:
    """Jobs that no claim of task `mine` may get, most of them before those it may."""
    look.execute(
        """INSERT INTO jobs (
            id, task, queue, priority, rank, ready, state, token, claims, failures, max_attempts,
            lapses, max_lapses, releases, max_interruptions, available_at, expires_at,
            cancel_requested, payload, codec, payload_size, created_at, queued_at, unique_key,
            schedule, tick
        )
        SELECT md5(i::text), CASE WHEN %(mine)s THEN 'mine' ELSE 't' || i %% 7 END,
            CASE WHEN %(mine)s OR i %% 3 > 0 THEN 'q' ELSE 'other' END, 0,
            CASE WHEN %(mine)s THEN 10^15 + i ELSE i END, %(mine)s OR i %% 2 = 0, 'pending', 0, 0,
            0, 1, 0, 3, 0, 3, CASE WHEN i %% 2 = 0 THEN i ELSE 4 * 10^15 END,
            CASE WHEN i %% 5 = 0 AND NOT %(mine)s THEN 5 * 10^15 END, false, '{}', 'json', 2, 1, 1,
            CASE WHEN i %% 10 = 0 THEN 'key' || i END, CASE WHEN i %% 10 = 1 THEN 's' || i %% 4 END,
            i
        FROM generate_series(%(first)s::bigint, %(first)s::bigint + %(count)s - 1) AS i""",
        {"count": count, "first": first, "mine": mine},
    )


STATISTICS = {
    "a million, none running": "UPDATE jobs SET ready = true WHERE false",
    "a million, half of them running": """UPDATE jobs SET state = 'running', ready = false,
        owner = 'w', lease_until = rank WHERE id < '8'""",
    "a million, all lapsed": """UPDATE jobs SET state = 'running', ready = false,
        owner = 'w', lease_until = 1""",
    "made of an empty table": "DELETE FROM jobs",
}


@pytest.fixture(scope="module", params=STATISTICS)
def skewed(request: pytest.FixtureRequest, postgres_schemas: Schemas) -> Iterator[Place]:
    """A store whose statistics are of another moment, with a million jobs or none."""
    borrowed = postgres_schemas.borrow()
    place = place_of(borrowed.url)
    with psycopg.connect(place.conninfo, autocommit=True) as connection:
        connection.execute("SELECT set_config('search_path', %s, false)", (place.schema,))
        connection.execute("ALTER TABLE jobs SET (autovacuum_enabled = false)")
        fill(connection, 10_000)
        connection.execute(STATISTICS[request.param])
        connection.execute("VACUUM ANALYZE jobs")
        if "million" in request.param:
            # As many rows on each page as if so many were there.
            connection.execute(
                "UPDATE pg_class SET reltuples = reltuples * 1000000 / greatest(1, ("
                " SELECT reltuples FROM pg_class WHERE oid = 'jobs'::regclass))"
                " WHERE oid = 'jobs'::regclass OR oid IN ("
                " SELECT indexrelid FROM pg_index WHERE indrelid = 'jobs'::regclass)"
            )
        else:
            fill(connection, 10_000)
        yield place
        connection.execute("DELETE FROM jobs")
        connection.execute("VACUUM ANALYZE jobs")
        connection.execute("ALTER TABLE jobs RESET (autovacuum_enabled)")
    borrowed.give_back()


WAYS = pytest.mark.parametrize("way", ["as ours", "as behind a pooler"])


async def explained(place: Place, name: str, way: str) -> set[str]:
    """The indexes, and the tables read without one, that a statement uses."""
    statements = PlacedStatements(place)
    link = await Link.open(place, statements, 10)
    if way == "as behind a pooler":
        await link.connection.execute("RESET ALL")
    values = NEW if name == "insert_plain" else JOB | SCALARS | ARRAYS
    if name == "write_row":
        values = JOB
    if name in ("prune_jobs", "prune_jobs_of_ids"):
        values = values | {"before": 100}
    try:
        cursor = await link.connection.execute(
            f"EXPLAIN (FORMAT JSON) {statements[name]}", values, prepare=False
        )
        found = await cursor.fetchone()
    finally:
        await link.close()
    assert found is not None
    return set(used(found[0][0]["Plan"]))


def used(node: dict[str, Any]) -> Iterator[str]:
    if "Index Name" in node:
        yield node["Index Name"]
    elif node["Node Type"] == "Seq Scan":
        yield f"all of {node['Relation Name']}"
    for child in node.get("Plans", ()):
        yield from used(child)


@pytest.mark.anyio
@WAYS
@pytest.mark.parametrize("name", PLANS)
async def test_a_statement_uses_its_indexes(filled: Place, name: str, way: str):
    found = await explained(filled, name, way)
    if name in NOT_HOT and found & {"all of jobs", "all of finished"}:
        return
    assert found - SMALL == wanted(name, found)


HOT = "claim_due take_lapsed settle_final settle_pending extend lock_lapsed expire promote".split()


@pytest.mark.anyio
@WAYS
@pytest.mark.parametrize("name", HOT)
async def test_statistics_of_another_moment_change_no_hot_plan(skewed: Place, name: str, way: str):
    """Claim, settle, extend, sweep and promote.

    But for a sweep on a session that is not ours: told that most rows run, it may read them all.
    """
    found = await explained(skewed, name, way)
    if (name, way) == ("lock_lapsed", "as behind a pooler") and found == {"all of jobs"}:
        return
    assert found - SMALL == wanted(name, found)


SMALL = {"all of queues", "all of schedules"}


def wanted(name: str, found: set[str]) -> set[str]:
    """The indexes that a statement should use."""
    return PLANS[name] - {"queues_pkey"} if "all of queues" in found else PLANS[name]


def test_every_statement_on_jobs_is_in_the_list():
    on_jobs = {
        name
        for name in STATEMENTS.names
        if {"{jobs}", "{finished}"} & set(STATEMENTS[name].split())
    }
    assert on_jobs - READS_ALL - INSERTS == set(PLANS)


@pytest.mark.anyio
@pytest.mark.parametrize("tasks", [["mine"], ["mine", "mine2"]], ids=["one lane", "two lanes"])
async def test_a_claim_costs_the_same_beside_many_others(
    look: Look, store: str, tasks: list[str], scaled
):
    """900,000 jobs of the future, of other queues and of unknown names in front are no matter."""
    place = place_of(store)
    statements = PlacedStatements(place)

    async def pages() -> int:
        link = await Link.open(place, statements, 10)
        values = {
            "queues": ["q"],
            "lane_queues": ["q"] * len(tasks),
            "lane_tasks": tasks,
            "floors": [-(2**63)] * len(tasks),
            "owner": "w",
            "now": 2 * 10**15,
        }
        try:
            text = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statements['claim_due']}"
            cursor = await link.connection.execute(text, SCALARS | values, prepare=False)
            found = await cursor.fetchone()
        finally:
            await link.close()
        assert found is not None
        plan = found[0][0]["Plan"]
        assert plan["Actual Rows"] == 50
        return int(plan["Shared Hit Blocks"]) + int(plan["Shared Read Blocks"])

    fill(look, 300, mine=True)
    await pages()
    alone = await pages()
    fill(look, scaled(30_000, 900_000), first=1000)
    look.execute("VACUUM ANALYZE jobs")
    assert await pages() <= alone * 1.3 + 50


@pytest.mark.anyio
async def test_renewals_stay_within_their_pages(engine, look):
    """B045: a renewal touches no index, so the index does not grow and vacuum has less to do."""
    await engine.insert([make_job() for _ in range(300)])
    rows = await engine.claim(Claim(owner="w", limit=300, lease=60_000_000, tasks=("t",)))
    for _ in range(10):
        await engine.extend([Beat(row.id, row.token, "w", 30) for row in rows])
    await reported(look, rows, engine)
    before = await reported(look, rows, engine)
    for _ in range(10):
        await engine.extend([Beat(row.id, row.token, "w", 30) for row in rows])
    total, hot = await reported(look, rows, engine)
    assert total - before[0] >= 3000
    assert hot - before[1] >= 0.9 * (total - before[0])


async def reported(look: Look, rows: list[JobRow], engine: PostgresEngine) -> tuple[int, int]:
    """Updates in all and within a page, as soon as the sessions have reported what they did."""
    await asyncio.sleep(1.1)  # which they do about once a second, after a statement
    await engine.extend([Beat(row.id, row.token, "w", 30) for row in rows[:1]])
    await asyncio.sleep(0.1)
    found = look.execute(
        "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relid = 'jobs'::regclass"
    ).fetchone()
    assert found is not None
    return found[0], found[1]
