"""The seam: all that tenure asks of a store.

An engine keeps rows and applies what `core` decided. Every write that ends or extends an attempt
shows the token and owner of its claim; an engine refuses it where they no longer match a running
row. Batches fail item by item. Operations take `now` (microseconds since the epoch); None means
the engine's own clock, which is the only clock of production use. Every call ends within the
engine's deadline (10 s unless its URL says otherwise) or raises `EngineUnavailable`.

`tenure.testing.conformance` proves an engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, Self

from tenure.core.event import EventFilter, NewEvent, StoredEvent
from tenure.core.fleet import Inspection, QueueChange, QueueSettings, WorkerInfo
from tenure.core.identity import Reservation
from tenure.core.insertion import Inserted as Inserted
from tenure.core.job import JobRow, NewJob
from tenure.core.lease import Beat, Extension
from tenure.core.outcomes import Settled, Settlement
from tenure.core.query import CancelResult, Filter, Found, Page, QueueStats, RequeueResult, Swept
from tenure.core.schedule import Fired, Schedule, ScheduleChange, Tick
from tenure.engines.terms import ALL_ARMS as ALL_ARMS
from tenure.engines.terms import ALL_FACETS as ALL_FACETS
from tenure.engines.terms import MAX_PAYLOAD as MAX_PAYLOAD
from tenure.engines.terms import Arm as Arm
from tenure.engines.terms import Claim as Claim
from tenure.engines.terms import Facet as Facet
from tenure.engines.terms import Listener as Listener
from tenure.engines.terms import Prunable as Prunable
from tenure.engines.terms import Signal as Signal
from tenure.engines.terms import Topic as Topic
from tenure.engines.terms import Traits as Traits


class Operate(Protocol):
    """Steps that people and housekeeping take. Each is bounded by its arguments."""

    async def cancel(
        self, ids: Sequence[str], *, force: bool = False, now: int | None = None
    ) -> CancelResult:
        """Cancel pending jobs at once; ask the holders of running ones, by the cancel flag.

        `force` ends running jobs at once under a new token, so that the holder is refused.
        An id that is given twice is answered once.
        """
        ...

    async def requeue(
        self, ids: Sequence[str], *, payload: bytes | None = None, now: int | None = None
    ) -> RequeueResult:
        """Make final jobs pending again, with fresh budgets; `token` goes on growing.

        `payload` takes the place of theirs, in the codec of new jobs. Raises `PayloadError`, with
        nothing changed, for one that is larger than `traits.max_payload`.

        One whose unique key is taken by another job by now (see `core.identity.taken_by`) is
        refused, naming that job. An id that is given twice is answered once, and of two that have
        one key the first gets it.
        """
        ...

    async def prune(
        self, kind: Prunable, before: int, *, where: Filter | None = None, limit: int = 1000
    ) -> int:
        """Remove up to `limit` (1 to 10,000) final jobs that ended, or events kept, before an
        instant (microseconds since the epoch), the oldest first; returns how many.

        Jobs in the order `finished_at, id`, restricted further by `where`, of which `ids`,
        `states`, `tasks` and `queues` count; of events those that are old enough among the first
        `limit` that are kept, and no others are looked at. A reservation outlives its job. Raises
        `ConfigurationError` for a limit out of range.
        """
        ...

    async def configure(self, change: QueueChange) -> QueueSettings:
        """Change how a queue is treated from now on, by the whole fleet; the settings in force.

        `QueueChange.of` says what they are, read and written as one step. Where
        `core.limits.Limits.of_keys` changed, all blocked jobs of the queue become ready, for later
        claims to block those that still do not fit. Signals QUEUE.
        """
        ...

    async def inspect(self, *, now: int | None = None) -> Inspection:
        """The settings of all queues that were ever given any, sorted by name, and what is wrong.

        Looks for jobs in an impossible condition (`core.fleet.flaw_of`), and for what endangers
        this kind of store. May read all rows.
        """
        ...


class Query(Protocol):
    """Questions. None is on a hot path, none changes anything but presence."""

    async def find(self, where: Filter, page: Page) -> Found:
        """Matching jobs, newest first, and where to go on.

        Looks at no more than `core.query.SCAN_MAX` jobs, so a page may hold fewer than match;
        going on before `Found.next` until it is None meets every one that matches all the time,
        once. Agrees with `Filter.matches`. Raises `ConfigurationError` for a limit out of range.
        """
        ...

    async def stats(
        self, queues: Sequence[str] = (), *, now: int | None = None
    ) -> list[QueueStats]:
        """The depth of these queues (none given: all that hold jobs), sorted by name.

        A queue that was asked for and holds no job is answered with zeros.
        """
        ...

    async def announce(self, worker: WorkerInfo, ttl: int, *, now: int | None = None) -> None:
        """Say that a worker is there, for `ttl` microseconds; 0: that it has left.

        Replaces what was said of this worker before. `seen_at` becomes the store's time.
        """
        ...

    async def workers(self, *, now: int | None = None) -> list[WorkerInfo]:
        """The workers whose word still holds, sorted by id."""
        ...


class Schedules(Protocol):
    """Recurring jobs. What a cron expression means is not an engine's business."""

    async def save_schedules(self, changes: Sequence[ScheduleChange]) -> list[Schedule | None]:
        """Save or remove schedules, each only if its revision is the expected one.

        Answers per change, in order: the schedule as it is now kept, under a new revision; None
        where the change was refused, or removed it. A refused change stops no other. Raises
        `PayloadError` for a definition that JSON cannot hold; then nothing is saved.
        """
        ...

    async def schedules(self) -> list[Schedule]:
        """All schedules, sorted by name."""
        ...

    async def fire(self, ticks: Sequence[Tick], *, now: int | None = None) -> list[Fired]:
        """Fire ticks: insert the job and plan the next one, in one step, or neither.

        One answer per tick, in order; `core.schedule.firing` decides. Whatever becomes of the job,
        no tick is ever fired twice: its job has the pair of schedule and nominal instant, which no
        two jobs of a store share. Raises only for a job that cannot be stored (`PayloadError`,
        `ConfigurationError`), and then nothing is done.
        """
        ...


