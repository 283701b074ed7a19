"""Working inside a transaction of the caller, on the caller's connection."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableSet, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

from tenure.core.insertion import Inserted
from tenure.core.job import JobRow, NewJob
from tenure.core.outcomes import Settled, Settlement, Verdict
from tenure.engines.callers import AsyncCaller, Caller, Given
from tenure.engines.postgres import inserting, settling
from tenure.engines.postgres.drivers import AsyncDriver, Driver, async_driver_of, driver_of
from tenure.engines.postgres.link import summary
from tenure.engines.postgres.place import Place, PlacedStatements
from tenure.engines.postgres.steps import Again, Ask, Effects, Identity, Steps
from tenure.engines.protocol import Signal
from tenure.errors import ConfigurationError, EngineUnavailable, LeaseLost, TenureError

T = TypeVar("T")
Work = Callable[[Effects], Steps[T]]

_TRIES = 5
_PAUSES = 20
_TAKEN = "23505"  # a unique key, by a transaction that committed meanwhile
_FAILED = "25P02"
_READ_ONLY = "25006"
_NO_TABLES = frozenset({"42P01", "3F000"})
_THEIRS = frozenset({"40001", "40P01"})  # the caller's whole transaction has to be done again


class Store(NamedTuple):
    """The store of the engine that joins."""

    place: Place
    statements: PlacedStatements
    max_payload: int
    about_now: Callable[[], int]
    publish: Callable[[Iterable[Signal]], None]
    identity: Identity | None
    """Which database it is in; None if the engine has not been open yet."""
    proven: MutableSet[object]
    """Connections of callers that are known to be to it."""


class _Joining:
    """What the blocking and the awaited kind share."""

    def __init__(self, caller: Caller | AsyncCaller, store: Store) -> None:
        self._store = store
        self._advice = caller.advice
        self._after_commit = caller.after_commit
        self._signals: list[Signal] = []

    def _inserting(self, jobs: Sequence[NewJob]) -> Work[list[Inserted]]:
        inserting.check(jobs, self._store.max_payload, self._store.about_now())
        return lambda out: inserting.insert(out, jobs)

    def _check(self, driver: Driver | AsyncDriver) -> None:
        if driver.closed:
            raise ConfigurationError("the connection is closed")
        if not driver.begun:
            raise ConfigurationError(
                f"the connection is not in a transaction, so nothing would be one with yours; "
                f"{self._advice}"
            )

    def _steps(self, driver: Driver | AsyncDriver, work: Work[T], out: Effects) -> Steps[T]:
        """The work, on a connection that is known to be to the engine's database."""
        ours, proven = self._store.identity, self._store.proven
        if ours is not None and driver.session not in proven:
            if (yield Ask("database")) != [ours]:
                raise ConfigurationError(
                    f"the connection is to another database than the one that keeps the jobs of "
                    f"this service, {self._store.place.shown}"
                )
            proven.add(driver.session)
        return (yield from work(out))

    def _note(self, signals: list[Signal]) -> None:
        """Tell of them after the commit: by itself where the caller's library says when."""
        if signals and not self._after_commit(lambda: self._store.publish(signals)):
            self._signals += signals

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Errors of the caller's driver, so that they say what to do."""
        try:
            yield
        except (TenureError, Again):
            raise
        except Exception as error:
            state = getattr(error, "sqlstate", None)
            if state in _THEIRS:
                raise
            if state in _NO_TABLES:
                raise ConfigurationError(
                    f"where the connection is, there is no schema {self._store.place.schema!r} of "
                    f"tenure; it must be the database that keeps the jobs, "
                    f"{self._store.place.shown}"
                ) from error
            if state in (_FAILED, _READ_ONLY):
                raise ConfigurationError(f"the caller's transaction: {summary(error)}") from error
            raise EngineUnavailable(f"the caller's transaction: {summary(error)}") from error

    def _may_repeat(self, error: BaseException, turn: int) -> bool:
        if turn == _TRIES - 1:
            return False
        return isinstance(error, Again) or getattr(error, "sqlstate", None) == _TAKEN

    def _wake(self, driver: Driver | AsyncDriver | None) -> None:
        if driver is not None and driver.over:
            signals, self._signals = self._signals, []
            self._store.publish(signals)


