"""What an open handle has, on the event loop that opened it: connections, flows, wake-ups."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

import psycopg
from psycopg import errors

from tenure.core.insertion import Inserted
from tenure.core.job import JobRow, NewJob
from tenure.core.lease import Beat, Extension
from tenure.core.outcomes import Settled, Settlement
from tenure.engines.flow import Flow
from tenure.engines.postgres import inserting, limiting, migrating, settling
from tenure.engines.postgres.arrays import Texts
from tenure.engines.postgres.companion import ClaimSteps, Companion, Platform
from tenure.engines.postgres.floors import Floors
from tenure.engines.postgres.link import CONFLICTS, STALE, TRIES, Link, translated
from tenure.engines.postgres.place import Place, PlacedStatements
from tenure.engines.postgres.pool import Pool
from tenure.engines.postgres.signalling import Ear, Mouth
from tenure.engines.postgres.steps import Ask, Effects, Identity, Rows, Steps
from tenure.engines.protocol import Signal, Topic
from tenure.engines.signals import SignalHub
from tenure.errors import EngineUnavailable, TenureError

T = TypeVar("T")
Item = TypeVar("Item")
Answer = TypeVar("Answer")
Work = Callable[[Effects], Steps[T]]

_LISTEN_PATIENCE = 2.0


class Handle:
    """Runs operations, each within the deadline, and tells what they wrote. For one event loop.

    An operation runs in a task of its own: a caller that is cancelled leaves it to end by itself,
    so that no connection is ever left in the middle of something.
    """

    def __init__(
        self, place: Place, statements: PlacedStatements, hub: SignalHub, sender: str
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self._place = place
        self._hub = hub
        self._pool = Pool(place, statements)
        self._platform = Platform()
        self._tasks: set[asyncio.Task[Any]] = set()
        self.inserts: Flow[NewJob, Inserted] = Flow(self._insert)
        self.extends: Flow[Beat, Extension] = Flow(self._extend)
        self.settles: Flow[Settlement, Settled] = Flow(self._settle)
        self._mouth = Mouth(sender, self._send)
        self._ends = Mouth(sender, self._send)
        """Apart, as there may be many: a job to take is not told later for jobs that end."""
        self._channel = place.channel
        self._ear = Ear(place, statements, hub, sender)
        self.floors = Floors()
        self.identity: Identity | None = None
        """Which database it is; None if the server does not tell."""

    async def open(self) -> None:
        """Make the first connection and check the schema."""

        async def check() -> None:
            try:
                async with self._pool.link(self._deadline()) as link:
                    await migrating.check(link, self._place)
                    self.identity = await _identity(link)
            except psycopg.Error as error:
                raise translated(error, "open", self._place) from error

        await self.bounded("open", check())

    async def close(self) -> None:
        """End what is under way, within the deadline, and close the connections."""
        try:
            async with asyncio.timeout(self._place.timeout):
                for flow in (self.inserts, self.extends, self.settles):
                    await flow.drained()
                while self._tasks:
                    await asyncio.wait(self._tasks)
                await self.all_told()
        except TimeoutError:
            pass
        except BaseException:  # the caller does not wait, and nobody else will come
            self._pool.shut()
            raise
        await self._ear.close()
        await self._pool.close()

    async def ours(self) -> bool:
        """Whether sessions are ours alone, and not those of a pooler."""
        async with self._pool.link(self._deadline()) as link:
            return link.ours

    async def hear(self) -> None:
        """Hear from now on what other processes tell."""
        await self._ear.open(min(_LISTEN_PATIENCE, self._place.timeout))

    async def run(self, name: str, work: Work[T], now: int | None, *, whole: bool) -> T:
        """Run one operation; `whole` in one transaction."""
        return await self.bounded(name, self._attempt(name, work, now, whole))

    async def claim(self, work: Work[list[JobRow] | None], now: int | None) -> list[JobRow] | None:
        """Run a claim; along with settlements, if some are written at this moment."""
        claim = Companion(work, now)
        self._platform.wait(claim)
        self._spawn(self._depart(claim))
        return await self.flow("claim", claim.answer)

    async def _depart(self, claim: Companion) -> None:
        await asyncio.sleep(0)  # who settles now has begun to by then
        if self._platform.take_back(claim) and not claim.answer.done():
            await self._claim_alone(claim)

    async def _claim_alone(self, claim: Companion) -> None:
        await self._answered(self._attempt("claim", claim.work, claim.now, False), claim.answer)

    async def flow(self, name: str, answer: asyncio.Future[T]) -> T:
        """The answer of a flow, within the deadline."""
        # A timer of our own: asyncio.timeout() costs more, on the path of every call. A caller that
        # leaves cancels the future, which takes back what was not sent.
        timer = self.loop.call_later(self._place.timeout, self._give_up, name, answer)
        try:
            return await answer
        finally:
            timer.cancel()

    def _give_up(self, name: str, answer: asyncio.Future[Any]) -> None:
        if not answer.done():
            answer.set_exception(self._late(name))

    async def bounded(self, name: str, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`, within the deadline; it goes on if its caller leaves."""
        answer: asyncio.Future[T] = self.loop.create_future()
        self._spawn(self._answered(work, answer))
        return await self.flow(name, answer)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answered(self, work: Coroutine[Any, Any, T], answer: asyncio.Future[T]) -> None:
        """Do the work, whether or not somebody still waits for it."""
        try:
            result = await work
        except Exception as error:
            if not answer.done():
                answer.set_exception(error)
        else:
            if not answer.done():
                answer.set_result(result)

    def _late(self, name: str) -> EngineUnavailable:
        return EngineUnavailable(
            f"{name}: {self._place.shown} did not answer within {self._place.timeout:g} s"
        )

    def _deadline(self) -> float:
        return self.loop.time() + self._place.timeout

    async def _attempt(self, name: str, work: Work[T], now: int | None, whole: bool) -> T:
        deadline = self._deadline()
        for turn in range(TRIES):
            out = Effects(now)
            try:
                async with self._pool.link(deadline) as link:
                    answer = await self._once(link, work(out), whole)
            except (*CONFLICTS, *STALE) as error:
                if turn == TRIES - 1:
                    raise translated(error, name, self._place) from error
                await asyncio.sleep(0.001 * turn)
            except Exception as error:
                if isinstance(error, TenureError):
                    raise
                raise translated(error, name, self._place) from error
            else:
                await self._pass_on(name, out, now)
                self._told(out)
                return answer
        raise AssertionError("the last turn returns or raises")

    async def _pass_on(self, name: str, done: Effects, now: int | None) -> None:
        """Give the slots that an operation has freed to whoever waits for them."""
        if done.freed:
            await self._attempt(name, lambda out: limiting.pass_on(out, done.freed), now, True)
        if done.doubtful:
            await self._attempt(
                name, lambda out: limiting.repair_keys(out, done.doubtful), now, True
            )

    async def _once(self, link: Link, steps: Steps[T], whole: bool) -> T:
        try:
            return await link.run(steps, whole=whole)
        except (*STALE, errors.ReadOnlySqlTransaction):
            # With all that it has prepared; or because the server has become a standby, and the
            # address leads to another one by now.
            await link.close()
            raise

    def _told(self, out: Effects) -> None:
        signals = out.signals()
        if signals:
            self._hub.publish(signals)
            self.tell(signals)

    def tell(self, signals: Iterable[Signal]) -> None:
        """Note what other processes are to be told; never raises."""
        told = list(signals)
        self._ends.tell(signal for signal in told if signal.topic is Topic.DONE)
        self._mouth.tell(signal for signal in told if signal.topic is not Topic.DONE)

    async def all_told(self) -> None:
        """Wait until everything was told."""
        await self._ends.drained()
        await self._mouth.drained()

    async def _send(self, texts: list[str]) -> None:
        async with self._pool.link(self._deadline()) as link:
            await link.ask(Ask("tell", {"channel": self._channel, "messages": Texts(texts)}))

    async def _insert(self, calls: list[Sequence[NewJob]], now: int | None) -> list[list[Inserted]]:
        def work(out: Effects) -> Steps[list[list[Inserted]]]:
            distinct = {job.id: job for call in reversed(calls) for job in reversed(call)}
            created = yield from inserting.insert_plain(out, list(distinct.values())[::-1])
            return [inserting.answers(call, created) for call in calls]

        whole = sum(map(len, calls)) > inserting.CHUNK
        return await self._attempt("insert", work, now, whole)

    async def _extend(self, calls: list[Sequence[Beat]], now: int | None) -> list[list[Extension]]:
        beats = [beat for call in calls for beat in call]
        answers = await self._attempt("extend", lambda o: settling.extend(o, beats), now, False)
        return _parted(answers, calls)

    async def _settle(
        self, calls: list[Sequence[Settlement]], now: int | None
    ) -> list[list[Settled]]:
        items = [item for call in calls for item in call]
        answers = None
        if claim := self._platform.take(now):
            answers = await self._settle_and_claim(items, claim)
        if answers is None:
            answers = await self._attempt("settle", lambda o: settling.settle(o, items), now, False)
        return _parted(answers, calls)

    async def _settle_and_claim(
        self, items: list[Settlement], claim: Companion
    ) -> list[Settled] | None:
        """Do both in one transaction; None, and nothing settled, if that is refused.

        Then the claim goes alone, so neither is in the way of the other. Where it is not known
        what has become of the transaction, both have failed.
        """
        settled, claimed = Effects(claim.now), Effects(claim.now)
        steps, claiming = settling.settle(settled, items), claim.work(claimed)
        try:
            async with self._pool.link(self._deadline()) as link:
                try:
                    rows = await link.ask_both(next(steps), next(claiming))
                except Exception:
                    if not link.clean:
                        raise
                    self._spawn(self._claim_alone(claim))
                    return None
                await self._answered(self._rest(link, claiming, rows[1]), claim.answer)
                answers = await link.go_on(steps, rows[0])
        except Exception as error:
            if not claim.answer.done():
                claim.answer.set_exception(self._failure("claim", error))
            raise self._failure("settle", error) from error
        self._told(claimed)
        await self._pass_on("settle", settled, claim.now)
        self._told(settled)
        return answers

    async def _rest(self, link: Link, steps: ClaimSteps, rows: Rows) -> list[JobRow] | None:
        try:
            return await link.go_on(steps, rows)
        except Exception as error:
            raise self._failure("claim", error) from error

    def _failure(self, name: str, error: Exception) -> Exception:
        """What to raise of one of two operations that share an error."""
        if isinstance(error, TenureError):
            failure: Exception = type(error)(*error.args)
        else:
            failure = translated(error, name, self._place)
        failure.__cause__ = error
        return failure


async def _identity(link: Link) -> Identity | None:
    try:
        ((server, database),) = await link.ask(Ask("database"))
    except errors.InsufficientPrivilege:
        return None
    return server, database


def _parted(answers: Sequence[Answer], calls: list[Sequence[Item]]) -> list[list[Answer]]:
    """The answers to all calls as those to each."""
    left = iter(answers)
    return [[next(left) for _ in call] for call in calls]
