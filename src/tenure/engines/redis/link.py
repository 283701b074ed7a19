"""Running scripts on the server that has the keys: connecting, trying again, giving up in time."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol, TypeVar

import msgspec

from tenure.engines.redis.dialling import Dialler, Unreachable, closed
from tenure.engines.redis.faults import Fault, fault_of, refused
from tenure.engines.redis.place import Place
from tenure.engines.redis.scripts import Script, packed, script
from tenure.engines.redis.wire import Severed, Wire
from tenure.errors import EngineUnavailable

T = TypeVar("T")

encode = msgspec.msgpack.Encoder().encode

_PAUSES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)
"""Seconds from one try to the next; the last one is repeated."""

_AWAY_SECONDS = 1.0
"""How long a server that does not let itself be reached is tried again."""


class Fate:
    """Whether the answer to a first try was lost, so that a later try may have met its effects."""

    __slots__ = ("unsure",)

    def __init__(self) -> None:
        self.unsure = False


class Runs(Protocol):
    """Where scripts can be run: see `Link`."""

    @property
    def place(self) -> Place: ...

    async def run(
        self,
        name: str,
        arguments: Any = (),
        now: int | None = None,
        *,
        repeat: bool | Fate = False,
    ) -> Any: ...


class Asks(Runs, Protocol):
    """Where plain commands can be sent as well."""

    async def command(self, *words: bytes) -> Any: ...


class Tries:
    """How long something is tried again: until the deadline; a server that is away, a second."""

    def __init__(self, timeout: float, begun: float) -> None:
        self._timeout = timeout
        self._begun = begun
        self._count = 0

    def pause(self, now: float, *, away: bool) -> float | None:
        """Seconds until the next try; None: no more."""
        pause = _PAUSES[min(self._count, len(_PAUSES) - 1)]
        self._count += 1
        limit = min(_AWAY_SECONDS, self._timeout) if away else self._timeout
        return None if now + pause > self._begun + limit else pause


class Link:
    """The connection of one handle, on one event loop. Made anew whenever it has ended."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._prefix = place.prefix.encode()
        self._dialler = Dialler(place)
        self._wire: Wire | None = None
        self._dialling: asyncio.Task[Wire] | None = None
        self._loop = asyncio.get_running_loop()
        self._closed = False

    async def run(
        self,
        name: str,
        arguments: Any = (),
        now: int | None = None,
        *,
        repeat: bool | Fate = False,
    ) -> Any:
        """The answer of a script.

        What was surely not done is tried again until the deadline; what may have been done only if
        it says `repeat`, which then knows of it. Raises `EngineUnavailable`, `ConfigurationError`.
        """
        chosen, data = script(name), encode(arguments)
        begun = self._loop.time()
        deadline = begun + self.place.timeout
        tries = Tries(self.place.timeout, begun)
        while True:
            try:
                return await self._once(chosen, data, now, deadline)
            except Severed as error:
                problem: Exception = EngineUnavailable(f"{name}: {error}")
                away = True
                if not repeat:
                    raise problem from error
                if isinstance(repeat, Fate):
                    repeat.unsure = True
            except Unreachable as error:
                problem = EngineUnavailable(f"{name}: {self.place.shown}: {error}")
                away = True
            except Refused as error:
                fault, cause = error.fault, error.error
                problem = refused(name, cause, fault)
                away = False
                if fault not in (Fault.NOT_NOW, Fault.MOVED):
                    raise problem from cause
                self._dialler.moved(cause)
            pause = tries.pause(self._loop.time(), away=away)
            if pause is None:
                raise problem
            await asyncio.sleep(pause)

    async def command(self, *words: bytes) -> Any:
        """The answer to a plain command, sent once. Raises as `run`, and for any refusal."""
        name = words[0].decode().lower()
        deadline = self._loop.time() + self.place.timeout
        try:
            wire = await self._connected(deadline)
            return await self._answered(wire, packed(*words), deadline)
        except (Severed, Unreachable) as error:
            raise EngineUnavailable(f"{name}: {self.place.shown}: {error}") from error
        except Refused as error:
            raise refused(name, error.error, error.fault) from error.error

    async def close(self) -> None:
        """Let go of the connection. Calls that wait fail."""
        self._closed = True
        if self._dialling is not None:
            self._dialling.cancel()
            await asyncio.wait({self._dialling})
        await self._drop()

    async def _once(self, chosen: Script, data: bytes, now: int | None, deadline: float) -> Any:
        wire = await self._connected(deadline)
        try:
            return await self._answered(wire, chosen.command(self._prefix, now, data), deadline)
        except Refused as error:
            if error.fault in (Fault.NOT_NOW, Fault.MOVED):
                # A replica, or a node without the keys: whoever has them by now is asked next.
                await wire.close()
            if error.fault is not Fault.UNKNOWN_SCRIPT:
                raise
        return await self._answered(wire, chosen.whole(self._prefix, now, data), deadline)

    async def _answered(self, wire: Wire, command: bytes, deadline: float) -> Any:
        answer = wire.call(command)
        timer = self._loop.call_at(deadline, wire.sever, self._late())
        try:
            return await answer
        except (Severed, asyncio.CancelledError):
            raise
        except Exception as error:
            raise Refused(error, fault_of(error)) from error
        finally:
            timer.cancel()

    async def _connected(self, deadline: float) -> Wire:
        while self._wire is None or not self._wire.alive:
            if self._closed:
                raise closed(self.place)
            if self._dialling is None:
                self._dialling = self._loop.create_task(self._dial())
                self._dialling.add_done_callback(self._dialled)
            dialling = self._dialling
            left = deadline - self._loop.time()
            done, _ = await asyncio.wait({dialling}, timeout=max(left, 0.0))
            if not done:
                raise Unreachable(self._late())
            if dialling.cancelled():
                raise closed(self.place)
            dialling.result()
        return self._wire

    def _dialled(self, task: asyncio.Task[Wire]) -> None:
        self._dialling = None
        if not task.cancelled():
            task.exception()  # seen, even if nobody waits any more

    async def _dial(self) -> Wire:
        await self._drop()
        try:
            async with asyncio.timeout(self.place.timeout):
                connection = await self._dialler.dial(self.place.timeout)
        except TimeoutError:
            raise Unreachable(self._late()) from None
        self._wire = Wire(connection)
        return self._wire

    async def _drop(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            await wire.close()

    def _late(self) -> str:
        return f"{self.place.shown} did not answer within {self.place.timeout:g} s"


class Refused(Exception):
    """The server answered with an error; nothing was done."""

    def __init__(self, error: Exception, fault: Fault | None) -> None:
        super().__init__(str(error))
        self.error = error
        self.fault = fault
