"""Who is told of what was written: the listeners of this process, and other processes by mail."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from tenure.core.states import State
from tenure.engines.protocol import Signal, Topic
from tenure.engines.signals import LocalListener, SignalHub, signals_of
from tenure.engines.sqlite.mail import Post
from tenure.engines.sqlite.thread import Transaction


class Exchange:
    """One for an engine and its `side()`. Telling may be done from any thread, and never waits."""

    def __init__(self, path: str) -> None:
        self.hub = SignalHub()
        self._post = Post(path)

    @property
    def reaches_others(self) -> bool:
        """Whether other processes can be told, as far as can be known in advance."""
        return self._post.possible

    def tell(self, tx: Transaction) -> None:
        """Tell what follows from a transaction that took effect."""
        others = self._post.others()
        if not others and not self.hub.listened:
            return
        signals = signals_of(tx.changes)
        signals += [Signal(Topic.CANCEL, job_id) for job_id in dict.fromkeys(tx.hints)]
        self.hub.publish(signals)
        if others and signals:
            self._post.send(others, signals, one=_of_one_job(tx))

    def publish(self, signals: Iterable[Signal]) -> None:
        """Tell everybody."""
        batch = list(signals)
        self.hub.publish(batch)
        if batch and (others := self._post.others()):
            self._post.send(others, batch, one=False)

    @asynccontextmanager
    async def listen(
        self, topics: Iterable[Topic], queues: Iterable[str] | None
    ) -> AsyncIterator[LocalListener]:
        """A listener, as long as the block is open."""
        topics = frozenset(topics)
        queues = None if queues is None else frozenset(queues)
        async with self.hub.listen(topics, queues) as listener:
            with self._post.mailbox(topics, queues, listener.offer):
                yield listener

    def close(self) -> None:
        """Let go of what is not in use; it comes back when it is needed."""
        self._post.close()


def _of_one_job(tx: Transaction) -> bool:
    """Whether one more job became pending, so that one worker more has something to do."""
    return not tx.crowd and sum(state is State.PENDING for _, _, state, _ in tx.changes) == 1
