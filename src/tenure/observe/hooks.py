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
_ALL: frozenset[str] = frozenset()


class Hooks:
    """Calls every hook for every happening, and counts the hooks that fail.

    Hooks run where the happening is reported, on any thread, and must not block.
    """

    def __init__(self, *hooks: Hook) -> None:
        self._hooks: list[tuple[Hook, frozenset[str]]] = [(hook, _ALL) for hook in hooks]
        self._lock = Lock()
        self.failures = 0

    def hears(self, name: str) -> bool:
        """Whether anybody wants happenings of this name; ask first where facts are costly."""
        # Mostly there are none, and it is asked several times per job.
        return bool(self._hooks) and any(not names or name in names for _, names in self._hooks)

    def add(self, hook: Hook, *names: str) -> Callable[[], None]:
        """Call `hook` from now on, for these names (none given: all); the returned function stops
        that.
        """
        entry = (hook, frozenset(names))
        with self._lock:
            self._hooks = [*self._hooks, entry]

        def remove() -> None:
            with self._lock:
                self._hooks = [other for other in self._hooks if other is not entry]

        return remove

    def emit(self, name: str, /, **facts: Any) -> None:
        """Report a happening. Never raises an `Exception`."""
        for hook, names in self._hooks:
            if names and name not in names:
                continue
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
