"""What happened, told to whoever listens. Nothing on this path changes an outcome.

A `Hooks` object is handed down to whatever reports; there is no global one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any, NamedTuple

log = logging.getLogger("tenure")


class Happening(NamedTuple):
    """One thing that happened: a dotted name (`job.completed`, `lease.lost`) and its facts."""

    name: str
    facts: Mapping[str, Any]


Hook = Callable[[Happening], None]


class Hooks:
    """Calls every hook for every happening, and counts the hooks that fail.

    Hooks run where the happening is reported, on any thread, and must not block.
    """

    def __init__(self, *hooks: Hook) -> None:
        self._hooks = list(hooks)
        self._lock = Lock()
        self.failures = 0

    @property
    def listening(self) -> bool:
        """Whether anybody listens; where facts are costly to gather, ask first."""
        return bool(self._hooks)

    def add(self, hook: Hook) -> Callable[[], None]:
        """Call `hook` from now on; the returned function stops that."""
        with self._lock:
            self._hooks = [*self._hooks, hook]

        def remove() -> None:
            with self._lock:
                self._hooks = [h for h in self._hooks if h is not hook]

        return remove

    def emit(self, name: str, /, **facts: Any) -> None:
        """Report a happening. Never raises an `Exception`."""
        for hook in self._hooks:
            try:
                hook(Happening(name, facts))
            except Exception:
                with self._lock:
                    self.failures += 1
                    first = self.failures == 1
                log.log(
                    logging.WARNING if first else logging.DEBUG,
                    "a hook failed on %s; the work goes on",
                    name,
                    exc_info=True,
                )
