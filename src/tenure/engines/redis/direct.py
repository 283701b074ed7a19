"""Inserting without an event loop: see `engines.optional`."""

from __future__ import annotations

import os
import time
import weakref
from collections import deque
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar, cast

from redis import connection as connections
from redis import exceptions
from redis.backoff import NoBackoff
from redis.retry import Retry

from tenure.core.insertion import Inserted
from tenure.core.job import NewJob
from tenure.engines.redis import inserting, opening
from tenure.engines.redis.dialling import (
    Connection,
    Dialler,
    Unreachable,
    address_of,
    options_of,
)
from tenure.engines.redis.faults import Fault, fault_of, is_reply, refused, summary
from tenure.engines.redis.link import Fate, Tries, encode
from tenure.engines.redis.place import Address, Place
from tenure.engines.redis.scripts import packed, script
from tenure.errors import EngineUnavailable

T = TypeVar("T")


class DirectInserts:
    """See `engines.optional.Direct`. Each thread that inserts at a time has a connection.

    In a forked child it begins anew; the parent's connections are left alone there.
    """

    def __init__(self, place: Place, max_payload: int) -> None:
        self._place = place
        self._max_payload = max_payload
        self._links: dict[int, deque[_BlockingLink]] = {}
        weakref.finalize(self, _close_own, self._links)

    def insert(self, jobs: Sequence[NewJob], *, now: int | None = None) -> list[Inserted]:
        """See `engines.optional.Direct.insert`."""
        inserting.check(jobs, self._max_payload)
        # By process; in steps that the interpreter makes whole, as several threads may come.
        idle = self._links.setdefault(os.getpid(), deque())
        try:
            link = idle.pop()
        except IndexError:
            link = _BlockingLink(self._place)
        try:
            return at_once(inserting.insert(link, jobs, now))
        finally:
            idle.append(link)

    def close(self) -> None:
        """See `engines.optional.Direct.close`."""
        _close_own(self._links)


def _close_own(links: dict[int, deque[_BlockingLink]]) -> None:
    """Close what this process opened and nobody uses, and only that."""
    for link in links.pop(os.getpid(), ()):
        link.close()


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine of which nothing ever waits but for a socket that blocks."""
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    work.close()
    raise AssertionError("a blocking link never suspends")


class _Blocking:
    """A connection of the driver's blocking kind, under the names of the async one."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def connect(self) -> None:
        self._connection.connect()

    async def disconnect(self, nowait: bool = False) -> None:
        self._connection.disconnect()

    async def send_command(self, *words: Any, **options: Any) -> None:
        self._connection.send_command(*words, **options)

    async def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        self._connection.send_packed_command(command, check_health=check_health)

    async def read_response(
        self,
        disable_decoding: bool = False,
        timeout: float | None = None,
        *,
        disconnect_on_error: bool = True,
    ) -> Any:
        return self._connection.read_response(disconnect_on_error=disconnect_on_error)


def _make(
    place: Place, address: Address | None, seconds: float, given: Mapping[str, Any]
) -> Connection:
    options = options_of(place, given) | {"retry": Retry(NoBackoff(), 0), "socket_timeout": seconds}
    kind: Any
    if address is None:
        kind, options["path"] = connections.UnixDomainSocketConnection, place.path
    else:
        kind = connections.SSLConnection if place.is_tls else connections.Connection
        options |= address_of(place, address, seconds)
    return cast(Connection, _Blocking(kind(**options)))


class _BlockingLink:
    """As `Link`, for one thread at a time, which it blocks."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._prefix = place.prefix.encode()
        self._dialler = Dialler(place, _make)
        self._connection: Connection | None = None

    async def run(
        self,
        name: str,
        arguments: Any = (),
        now: int | None = None,
        *,
        repeat: bool | Fate = False,
    ) -> Any:
        """As `Link.run`."""
        chosen, data = script(name), encode(arguments)
        tries = Tries(self.place.timeout, time.monotonic())
        while True:
            try:
                return await self._once(chosen.command(self._prefix, now, data))
            except Unreachable as error:
                problem: Exception = EngineUnavailable(f"{name}: {self.place.shown}: {error}")
                cause: Exception = error
                away = True
            except (exceptions.RedisError, OSError) as error:
                away = not is_reply(error)
                fault = None if away else fault_of(error)
                if fault is Fault.UNKNOWN_SCRIPT:
                    await self._once(packed(b"SCRIPT", b"LOAD", chosen.text))
                    continue
                self._drop()
                cause = error
                problem = refused(name, error, fault)
                if away:
                    problem = EngineUnavailable(f"{name}: {self.place.shown}: {summary(error)}")
                elif fault not in (Fault.NOT_NOW, Fault.MOVED):
                    raise problem from error
                self._dialler.moved(error)
                if away and not repeat:
                    raise problem from error
                if away and isinstance(repeat, Fate):
                    repeat.unsure = True
            pause = tries.pause(time.monotonic(), away=away)
            if pause is None:
                raise problem from cause
            time.sleep(pause)  # noqa: ASYNC251 - blocking is what it is for

    async def command(self, *words: bytes) -> Any:
        """As `Link.command`."""
        return await self._once(packed(*words))

    def close(self) -> None:
        self._drop()

    async def _once(self, command: bytes) -> Any:
        try:
            if self._connection is None:
                self._connection = await self._dialler.dial(self.place.timeout)
                await opening.make(self)
            await self._connection.send_packed_command([command], check_health=False)
            return await self._connection.read_response(disconnect_on_error=False)
        except BaseException as error:
            if not is_reply(error):  # an answer may still be on its way: not for the next command
                self._drop()
            raise

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            at_once(connection.disconnect())
