"""Wake-ups across processes, by pub/sub. Hints only: polling stands behind them."""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
from redis import exceptions

from tenure.core.durations import SECOND
from tenure.core.retry import RetryPolicy
from tenure.engines.protocol import Signal, Topic
from tenure.engines.redis.dialling import Connection, Dialler, Unreachable
from tenure.engines.redis.faults import summary
from tenure.engines.redis.link import Link
from tenure.engines.signals import SignalHub
from tenure.errors import TenureError

log = logging.getLogger("tenure.redis")

PATIENCE = 2.0
"""Seconds for which a listener waits until it hears."""

_CHECK_SECONDS = 15.0
_AWAY = RetryPolicy(base=0.1, factor=2.0, cap=5.0, jitter=0.5)
_ids = msgspec.msgpack.Decoder(list[str]).decode


class Ear:
    """The one connection of a handle on which signals are heard; there while anybody listens.

    It hears no more than what somebody here listens to. Of a single new job, a script tells one
    of the ears that are registered for its queue: see `wake` in scripts/parts/signals.lua.
    """

    def __init__(self, link: Link, hub: SignalHub) -> None:
        self.name = secrets.token_hex(6)
        self._link = link
        self._hub = hub
        self._prefix = link.place.prefix
        self._wanted: Counter[str] = Counter()
        self._queues: Counter[str] = Counter()
        self._heard: dict[str, asyncio.Event] = {}
        self._task: asyncio.Task[None] | None = None
        self._connection: Connection | None = None
        self._failures = 0
        self._answered = True

    @property
    def registered(self) -> str:
        """The name, if single jobs may be told to it; else nothing."""
        return self.name if self._queues else ""

    @asynccontextmanager
    async def hear(
        self, topics: frozenset[Topic], queues: frozenset[str] | None
    ) -> AsyncIterator[None]:
        """Hear these signals while the block is open; begins once that is so, or a moment later."""
        channels = self._channels(topics, queues)
        named = queues if queues is not None and Topic.QUEUE in topics else frozenset[str]()
        self._wanted.update(channels)
        self._queues.update(named)
        try:
            if self._task is None:
                self._task = asyncio.get_running_loop().create_task(self._run())
            await self._begin(channels, named)
            yield
        finally:
            self._wanted.subtract(channels)
            self._queues.subtract(named)
            self._wanted, self._queues = +self._wanted, +self._queues
            await self._end(channels, named)
            if not self._wanted:
                await self.close()

    async def close(self) -> None:
        """Hear no more, until somebody listens again."""
        task, self._task = self._task, None
        self._heard.clear()
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    def _channels(self, topics: frozenset[Topic], queues: frozenset[str] | None) -> list[str]:
        names = ["any"]
        if Topic.QUEUE in topics:
            if queues is None:
                names.append("queue")
            else:
                names += [f"ear:{self.name}", *(f"queue:{queue}" for queue in queues)]
        names += [str(topic) for topic in (Topic.DONE, Topic.CANCEL) if topic in topics]
        return [f"{self._prefix}!{name}" for name in names]

    async def _begin(self, channels: Iterable[str], queues: Iterable[str]) -> None:
        new = [channel for channel in channels if channel not in self._heard]
        self._heard |= {channel: asyncio.Event() for channel in new}
        with suppress(TimeoutError, TenureError):  # it goes on trying
            async with asyncio.timeout(min(PATIENCE, self._link.place.timeout)):
                await self._say(b"SUBSCRIBE", new)
                for channel in channels:
                    await self._heard[channel].wait()
                if queues:
                    await self._link.run("hear", [self.name, list(queues), True], repeat=True)

    async def _end(self, channels: Iterable[str], queues: Iterable[str]) -> None:
        gone = [channel for channel in channels if channel not in self._wanted]
        for channel in gone:
            event = self._heard.pop(channel, None)
            if event is not None:
                event.set()  # nobody needs to wait for it any more
        left = [queue for queue in queues if queue not in self._queues]
        with suppress(TimeoutError, TenureError):
            async with asyncio.timeout(min(PATIENCE, self._link.place.timeout)):
                await self._say(b"UNSUBSCRIBE", gone)
                if left:
                    await self._link.run("hear", [self.name, left, False], repeat=True)

    async def _say(self, word: bytes, channels: list[str]) -> None:
        if channels and self._connection is not None:
            with suppress(exceptions.RedisError, OSError):
                await self._connection.send_command(word, *channels, check_health=False)

    async def _run(self) -> None:
        dialler = Dialler(self._link.place)
        while True:
            connection = None
            try:
                connection = await dialler.dial(self._link.place.timeout)
                await self._listen(connection)
            except (Unreachable, TenureError, exceptions.RedisError, OSError) as error:
                if self._failures == 0:
                    log.warning("signals are not heard, so jobs start later: %s", summary(error))
                self._failures += 1
            finally:
                self._connection = None
                if connection is not None:
                    await connection.disconnect(nowait=True)
            for event in self._heard.values():
                event.clear()
            await asyncio.sleep(_AWAY.delay(self._failures, random.random()) / SECOND)

    async def _listen(self, connection: Connection) -> None:
        # Connecting first, then asking what is wanted: what is asked for meanwhile is in it.
        self._connection = connection
        self._answered = True
        await connection.send_command(b"SUBSCRIBE", *self._wanted, check_health=False)
        checking = asyncio.get_running_loop().create_task(self._check(connection))
        try:
            while True:
                message = await connection.read_response(disconnect_on_error=False)
                self._answered = True
                self._take(message)
        finally:
            checking.cancel()
            await asyncio.wait({checking})

    def _take(self, message: Any) -> None:
        if not isinstance(message, list):
            return  # the answer to a PING after the last channel was left
        kind, name = message[0], message[1].decode()
        if kind == b"message":
            try:
                signals = self._signals(name[len(self._prefix) + 1 :], message[2])
            except (ValueError, msgspec.MsgspecError):  # somebody else wrote this
                signals = [Signal(Topic.ANY)]
            self._hub.publish(signals)
        elif kind == b"subscribe" and name in self._heard:
            self._heard[name].set()

    def _signals(self, channel: str, data: bytes) -> list[Signal]:
        topic = channel.partition(":")[0]
        if topic == "any":
            return [Signal(Topic.ANY, data.decode())]
        if topic in ("queue", "ear"):
            return [Signal(Topic.QUEUE, data.decode())]
        return [Signal(Topic(topic), job_id) for job_id in _ids(data)]

    async def _check(self, connection: Connection) -> None:
        """See from time to time whether the server is there, and knows of us."""
        for event in list(self._heard.values()):
            await event.wait()
        if self._failures:
            self._failures = 0
            await self._register()
            log.info("signals of %s are heard again", self._link.place.shown)
            self._hub.publish([Signal(Topic.ANY)])  # whatever was missed
        while True:
            await asyncio.sleep(_CHECK_SECONDS)
            if not self._answered:
                await connection.disconnect(nowait=True)
                return
            self._answered = False
            with suppress(exceptions.RedisError, OSError):
                await connection.send_command(b"PING", check_health=False)
            await self._register()

    async def _register(self) -> None:
        """Have single jobs told to us, too. Only once we hear, or we would be taken for gone."""
        if self._queues:
            with suppress(TenureError):
                await self._link.run("hear", [self.name, list(self._queues), True], repeat=True)
