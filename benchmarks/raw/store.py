"""A bare table of jobs in SQLite: what any queue has to store, and nothing more."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Iterable
from pathlib import Path

_TABLE = """
CREATE TABLE jobs (
    id INTEGER PRIMARY KEY, uid BLOB NOT NULL, queue TEXT NOT NULL, task TEXT NOT NULL,
    state INTEGER NOT NULL, priority INTEGER NOT NULL, due INTEGER NOT NULL,
    attempt INTEGER NOT NULL DEFAULT 0, max_attempts INTEGER NOT NULL DEFAULT 3,
    args BLOB NOT NULL, lease_until INTEGER, worker TEXT, created INTEGER NOT NULL,
    finished INTEGER, result BLOB
);
CREATE INDEX jobs_ready ON jobs (queue, priority, due, id) WHERE state = 0;
CREATE INDEX jobs_lease ON jobs (lease_until) WHERE state = 1;
"""
INSERT = """
INSERT INTO jobs (uid, queue, task, state, priority, due, args, created)
VALUES (?, 'default', 'noop', 0, 0, ?, ?, ?)
"""
CLAIM = """
UPDATE jobs SET state = 1, attempt = attempt + 1, lease_until = ?, worker = 'w' WHERE id IN (
    SELECT id FROM jobs WHERE state = 0 AND queue = 'default' AND due <= ?
    ORDER BY priority, due, id LIMIT ?
) RETURNING id, args, attempt
"""
RENEW = "UPDATE jobs SET lease_until = ? WHERE id = ? AND attempt = ? AND lease_until > ?"
COMPLETE = "DELETE FROM jobs WHERE id = ? AND attempt = ?"

Claimed = tuple[int, bytes, int]
"""id, arguments, attempt"""


def connect(path: Path, synchronous: str) -> sqlite3.Connection:
    """A connection in autocommit mode; any thread may use it, one at a time."""
    connection = sqlite3.connect(
        path, isolation_level=None, check_same_thread=False, cached_statements=128, timeout=5
    )
    connection.execute("PRAGMA journal_mode = WAL").fetchall()
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    connection.execute("PRAGMA cache_size = -32768")
    return connection


def create(path: Path, synchronous: str) -> sqlite3.Connection:
    connection = connect(path, synchronous)
    connection.executescript(_TABLE)
    return connection


def new_row(i: int) -> tuple[bytes, int, bytes, int]:
    """The values of one insert, with a unique id and encoded arguments."""
    now = time.time_ns() // 1000
    return (os.urandom(16), now, json.dumps([i]).encode(), now)


def insert_many(connection: sqlite3.Connection, numbers: Iterable[int]) -> None:
    """All in one transaction."""
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(INSERT, map(new_row, numbers))
    connection.execute("COMMIT")


def claim(connection: sqlite3.Connection, limit: int) -> list[Claimed]:
    now = time.time_ns() // 1000
    return connection.execute(CLAIM, (now + 30_000_000, now, limit)).fetchall()


def complete(connection: sqlite3.Connection, jobs: Iterable[Claimed]) -> None:
    connection.executemany(COMPLETE, [(job[0], job[2]) for job in jobs])


def renew(connection: sqlite3.Connection, jobs: Iterable[Claimed]) -> None:
    """Prolong these leases, in one transaction."""
    now = time.time_ns() // 1000
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(RENEW, [(now + 30_000_000, job[0], job[2], now) for job in jobs])
    connection.execute("COMMIT")
