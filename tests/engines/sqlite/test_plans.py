"""What a claim costs: each hot statement has its index, and other rows cost nothing."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest

from tenure.clock import IdSource
from tenure.core import rules
from tenure.core.event import NewEvent
from tenure.core.fleet import QueueChange
from tenure.core.job import COLUMNS, JobError, JobRow, NewJob
from tenure.core.limits import Limits, Rate
from tenure.core.outcomes import Change, Completed, Errored, Released, ReleaseReason
from tenure.core.query import SCAN_MAX, Filter, Page
from tenure.core.states import State
from tenure.engines.protocol import Claim
from tenure.engines.sqlite import claiming, fleet, history, operations, queries
from tenure.engines.sqlite.connection import Place, connect
from tenure.engines.sqlite.operations import SQL
from tenure.engines.sqlite.thread import Transaction

NOW = 1_700_000_000_000_000
HOUR = 3_600_000_000
new_id = IdSource()

VALUES = {
    "ids": '["a"]',
    "queues": '["q"]',
    "schedules": None,
    "tasks": '["t"]',
    "queue": "q",
    "task": "t",
    "now": NOW,
    "until": NOW,
    "limit": 50,
    "reach": 50,
    "id": "a",
    "token": 1,
    "owner": "w",
    "flag": 0,
    "progress": None,
    "before": "z",
    "states": None,
    "held": "[]",
    "keys": '["k"]',
    "key": "k",
    "name": "s",
    "names": None,
    "job_ids": '["a"]',
    "after": 0,
    "schedule": "s",
    "tick": 1,
    "first": "a",
    "last": "b",
    "floor": "a",
    "state": "failed",
    "scan": 50,
    "actors": None,
    **dict.fromkeys(("created_from", "created_to", "finished_from", "finished_to")),
    "priority": 0,
    "rank": 1,
    "blocked": "rate",
    "longest": 1,
}
PLANS = {
    "turn_takers": "sqlite_autoindex_jobs_1",
    "last_turn": "jobs_turns",
    "take_turn": "sqlite_autoindex_jobs_1",
    "turns_given_up": "sqlite_autoindex_jobs_1",
    "lapsed_others": "jobs_running",
    "limited_in_lane": "jobs_ready",
    "limited_by_id": "sqlite_autoindex_jobs_1",
    "running_in_queue": "jobs_running",
    "slots_taken": "jobs_slots",
    "block": "sqlite_autoindex_jobs_1",
    "unblock": "sqlite_autoindex_jobs_1",
    "unblock_queue": "jobs_blocked_slot",
    "tasks_without_slot": "jobs_blocked_slot",
    "tasks_beyond_rate": "jobs_blocked_rate",
    "first_without_slot": "jobs_blocked_slot",
    "first_beyond_rate": "jobs_blocked_rate",
    "rates": "PRIMARY KEY",
    "rates_to_wake": "rates_wake",
    "first_wake": "rates_wake",
    "wake_nobody": "rates_wake",
    "any_between": "sqlite_autoindex_jobs_1",
    "known_ids": "sqlite_autoindex_jobs_1",
    "waiting_in_queue": "jobs_waiting",
    "promote": "sqlite_autoindex_jobs_1",
    "overdue_in_queue": "jobs_overdue",
    "overdue_queues": "jobs_overdue",
    "expire": "sqlite_autoindex_jobs_1",
    "lapsed_in_lanes": "jobs_running",
    "lapsed_in_queues": "jobs_running",
    "lapsed_by_id": "sqlite_autoindex_jobs_1",
    "ready_lanes": "jobs_ready",
    "ready_tasks": "jobs_ready",
    "ready_in_lane": "jobs_ready",
    "ready_by_id": "sqlite_autoindex_jobs_1",
    "claim_due": "sqlite_autoindex_jobs_1",
    "claim_lapsed": "sqlite_autoindex_jobs_1",
    "extend": "sqlite_autoindex_jobs_1",
    "fences": "sqlite_autoindex_jobs_1",
    "settle_final": "sqlite_autoindex_jobs_1",
    "settle_pending": "sqlite_autoindex_jobs_1",
    "settle_result": "sqlite_autoindex_jobs_1",
    "row": "sqlite_autoindex_jobs_1",
    "rows": "sqlite_autoindex_jobs_1",
    "write_row": "sqlite_autoindex_jobs_1",
    "request_cancel": "sqlite_autoindex_jobs_1",
    "cancelling": "jobs_cancelling",
    "next_due_in_lanes": "jobs_waiting_lane",
    "next_due_in_queues": "jobs_waiting",
    "scan_end": "sqlite_autoindex_jobs_1",
    "find_in_range": "sqlite_autoindex_jobs_1",
    "find_among_ids": "sqlite_autoindex_jobs_1",
    "inside_in_range": "sqlite_autoindex_jobs_1",
    "inside_among_ids": "sqlite_autoindex_jobs_1",
    "held_by": "jobs_running",
    "resume": "sqlite_autoindex_jobs_1",
    "hold": "sqlite_autoindex_jobs_1",
    "twins": "jobs_unique",
    "job_of_tick": "jobs_tick",
    "living_of_schedule": "jobs_scheduled",
    "ended_before": "jobs_finished",
    "ended_of_ids": "sqlite_autoindex_jobs_1",
    "remove_jobs": "sqlite_autoindex_jobs_1",
    "reservations": "PRIMARY KEY",
    "release_reservation": "PRIMARY KEY",
    "schedule": "PRIMARY KEY",
    "remove_schedule": "PRIMARY KEY",
    "read_events": "INTEGER PRIMARY KEY",
    "read_events_of_jobs": "events_of_job",
    "prune_events": "INTEGER PRIMARY KEY",
}
SLACK = 20
"""Steps, in tens, that a plan may take more or less by where a row happens to lie."""
MAY_SCAN = {"lapsed_anywhere", "stats", "overdue_queues", "cancelling", "held_by", "conditions"}
SMALL = {
    "all_schedules",
    "draw_revision",
    "queue_settings",
    "special_queues",
    "forget_rates",
    "forget_workers",
    "workers",
}
"""Statements on tables with a row per schedule, queue, worker or rate in use."""


@pytest.fixture
def connection(path: str) -> Iterator[sqlite3.Connection]:
    opened = connect(Place(path, "normal"))
    yield opened
    opened.close()


def plan(connection: sqlite3.Connection, name: str) -> list[str]:
    values = dict.fromkeys(COLUMNS, None) | VALUES
    steps = connection.execute(f"EXPLAIN QUERY PLAN {SQL[name]}", values)
    return [step[3] for step in steps if "SCAN" in step[3] or "SEARCH" in step[3]]


@pytest.mark.parametrize("analysed", [False, True])
@pytest.mark.parametrize("name", PLANS)
def test_a_statement_uses_its_index(connection: sqlite3.Connection, name: str, analysed: bool):
    if analysed:  # statistics of a store in which nothing runs must lead nobody astray
        fill(connection, 300)
        connection.execute("ANALYZE")
    steps = plan(connection, name)
    used = PLANS[name] if "KEY" in PLANS[name] else f"INDEX {PLANS[name]}"
    assert any(f"{used} " in f"{step} " for step in steps), steps
    if name not in MAY_SCAN:
        assert not any(step.startswith("SCAN jobs") for step in steps), steps


def test_every_statement_is_in_the_list():
    inserts = {
        "insert_job",
        "insert_plain_job",
        "reserve",
        "write_schedule",
        "configure_queue",
        "announce",
        "append_event",
        "keep_rate",
    }
    assert set(SQL.names) == set(PLANS) | MAY_SCAN | SMALL | inserts


def fill(connection: sqlite3.Connection, count: int) -> None:
    """Rows that no claim of tasks `t`, `u` in queue `q` may get, all before those it may."""
    others = [
        NewJob(id=new_id(), task="t", queue="q", priority=i % 9, delay=HOUR) for i in range(count)
    ]
    others += [NewJob(id=new_id(), task="t", queue="other", priority=9) for _ in range(count)]
    others += [
        NewJob(id=new_id(), task=f"unknown{i % 7}", queue="q", priority=9) for i in range(count)
    ]
    do(connection, lambda tx: operations.insert(tx, others, NOW - HOUR // 2))


def do(connection: sqlite3.Connection, work):
    connection.execute("BEGIN IMMEDIATE")
    answer = work(Transaction(connection.cursor()))
    connection.execute("COMMIT")
    return answer


def steps_of(connection: sqlite3.Connection, work) -> int:
    """How many steps of its machine SQLite takes; a measure that no other load can disturb."""
    count = 0

    def step() -> None:
        nonlocal count
        count += 1

    connection.set_progress_handler(step, 10)
    do(connection, work)
    connection.set_progress_handler(None, 0)
    return count


@pytest.mark.parametrize("tasks", [("t",), ("t", "u")], ids=["one lane", "two lanes"])
def test_a_claim_costs_the_same_beside_many_others(
    connection: sqlite3.Connection, tasks: tuple[str, ...], scaled
):
    claim = Claim(owner="w", limit=50, lease=HOUR, queues=("q",), tasks=tasks)

    def cost() -> int:
        mine = [NewJob(id=new_id(), task=tasks[i % len(tasks)], queue="q") for i in range(50)]
        do(connection, lambda tx: operations.insert(tx, mine, NOW))
        taken: list[JobRow] = []
        steps = steps_of(connection, lambda tx: taken.extend(claiming.claim(tx, claim, NOW)))
        assert len(taken) == 50
        end(connection, taken)
        return steps

    cost()
    alone = cost()
    fill(connection, scaled(17_000, 300_000))
    assert cost() <= alone + SLACK


def test_an_empty_claim_costs_the_same_beside_many_others(connection: sqlite3.Connection, scaled):
    claim = Claim(owner="w", limit=50, lease=HOUR, queues=("q",), tasks=("t", "u"))

    def cost() -> int:
        return steps_of(connection, lambda tx: claiming.claim(tx, claim, NOW))

    alone = cost()
    fill(connection, scaled(17_000, 300_000))
    assert cost() <= alone + SLACK


def test_any_name_costs_a_step_per_name_not_per_job(connection: sqlite3.Connection, scaled):
    claim = Claim(owner="w", limit=10, lease=HOUR, queues=("q",))

    def cost() -> int:
        return steps_of(connection, lambda tx: claiming.claim(tx, claim, NOW))

    fill(connection, 200)
    few = cost()
    fill(connection, scaled(10_000, 300_000))
    assert cost() <= few + SLACK


def test_next_due_costs_the_same_beside_many_others(connection: sqlite3.Connection, scaled):
    def cost() -> int:
        work = lambda tx: queries.next_due(tx, ("q",), ("u", "v"), NOW)  # noqa: E731
        return steps_of(connection, work)

    alone = cost()
    fill(connection, scaled(17_000, 300_000))
    assert cost() <= alone + SLACK


def test_pruning_costs_the_same_however_many_events_are_kept(connection: sqlite3.Connection):
    def keep(count: int) -> None:
        events = [NewEvent(name="e", facts={}) for _ in range(count)]
        do(connection, lambda tx: history.append(tx, events, NOW))

    def cost() -> int:
        return steps_of(connection, lambda tx: history.prune(tx, NOW, 100))

    keep(100)
    few = cost()
    keep(5_000)
    assert cost() <= few + SLACK


def test_a_claim_costs_the_same_beside_many_blocked_jobs(connection: sqlite3.Connection, scaled):
    limits = Limits(key_concurrency=1, key_rate=Rate(1, HOUR))
    do(connection, lambda tx: fleet.configure(tx, QueueChange("q", limits=limits)))
    claim = Claim(owner="w", limit=5, lease=HOUR, queues=("q",), tasks=("t",))

    def jobs(count: int, priority: int = 0, **keys: Any) -> list[NewJob]:
        return [
            NewJob(id=new_id(), task="t", queue="q", priority=priority, **keys)
            for _ in range(count)
        ]

    def cost() -> int:
        do(connection, lambda tx: operations.insert(tx, jobs(5), NOW))
        taken: list[JobRow] = []
        steps = steps_of(connection, lambda tx: taken.extend(claiming.claim(tx, claim, NOW)))
        assert len(taken) == 5
        end(connection, taken)
        return steps

    cost()
    alone = cost()
    count = scaled(5_000, 100_000)
    many = jobs(count, 9, concurrency_key="k") + jobs(count, 9, rate_key="r")
    do(connection, lambda tx: operations.insert(tx, many, NOW))
    left = "SELECT count(*) FROM jobs WHERE state = 'pending' AND ready = 1"
    while connection.execute(left).fetchone()[0]:
        do(connection, lambda tx: claiming.claim(tx, claim, NOW))
    assert cost() <= alone + SLACK


def test_overdue_jobs_in_front_are_passed_over_within_bounds(connection: sqlite3.Connection):
    overdue = [
        NewJob(id=new_id(), task="t", queue="q", priority=9, expires_at=NOW - 1)
        for _ in range(claiming._OVERDUE_REACH)
    ]
    mine = NewJob(id=new_id(), task="t", queue="q")
    do(connection, lambda tx: operations.insert(tx, [*overdue, mine], NOW - HOUR))
    claim = Claim(owner="w", limit=1, lease=HOUR, queues=("q",), tasks=("t",))
    (taken,) = do(connection, lambda tx: claiming.claim(tx, claim, NOW))
    assert taken.id == mine.id
    more = [
        NewJob(id=new_id(), task="t", queue="q", priority=9, expires_at=NOW - 1)
        for _ in range(5_000)
    ]
    do(connection, lambda tx: operations.insert(tx, [*more, mine], NOW - HOUR))
    assert steps_of(connection, lambda tx: claiming.claim(tx, claim, NOW)) < 3_000


def end(connection: sqlite3.Connection, rows) -> None:
    settlements = [rules.decide(row, Completed(), now=NOW) for row in rows]
    do(connection, lambda tx: operations.settle(tx, settlements, NOW))


@pytest.mark.parametrize(
    ("outcome", "name"),
    [
        (Completed(b"1"), "settle_final"),
        (Errored(JobError("k", "m")), "settle_final"),
        (Released(ReleaseReason.STORE), "settle_pending"),
    ],
)
def test_a_settling_statement_writes_all_that_the_rules_say(
    connection: sqlite3.Connection, outcome, name: str
):
    do(connection, lambda tx: operations.insert(tx, [NewJob(id="a", task="t", queue="q")], NOW))
    claim = Claim(owner="w", limit=1, lease=HOUR, queues=("q",))
    (row,) = do(connection, lambda tx: claiming.claim(tx, claim, NOW))
    change: Change = rules.decide(row, outcome, now=NOW).next
    assert (change.state is State.PENDING) == (name == "settle_pending")
    for column in rules.settled_values(0, change, NOW):
        assert f" {column} = :{column}" in SQL[name].split("WHERE")[0]


@pytest.mark.parametrize("where", [Filter(tasks=("rare",)), Filter(tags=("rare",))])
def test_a_search_looks_at_a_bounded_number_of_jobs(connection: sqlite3.Connection, where: Filter):
    """However large the store, and though nothing matches."""
    steps = []
    for _ in range(3):
        jobs = [NewJob(id=new_id(), task="t", tags=("a",)) for _ in range(SCAN_MAX)]
        do(connection, lambda tx, jobs=jobs: operations.insert(tx, jobs, NOW))
        steps.append(steps_of(connection, lambda tx: queries.find(tx, where, Page())))
    assert max(steps) - min(steps) < SLACK, steps


def test_what_is_still_kept_costs_retention_nothing(connection: sqlite3.Connection):
    """Failed jobs are kept longer than completed ones, and lie before them in time."""
    completed = Filter(states=(State.COMPLETED,))
    steps = []
    for _ in range(3):
        ids = [new_id() for _ in range(1000)]
        jobs = [NewJob(id=job_id, task="t") for job_id in ids]
        do(connection, lambda tx, jobs=jobs: operations.insert(tx, jobs, NOW))
        do(connection, lambda tx, ids=ids: operations.cancel(tx, ids, False, NOW + 1))
        steps.append(
            steps_of(connection, lambda tx: operations.prune_jobs(tx, NOW + 9, completed, 500))
        )
    assert max(steps) - min(steps) < SLACK, steps
