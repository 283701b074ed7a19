"""One connection that any number of calls share: their commands go out as they come."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from redis import exceptions

from tenure.engines.redis.dialling import Connection
from tenure.engines.redis.faults import is_reply, summary


class Severed(Exception):
    """The connection ended before the answer came: what became of the command is unknown."""


class Wire:
    """Answers come in the order of the commands, so a caller that leaves disturbs nobody.

    For one event loop. When the connection ends, all that wait get `Severed`.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._outbox: list[bytes] = []
        self._sending = False
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self.alive = True
        self._spawn(self._read())

    def call(self, command: bytes) -> asyncio.Future[Any]:
        """Send a command; its answer, or the server's error."""
        answer: asyncio.Future[Any] = self._loop.create_future()
        if not self.alive:
            answer.set_exception(Severed("the connection has ended"))
            return answer
        self._waiting.append(answer)
        self._outbox.append(command)
        if not self._sending:
            self._sending = True
            self._spawn(self._send())
        return answer

    def sever(self, reason: str = "the connection was given up") -> None:
        """End it; whoever waits is told."""
        if not self.alive:
            return
        self.alive = False
        for answer in self._waiting:
            if not answer.done():
                answer.set_exception(Severed(reason))
        self._waiting.clear()
        own = asyncio.current_task(self._loop)
        for task in self._tasks:
            if task is not own:
                task.cancel()

    async def close(self) -> None:
        """End it, and let go of the socket."""
        self.sever()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._connection.disconnect(nowait=True)

    async def _send(self) -> None:
        try:
            while self._outbox:
                commands, self._outbox = self._outbox, []
                await self._connection.send_packed_command(commands, check_health=False)
        except (exceptions.RedisError, OSError) as error:
            await self._end(summary(error))
        finally:
            self._sending = False

    async def _read(self) -> None:
        reason = "the connection has ended"
        try:
            while True:
                try:
                    result = await self._connection.read_response(disconnect_on_error=False)
                except Exception as error:
                    if not is_reply(error):
                        raise
                    self._answer(None, error)
                else:
                    self._answer(result, None)
        except (exceptions.RedisError, OSError, IndexError) as error:
            reason = summary(error)
        finally:
            await self._end(reason)  # here, as the loop itself may be about to end

    def _answer(self, result: Any, error: Exception | None) -> None:
        answer = self._waiting.popleft()
        if answer.done():
            return  # its caller has left
        if error is None:
            answer.set_result(result)
        else:
            answer.set_exception(error)

    async def _end(self, reason: str) -> None:
        self.sever(reason)
        await self._connection.disconnect(nowait=True)

    def _spawn(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
