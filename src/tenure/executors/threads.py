"""A bounded pool of daemon threads for `def` bodies. Never the event loop's default pool."""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

_IDLE_SECONDS = 60.0


class ThreadPool:
    """Runs functions in up to `size` threads, named `tenure-thread-N`.

    Threads are daemons: a body that never returns cannot keep the process alive. An idle thread
    ends after a minute.
    """

    def __init__(self, size: int, idle_seconds: float = _IDLE_SECONDS) -> None:
        self.size = size
        self.places = Places(size)
        """For callers on one event loop who would rather wait outside than in the queue."""
        self._idle_seconds = idle_seconds
        self._work: deque[Callable[[], None]] = deque()
        self._changed = threading.Condition()
        self._threads = 0
        self._idle = 0
        self._numbers = itertools.count(1)
        self._closed = False

    @property
    def threads(self) -> int:
        """How many threads there are now."""
        return self._threads

    def submit(self, function: Callable[[], Any]) -> asyncio.Future[Any]:
        """Run `function` in a thread, in a copy of the caller's context variables.

        The future belongs to the running loop. Cancelling it does not stop the function. Raises
        `RuntimeError` if the pool is closed, or has no thread and the system gives none; then the
        function is not run.
        """
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        work = _work(function, future)
        with self._changed:
            if self._closed:
                raise RuntimeError("the thread pool is closed")
            self._work.append(work)
            if len(self._work) > self._idle and self._threads < self.size:
                self._start_thread()
            else:
                self._changed.notify()
        return future

    def close(self) -> None:
        """Let idle threads end now and busy ones after their function; nothing more is taken."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _start_thread(self) -> None:
        """Under the lock, with the new work at the end of the queue."""
        name = f"tenure-thread-{next(self._numbers)}"
        try:
            threading.Thread(target=self._serve, name=name, daemon=True).start()
        except RuntimeError:
            if not self._threads:
                self._work.pop()
                raise
            return  # one of those that there are will come to it
        self._threads += 1

    def _serve(self) -> None:
        while True:
            with self._changed:
                self._idle += 1
                self._changed.wait_for(self._has_news, timeout=self._idle_seconds)
                self._idle -= 1
                if not self._work:
                    self._threads -= 1
                    return
                work = self._work.popleft()
            work()
            del work  # an idle thread must not keep the last body's arguments alive

    def _has_news(self) -> bool:
        return bool(self._work) or self._closed


class Places:
    """As many places as a pool has threads, given out on one event loop in the order asked for."""

    def __init__(self, size: int) -> None:
        self._free = size
        self._waiting: deque[asyncio.Future[None]] = deque()

    def take(self) -> asyncio.Future[None]:
        """Done once a place is the caller's, who then owes a `give_back`.

        Cancelling it while it is not done leaves the queue.
        """
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._free > 0:
            self._free -= 1
            place.set_result(None)
        else:
            self._waiting.append(place)
        return place

    def give_back(self) -> None:
        """The place goes to who waits longest, or is free."""
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(None)
                return
        self._free += 1


def _work(function: Callable[[], Any], future: asyncio.Future[Any]) -> Callable[[], None]:
    """What a thread does for one call: run it, and hand the future its end."""
    loop = future.get_loop()
    context = contextvars.copy_context()

    def work() -> None:
        result: Any = None
        error: BaseException | None = None
        try:
            result = context.run(function)
        except BaseException as raised:
            error = raised
        try:
            loop.call_soon_threadsafe(_deliver, future, result, error)
        except RuntimeError:
            pass  # the loop is closed: nobody waits for this body any more
        finally:
            del error  # it refers to this very frame by its traceback

    return work


def _deliver(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.cancelled():
        return
    if error is None:
        future.set_result(result)
    elif isinstance(error, StopIteration):
        # A future refuses this type, as it would end the coroutine that awaits it.
        wrapped = RuntimeError("the function raised StopIteration")
        wrapped.__cause__ = error
        future.set_exception(wrapped)
    else:
        future.set_exception(error)