class Identities(Protocol):
    """Keys that are taken for ever."""

    async def identity(self, key: str) -> Reservation | None:
        """Who reserved this key."""
        ...

    async def release_identity(self, key: str, owner: str | None = None) -> bool:
        """Free a reserved key, if it is held by the job `owner` (None: by whomever).

        Returns whether it was freed. While that job is pending or running it has the key all the
        same, until it ends.
        """
        ...


class Events(Protocol):
    """History."""

    async def append(self, events: Sequence[NewEvent], *, now: int | None = None) -> None:
        """Keep these events, in order, all or none; their time is that of the store.

        Raises `PayloadError` for facts that JSON cannot hold.
        """
        ...

    async def read(
        self, where: EventFilter, after: str | None = None, limit: int = 100
    ) -> list[StoredEvent]:
        """Up to `limit` (1 to 1,000) matching events after a cursor (None: from the start).

        Whoever goes on from the last cursor sees every event once, those of transactions that
        committed late too. Raises `ConfigurationError` for a limit out of range, and for a cursor
        that this store did not make.
        """
        ...


class Joined(Protocol):
    """An engine's operations inside a transaction of the caller, on the caller's connection.

    Blocking, on the caller's thread. What is written becomes true with the caller's commit.
    """

    def insert(self, jobs: Sequence[NewJob], *, now: int | None = None) -> list[Inserted]:
        """As `Engine.insert`."""
        ...

    def hold(self, row: JobRow) -> None:
        """Lock the row of a job that its holder runs; raises `LeaseLost` if it is not held."""
        ...

    def settle(self, settlements: Sequence[Settlement], *, now: int | None = None) -> list[Settled]:
        """As `Engine.settle`."""
        ...

    def wake(self) -> None:
        """Tell listeners what was written, for use after the commit. Never raises.

        Too early it is of no use; left out, they find out by themselves a little later.
        """
        ...


class AsyncJoined(Protocol):
    """As `Joined`, on a connection that is awaited, and on the event loop it belongs to."""

    async def insert(self, jobs: Sequence[NewJob], *, now: int | None = None) -> list[Inserted]:
        """As `Engine.insert`."""
        ...

    async def hold(self, row: JobRow) -> None:
        """As `Joined.hold`."""
        ...

    async def settle(
        self, settlements: Sequence[Settlement], *, now: int | None = None
    ) -> list[Settled]:
        """As `Engine.settle`."""
        ...

    def wake(self) -> None:
        """As `Joined.wake`."""
        ...


class Transactions(Protocol):
    """Working inside the caller's own transaction."""

    def join(self, connection: object) -> Joined | AsyncJoined:
        """The operations on a connection that is in a transaction.

        Raises `ConfigurationError` that names the right way for a connection of the wrong kind,
        on another store, or not in a (writing) transaction.
        """
        ...


