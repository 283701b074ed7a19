"""How holders are told: never on the keeper's thread, never under its lock."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from threading import Lock, Thread

from tenure.leases.holder import Holder
from tenure.leases.journal import Journal
from tenure.leases.lease import Lease, OnSignal

THREAD_NAME = "tenure-lease-callbacks"


class Callbacks:
    """Hands calls to the holder's event loop, or runs them on one daemon thread of its own."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: Thread | None = None
        self._lock = Lock()

    def deliver(self, lease: Lease) -> None:
        """Returns at once; failures of the holder's code are noted and change nothing."""
        if lease.on_signal is not None:
            self._hand(lease, lease.holder, lease.on_signal)
        if not lease._told_lost:
            return
        for entry in list(lease._listeners):
            if lease._unlisten(entry):
                self._hand(lease, *entry)

    def _hand(self, lease: Lease, holder: Holder | None, callback: OnSignal) -> None:
        call = partial(self._call, lease, callback)
        try:
            if holder is not None:
                holder.post(call)
            else:
                self._queue.put(call)
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
        while (call := self._queue.get()) is not None:
            call()

    def _call(self, lease: Lease, callback: OnSignal) -> None:
        try:
            callback(lease)
        except Exception as error:
            self._journal.signal_failed(lease, error)
