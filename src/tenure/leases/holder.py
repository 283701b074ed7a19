"""Where a holder lives, and how it is reached there."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from threading import get_ident

from tenure.errors import ConfigurationError

Post = Callable[[Callable[[], None]], object]
"""Hands a function to an event loop, at once and from any thread."""


class Holder:
    """An event loop that holds leases. `post` hands it functions; `thread` is where it runs.

    A loop whose thread is known is watched by the keeper for as long as it holds leases: one that
    stands still for long is reported, and loses them in the end.
    """

    __slots__ = ("__weakref__", "_key", "heard", "post", "thread")

    def __init__(self, post: Post, thread: int | None = None, key: object = None) -> None:
        self.post = post
        self.thread = thread
        self.heard = 0
        """The number of the last ping that the loop has answered."""
        self._key = post if key is None else key

    @staticmethod
    def find() -> Holder | None:
        """The event loop, asyncio's or trio's, that runs in this thread; None in plain threads."""
        trio = sys.modules.get("trio")
        if trio is not None and trio.lowlevel.in_trio_run():
            token = trio.lowlevel.current_trio_token()
            return Holder(token.run_sync_soon, get_ident(), token)
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return None
        return Holder(loop.call_soon_threadsafe, get_ident(), loop)

    @staticmethod
    def here() -> Holder:
        """As `find`; raises `ConfigurationError` in a plain thread."""
        holder = Holder.find()
        if holder is None:
            raise ConfigurationError("no event loop runs in this thread")
        return holder

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Holder) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def ping(self, number: int) -> None:
        """Ask the loop to say that it runs. Raises what `post` raises if the loop is closed."""

        def pong() -> None:
            self.heard = max(self.heard, number)

        self.post(pong)
