"""What endangers a store on PostgreSQL, or slows it down."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tenure.core.fleet import Finding
from tenure.engines.postgres.place import Place, schema_version
from tenure.engines.postgres.steps import Ask, Steps

SKEW = 5_000_000
"""Microseconds by which the clocks of server and host may differ without a word."""

DEAD_ALARM = 100_000
"""Dead rows, if they are more than twice as many as live ones."""

INDEX_ALARM = 100 * 1024 * 1024
"""Bytes of an index, if they are more than ten times what its rows need."""

_ENTRY = 150
"""Bytes of an index for one row, with names of ordinary length."""

MAINTAINED = 150_000
"""The oldest version of the server that still gets fixes."""

_SHOWN = 5
_TABLES = ("jobs", "finished")
_INDEXES = tuple(
    """jobs_pkey jobs_ready jobs_waiting jobs_waiting_lane jobs_overdue jobs_running jobs_unique
    jobs_tick finished_pkey finished_at finished_tick""".split()
)


def examine(place: Place, host_now: int, *, ours: bool) -> Steps[list[Finding]]:
    """What the server says of itself and of our tables. `ours`: no pooler is in between."""
    found = [*_server((yield Ask("server"))[0], host_now), *_pooler(ours)]
    found += _schema(*(yield Ask("schema_version"))[0])
    jobs = place.compose("{jobs}")
    found += [_transaction(*row) for row in (yield Ask("open_transactions", {"jobs": jobs}))]
    found += _prepared([row[0] for row in (yield Ask("prepared_transactions"))])
    tables = {"tables": [place.compose("{" + name + "}") for name in _TABLES]}
    for row in (yield Ask("table_health", tables)):
        found += _table(*row)
    indexes = yield Ask("index_health", tables)
    found += _indexes({name: works for name, works, _, _ in indexes}, place)
    for name, _, size, rows in indexes:
        found += _index(name, size, rows)
    found += _misplaced([row[0] for row in (yield Ask("misplaced"))])
    return found


def _server(row: tuple[Any, ...], host_now: int) -> Iterator[Finding]:
    version, autovacuum, fsync, pages, commit, standby, now = row
    if version < MAINTAINED:
        yield Finding(
            "server-old",
            f"PostgreSQL {version // 10_000} gets no fixes any more",
            f"upgrade the server to PostgreSQL {MAINTAINED // 10_000} or newer",
            problem=False,
        )
    if standby:
        yield Finding(
            "server-read-only",
            "the server is a standby, which takes no jobs",
            "connect to the primary, as with ?target_session_attrs=read-write",
        )
    if fsync != "on" or pages != "on":
        yield Finding(
            "server-unsafe",
            f"fsync is {fsync} and full_page_writes is {pages}: a crash of the server may destroy "
            "the database",
            "turn both on",
        )
    if commit == "off":
        yield Finding(
            "commit-not-awaited",
            "synchronous_commit is off: what was acknowledged may be lost if the server crashes",
            "turn it on, unless losing the last moment is fine",
            problem=False,
        )
    if autovacuum != "on":
        yield Finding(
            "autovacuum-off",
            "autovacuum is off: dead rows pile up, and claims become slower without end",
            "turn autovacuum on",
        )
    if abs(now - host_now) > SKEW:
        ahead = "ahead of" if now > host_now else "behind"
        yield Finding(
            "clock-differs",
            f"the server's clock is {abs(now - host_now) / 1e6:.0f} s {ahead} this host's; jobs "
            "and leases go by the server's",
            "synchronise both clocks: times that users give are those of their hosts",
            problem=False,
        )


def _schema(version: int, needed: int) -> Iterator[Finding]:
    if version > schema_version():
        yield Finding(
            "schema-newer",
            f"the schema has version {version}, and this library knows {schema_version()}; the "
            f"schema works with libraries that know {needed}",
            "upgrade the libraries that are older than the schema",
            problem=False,
        )


def _pooler(ours: bool) -> Iterator[Finding]:
    if not ours:
        yield Finding(
            "pooler",
            "the server is reached through a pooler, which passes on no wake-ups",
            "nothing, if jobs may start up to a second late; else give workers a direct address",
            problem=False,
        )


def _transaction(
    pid: int, user: str, application: str, state: str, seconds: int, pins: bool, locks: bool
) -> Finding:
    who = f"session {pid} of {user or '?'}" + (f" ({application})" if application else "")
    what = []
    if locks:
        what.append("has locked jobs or written to them")
    if pins:
        what.append("keeps dead rows from being removed, so that tables grow")
    return Finding(
        "transaction-open",
        f"{who} has a transaction open for {seconds} s ({state}); it "
        + " and ".join(what or ["waits"]),
        f"find out why; `SELECT pg_terminate_backend({pid})` ends it",
        problem=False,
    )


def _prepared(names: list[str]) -> Iterator[Finding]:
    if names:
        yield Finding(
            "transaction-prepared",
            f"{len(names)} prepared transactions were neither committed nor rolled back: "
            f"{', '.join(names[:_SHOWN])}",
            "COMMIT PREPARED or ROLLBACK PREPARED them: until then no dead row is removed",
        )


def _table(name: str, options: str, live: int, dead: int) -> Iterator[Finding]:
    if "autovacuum_enabled=false" in options:
        yield Finding(
            "autovacuum-off",
            f"autovacuum is off for the table {name}: claims become slower without end",
            f"ALTER TABLE ... {name} RESET (autovacuum_enabled)",
        )
    if dead > DEAD_ALARM and dead > 2 * live:
        yield Finding(
            "table-bloated",
            f"the table {name} has {dead} dead rows and {live} live ones",
            "look for open transactions and for what keeps autovacuum busy; then VACUUM it",
            problem=False,
        )


def _indexes(found: dict[str, bool], place: Place) -> Iterator[Finding]:
    wanted = [f"{place.prefix}{name}" for name in _INDEXES]
    missing = [name for name in wanted if name not in found]
    broken = [name for name in wanted if name in found and not found[name]]
    if missing or broken:
        yield Finding(
            "index-missing",
            f"indexes are missing or invalid: {', '.join(missing + broken)}",
            "`tenure migrate --sql` prints how they are made; drop an invalid one first",
        )


def _index(name: str, size: int, rows: int) -> Iterator[Finding]:
    if rows >= 0 and size > max(INDEX_ALARM, 10 * _ENTRY * rows):
        yield Finding(
            "index-bloated",
            f"the index {name} has {size // 1_000_000} MB for {rows} rows",
            f"look for open transactions; then REINDEX INDEX CONCURRENTLY ... {name}",
            problem=False,
        )


def _misplaced(ids: list[str]) -> Iterator[Finding]:
    if ids:
        yield Finding(
            "job-misplaced",
            f"{len(ids)} jobs are in both tables or in the wrong one: {', '.join(ids[:_SHOWN])}",
            "find out who wrote them; no operation of tenure does this",
        )
