"""When a service is open: its engine and its waiter, opened and closed together."""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Literal, Protocol

from tenure.clock import SYSTEM_CLOCK, Clock, IdSource
from tenure.engines.protocol import Engine
from tenure.handles import Waiter

log = logging.getLogger("tenure")

Move = Literal["opening", "closing"]


class Companion(Protocol):
    """What lives a little longer than the engine."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...


class Lifetime:
    """Opens and closes one engine, one move at a time, on the loop that the service lives on.

    Callers that come together share a move and its error. `at_exit` is called when the process
    ends while the engine is open. `clock` is that of the engine.
    """

    def __init__(
        self,
        make: Callable[[], Engine],
        at_exit: Callable[[], None],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.clock = clock
        self._make = make
        self._at_exit = at_exit
        self._pid = os.getpid()
        self._lock = threading.Lock()  # is taken by forked children only
        self._engine = make()
        self._ids = IdSource()
        self._opened = False
        self._move: tuple[Move, asyncio.Task[None]] | None = None
        self._waiter: Waiter | None = None
        self.before_close: Callable[[], Coroutine[Any, Any, None]] | None = None
        """Awaited while the engine is still open; what it raises is logged and stops nothing."""
        self.companion: Companion | None = None
        """Opened before the engine, and closed after it."""
        self._inherited: list[Any] = []

    @property
    def engine(self) -> Engine:
        """The engine of this process, open or not."""
        self._check_process()
        return self._engine

    @property
    def ids(self) -> IdSource:
        """Where this process takes the ids of its jobs from."""
        self._check_process()
        return self._ids

    @property
    def begun(self) -> bool:
        """Whether there is anything to close."""
        self._check_process()
        return self._opened or self._move is not None

    async def open(self) -> None:
        """Open the engine if it is not open. What fails leaves nothing open."""
        self._check_process()
        while not self._opened:
            name, task = self._moving() or self._begin("opening", self._open())
            if name == "opening":
                await asyncio.shield(task)
                return
            await asyncio.wait({task})

    async def close(self) -> None:
        """Close what is open; whoever waits for a job is told. Nothing to close: does nothing."""
        self._check_process()
        while (move := self._moving()) is not None or self._opened:
            name, task = move or self._begin("closing", self._close())
            if name == "closing":
                await asyncio.shield(task)
                return
            await asyncio.wait({task})

    def waiter(self) -> Waiter:
        """The waiter of the running loop, for an open engine."""
        if self._waiter is None or not self._waiter.here:
            self._waiter = Waiter(self._engine)
        return self._waiter

    async def _open(self) -> None:
        if self.companion is not None:
            await self.companion.open()
        try:
            await self._engine.__aenter__()
        except BaseException:
            await self._part()
            raise
        self._opened = True
        atexit.register(self._at_exit)

    async def _close(self) -> None:
        self._opened = False
        atexit.unregister(self._at_exit)
        try:
            if self.before_close is not None:
                await self.before_close()
        except Exception:
            log.warning("something held by the service could not be let go", exc_info=True)
        waiter, self._waiter = self._waiter, None
        if waiter is not None and waiter.here:
            await waiter.close()
        try:
            await self._engine.__aexit__(None, None, None)
        except BaseException:
            await self._part()
            raise
        if self.companion is not None:
            await self.companion.close()

    async def _part(self) -> None:
        """Close the companion after another error, which is the one to be raised."""
        if self.companion is not None:
            try:
                await self.companion.close()
            except Exception:
                log.exception("what the service had opened for its jobs could not be closed")

    def _moving(self) -> tuple[Move, asyncio.Task[None]] | None:
        """The move that is going on; not one whose loop is gone, as that will never end."""
        if self._move is not None:
            task = self._move[1]
            if task.done() or task.get_loop() is not asyncio.get_running_loop():
                self._move = None
        return self._move

    def _begin(
        self, name: Move, work: Coroutine[Any, Any, None]
    ) -> tuple[Move, asyncio.Task[None]]:
        task = asyncio.create_task(work)
        task.add_done_callback(self._moved)
        self._move = name, task
        return self._move

    def _moved(self, task: asyncio.Task[None]) -> None:
        if self._move is not None and self._move[1] is task:
            self._move = None
        if not task.cancelled():
            task.exception()  # every caller may have gone, and then nobody looks at the error

    def _check_process(self) -> None:
        """In a forked child: begin unopened, and never touch what belongs to the parent."""
        if self._pid == os.getpid():
            return
        with self._lock:
            if self._pid == os.getpid():
                return
            # Kept for ever: what belongs to the parent's loops is not to be taken apart here.
            self._inherited.append((self._engine, self._move, self._waiter))
            self._engine = self._make()
            self._ids = IdSource()  # the parent's may have been in use at the fork
            self._opened = False
            self._move = None
            self._waiter = None
            self._pid = os.getpid()
