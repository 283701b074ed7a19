"""Inserting without an event loop: see `engines.optional`."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from threading import Condition, Lock, Semaphore, Thread
from typing import TypeVar

from psycopg import errors

from tenure.core.insertion import Inserted
from tenure.core.job import NewJob
from tenure.engines.postgres import inserting, signalling
from tenure.engines.postgres.arrays import Texts
from tenure.engines.postgres.link import CONFLICTS, STALE, TRIES, translated
from tenure.engines.postgres.place import Place, PlacedStatements
from tenure.engines.postgres.steps import Ask, Effects, Steps
from tenure.engines.postgres.wire import Late, Wire, connect
from tenure.engines.protocol import Signal
from tenure.errors import EngineUnavailable, TenureError

T = TypeVar("T")

_LINGER = 1.0
"""Seconds after which the thread that tells ends, if there is nothing to tell."""

_DRAIN_MAX = 2.0
"""Seconds that closing waits until everything was told."""


class DirectInserts:
    """See `engines.optional.Direct`. Each thread has a connection for as long as a call takes.

    In a forked child it begins anew, with connections of its own.
    """

    def __init__(
        self,
        place: Place,
        statements: PlacedStatements,
        sender: str,
        about_now: Callable[[], int],
        publish: Callable[[Iterable[Signal]], None],
        max_payload: int,
    ) -> None:
        self._place = place
        self._statements = statements
        self._sender = sender
        self._about_now = about_now
        self._publish = publish
        self._max_payload = max_payload
        self._counters: dict[int, _Counter] = {}
        weakref.finalize(self, _close_own, self._counters)

    def insert(self, jobs: Sequence[NewJob], *, now: int | None = None) -> list[Inserted]:
        """See `engines.optional.Direct.insert`."""
        inserting.check(jobs, self._max_payload, self._about_now() if now is None else now)
        if not jobs:
            return []
        whole = len(jobs) > inserting.CHUNK or not all(map(inserting.is_plain, jobs))
        out, answers = self._counter.run(
            "insert", now, lambda out: inserting.insert(out, jobs), whole=whole
        )
        self._publish(out.signals())
        return answers

    def tell(self, signals: Iterable[Signal]) -> None:
        """Tell other processes, a moment later; never blocks, never raises."""
        self._counter.teller.tell(signals)

    @property
    def in_use(self) -> bool:
        """Whether there is anything to close."""
        return os.getpid() in self._counters

    def close(self) -> None:
        """See `engines.optional.Direct.close`. Waits a moment for what is still to be told."""
        _close_own(self._counters)

    @property
    def _counter(self) -> _Counter:
        # By process, as a lock that a forked child inherits may be held for ever. In one step that
        # the interpreter makes whole, as several threads of the child may come at once.
        pid = os.getpid()
        made = self._counters.get(pid)
        if made is None:
            new = _Counter(self._place, self._statements, self._sender)
            made = self._counters.setdefault(pid, new)
        return made


class _Counter:
    """The connections of one process, up to `place.connections`, the last used one first."""

    def __init__(self, place: Place, statements: PlacedStatements, sender: str) -> None:
        self._place = place
        self._statements = statements
        self._room = Semaphore(place.connections)
        self._lock = Lock()
        self._idle: list[Wire] = []
        self._closed = False
        self.teller = _Teller(sender, self._send)

    def run(
        self, name: str, now: int | None, work: Callable[[Effects], Steps[T]], *, whole: bool
    ) -> tuple[Effects, T]:
        """Run one operation, as `Handle.run` does: what it wrote, and its answer."""
        deadline = time.monotonic() + self._place.timeout
        for turn in range(TRIES):
            out = Effects(now)
            try:
                with self._wire(name, deadline) as wire:
                    return out, wire.run(work(out), deadline, whole=whole)
            except (*CONFLICTS, *STALE) as error:
                if turn == TRIES - 1:
                    raise translated(error, name, self._place) from error
                time.sleep(0.001 * turn)
            except Late:
                raise EngineUnavailable(
                    f"{name}: {self._place.shown} did not answer within {self._place.timeout:g} s"
                ) from None
            except Exception as error:
                if isinstance(error, TenureError):
                    raise
                raise translated(error, name, self._place) from error
        raise AssertionError("the last turn returns or raises")

    def close(self) -> None:
        """Close what is idle; what is in use is closed when it is given back."""
        self.teller.drain(min(_DRAIN_MAX, self._place.timeout))
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for wire in idle:
            wire.close()

    @contextmanager
    def _wire(self, name: str, deadline: float) -> Iterator[Wire]:
        if not self._room.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise EngineUnavailable(
                f"{name}: all {self._place.connections} connections to {self._place.shown} are in "
                f"use by other threads"
            )
        try:
            wire = self._idle_one() or connect(self._place, self._statements, deadline)
            try:
                yield wire
            except Late:
                wire.abandon()
                raise
            except (*STALE, errors.ReadOnlySqlTransaction):
                wire.close()  # with all that it has prepared; or the server is a standby by now
                raise
            except BaseException:
                self._give(wire)
                raise
            self._give(wire)
        finally:
            self._room.release()

    def _idle_one(self) -> Wire | None:
        with self._lock:
            while self._idle:
                wire = self._idle.pop()
                if wire.alive:
                    return wire
                wire.close()
        return None

    def _give(self, wire: Wire) -> None:
        with self._lock:
            if wire.clean and not self._closed:
                self._idle.append(wire)
                return
        wire.close()

    def _send(self, texts: list[str]) -> None:
        values = {"channel": self._place.channel, "messages": Texts(texts)}

        def work(out: Effects) -> Steps[None]:
            yield Ask("tell", values)

        self.run("tell", None, work, whole=False)


class _Teller:
    """Tells other processes, on a thread that is there while there is something to tell.

    So no insert waits for it, and what comes while one message is under way shares the next.
    """

    def __init__(self, sender: str, send: Callable[[list[str]], None]) -> None:
        self._sender = sender
        self._send = send
        self._changed = Condition()
        self._outbox: dict[Signal, None] = {}
        self._busy = False
        self._runs = False

    def tell(self, signals: Iterable[Signal]) -> None:
        """Note what is to be told; never blocks, never raises."""
        with self._changed:
            self._outbox.update(dict.fromkeys(signals))
            if not self._outbox:
                return
            self._changed.notify_all()
            if self._runs:
                return
            self._runs = True
        try:
            Thread(target=self._run, name="tenure-postgres-tell", daemon=True).start()
        except RuntimeError:  # the interpreter ends; a hint may be lost
            self._runs = False

    def drain(self, seconds: float) -> None:
        """Wait until everything was told, at most so long."""
        with self._changed:
            self._changed.wait_for(lambda: not self._outbox and not self._busy, seconds)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._outbox, _LINGER)
                if not self._outbox:
                    self._runs = False
                    return
                signals, self._outbox = self._outbox, {}
                self._busy = True
            try:
                self._send(signalling.messages(self._sender, signals))
            except Exception as error:
                signalling.log.debug("signals were lost: %s", error)
            with self._changed:
                self._busy = False
                self._changed.notify_all()
            time.sleep(signalling.PACE)


def _close_own(counters: dict[int, _Counter]) -> None:
    """Close what this process opened, and only that."""
    counter = counters.pop(os.getpid(), None)
    if counter is not None:
        counter.close()
