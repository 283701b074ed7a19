"""Tools for testing code that uses tenure, and for proving engines.

Importing this imports nothing else; what it offers is imported when it is first asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tenure.testing.clock import ManualClock
    from tenure.testing.flaky import Flaky
    from tenure.testing.kit import Kit, SyncKit
    from tenure.testing.overriding import override

__all__ = ["Flaky", "Kit", "ManualClock", "SyncKit", "override"]

_PLACES = {
    "Flaky": "tenure.testing.flaky",
    "Kit": "tenure.testing.kit",
    "ManualClock": "tenure.testing.clock",
    "SyncKit": "tenure.testing.kit",
    "override": "tenure.testing.overriding",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_PLACES[name]), name)
