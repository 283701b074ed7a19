"""Signals within a process: who listens, and how a listener is told from any thread."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from threading import Lock

from tenure.core.states import State
from tenure.engines.protocol import Signal, Topic


def signals_of(changes: Iterable[tuple[str, str, State, bool]]) -> list[Signal]:
    """The QUEUE and DONE signals that follow from rows written as (id, queue, state, ready).

    Each signal once, in the order first met. A pending row that is not ready signals QUEUE too:
    an idle worker has to plan its sleep anew.
    """
    signals: dict[Signal, None] = {}
    for job_id, queue, state, _ in changes:
        if state.final:
            signals[Signal(Topic.DONE, job_id)] = None
        elif state is State.PENDING:
            signals[Signal(Topic.QUEUE, queue)] = None
    return list(signals)


class LocalListener:
    """Collects signals for one event loop. Made by a `SignalHub`."""

    def __init__(self, topics: frozenset[Topic], queues: frozenset[str] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._topics = topics
        self._queues = queues
        self._pending: set[Signal] = set()
        self._scheduled = False
        self._lock = Lock()
        self._event = asyncio.Event()

    async def wait(self, timeout: float | None = None) -> frozenset[Signal]:
        """See `engines.protocol.Listener.wait`."""
        try:
            async with asyncio.timeout(timeout):
                await self._event.wait()
        except TimeoutError:
            pass
        return self._take()

    def offer(self, signals: Iterable[Signal]) -> None:
        """Note the signals that this listener wants; from any thread."""
        wanted = [signal for signal in signals if self._wants(signal)]
        if not wanted:
            return
        with self._lock:
            self._pending.update(wanted)
            if self._scheduled:
                return
            self._scheduled = True
        try:
            self._loop.call_soon_threadsafe(self._event.set)
        except RuntimeError:
            pass  # the loop is closed, so nobody waits any more

    def _wants(self, signal: Signal) -> bool:
        if signal.topic is Topic.QUEUE and self._queues is not None:
            return signal.key in self._queues and Topic.QUEUE in self._topics
        return signal.topic in self._topics or signal.topic is Topic.ANY

    def _take(self) -> frozenset[Signal]:
        with self._lock:
            taken = frozenset(self._pending)
            self._pending.clear()
            self._scheduled = False
            self._event.clear()
        return taken


class SignalHub:
    """The listeners of one store in this process."""

    def __init__(self) -> None:
        self._listeners: frozenset[LocalListener] = frozenset()
        self._lock = Lock()

    def publish(self, signals: Iterable[Signal]) -> None:
        """Tell every listener; from any thread; never blocks."""
        listeners = self._listeners
        if listeners:
            batch = list(signals)
            for listener in listeners:
                listener.offer(batch)

    @property
    def listened(self) -> bool:
        """Whether anybody listens."""
        return bool(self._listeners)

    @asynccontextmanager
    async def listen(
        self, topics: Iterable[Topic], queues: Iterable[str] | None = None
    ) -> AsyncIterator[LocalListener]:
        """A listener, as long as the block is open."""
        listener = LocalListener(frozenset(topics), None if queues is None else frozenset(queues))
        with self._lock:
            self._listeners |= {listener}
        try:
            yield listener
        finally:
            with self._lock:
                self._listeners -= {listener}
