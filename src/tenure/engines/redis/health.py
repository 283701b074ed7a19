"""What endangers a store on Redis or Valkey."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tenure.core.fleet import Finding
from tenure.engines.redis.fleet import store_time
from tenure.engines.redis.link import Link
from tenure.engines.redis.opening import info

SKEW = 5_000_000
"""Microseconds by which the clocks of server and host may differ without a word."""

FULL = 0.9
"""The share of its memory that a server may use without a word."""


async def examine(link: Link, host_now: int) -> list[Finding]:
    """What the server says of itself."""
    now = await store_time(link)
    server = await info(link, b"server", b"memory", b"persistence", b"replication")
    return [
        *_eviction(server),
        *_memory(server),
        *_persistence(server),
        *_saving(server),
        *_clock(now, host_now),
    ]


async def at_start(link: Link) -> list[Finding]:
    """What somebody should know before the first job is lost by it."""
    server = await info(link, b"memory", b"persistence")
    return [*_eviction(server), *_persistence(server)]


def _eviction(server: Mapping[str, str]) -> Iterator[Finding]:
    """Whether the server may throw jobs away to make room."""
    policy = server.get("maxmemory_policy", "noeviction")
    if policy.startswith("allkeys"):
        yield Finding(
            "server-evicts",
            f"the server's maxmemory-policy is {policy}: when its memory is used up, it throws "
            "away jobs without a word",
            "set maxmemory-policy to noeviction, or give the jobs a server of their own",
        )


def _memory(server: Mapping[str, str]) -> Iterator[Finding]:
    most, used = int(server.get("maxmemory", 0)), int(server.get("used_memory", 0))
    if most and used > FULL * most:
        yield Finding(
            "memory-nearly-full",
            f"the server uses {used / most:.0%} of its memory; when it is full, no job can be "
            "enqueued, though those that are there still run",
            "prune finished jobs, raise maxmemory, or find out what else is kept there",
        )


def _persistence(server: Mapping[str, str]) -> Iterator[Finding]:
    """What a restart of the server would lose."""
    if server.get("aof_enabled") == "1":
        return
    yield Finding(
        "not-persistent",
        "the server has no append-only file: if it restarts, all jobs since its last snapshot "
        "are lost, or all that there are if it takes none",
        "set appendonly yes, with appendfsync everysec (loses up to a second) or always (nothing)",
        problem=False,
    )


def _saving(server: Mapping[str, str]) -> Iterator[Finding]:
    failed = [
        name
        for name in ("rdb_last_bgsave_status", "aof_last_bgrewrite_status", "aof_last_write_status")
        if server.get(name, "ok") != "ok"
    ]
    if failed:
        yield Finding(
            "saving-fails",
            f"the server could not save: {', '.join(failed)}",
            "look into the server's log, and whether its disk is full",
        )
    if server.get("role") == "slave":
        yield Finding(
            "server-read-only",
            "the server is a replica, which takes no jobs",
            "connect to the primary; with sentinels, use redis+sentinel://",
        )


def _clock(now: int, host_now: int) -> Iterator[Finding]:
    if abs(now - host_now) > SKEW:
        ahead = "ahead of" if now > host_now else "behind"
        yield Finding(
            "clock-differs",
            f"the server's clock is {abs(now - host_now) / 1e6:.0f} s {ahead} this host's; jobs "
            "and leases go by the server's",
            "synchronise both clocks: times that users give are those of their hosts",
            problem=False,
        )
