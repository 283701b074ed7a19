"""What a run tells about itself: its errors and its progress.

Both can always be saved: nothing in them makes a store refuse the outcome they travel with.
"""

from __future__ import annotations

import math

import msgspec

from tenure.core.codec import printable


class JobError(msgspec.Struct, frozen=True):
    """Why an attempt did not complete. `at` is microseconds since the epoch.

    Text that no store holds (NUL, lone surrogates) is kept as backslash escapes, so that an error
    can always be saved.
    """

    kind: str
    message: str
    traceback: str = ""
    attempt: int = 0
    at: int = 0

    def __post_init__(self) -> None:
        for name in ("kind", "message", "traceback"):
            _make_printable(self, name)


class Progress(msgspec.Struct, frozen=True):
    """The last report of a running body.

    What no store holds does not fail: a total that is no finite number becomes None, a current
    that is none 0, and text is escaped as in `JobError`.
    """

    current: float
    total: float | None = None
    message: str = ""

    def __post_init__(self) -> None:
        if not _finite(self.current):
            msgspec.structs.force_setattr(self, "current", 0.0)
        if self.total is not None and not _finite(self.total):
            msgspec.structs.force_setattr(self, "total", None)
        _make_printable(self, "message")


def _finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an int beyond all floats
        return False


def _make_printable(struct: msgspec.Struct, name: str) -> None:
    text: str = getattr(struct, name)
    clean = printable(text)
    if clean != text:
        msgspec.structs.force_setattr(struct, name, clean)
