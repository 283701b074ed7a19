"""The application that the chaos tests run: effects in a ledger that refuses an older token."""

from __future__ import annotations

import os
import sqlite3
import threading

from tenure import INJECTED, JobContext, QueueService, RetryPolicy

FILE = os.environ.get("CHAOS_FILE", "chaos.db")
LEDGER = os.environ.get("CHAOS_LEDGER", "ledger.db")

jobs = QueueService(os.environ.get("CHAOS_URL", f"sqlite:///{FILE}"))
_own = threading.local()


def connect(path: str) -> sqlite3.Connection:
    """A connection of this thread's own."""
    kept: sqlite3.Connection | None = getattr(_own, "connection", None)
    if kept is None:
        kept = _own.connection = sqlite3.connect(path, isolation_level=None, timeout=60)
        kept.execute("PRAGMA synchronous = OFF" if path == LEDGER else "PRAGMA user_version")
    return kept


def create_ledger() -> None:
    """The ledger: the last accepted effect of each job, and how many were accepted and refused."""
    ledger = sqlite3.connect(LEDGER)
    ledger.execute("PRAGMA journal_mode = WAL")
    ledger.execute(
        "CREATE TABLE effects (job TEXT PRIMARY KEY, token INTEGER, accepted INTEGER DEFAULT 1)"
    )
    ledger.close()


@jobs.task(max_lapses=1000, max_attempts=3, retry=RetryPolicy(base=0.1, factor=1))
async def effect(number: int, *, ctx: JobContext = INJECTED) -> int:
    """An effect outside: accepted only with a token greater than the last one."""
    connect(LEDGER).execute(
        "INSERT INTO effects (job, token) VALUES (?, ?) ON CONFLICT (job) DO UPDATE "
        "SET token = excluded.token, accepted = accepted + 1 WHERE excluded.token > token",
        (ctx.job_id, ctx.token),
    )
    return number


@jobs.task(max_lapses=1000, max_attempts=3, retry=RetryPolicy(base=0.1, factor=1))
def exactly_once(number: int, *, ctx: JobContext = INJECTED) -> int:
    """An effect in the file of the jobs, committed with the end of the job."""
    own = connect(FILE)
    own.execute("BEGIN IMMEDIATE")
    try:
        own.execute("INSERT INTO effects (job, token) VALUES (?, ?)", (ctx.job_id, ctx.token))
        ctx.complete_in_sync(own, number)
    except BaseException:
        own.execute("ROLLBACK")
        raise
    own.execute("COMMIT")
    return number
