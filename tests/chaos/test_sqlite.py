"""Many jobs on one file, workers killed at random: every job ends once, and nothing is stuck."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tenure import QueueService
from tests.chaos import shop
from tests.chaos.fleet import Fleet, assert_no_problem, until

Scaled = Callable[[int, int], int]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The files of one run, known to this process and told to the workers."""
    names = {"CHAOS_FILE": str(tmp_path / "chaos.db"), "CHAOS_LEDGER": str(tmp_path / "ledger.db")}
    monkeypatch.setattr(shop, "FILE", names["CHAOS_FILE"])
    monkeypatch.setattr(shop, "LEDGER", names["CHAOS_LEDGER"])
    return names


def enqueue(url: str, task: str, count: int) -> None:
    service = QueueService(url, tasks=[shop.effect, shop.exactly_once])
    with service.sync as jobs:
        bound = [service.tasks.get(task).bind(n) for n in range(count)]
        for start in range(0, count, 5000):
            jobs.enqueue_many(bound[start : start + 5000])


def count(path: str, sql: str) -> int:
    """One number, asked for by a connection of its own."""
    connection = sqlite3.connect(path, timeout=60)
    try:
        [number] = connection.execute(sql).fetchone()
        return int(number)
    finally:
        connection.close()


FINAL = "SELECT count(*) FROM jobs WHERE finished_at IS NOT NULL"


def disturb(fleet: Fleet, path: str, total: int, kills: int, dice: random.Random) -> None:
    """Kill a process each time another share of the jobs has ended."""
    for number in range(1, kills + 1):
        mark = total * number // (kills + 2)
        until(partial(ended, path, mark), 120, f"{mark} jobs ended")
        fleet.kill_one(dice)
    until(partial(ended, path, total), 180, "every job ended")


def ended(path: str, number: int) -> bool:
    """Whether so many jobs are final."""
    return count(path, FINAL) >= number


def check_store(path: str, total: int, fleet: Fleet) -> None:
    """Every job completed, nothing is stuck, nobody met a locked file."""
    said = fleet.said()
    assert "database is locked" not in said
    assert "Traceback" not in said
    assert count(path, "SELECT count(*) FROM jobs WHERE state = 'completed'") == total
    with QueueService(f"sqlite:///{path}").sync as jobs:
        [stats] = jobs.queues.stats()
        assert (stats.completed, stats.running, stats.pending) == (total, 0, 0)
    assert_no_problem(f"sqlite:///{path}")


@pytest.mark.timeout(600)
def test_killed_workers_lose_nothing_and_tokens_never_go_back(
    tmp_path: Path, place: dict[str, str], scaled: Scaled
) -> None:
    total, kills = scaled(20_000, 100_000), 10
    shop.create_ledger()
    enqueue(f"sqlite:///{place['CHAOS_FILE']}", "effect", total)
    fleet = Fleet(tmp_path, 3, "--lease", "2", **place)
    try:
        disturb(fleet, place["CHAOS_FILE"], total, kills, random.Random(7))
    finally:
        fleet.end()
    check_store(place["CHAOS_FILE"], total, fleet)
    store = sqlite3.connect(place["CHAOS_FILE"])
    store.execute("ATTACH ? AS ledger", (place["CHAOS_LEDGER"],))
    [differing] = store.execute(
        "SELECT count(*) FROM jobs LEFT JOIN ledger.effects ON job = id "
        "WHERE effects.token IS NULL OR effects.token <> jobs.token"
    ).fetchone()
    [again] = store.execute("SELECT count(*) FROM jobs WHERE lapses > 0").fetchone()
    store.close()
    assert differing == 0  # the last accepted effect carries the settled token
    assert again > 0  # or no kill met a job, and nothing was shown


@pytest.mark.timeout(600)
def test_effects_in_the_file_itself_happen_exactly_once(
    tmp_path: Path, place: dict[str, str], scaled: Scaled
) -> None:
    total, kills = scaled(3_000, 20_000), scaled(6, 10)
    path = place["CHAOS_FILE"]
    enqueue(f"sqlite:///{path}", "exactly_once", total)
    own = sqlite3.connect(path)
    own.execute("CREATE TABLE effects (job TEXT, token INTEGER)")
    own.close()
    fleet = Fleet(tmp_path, 3, "--lease", "2", "-c", "4", **place)
    try:
        disturb(fleet, path, total, kills, random.Random(8))
    finally:
        fleet.end()
    check_store(path, total, fleet)
    assert count(path, "SELECT count(*) FROM effects") == total
    assert count(path, "SELECT count(DISTINCT job) FROM effects") == total
    assert (
        count(
            path,
            "SELECT count(*) FROM jobs JOIN effects ON job = id AND effects.token = jobs.token",
        )
        == total
    )


@pytest.mark.timeout(300)
def test_a_frozen_worker_comes_back_too_late(
    tmp_path: Path, place: dict[str, str], scaled: Scaled
) -> None:
    total = scaled(3_000, 20_000)
    shop.create_ledger()
    path = place["CHAOS_FILE"]
    enqueue(f"sqlite:///{path}", "effect", total)
    fleet = Fleet(tmp_path, 3, "--lease", "1", **place)
    dice = random.Random(9)
    try:
        until(partial(ended, path, total // 10), 60, "a tenth ended")
        # If it holds the file's lock just then, everybody stands still with it.
        for _ in range(scaled(2, 10)):
            fleet.freeze_one(dice, 2.5)
        until(partial(ended, path, total), 120, "every job ended")
    finally:
        fleet.end()
    check_store(path, total, fleet)
    store = sqlite3.connect(path)
    store.execute("ATTACH ? AS ledger", (place["CHAOS_LEDGER"],))
    [differing] = store.execute(
        "SELECT count(*) FROM jobs JOIN ledger.effects ON job = id "
        "WHERE effects.token <> jobs.token"
    ).fetchone()
    store.close()
    assert differing == 0
