"""The words of the seam: what engines can do, what a claim asks for, and what signals say."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple, Protocol

import msgspec

MAX_PAYLOAD = 1024 * 1024


class Facet(StrEnum):
    """The facets by name."""

    OPERATE = "operate"
    QUERY = "query"
    SCHEDULES = "schedules"
    IDENTITY = "identity"
    EVENTS = "events"
    TRANSACTIONS = "transactions"


ALL_FACETS = frozenset(Facet)


class Prunable(StrEnum):
    """What can be removed by age."""

    JOBS = "jobs"
    """Final jobs; reservations stay."""

    EVENTS = "events"


class Traits(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine can do; the docs' engine table is printed from these.

    `durable`: an acknowledged write survives a crash of the process. `shared`: several processes
    may use one store. `push`: wake-ups reach other processes without polling. `max_payload`: the
    largest payload and result in bytes.
    """

    name: str
    durable: bool
    shared: bool
    push: bool
    max_payload: int = MAX_PAYLOAD
    facets: frozenset[Facet] = ALL_FACETS


class Arm(StrEnum):
    """The parts of a claim. Explicit, so that histories on two engines can be compared."""

    PROMOTE = "promote"
    """Jobs of the queues that waited for their time, and whose time has come, become ready: up to
    the limit, of any task name, in the order `available_at, id`, each ranked by `core.fair.Turns`.

    Then blocked jobs whose rate allows more become ready (`core.limits.woken`): of up to `limit`
    keys of the queues whose cell `wakes`, in the order `wake_at, queue, key`."""

    DUE = "due"
    """Ready jobs of known tasks, in the order `rank, id`, as far as limits let them.

    In a queue with limits, `core.limits.room_of` bounds how many it gives, beside `room`. A job for
    which there is room is met by `core.limits.Gate`: it is taken, or blocked for later claims. No
    more than `PARKED_MAX` are blocked; then the claim ends."""

    RESUME = "resume"
    """Running jobs that the owner holds and did not list in `held`: a claim's reply was lost.

    They keep their token, and their lease starts anew, even if it ran out and nobody took the job.
    Of any queue and task name, in the order `lease_until, id`. Only where `held` is given.
    """

    LAPSED = "lapsed"
    """Running jobs of known tasks whose lease ran out, before any due one, in the order
    `lease_until, id`. `rules.admit` says whether what was taken may still run.

    They have their slots already, so no limit bounds them. In queues where running jobs hold slots
    (`core.limits.Limits.hold`), lapsed jobs that this claim may not have, by task or id, are first
    taken back as by a sweep, as many as the claim has room for: their slots are free."""

    EXPIRED = "expired"
    """Pending jobs of the queues whose `expires_at` passed become expired: up to the limit, of any
    task name, in the order `expires_at, id`."""


ALL_ARMS = frozenset(Arm)


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """Take up to `limit` jobs for `owner`, each under a new token and a lease of `lease` us.

    `tasks` None means any name; else jobs of other names are never taken. `ids` restricts the
    due and lapsed arms to these jobs. `room` bounds how many due and lapsed jobs come from a
    queue; queues it does not name are bounded by `limit` alone. `held` lists the jobs that the
    owner knows it holds. Paused queues have no due and no lapsed jobs; their jobs are promoted
    and expire all the same.

    The arms work in the order promote, expired, resume, lapsed, due, and all that is returned
    counts towards `limit`.
    """

    owner: str
    limit: int
    lease: int
    queues: tuple[str, ...] = ("default",)
    tasks: tuple[str, ...] | None = None
    ids: tuple[str, ...] = ()
    room: Mapping[str, int] = {}
    held: tuple[str, ...] | None = None
    arms: frozenset[Arm] = ALL_ARMS


class Topic(StrEnum):
    """What a signal is about."""

    QUEUE = "queue"
    """The queue `key` got pending jobs, due or planned for later, or is no longer paused.

    Whoever sleeps until the next job is due has to look again: it may be due earlier now.
    """

    DONE = "done"
    """The job `key` reached a final state."""

    CANCEL = "cancel"
    """The running job `key` was asked to stop, or was taken from its holder: by force, by a sweep
    or by the claim of another."""

    ANY = "any"
    """Something changed; what, is unknown."""


class Signal(NamedTuple):
    """A hint. Losing every one of them may cost latency, never a job."""

    topic: Topic
    key: str = ""


class Listener(Protocol):
    """Collects signals from the moment it was made."""

    async def wait(self, timeout: float | None = None) -> frozenset[Signal]:
        """The signals since the last call; waits up to `timeout` s for one; empty on timeout."""
        ...