class Core(Protocol):
    """What every engine has. What each operation owes to limits, `core.limits` says."""

    @property
    def traits(self) -> Traits: ...

    @property
    def url(self) -> str:
        """Where the jobs are, without secrets: fit to be shown."""
        ...

    async def __aenter__(self) -> Self:
        """Open connections and check the schema. Raises `SchemaError` or `EngineUnavailable`."""
        ...

    async def __aexit__(self, *exc: object) -> None: ...

    def side(self) -> Engine:
        """An unopened second handle on the same store, for use from another event loop."""
        ...

    async def migrate(self) -> int:
        """Create or upgrade the schema; idempotent, safe when several start at once.

        Returns the schema's version. The engine need not be open: where there is no schema yet,
        it may not be possible to open it.
        """
        ...

    async def insert(self, jobs: Sequence[NewJob], *, now: int | None = None) -> list[Inserted]:
        """Write all jobs or none; one answer per job, in order.

        An id that is there already, or earlier in the batch, changes nothing. A unique key or a
        tick that is taken is dealt with as `core.insertion.plan` says; all are compared within the
        batch too. Raises `PayloadError` for a payload larger than `traits.max_payload`,
        `DuplicateJob` and `UniquenessConflict`.
        """
        ...

    async def claim(self, claim: Claim, *, now: int | None = None) -> list[JobRow]:
        """Take jobs, atomically: two claims never return one job under one token.

        Resumed jobs first, then lapsed ones, then due ones in the order `rank, id`. The cost does
        not grow with the backlog, with jobs in the future, blocked jobs, other queues or unknown
        names.

        """
        ...

    async def extend(self, beats: Sequence[Beat], *, now: int | None = None) -> list[Extension]:
        """Prolong leases; one answer per beat, in order.

        Needs a running row with the token and owner of the beat, whose lease has not run out.
        Else `Lost`, whose reason is `gone` (no such job), `lapsed` (the lease ran out, though
        nobody took the job yet), `settled` (under this very token) or `taken`.
        """
        ...

    async def settle(
        self, settlements: Sequence[Settlement], *, now: int | None = None
    ) -> list[Settled]:
        """End attempts; one answer per settlement, in order.

        Needs a running row with the token and owner of the settlement. An elapsed lease alone
        does not refuse it: nobody took the job over. Answers `already` where the token and owner
        match a row that no longer runs, `lost` where they do not match.
        """
        ...

    async def sweep(self, limit: int, *, now: int | None = None) -> list[Swept]:
        """Expire overdue jobs and take back lapsed ones, of any task name, up to `limit` of each.

        What is taken back gets a new token and no owner, so its old holder is refused. The
        expired come first; each in the order of the claim's arms. Forgets rates that say nothing
        any more (`core.limits.is_over`).
        """
        ...

    async def get(self, ids: Sequence[str]) -> list[JobRow | None]:
        """The jobs with these ids, in order; None where there is none."""
        ...

    async def next_due(
        self,
        queues: Sequence[str],
        tasks: Sequence[str] | None = None,
        *,
        now: int | None = None,
    ) -> int | None:
        """Microseconds until the earliest pending job of these is due (0: now; None: no job).

        `tasks` None means any name. Leases and `expires_at` do not count, and paused queues have no
        jobs here, since nothing becomes due in them. In a limited queue nothing is due before
        `core.limits.wait_of` says so (None: like a paused one), and the next `wake_at` of its keys
        counts as a due job; a job that waits for a slot does not.
        """
        ...

    async def notify(self, signals: Iterable[Signal]) -> None:
        """Tell every listener of this store that can be reached. Best effort; never raises.

        For extra hints only: writes signal by themselves, once they took effect. A job that
        became pending, due or not, signals QUEUE; a final state DONE; a running job that was asked
        to stop, or taken from its holder, CANCEL.
        """
        ...

    def listen(
        self, topics: Iterable[Topic], queues: Iterable[str] | None = None
    ) -> AbstractAsyncContextManager[Listener]:
        """Listen for signals of these topics (`ANY` always comes through).

        Hears the writes of every handle on this store, and what `notify` was given. `queues`
        restricts the topic QUEUE: of a single new job, an engine may tell but one of the listeners
        to its queue.
        """
        ...


class Engine(Core, Operate, Query, Schedules, Identities, Events, Transactions, Protocol):
    """The core and all facets: what the engines that ship with tenure are."""
