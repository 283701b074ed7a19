"""A thread that owns a connection, for callers on an event loop."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

Work = Callable[[sqlite3.Connection], Any]
Item = tuple[Work, asyncio.Future[Any]]


class RawThread:
    """Runs functions on the connection, each in autocommit mode or, if `grouped`, all that wait
    in one transaction."""

    GROUP = 512

    def __init__(self, connection: sqlite3.Connection, *, grouped: bool) -> None:
        self._connection = connection
        self._grouped = grouped
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[Item | None] = SimpleQueue()
        self._thread = Thread(target=self._run)
        self._thread.start()

    def call(self, work: Work) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self._loop.create_future()
        self._queue.put((work, future))
        return future

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            items = [item, *self._more()] if self._grouped else [item]
            if self._grouped:
                self._connection.execute("BEGIN IMMEDIATE")
            done = [(future, work(self._connection)) for work, future in items]
            if self._grouped:
                self._connection.execute("COMMIT")
            self._loop.call_soon_threadsafe(_resolve, done)

    def _more(self) -> Iterator[Item]:
        for _ in range(self.GROUP - 1):
            try:
                item = self._queue.get_nowait()
            except Empty:
                return
            if item is None:
                self._queue.put(None)
                return
            yield item


@contextmanager
def raw_thread(connection: sqlite3.Connection, *, grouped: bool) -> Iterator[RawThread]:
    thread = RawThread(connection, grouped=grouped)
    try:
        yield thread
    finally:
        thread.close()
        connection.close()


def _resolve(done: list[tuple[asyncio.Future[Any], Any]]) -> None:
    for future, result in done:
        if not future.done():
            future.set_result(result)
