"""Wake-ups across processes, by LISTEN and NOTIFY. Hints only: polling stands behind them."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable

import msgspec
import psycopg

from tenure.core.durations import SECOND
from tenure.core.retry import RetryPolicy
from tenure.engines.postgres.link import Link, summary
from tenure.engines.postgres.place import Place, PlacedStatements
from tenure.engines.protocol import Signal, Topic
from tenure.engines.signals import SignalHub
from tenure.errors import EngineUnavailable

log = logging.getLogger("tenure.postgres")

MESSAGE_MAX = 7900
"""Bytes; PostgreSQL takes less than 8000."""

PACE = 0.002
"""Seconds from one NOTIFY to the next: the first is told at once, those that follow share one."""

PACE_EACH = 0.0004
PACE_MAX = 0.02
"""Seconds for each signal of a NOTIFY, and at most, if that is longer: where hundreds of jobs end
at once, nobody waits for each of them, and telling of it every other millisecond is what costs."""

_AWAY = RetryPolicy(base=0.1, factor=2.0, cap=5.0, jitter=0.5)
_CHECK_SECONDS = 30.0
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(tuple[str, list[tuple[Topic, str]]]).decode


def messages(sender: str, signals: Iterable[Signal]) -> list[str]:
    """The signals as texts that NOTIFY takes."""
    parts: list[list[bytes]] = [[]]
    head = b"[%b,[" % _encode(sender)
    size = room = MESSAGE_MAX - len(head) - 2
    for signal in signals:
        text = _encode(signal)
        if len(text) > room:  # a name that is longer than any message
            text = _encode(Signal(Topic.ANY))
        if size < len(text):
            parts.append([])
            size = room
        parts[-1].append(text)
        size -= len(text) + 1
    return [(head + b",".join(part) + b"]]").decode() for part in parts if part]


def pace(told: int) -> float:
    """Seconds from a NOTIFY of so many signals to the next."""
    return min(max(PACE, told * PACE_EACH), PACE_MAX)


class Mouth:
    """Tells other processes, after the fact and on a connection of its own.

    What comes while a NOTIFY is under way goes into the next one, so that the commits of many
    writers never wait for the queue of notifications.
    """

    def __init__(self, sender: str, send: Callable[[list[str]], Awaitable[None]]) -> None:
        self._sender = sender
        self._send = send
        self._outbox: dict[Signal, None] = {}
        self._task: asyncio.Task[None] | None = None

    def tell(self, signals: Iterable[Signal]) -> None:
        """Note what is to be told; never raises."""
        self._outbox.update(dict.fromkeys(signals))
        if self._outbox and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def drained(self) -> None:
        """Wait until everything was told."""
        if self._task is not None:
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        try:
            while self._outbox:
                signals, self._outbox = self._outbox, {}
                try:
                    await self._send(messages(self._sender, signals))
                except Exception as error:
                    log.debug("signals were lost: %s", error)
                await asyncio.sleep(pace(len(signals)))
        finally:
            self._task = None


class Ear:
    """Hears what other processes tell, on a connection that is rebuilt when it breaks."""

    def __init__(
        self, place: Place, statements: PlacedStatements, hub: SignalHub, sender: str
    ) -> None:
        self._place = place
        self._statements = statements
        self._hub = hub
        self._sender = sender
        self._task: asyncio.Task[None] | None = None
        self._settled = asyncio.Event()
        self._failures = 0

    async def open(self, patience: float) -> None:
        """Begin to hear; waits up to `patience` seconds until that is so."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
        try:
            async with asyncio.timeout(patience):
                await self._settled.wait()
        except TimeoutError:
            pass  # it goes on trying

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        while True:
            try:
                link = await Link.open(self._place, self._statements, self._place.timeout)
            except EngineUnavailable as error:
                self._failed(str(error))
            else:
                try:
                    if not link.ours:
                        self._deaf()
                        return
                    await self._hear(link)
                except (psycopg.Error, TimeoutError, OSError) as error:
                    self._failed(summary(error))
                finally:
                    await link.close()
            await asyncio.sleep(_AWAY.delay(self._failures, random.random()) / SECOND)

    async def _hear(self, link: Link) -> None:
        await link.connection.execute(self._statements["listen"])
        self._settled.set()
        if self._failures:
            self._failures = 0
            log.info("signals of %s are heard again", self._place.shown)
            self._hub.publish([Signal(Topic.ANY)])  # whatever was missed
        while True:
            async for notice in link.connection.notifies(timeout=_CHECK_SECONDS):
                self._heard(notice.payload)
            async with asyncio.timeout(self._place.timeout):
                await link.connection.execute("SELECT")  # is anybody there?

    def _heard(self, payload: str) -> None:
        try:
            sender, signals = _decode(payload)
        except msgspec.DecodeError:
            log.debug("a message of somebody else: %.100r", payload)
            return
        if sender != self._sender:
            self._hub.publish([Signal(*signal) for signal in signals])

    def _failed(self, text: str) -> None:
        if self._failures == 0:
            log.warning("signals are not heard, so jobs start later: %s", text)
        self._failures += 1
        self._settled.set()

    def _deaf(self) -> None:
        log.warning(
            "%s is reached through a pooler, which passes on no signals; jobs are found by polling",
            self._place.shown,
        )
        self._settled.set()
