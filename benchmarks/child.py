"""What runs in child processes: `python -m benchmarks.child ROLE ...`, see `children.py`.

Every role answers `usage` (CPU seconds, resident bytes). All times that are told are those of
`perf_counter`, which processes of one machine share.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Commands = dict[str, Callable[[], Any]]


def say(value: Any) -> None:
    os.write(sys.stdout.fileno(), json.dumps(value).encode() + b"\n")


def resident() -> int:
    """Bytes of memory in use now (where that cannot be told: at most so far)."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return pages * os.sysconf("SC_PAGE_SIZE")


def obey(commands: Commands, end: Callable[[], object]) -> None:
    """Answer commands from a thread, so that the main one is left alone."""
    known: Commands = {"usage": lambda: [time.process_time(), resident()], **commands}

    def run() -> None:
        for line in sys.stdin:
            say(known[line.strip()]())
        end()

    threading.Thread(target=run, daemon=True).start()


async def plain() -> None:
    """What any process with an event loop and SQLite costs."""
    import sqlite3

    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    obey({}, lambda: loop.call_soon_threadsafe(over.set))
    say(sqlite3.sqlite_version)
    await over.wait()


async def worker(url: str, how: str = "silent") -> None:
    """A worker. `go` starts it; `seen` tells what it ran; `telling` says each start at once."""
    from benchmarks.work import CONCURRENCY, Work

    work = Work(url, Telling() if how == "telling" else None)
    loop = asyncio.get_running_loop()
    gate = asyncio.Event()
    runner = work.jobs.worker(concurrency=CONCURRENCY)

    def go() -> str:
        loop.call_soon_threadsafe(gate.set)
        return "going"

    def end() -> None:
        loop.call_soon_threadsafe(runner.stop)
        loop.call_soon_threadsafe(gate.set)

    async with work.jobs:
        obey({"go": go, "seen": lambda: list(work.seen)}, end)
        say("ready")
        await gate.wait()
        await runner.run()


class Telling(list[tuple[int, float]]):
    """Says what is noted, instead of keeping it."""

    def append(self, item: tuple[int, float]) -> None:
        say(item)


def waker(path: str, synchronous: str, address: str) -> None:
    """The least that can wake up: a datagram, then one claim and one completion."""
    from benchmarks.raw import store

    connection = store.connect(Path(path), synchronous)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as mailbox:
        mailbox.bind(address)
        say("ready")
        while mailbox.recv(16) != b"end":
            for job in store.claim(connection, 1):
                say([json.loads(job[1])[0], time.perf_counter()])
                store.complete(connection, [job])
    connection.close()


def waker_postgres(url: str) -> None:
    """The same on PostgreSQL, woken by NOTIFY."""
    from benchmarks.raw import postgres

    with postgres.joined(url) as connection:
        for i in postgres.wakened(connection):
            say("ready" if i < 0 else [i, time.perf_counter()])


ROLES: dict[str, Callable[..., Any]] = {
    "plain": plain,
    "worker": worker,
    "waker": waker,
    "waker-postgres": waker_postgres,
}


def main(role: str, *arguments: str) -> None:
    made = ROLES[role](*arguments)
    if asyncio.iscoroutine(made):
        asyncio.run(made)


if __name__ == "__main__":
    main(*sys.argv[1:])
