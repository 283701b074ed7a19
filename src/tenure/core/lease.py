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

MESSAGE_LEASE = 300.0
SHORTEST_MESSAGE_LEASE = 30.0
LONGEST_MESSAGE_LEASE = 3600.0
SOON = 10.0
"""A lease taken over from elsewhere with this many seconds left, or fewer, is renewed at once."""


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


class Failed(msgspec.Struct, frozen=True):
    """Nothing is known of this lease: it is tried again, as if the whole request had failed.

    `after`: the service's own word on when, in seconds; None: by the client's policy.
    """

    message: str = ""
    after: float | None = None


Extension = Extended | Busy | Lost | Failed
"""What a store or a service answers to one beat."""


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


def message_times(length: Seconds | None = None, resolution: Seconds = 1.0) -> LeaseTimes:
    """Checked times for a lease of a message service: 30 to 3,600 s, 300 when None.

    The renewal interval is a fifth of the lease, from 10 to 60 s. `resolution` is the service's
    smallest step: a length between two steps is rounded up. Raises `ConfigurationError`.
    """
    seconds = stepped(
        MESSAGE_LEASE if length is None else length,
        "lease",
        resolution,
        minimum=SHORTEST_MESSAGE_LEASE,
    )
    interval = min(60.0, max(10.0, seconds / 5), seconds / 3)
    return LeaseTimes(seconds, interval, max(0.2, seconds / 10))


def stepped(value: Seconds, name: str, resolution: Seconds, *, minimum: float = 0.0) -> float:
    """Seconds (up to 3,600) in whole steps of a service, rounded up; 0 only if `minimum` is 0.

    Raises `ConfigurationError`, naming `name`, for what is out of range or less than one step.
    """
    total = micros(value, name, minimum=minimum, maximum=LONGEST_MESSAGE_LEASE)
    step = micros(resolution, "resolution")
    if 0 < total < step:
        raise ConfigurationError(
            f"{name} must be at least {shown(step / SECOND)} seconds, the service's smallest step, "
            f"not {shown(total / SECOND)}"
        )
    return rounded_up(total, step) / SECOND


def rounded_up(total: int, step: int) -> int:
    """The least multiple of `step` (0: any number) that is not less than `total`."""
    return total if step == 0 else -(-total // step) * step


def throttle_wait(after: float, interval: float) -> float:
    """Seconds to wait when a service says when to come back: from 1 s to a renewal interval."""
    return min(max(1.0, after), interval)


def retry_wait(backoff: float, deadline: float, now: float) -> float:
    """Seconds until a failed renewal is tried again: never later than half of what is left."""
    return max(0.0, min(backoff, (deadline - now) / 2))
