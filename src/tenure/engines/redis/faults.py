"""What a server's refusals mean: whether another try, or another server, may help."""

from __future__ import annotations

import re
from enum import Enum, auto

from redis import exceptions

from tenure.errors import ConfigurationError, EngineUnavailable


class Fault(Enum):
    """Kinds of refusals. In each of them nothing was done."""

    UNKNOWN_SCRIPT = auto()
    """It was not told the script yet, or was told to forget it."""

    MOVED = auto()
    """Another server has the keys."""

    NOT_NOW = auto()
    """It starts, is a replica, or the slot is being moved: ask again in a moment."""

    FULL = auto()
    """Its memory is used up, so nothing new is taken."""

    CANNOT_WRITE = auto()
    """It was told not to take writes that it cannot save or replicate."""

    FORBIDDEN = auto()
    """The user may not do this."""


_WORDS = {
    "NOSCRIPT": Fault.UNKNOWN_SCRIPT,
    "MOVED": Fault.MOVED,
    "READONLY": Fault.NOT_NOW,
    "LOADING": Fault.NOT_NOW,
    "MASTERDOWN": Fault.NOT_NOW,
    "CLUSTERDOWN": Fault.NOT_NOW,
    "TRYAGAIN": Fault.NOT_NOW,
    "ASK": Fault.NOT_NOW,
    "BUSY": Fault.NOT_NOW,
    "OOM": Fault.FULL,
    "MISCONF": Fault.CANNOT_WRITE,
    "NOREPLICAS": Fault.CANNOT_WRITE,
    "NOPERM": Fault.FORBIDDEN,
    "NOAUTH": Fault.FORBIDDEN,
    "WRONGPASS": Fault.FORBIDDEN,
}
_TYPES: tuple[tuple[type[Exception], Fault], ...] = (
    (exceptions.NoScriptError, Fault.UNKNOWN_SCRIPT),
    (exceptions.MovedError, Fault.MOVED),  # first: to the driver it is a kind of AskError
    # Never follow an ASK: the other node has but a part of the keys, so a script would go wrong.
    (exceptions.AskError, Fault.NOT_NOW),
    (exceptions.TryAgainError, Fault.NOT_NOW),
    (exceptions.ClusterDownError, Fault.NOT_NOW),
    (exceptions.ReadOnlyError, Fault.NOT_NOW),
    (exceptions.BusyLoadingError, Fault.NOT_NOW),
    (exceptions.NoPermissionError, Fault.FORBIDDEN),
    (exceptions.AuthenticationError, Fault.FORBIDDEN),
)
# In a script the word stands within the message (Redis 6), and the driver cuts off those it knows.
_WORD = re.compile(rf"(?:^|-|: )({'|'.join(_WORDS)})\b")
_OOM = "when used memory"


def fault_of(error: Exception) -> Fault | None:
    """What a server's refusal means; None for one that should not happen."""
    for kind, fault in _TYPES:
        if isinstance(error, kind):
            return fault
    text = str(error)
    if _OOM in text:
        return Fault.FULL
    found = _WORD.search(text)
    return _WORDS[found[1]] if found else None


def is_reply(error: BaseException) -> bool:
    """Whether an error is what the server answered, and the connection goes on."""
    answers = (
        exceptions.ResponseError,
        exceptions.BusyLoadingError,
        exceptions.AuthenticationError,
    )
    return isinstance(error, answers)


def refused(name: str, error: Exception, fault: Fault | None) -> Exception:
    """A refusal as an error of tenure, naming the operation."""
    text = summary(error)
    match fault:
        case Fault.FULL:
            return EngineUnavailable(
                f"{name}: the server's memory is used up (maxmemory); nothing was written"
            )
        case Fault.FORBIDDEN:
            return ConfigurationError(f"{name}: the server refuses this user: {text}")
        case _:
            return EngineUnavailable(f"{name}: {text}")


def summary(error: BaseException) -> str:
    """The first line of an error of the driver."""
    return str(error).strip().partition("\n")[0][:300] or type(error).__name__
