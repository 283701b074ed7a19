"""How holders are told: never on the keeper's thread, never under its lock."""

from __future__ import annotations

from functools import partial
from queue import SimpleQueue
from threading import Lock, Thread

from tenure.leases.journal import Journal
from tenure.leases.lease import Lease

THREAD_NAME = "tenure-lease-callbacks"


class Callbacks:
    """Hands `on_signal` to the holder's `post`, or runs it on one daemon thread of its own."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._queue: SimpleQueue[Lease | None] = SimpleQueue()
        self._thread: Thread | None = None
        self._lock = Lock()

    def deliver(self, lease: Lease) -> None:
        """Returns at once; failures of the holder's code are noted and change nothing."""
        if lease.on_signal is None:
            return
        try:
            if lease.post is not None:
                lease.post(partial(self._call, lease))
            else:
                self._queue.put(lease)
                self._start()
        except Exception as error:  # the holder's loop is closed, say, or there is no thread left
            self._journal.signal_failed(lease, error)

    def close(self) -> None:
        """End the thread once it has called what was delivered before."""
        self._queue.put(None)

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                thread = Thread(target=self._run, name=THREAD_NAME, daemon=True)
                thread.start()
                self._thread = thread

    def _run(self) -> None:
        while (lease := self._queue.get()) is not None:
            self._call(lease)

    def _call(self, lease: Lease) -> None:
        try:
            if lease.on_signal is not None:
                lease.on_signal(lease)
        except Exception as error:
            self._journal.signal_failed(lease, error)
