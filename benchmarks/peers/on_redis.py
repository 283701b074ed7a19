"""Other queues on Redis, by command. Runs in the peers' environment: needs nothing of ours.

`enqueue SECONDS` enqueues one by one; `drain JOBS WORKERS` lets one process with so many threads
run jobs. Both answer [count, seconds, CPU seconds]. huey takes a job out before it runs it, so a
crash loses it; dramatiq keeps it until it has run.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any

STALLED = 60.0


class Peer:
    """What both have in common."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.seen: list[tuple[int, float]] = []

    def noop(self, i: int) -> None:
        self.seen.append((i, time.perf_counter()))

    def enqueue(self, seconds: str) -> tuple[int, float, float]:
        limit, put = float(seconds), self.put
        cpu, start = time.process_time(), time.perf_counter()
        count = 0
        while count == 0 or time.perf_counter() - start < limit:
            put(count)
            count += 1
        sample = count, time.perf_counter() - start, time.process_time() - cpu
        self.flush()
        return sample

    def drain(self, jobs: str, workers: str) -> tuple[int, float, float]:
        count = int(jobs)
        self.seen.clear()
        for i in range(count):
            self.put(i)
        cpu = time.process_time()
        deadline = time.monotonic() + STALLED
        stop = self.start(int(workers))
        while len(self.seen) < count and time.monotonic() < deadline:
            time.sleep(0.002)
        spent = time.process_time() - cpu
        stop()
        if sorted(i for i, _ in self.seen) != list(range(count)):
            raise AssertionError(f"of {count} jobs {len(self.seen)} ran")
        times = [at for _, at in self.seen]
        return count, max(max(times) - min(times), 1e-9), spent

    def put(self, i: int) -> Any:
        raise NotImplementedError

    def flush(self) -> Any:
        raise NotImplementedError

    def start(self, workers: int) -> Any:
        """Start working; returns what ends it."""
        raise NotImplementedError


class Huey(Peer):
    def __init__(self, url: str) -> None:
        super().__init__(url)
        from huey import RedisHuey

        self.huey = RedisHuey("bench", url=url, results=False)
        self.task: Any = self.huey.task(name="noop")(self.noop)

    def put(self, i: int) -> Any:
        self.task(i)

    def flush(self) -> Any:
        self.huey.flush()

    def start(self, workers: int) -> Any:
        consumer = self.huey.create_consumer(workers=workers, worker_type="thread", periodic=False)
        consumer.start()
        return lambda: consumer.stop(graceful=True)


class Dramatiq(Peer):
    def __init__(self, url: str) -> None:
        super().__init__(url)
        import dramatiq
        from dramatiq.brokers.redis import RedisBroker

        self.broker = RedisBroker(url=url)
        dramatiq.set_broker(self.broker)
        self.actor: Any = dramatiq.actor(actor_name="noop")(self.noop)

    def put(self, i: int) -> Any:
        self.actor.send(i)

    def flush(self) -> Any:
        self.broker.flush_all()

    def start(self, workers: int) -> Any:
        from dramatiq import Worker

        worker = Worker(self.broker, worker_threads=workers)
        worker.start()
        return worker.stop


def main(name: str, url: str) -> None:
    logging.disable(logging.CRITICAL)
    peer = {"huey": Huey, "dramatiq": Dramatiq}[name](url)
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        command, *arguments = line.split()
        print(json.dumps(getattr(peer, command)(*arguments)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
