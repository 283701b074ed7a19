"""How a worker works."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TypedDict

import msgspec

from tenure.core.durations import Seconds, micros
from tenure.core.lease import DEFAULT_LEASE, LeaseTimes, lease_times
from tenure.errors import ConfigurationError, InvalidArguments
from tenure.options import check_name
from tenure.settings import CONCURRENCY_MAX, level_of


class WorkerChanges(TypedDict, total=False):
    """The options by name, for `jobs.worker(...)`; see `WorkerOptions`."""

    queues: Iterable[str]
    concurrency: int
    threads: int | None
    lease: Seconds
    poll_max: Seconds
    shutdown_timeout: Seconds
    stop_grace: Seconds
    burst: bool
    log_success: bool
    log_level: int | str


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a worker.

    - `queues`: the queues to serve; at least one.
    - `concurrency`: how many jobs at once, 1 to 10,000.
    - `threads`: how many `def` bodies at once, 1 to 10,000; None: as many as `concurrency`.
    - `lease`: seconds (1 to 86,400) after which a vanished worker's jobs are taken over.
    - `poll_max`: longest wait in seconds between two looks for due jobs (0.01 to 3,600).
    - `shutdown_timeout`: seconds that running jobs may take to end after the first signal.
    - `stop_grace`: seconds that a cancelled body may take to unwind (0.01 to 3,600).
    - `burst`: end when nothing is due, instead of waiting for more.
    - `log_success`: log a line for every completed job, where its task says nothing.
    - `log_level`: the level of that line, a name or number. Default INFO.

    Raises `ConfigurationError` naming the option and what is allowed.
    """

    queues: tuple[str, ...] = ("default",)
    concurrency: int = 50
    threads: int | None = None
    lease: Seconds = DEFAULT_LEASE
    poll_max: Seconds = 1.0
    shutdown_timeout: Seconds = 30.0
    stop_grace: Seconds = 5.0
    burst: bool = False
    log_success: bool = False
    log_level: int | str = logging.INFO

    def __post_init__(self) -> None:
        if not self.queues:
            raise ConfigurationError("queues: name at least one queue")
        for queue in self.queues:
            check_name(queue, "queues")
        counts = (("concurrency", self.concurrency), ("threads", self.threads))
        for name, value in counts:
            if value is None and name == "threads":
                continue
            whole = isinstance(value, int) and not isinstance(value, bool)
            if not whole or not 1 <= (value or 0) <= CONCURRENCY_MAX:
                raise ConfigurationError(
                    f"{name} must be an integer from 1 to {CONCURRENCY_MAX}, not {value!r}"
                )
        for name, flag in (("burst", self.burst), ("log_success", self.log_success)):
            if not isinstance(flag, bool):
                raise ConfigurationError(f"{name} must be True or False, not {flag!r}")
        level_of(self.log_level, "log_level")
        lease_times(self.lease)
        micros(self.poll_max, "poll_max", minimum=0.01, maximum=3600)
        micros(self.shutdown_timeout, "shutdown_timeout", maximum=86_400)
        micros(self.stop_grace, "stop_grace", minimum=0.01, maximum=3600)

    def changed(self, changes: WorkerChanges) -> WorkerOptions:
        """A checked copy with some options replaced.

        Raises `InvalidArguments` for an unknown option, `ConfigurationError` for a bad value.
        """
        values = dict(changes)
        unknown = values.keys() - set(self.__struct_fields__)
        if unknown:
            known = ", ".join(self.__struct_fields__)
            raise InvalidArguments(f"unknown option {min(unknown)!r}; the options are {known}")
        if "queues" in changes:
            values["queues"] = _names(changes["queues"])
        return msgspec.structs.replace(self, **values)

    @property
    def times(self) -> LeaseTimes:
        """The lease's length, renewal interval and margin."""
        return lease_times(self.lease)


def _names(queues: Iterable[str]) -> tuple[str, ...]:
    if isinstance(queues, str):
        return (queues,)
    try:
        return tuple(queues)
    except TypeError:
        raise ConfigurationError(f"queues must be names, not {queues!r}") from None


def seconds(value: Seconds, name: str) -> float:
    """A checked duration in seconds."""
    return micros(value, name) / 1e6
