"""Other queues on PostgreSQL, by command. Runs in the peers' environment: needs nothing of ours.

Arguments: which one, and the URL of a database of its own. `drain JOBS CONCURRENCY` lets one worker
run no-op jobs; `enqueue SECONDS` enqueues one by one, and leaves the jobs there. Both answer
[count, seconds, CPU seconds].

Every one keeps its own promises, which are not those of tenure: none has a lease per job.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

STALLED = 60.0
A_CALL = 1000


class Peer(Protocol):
    """One library. `seen` gets the number of each job as it starts, and when that was."""

    seen: list[tuple[int, float]]

    async def open(self, url: str) -> None: ...

    async def enqueue(self, i: int) -> None: ...

    async def enqueue_many(self, numbers: range) -> None: ...

    async def work(self, concurrency: int, over: asyncio.Event) -> None: ...

    async def close(self) -> None: ...


class Pgqueuer:
    """With a pool of connections, its fastest way; `concurrency` is what it takes at once."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, float]] = []

    async def open(self, url: str) -> None:
        import asyncpg
        from pgqueuer.db import AsyncpgPoolDriver
        from pgqueuer.queries import Queries

        self._pool = await asyncpg.create_pool(url, min_size=4, max_size=10)
        self._driver = AsyncpgPoolDriver(self._pool)
        self._queries = Queries(self._driver)
        await self._queries.install()

    async def enqueue(self, i: int) -> None:
        await self._queries.enqueue("noop", b"%d" % i)

    async def enqueue_many(self, numbers: range) -> None:
        count = len(numbers)
        await self._queries.enqueue(["noop"] * count, [b"%d" % i for i in numbers], [0] * count)

    async def work(self, concurrency: int, over: asyncio.Event) -> None:
        from pgqueuer import PgQueuer

        queuer = PgQueuer(self._driver)

        async def noop(job: Any) -> None:
            self.seen.append((int(job.payload), time.perf_counter()))

        queuer.entrypoint("noop")(noop)
        running = asyncio.create_task(queuer.run(batch_size=concurrency))
        await over.wait()
        queuer.shutdown.set()
        await running

    async def close(self) -> None:
        await self._pool.close()


class Procrastinate:
    """On psycopg, with the default settings, but for the concurrency."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, float]] = []

    async def open(self, url: str) -> None:
        import procrastinate

        connector = procrastinate.PsycopgConnector(conninfo=url, min_size=1, max_size=20)
        self._app = procrastinate.App(connector=connector)

        async def noop(i: int) -> None:
            self.seen.append((i, time.perf_counter()))

        self._noop = self._app.task(queue="default", name="noop")(noop)
        await self._app.open_async()
        await self._app.schema_manager.apply_schema_async()

    async def enqueue(self, i: int) -> None:
        await self._noop.defer_async(i=i)

    async def enqueue_many(self, numbers: range) -> None:
        await self._noop.batch_defer_async(*[{"i": i} for i in numbers])

    async def work(self, concurrency: int, over: asyncio.Event) -> None:
        running = asyncio.create_task(
            self._app.run_worker_async(concurrency=concurrency, install_signal_handlers=False)
        )
        await over.wait()
        running.cancel()
        await asyncio.wait({running})

    async def close(self) -> None:
        await self._app.close_async()


class Saq:
    """On psycopg, with the default settings, but for the concurrency."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, float]] = []

    async def open(self, url: str) -> None:
        from saq import Queue

        self._url = url
        self._queue = Queue.from_url(url)
        await self._queue.connect()

    async def enqueue(self, i: int) -> None:
        await self._queue.enqueue("noop", i=i)

    async def enqueue_many(self, numbers: range) -> None:
        await asyncio.gather(*(self.enqueue(i) for i in numbers))

    async def work(self, concurrency: int, over: asyncio.Event) -> None:
        from saq import Worker

        async def noop(context: Any, *, i: int) -> None:
            self.seen.append((i, time.perf_counter()))

        worker = Worker(self._queue, functions=[("noop", noop)], concurrency=concurrency)
        running = asyncio.create_task(worker.start())
        await over.wait()
        await worker.stop()
        running.cancel()
        await asyncio.wait({running})

    async def close(self) -> None:
        await self._queue.disconnect()


PEERS: dict[str, type[Peer]] = {
    "pgqueuer": Pgqueuer,
    "procrastinate": Procrastinate,
    "saq": Saq,
}


async def enqueue(peer: Peer, seconds: str) -> tuple[int, float, float]:
    limit = float(seconds)
    cpu, start = time.process_time(), time.perf_counter()
    count = 0
    while count == 0 or time.perf_counter() - start < limit:
        await peer.enqueue(count)
        count += 1
    return count, time.perf_counter() - start, time.process_time() - cpu


async def drain(peer: Peer, jobs: str, concurrency: str) -> tuple[int, float, float]:
    count = int(jobs)
    for start in range(0, count, A_CALL):
        await peer.enqueue_many(range(start, min(count, start + A_CALL)))
    spent = await work_off(peer, count, int(concurrency))
    times = [at for _, at in peer.seen]
    return count, max(max(times) - min(times), 1e-9), spent


async def work_off(peer: Peer, count: int, concurrency: int) -> float:
    """Let a worker run all; CPU seconds of that."""
    peer.seen.clear()
    over = asyncio.Event()
    cpu = time.process_time()
    working = asyncio.create_task(peer.work(concurrency, over))
    deadline = time.monotonic() + STALLED
    for pause in itertools.repeat(0.002):
        if len(peer.seen) >= count or working.done() or time.monotonic() > deadline:
            break
        await asyncio.sleep(pause)
    spent = time.process_time() - cpu
    await asyncio.sleep(0.3)  # what has run is noted as done
    over.set()
    await working
    if sorted(i for i, _ in peer.seen) != list(range(count)):
        raise AssertionError(f"of {count} jobs {len(peer.seen)} ran")
    return spent


Command = Callable[..., Awaitable[tuple[int, float, float]]]
COMMANDS: dict[str, Command] = {"enqueue": enqueue, "drain": drain}


async def main(name: str, url: str) -> None:
    logging.disable(logging.CRITICAL)
    peer = PEERS[name]()
    await peer.open(url)
    print(json.dumps("ready"), flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        command, *arguments = line.split()
        answer = await COMMANDS[command](peer, *arguments)
        print(json.dumps(answer), flush=True)
    await peer.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
