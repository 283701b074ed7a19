"""What an open handle has, on the event loop that opened it: a connection, flows, an ear."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

from tenure.core.insertion import Inserted
from tenure.core.job import NewJob
from tenure.core.lease import Beat, Extension
from tenure.core.outcomes import Settled, Settlement
from tenure.engines.flow import Flow
from tenure.engines.protocol import Topic
from tenure.engines.redis import inserting, settling
from tenure.engines.redis.link import Link
from tenure.engines.redis.place import Place
from tenure.engines.redis.signalling import Ear
from tenure.engines.signals import SignalHub
from tenure.errors import EngineUnavailable

T = TypeVar("T")
Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Handle:
    """For one event loop. Calls that come while one of their kind is under way share the next."""

    def __init__(self, place: Place, hub: SignalHub) -> None:
        self.loop = asyncio.get_running_loop()
        self.link = Link(place)
        self.ear = Ear(self.link, hub)
        self._closing: asyncio.Task[None] | None = None
        self.inserts: Flow[NewJob, Inserted] = Flow(self._insert)
        self.extends: Flow[Beat, Extension] = Flow(self._extend)
        self.settles: Flow[Settlement, Settled] = Flow(self._settle)

    async def flow(self, name: str, answer: asyncio.Future[T]) -> T:
        """The answer of a flow, within the deadline."""
        # A caller that leaves cancels the future, which takes back what was not sent.
        timer = self.loop.call_later(self.link.place.timeout, self._give_up, name, answer)
        try:
            return await answer
        finally:
            timer.cancel()

    def _give_up(self, name: str, answer: asyncio.Future[Any]) -> None:
        if not answer.done():
            place = self.link.place
            text = f"{name}: {place.shown} did not answer within {place.timeout:g} s"
            answer.set_exception(EngineUnavailable(text))

    def leave(self) -> None:
        """Have this closed by its own loop, if that runs once more."""
        try:
            self.loop.call_soon_threadsafe(self._begin_close)
        except RuntimeError:
            pass  # it is closed, and with it what was on it

    def _begin_close(self) -> None:
        self._closing = self.loop.create_task(self.close())

    async def close(self) -> None:
        """End what is under way, within the deadline, and let go of the connections."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self.link.place.timeout):
                for flow in (self.inserts, self.extends, self.settles):
                    await flow.drained()
        await self.ear.close()
        await self.link.close()

    @asynccontextmanager
    async def heard(
        self, topics: frozenset[Topic], queues: frozenset[str] | None
    ) -> AsyncIterator[None]:
        """Hear these signals while the block is open, which may be on another event loop."""
        hearing = self.ear.hear(topics, queues)
        if self.loop is asyncio.get_running_loop():
            async with hearing:
                yield
            return
        await self._there(hearing.__aenter__())
        try:
            yield
        finally:
            if self.loop.is_running():
                await self._there(hearing.__aexit__(None, None, None))

    async def _there(self, work: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self.loop))

    async def _insert(self, calls: list[Sequence[NewJob]], now: int | None) -> list[list[Inserted]]:
        jobs = [job for call in calls for job in call]
        return parted(await inserting.insert(self.link, jobs, now), calls)

    async def _extend(self, calls: list[Sequence[Beat]], now: int | None) -> list[list[Extension]]:
        beats = [beat for call in calls for beat in call]
        return parted(await settling.extend(self.link, beats, now), calls)

    async def _settle(
        self, calls: list[Sequence[Settlement]], now: int | None
    ) -> list[list[Settled]]:
        items = [item for call in calls for item in call]
        return parted(await settling.settle(self.link, items, now), calls)


def parted(answers: Sequence[Answer], calls: list[Sequence[Item]]) -> list[list[Answer]]:
    """The answers to all calls as those to each."""
    left = iter(answers)
    return [[next(left) for _ in call] for call in calls]
