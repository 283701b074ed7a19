"""Stands between a client and a server: cuts, stalls and delays what passes; for any protocol."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Self, TypeVar

T = TypeVar("T")

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Proxy:
    """Listens on a free port of the loopback, in a thread of its own, as a context manager."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._flowing = asyncio.Event()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._refusing = False
        self.delay = 0.0
        """Seconds by which everything is late, in either direction."""
        self.port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._open())
        return self

    def __exit__(self, *exc: object) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def through(self, url: str) -> str:
        """The URL by which the server is reached through this proxy."""
        return url.replace(f":{self._target}/", f":{self.port}/")

    def cut(self) -> None:
        """Break every connection that there is."""
        self._call(self._cut)

    def cut_one(self, dice: random.Random) -> None:
        """Break one connection, if there is any."""
        self._call(lambda: self._cut_one(dice))

    def refuse(self, refusing: bool = True) -> None:
        """Break every connection, and each new one at once, until told otherwise."""
        self._refusing = refusing
        self.cut()

    def stall(self) -> None:
        """Let nothing pass from now on; connections stay, and new ones are accepted."""
        self._call(self._flowing.clear)

    def flow(self) -> None:
        """Let everything pass again, also what was held back."""
        self._call(self._flowing.set)

    # On the loop of the thread

    async def _open(self) -> None:
        self._flowing.set()
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        self._server.close()
        self._flowing.set()
        self._cut()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._writers.add(writer)
        try:
            if not self._refusing:
                await self._serve(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one client, until either side leaves."""
        back, forth = await asyncio.open_connection("127.0.0.1", self._target)
        self._writers.add(forth)
        try:
            ways = [self._pass(reader, forth), self._pass(back, writer)]
            tasks = [asyncio.ensure_future(way) for way in ways]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            self._writers.discard(forth)
            forth.close()

    async def _pass(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(65_536):
            if self.delay:
                await asyncio.sleep(self.delay)
            await self._flowing.wait()
            target.write(data)
            await target.drain()

    def _cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    def _cut_one(self, dice: random.Random) -> None:
        if self._writers:
            dice.choice(list(self._writers)).transport.abort()

    def _call(self, function: Callable[[], object]) -> None:
        async def call() -> None:
            function()

        self._run(call())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)