class JoinedTransaction(_Joining):
    """See `engines.protocol.Joined`. Each operation takes effect whole, or leaves the transaction
    as it was: it is done under a savepoint."""

    def __init__(self, caller: Caller, store: Store) -> None:
        super().__init__(caller, store)
        self._caller = caller
        # Of a connection of a driver itself it is known now whether it will do.
        self._driver = driver_of(caller.opened()) if isinstance(caller, Given) else None

    def insert(self, jobs: Sequence[NewJob], *, now: int | None = None) -> list[Inserted]:
        """As `Engine.insert`."""
        return self._run(self._inserting(jobs), now)

    def hold(self, row: JobRow) -> None:
        """Lock the row of a job that its holder runs; raises `LeaseLost` if it is not held."""
        self._run(lambda out: _hold(row), None)

    def settle(self, settlements: Sequence[Settlement], *, now: int | None = None) -> list[Settled]:
        """As `Engine.settle`. Raises `EngineUnavailable` if another transaction has one's row."""
        return self._run(lambda out: _settle(out, settlements), now)

    def wake(self) -> None:
        """See `Joined.wake`. Does nothing while the transaction is open."""
        self._wake(self._driver)

    def _run(self, work: Work[T], now: int | None) -> T:
        driver = self._driver = driver_of(self._caller.opened())
        self._check(driver)
        with self._translated():
            for turn in range(_TRIES):
                out = Effects(now)
                self._ask(driver, Ask("begin_step"))
                try:
                    answer = self._drive(driver, self._steps(driver, work, out))
                except BaseException as error:
                    self._undo(driver)
                    if self._may_repeat(error, turn):
                        continue
                    raise
                self._ask(driver, Ask("end_step"))
                self._note(out.signals())
                return answer
        raise AssertionError("the last turn returns or raises")

    def _drive(self, driver: Driver, steps: Steps[T]) -> T:
        try:
            ask = next(steps)
            while True:
                ask = steps.send(self._ask(driver, ask))
        except StopIteration as end:
            answer: T = end.value
            return answer
        finally:
            steps.close()

    def _ask(self, driver: Driver, ask: Ask) -> list[tuple[object, ...]]:
        return driver.run(self._store.statements[ask.name], ask.values, ask.many)

    def _undo(self, driver: Driver) -> None:
        try:
            self._ask(driver, Ask("undo_step"))
            self._ask(driver, Ask("end_step"))
        except Exception:
            pass  # the connection is gone, and with it the transaction: the first error says so


class AsyncJoinedTransaction(_Joining):
    """See `engines.protocol.AsyncJoined`; otherwise as `JoinedTransaction`."""

    def __init__(self, caller: AsyncCaller, store: Store) -> None:
        super().__init__(caller, store)
        self._caller = caller
        self._driver: AsyncDriver | None = None

    async def insert(self, jobs: Sequence[NewJob], *, now: int | None = None) -> list[Inserted]:
        """As `Engine.insert`."""
        return await self._run(self._inserting(jobs), now)

    async def hold(self, row: JobRow) -> None:
        """Lock the row of a job that its holder runs; raises `LeaseLost` if it is not held."""
        await self._run(lambda out: _hold(row), None)

    async def settle(
        self, settlements: Sequence[Settlement], *, now: int | None = None
    ) -> list[Settled]:
        """As `Engine.settle`. Raises `EngineUnavailable` if another transaction has one's row."""
        return await self._run(lambda out: _settle(out, settlements), now)

    def wake(self) -> None:
        """See `Joined.wake`. Does nothing while the transaction is open."""
        self._wake(self._driver)

    async def _run(self, work: Work[T], now: int | None) -> T:
        driver = self._driver = async_driver_of(await self._caller.opened())
        self._check(driver)
        with self._translated():
            for turn in range(_TRIES):
                out = Effects(now)
                await self._ask(driver, Ask("begin_step"))
                try:
                    answer = await self._drive(driver, self._steps(driver, work, out))
                except BaseException as error:
                    await self._undo(driver)
                    if self._may_repeat(error, turn):
                        continue
                    raise
                await self._ask(driver, Ask("end_step"))
                self._note(out.signals())
                return answer
        raise AssertionError("the last turn returns or raises")

    async def _drive(self, driver: AsyncDriver, steps: Steps[T]) -> T:
        try:
            ask = next(steps)
            while True:
                ask = steps.send(await self._ask(driver, ask))
        except StopIteration as end:
            answer: T = end.value
            return answer
        finally:
            steps.close()

    async def _ask(self, driver: AsyncDriver, ask: Ask) -> list[tuple[object, ...]]:
        return await driver.run(self._store.statements[ask.name], ask.values, ask.many)

    async def _undo(self, driver: AsyncDriver) -> None:
        try:
            await self._ask(driver, Ask("undo_step"))
            await self._ask(driver, Ask("end_step"))
        except Exception:
            pass  # the connection is gone, and with it the transaction: the first error says so


def _hold(row: JobRow) -> Steps[None]:
    if not (yield Ask("hold", {"id": row.id, "token": row.token, "owner": row.owner})):
        raise LeaseLost(f"job {row.id} is no longer held under this token")


def _settle(out: Effects, settlements: Sequence[Settlement]) -> Steps[list[Settled]]:
    """Settle, waiting a moment for rows that are locked: a renewal may be on its way."""
    answers = yield from settling.settle(out, settlements)
    for _ in range(_PAUSES):
        busy = [place for place, answer in enumerate(answers) if answer.verdict is Verdict.BUSY]
        if not busy:
            return answers
        yield Ask("pause")
        again = yield from settling.settle(out, [settlements[place] for place in busy])
        for place, answer in zip(busy, again, strict=True):
            answers[place] = answer
    held = ", ".join(answers[place].id for place in busy)
    raise EngineUnavailable(f"another transaction holds the job {held}")
