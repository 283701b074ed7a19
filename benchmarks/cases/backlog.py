"""The drain with many other jobs present: beside the same drain of an empty store.

What is present is due in other queues, due under names that the worker does not know, and
scheduled for later at several priorities; a quarter each, and a quarter has ended.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import psycopg
from psycopg import sql

from benchmarks import work
from benchmarks.measure import Sample, duel
from benchmarks.rows import Row, against
from benchmarks.setting import POSTGRESQL, SQLITE_FULL, SQLITE_NORMAL, Setting
from tenure import TaskRef
from tenure.core.job import COLUMNS
from tenure.engines.postgres import place_of

ENGINES = (SQLITE_FULL, SQLITE_NORMAL, POSTGRESQL)
_DAY = 86_400
_COPIES = """
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :copies)
INSERT INTO jobs ({columns}) SELECT {values} FROM n CROSS JOIN pattern
"""
_COPIES_THERE = """
INSERT INTO {table} ({columns}) SELECT {values}
FROM generate_series(1, %s) AS i CROSS JOIN (SELECT * FROM {table}) AS pattern
"""
_CHANGED = {
    "id": "printf('%s-%07d', id, i)",
    "rank": "rank + i",
    "available_at": "available_at + i",
    "queued_at": "queued_at + i",
}


def run(setting: Setting) -> Iterator[Row]:
    with setting.place() as folder:
        url = setting.url(folder)
        count = setting.effort.backlog
        if setting.engine == POSTGRESQL:
            present = fill_postgres(url, count)
        else:
            present = fill(url, folder / "tenure.db", count)
        jobs = setting.effort.jobs
        samples = duel(
            {"full": lambda: work.drain(url, jobs), "empty": lambda: _empty(setting)},
            setting.effort.rounds,
        )
    yield against(
        "backlog",
        setting.engine,
        f"drain with {present:,} jobs present / empty",
        samples["full"],
        "empty",
        samples["empty"],
    )


def fill(url: str, file: Path, count: int) -> int:
    """Put about `count` jobs in, as copies of a few that were enqueued; how many there are."""
    patterns = asyncio.run(_patterns(url))
    connection = sqlite3.connect(file, isolation_level=None)
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("CREATE TEMP TABLE pattern AS SELECT * FROM jobs")
    values = ", ".join(_CHANGED.get(column, column) for column in COLUMNS)
    statement = _COPIES.format(columns=", ".join(COLUMNS), values=values)
    connection.execute(statement, {"copies": max(1, count // patterns)})
    (present,) = connection.execute("SELECT count(*) FROM jobs").fetchone()
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.close()
    return int(present)


def fill_postgres(url: str, count: int) -> int:
    """The same in PostgreSQL, where those that ended are in a table of their own."""
    patterns = asyncio.run(_patterns(url))
    place, present = place_of(url), 0
    columns = sql.SQL(", ").join(map(sql.Identifier, COLUMNS))
    changed = _CHANGED | {"id": "id || '-' || lpad(i::text, 7, '0')"}
    values = sql.SQL(", ").join(sql.SQL(changed.get(column, column)) for column in COLUMNS)
    with psycopg.connect(place.conninfo, autocommit=True) as connection:
        for name in ("jobs", "finished"):
            table = sql.Identifier(place.schema, name)
            statement = sql.SQL(_COPIES_THERE).format(table=table, columns=columns, values=values)
            connection.execute(statement, (max(1, count // patterns),))
            connection.execute(sql.SQL("VACUUM ANALYZE {}").format(table))
            found = connection.execute(sql.SQL("SELECT count(*) FROM {}").format(table))
            present += sum(row[0] for row in found)
    return present


async def _patterns(url: str) -> int:
    """Enqueue one job of each kind; how many that are."""
    async with work.opened(url) as ours:
        noop, jobs = ours.noop, ours.jobs
        for name in ("unknown-a", "unknown-b"):
            await jobs.enqueue(TaskRef(name), i=0)
        for queue in ("other-a", "other-b"):
            await jobs.enqueue(noop.options(queue=queue), 0)
        for priority in (-10, 1_000):
            await jobs.enqueue(noop.options(priority=priority, delay=_DAY), 0)
        ended = [await jobs.enqueue(noop.options(delay=_DAY), 0) for _ in range(2)]
        await jobs.cancel(*(handle.id for handle in ended))
    return 8


def _empty(setting: Setting) -> Sample:
    with setting.place() as folder:
        return work.drain(setting.url(folder), setting.effort.jobs)
