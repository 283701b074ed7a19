"""The arithmetic of leases, and the words that holder and store exchange about them."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from tenure.core.durations import SECOND, Seconds, micros, shown
from tenure.core.reports import Progress
from tenure.errors import ConfigurationError

DEFAULT_LEASE = 30.0
SHORTEST_LEASE = 1.0
LONGEST_LEASE = 86_400.0


class Beat(NamedTuple):
    """A request to prolong one lease by `seconds` from now; proves the right by token and owner."""

    id: str
    token: int
    owner: str
    seconds: float
    progress: Progress | None = None


class Extended(msgspec.Struct, frozen=True):
    """Granted: the lease now ends `seconds` after the request was served."""

    seconds: float
    cancel_requested: bool = False


class Busy(msgspec.Struct, frozen=True):
    """The holder's own open transaction locks the row, so nobody can take the job over."""

    cancel_requested: bool = False


class Lost(msgspec.Struct, frozen=True):
    """Definitive: the lease is over. `reason` is one of `lapsed`, `settled`, `taken`, `gone`."""

    reason: str


Extension = Extended | Busy | Lost


class LeaseTimes(msgspec.Struct, frozen=True):
    """How one length of lease is renewed; all in seconds.

    `margin` is how much earlier the holder stops trusting its lease than the store does.
    """

    length: float
    interval: float
    margin: float


def lease_times(length: Seconds, interval: Seconds | None = None) -> LeaseTimes:
    """Checked times for a lease of `length` seconds (1 s to 24 h).

    The renewal interval is a third of the lease unless given, and at most that; the margin is 10 %
    of the lease, at least 0.2 s. Raises `ConfigurationError` naming the argument.
    """
    whole = micros(length, "lease", minimum=SHORTEST_LEASE, maximum=LONGEST_LEASE)
    seconds = whole / SECOND
    chosen = seconds / 3
    if interval is not None:
        part = micros(interval, "renewal interval", minimum=0.05)
        if part * 3 > whole:  # in whole microseconds: floats would refuse 1.1 s of 3.3 s
            raise ConfigurationError(
                f"renewal interval must be at most a third of the lease "
                f"({shown(chosen)} seconds), not {shown(part / SECOND)}"
            )
        chosen = part / SECOND
    return LeaseTimes(seconds, chosen, max(0.2, seconds / 10))


def retry_wait(backoff: float, deadline: float, now: float) -> float:
    """Seconds until a failed renewal is tried again: never later than half of what is left."""
    return max(0.0, min(backoff, (deadline - now) / 2))
