"""huey on SQLite, by command. Runs in the peers' environment: needs huey and nothing of ours.

`enqueue SECONDS` enqueues one by one; `drain JOBS WORKERS` lets one consumer with so many threads
run jobs. Both answer [count, seconds, CPU seconds]. huey takes a job out before it runs it, so a
crash loses it; its commits are synced to disk as SQLite does by default.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any

from huey import SqliteHuey

STALLED = 30.0


class Peer:
    def __init__(self, path: str) -> None:
        self.huey = SqliteHuey("bench", filename=path, results=False)
        self.seen: list[tuple[int, float]] = []

        def noop(i: int) -> None:
            self.seen.append((i, time.perf_counter()))

        self.noop: Any = self.huey.task(name="noop")(noop)

    def enqueue(self, seconds: str) -> tuple[int, float, float]:
        limit = float(seconds)
        cpu, start = time.process_time(), time.perf_counter()
        count = 0
        while count == 0 or time.perf_counter() - start < limit:
            self.noop(count)
            count += 1
        sample = count, time.perf_counter() - start, time.process_time() - cpu
        self.huey.flush()
        return sample

    def drain(self, jobs: str, workers: str) -> tuple[int, float, float]:
        count = int(jobs)
        self.seen.clear()
        self._fill(count)
        cpu = time.process_time()
        consumer = self.huey.create_consumer(
            workers=int(workers), worker_type="thread", periodic=False
        )
        deadline = time.monotonic() + STALLED
        consumer.start()
        while len(self.seen) < count and time.monotonic() < deadline:
            time.sleep(0.002)
        spent = time.process_time() - cpu
        consumer.stop(graceful=True)
        if sorted(i for i, _ in self.seen) != list(range(count)):
            raise AssertionError(f"of {count} jobs {len(self.seen)} ran")
        times = [at for _, at in self.seen]
        return count, max(max(times) - min(times), 1e-9), spent

    def _fill(self, count: int) -> None:
        """Put jobs in, in one transaction: filling is not what is measured."""
        storage = self.huey.storage
        rows = [(storage.name, self.huey.serialize_task(self.noop.s(i)), 0) for i in range(count)]
        with storage.db(commit=True) as cursor:
            cursor.executemany("INSERT INTO task (queue, data, priority) VALUES (?, ?, ?)", rows)


def main(path: str) -> None:
    logging.disable(logging.CRITICAL)
    peer = Peer(path)
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        name, *arguments = line.split()
        print(json.dumps(getattr(peer, name)(*arguments)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
