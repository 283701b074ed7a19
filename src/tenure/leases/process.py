"""The one keeper of a process, and what a fork does to keepers."""

from __future__ import annotations

import os
from threading import Lock

from tenure.leases.keeper import LeaseKeeper, keepers

_inherited: list[object] = []
_default: LeaseKeeper | None = None
_default_lock = Lock()


def default_keeper() -> LeaseKeeper:
    """The keeper of this process; a new one if that was closed."""
    global _default
    keeper = _default
    if keeper is not None and not keeper.closed:
        return keeper
    with _default_lock:
        if _default is None or _default.closed:
            _default = LeaseKeeper()
        return _default


def _after_fork() -> None:
    global _default_lock
    _default_lock = Lock()
    _inherited.extend(keeper._forget() for keeper in list(keepers))


os.register_at_fork(after_in_child=_after_fork)
