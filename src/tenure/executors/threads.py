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

        The future belongs to the running loop. Cancelling it does not stop the function.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
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

        with self._changed:
            if self._closed:
                raise RuntimeError("the thread pool is closed")
            self._work.append(work)
            if len(self._work) > self._idle and self._threads < self.size:
                self._threads += 1
                name = f"tenure-thread-{next(self._numbers)}"
                threading.Thread(target=self._serve, name=name, daemon=True).start()
            else:
                self._changed.notify()
        return future

    def close(self) -> None:
        """Let idle threads end now and busy ones after their function; nothing more is taken."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

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

    def _has_news(self) -> bool:
        return bool(self._work) or self._closed


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
