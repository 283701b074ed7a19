"""What a body may raise to say how its attempt ends, other than by returning or failing."""

from __future__ import annotations

from tenure.core.durations import SECOND, Seconds, micros
from tenure.core.retry import within


class Directive(Exception):
    """Base of the exceptions that are instructions, not failures."""


class Retry(Directive):
    """Try again: spends an attempt. `after` (seconds) replaces the backoff of the policy.

    Up to `spread` (0 to 1) of it is added at random, so that jobs which were told the same wait
    do not all come back at once. Raises `ConfigurationError` for values out of range.
    """

    def __init__(
        self,
        message: str = "retry requested",
        *,
        after: Seconds | None = None,
        spread: float = 0.0,
    ) -> None:
        self.after = None if after is None else micros(after, "after")
        self.spread = within("spread", spread, 0.0, 1.0)
        super().__init__(message)


class Snooze(Directive):
    """Try again after `delay` seconds: spends no attempt."""

    def __init__(self, delay: Seconds) -> None:
        self.delay = micros(delay, "delay")
        super().__init__(f"snoozed for {self.delay / SECOND:g} seconds")


class Cancel(Directive):
    """End as cancelled."""

    def __init__(self, reason: str = "cancelled by the task") -> None:
        super().__init__(reason)


class Discard(Directive):
    """End as failed, whatever attempts are left."""

    def __init__(self, reason: str = "discarded by the task") -> None:
        super().__init__(reason)


class Handoff(Directive):
    """Not ended: somebody else has the receipt and will settle. Nothing is written.

    The lease is renewed no more. If nobody settles or extends it, it lapses, and the job is taken
    over as if its holder had vanished.
    """

    def __init__(self, reason: str = "handed off") -> None:
        super().__init__(reason)


def alone(error: BaseException) -> BaseException:
    """A directive wrapped alone in exception groups, as task groups do; else `error` itself."""
    inner = error
    while isinstance(inner, BaseExceptionGroup) and len(inner.exceptions) == 1:
        inner = inner.exceptions[0]
    return inner if isinstance(inner, Directive) else error
