"""The connections of one handle, on one event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine

from tenure.engines.postgres.link import Link
from tenure.engines.postgres.place import Place, PlacedStatements
from tenure.errors import EngineUnavailable


class Lent:
    """A connection, from entering to leaving. Not by `contextlib`, as every call goes through."""

    __slots__ = ("_deadline", "_link", "_pool", "_timer")

    def __init__(self, pool: Pool, deadline: float) -> None:
        self._pool = pool
        self._deadline = deadline

    async def __aenter__(self) -> Link:
        link = self._link = await self._pool.take(self._deadline)
        self._timer = asyncio.get_running_loop().call_at(self._deadline, self._pool.end, link)
        return link

    async def __aexit__(self, *exc: object) -> None:
        self._timer.cancel()
        self._pool.give(self._link)


class Pool:
    """Up to `place.connections` connections, made when needed, the last used one first.

    One that was not left clean is closed, and so is one whose server went away meanwhile: after a
    restart of the server, the next call gets a new connection.
    """

    def __init__(self, place: Place, statements: PlacedStatements) -> None:
        self._place = place
        self._statements = statements
        self._idle: list[Link] = []
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._open = 0
        self._closed = False
        self._endings: set[asyncio.Task[None]] = set()

    def link(self, deadline: float) -> Lent:
        """A connection for a block; ended, if it still works at the loop's `deadline`.

        Entering raises `EngineUnavailable` if there is none in time.
        """
        return Lent(self, deadline)

    async def close(self) -> None:
        """Close what is idle; what is in use is closed when it is given back."""
        self._closed = True
        idle, self._idle = self._idle, []
        self._open -= len(idle)
        for link in idle:
            await link.close()
        if self._endings:
            await asyncio.wait(self._endings)

    def shut(self) -> None:
        """Close without waiting for it: what is idle now, what is in use when it is given back."""
        self._closed = True
        idle, self._idle = self._idle, []
        for link in idle:
            self._drop(link)

    async def take(self, deadline: float) -> Link:
        loop = asyncio.get_running_loop()
        while True:
            if self._closed:
                raise EngineUnavailable(f"the engine on {self._place.shown} is closing")
            while self._idle:
                link = self._idle.pop()
                if link.alive:
                    return link
                self._drop(link)
            left = deadline - loop.time()
            if left <= 0:
                raise EngineUnavailable(
                    f"all {self._place.connections} connections to {self._place.shown} are in use"
                )
            if self._open < self._place.connections:
                return await self._made(left)
            await self._turn(left)

    async def _made(self, seconds: float) -> Link:
        self._open += 1
        try:
            return await Link.open(self._place, self._statements, seconds)
        except BaseException:
            self._open -= 1
            self._wake()
            raise

    async def _turn(self, seconds: float) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        await asyncio.wait({turn}, timeout=seconds)
        if not turn.done():
            turn.cancel()

    def give(self, link: Link) -> None:
        if self._closed or not link.clean:
            self._drop(link)
        else:
            self._idle.append(link)
        self._wake()

    def _wake(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    def _drop(self, link: Link) -> None:
        self._open -= 1
        self._spawn(link.close())

    def end(self, link: Link) -> None:
        self._spawn(link.abandon())

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._endings.add(task)
        task.add_done_callback(self._endings.discard)
