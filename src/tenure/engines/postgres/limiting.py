"""Limits at work: what a claim must know of them, and who goes on when they allow it.

A claim of limited queues locks their rows first and counts what runs after that, so no two claims
take the same slot. Nobody else locks them for long: what frees a slot does so without a lock, and
who is next is made ready by a step of its own, after that has taken effect, under the same lock.
So it sees whoever a claim has blocked meanwhile. If the process dies in between, a sweep does it.

No rule is here: what follows from a count, a cell or a change is said by `core.limits`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from tenure.core import limits
from tenure.core.fair import FairKey, Turns
from tenure.core.limits import NO_LIMITS, OF_QUEUE, Blocked, Candidate, Cell, Gate, Key, Limits
from tenure.core.states import State
from tenure.engines.postgres.arrays import Bigints, Integers, Texts, sparse
from tenure.engines.postgres.steps import Ask, Effects, Steps

_GIVE = {Blocked.CONCURRENCY: "give_slots", Blocked.RATE: "give_starts"}
_encode = msgspec.json.Encoder().encode
_decode = lru_cache(maxsize=1000)(msgspec.json.Decoder(Limits).decode)


def read(text: str | None) -> Limits:
    """Limits as they are kept."""
    return NO_LIMITS if text is None else _decode(text)


def kept(given: Limits) -> str | None:
    """Limits as they are to be kept."""
    return None if given == NO_LIMITS else _encode(given).decode()


class Special(NamedTuple):
    """Of some queues, those that are not treated as any other."""

    paused: frozenset[str]
    limits: dict[str, Limits]

    @property
    def paced(self) -> bool:
        """Whether any has a rate."""
        return any(kept.rate or kept.key_rate for kept in self.limits.values())


def lock(queues: Iterable[str]) -> Steps[Special]:
    """Those of these queues that are paused or limited, locked."""
    found = yield Ask("lock_special", {"queues": Texts(queues)})
    return Special(
        frozenset(queue for queue, paused, _ in found if paused),
        {queue: read(text) for queue, _, text in found if text is not None},
    )


def pass_on(out: Effects, freed: Mapping[Key, int]) -> Steps[None]:
    """Give freed slots to the next ones that wait for them. To be run in one transaction."""
    yield Ask("lock_loosely", {"queues": Texts({queue for queue, _ in freed})})
    yield from unblock(out, Blocked.CONCURRENCY, dict(sorted(freed.items())))


def unblock(out: Effects, reason: Blocked, counts: Mapping[Key, int]) -> Steps[None]:
    """Make ready the first blocked jobs of these keys, so many of each task."""
    values = _keys(counts) | {"counts": Bigints(counts.values())}
    for job_id, queue in (yield Ask(_GIVE[reason], values)):
        out.changes.append((job_id, queue, State.PENDING, True))


def unblock_all(queue: str) -> Steps[None]:
    """Make ready all jobs of a queue that the limits of keys held back."""
    yield Ask("unblock_queue", {"queue": queue})
    yield Ask("wake_nobody", {"queue": queue})


def repair(out: Effects, most: int) -> Steps[None]:
    """Make ready who waits for a slot that nobody speaks for, of up to `most` keys and tasks."""
    found = {queue: read(text) for queue, text in (yield Ask("all_limits"))}
    slots = {q: kept.key_concurrency for q, kept in found.items() if kept.key_concurrency}
    if not slots:
        return
    yield from lock(slots)
    values = {"queues": Texts(slots), "slots": Bigints(slots.values()), "most": most}
    for job_id, queue in (yield Ask("repair_slots", values)):
        out.changes.append((job_id, queue, State.PENDING, True))


def repair_keys(out: Effects, keys: Iterable[Key]) -> Steps[None]:
    """The same for these keys, of which a slot may be free. To be run in one transaction."""
    found = (yield from lock({queue for queue, _ in keys})).limits
    slots = {key: found[key[0]].key_concurrency or 0 for key in sorted(keys) if key[0] in found}
    values = _keys(slots) | {"slots": Bigints(slots.values())}
    for job_id, queue in (yield Ask("repair_keys", values)):
        out.changes.append((job_id, queue, State.PENDING, True))


def wake(out: Effects, given: Mapping[str, Limits], most: int, now: int) -> Steps[None]:
    """Make ready the blocked jobs of these queues whose rate allows more; of `most` keys."""
    rates = {queue: kept.key_rate for queue, kept in given.items() if kept.key_rate is not None}
    if not rates:
        return
    asked = {
        "queues": Texts(rates),
        "longest": Bigints(rate.longest for rate in rates.values()),
        "at": now,
        "most": most,
    }
    counts: dict[Key, int] = {}
    cells: dict[Key, Cell] = {}
    for queue, key, arrival, wake_at in (yield Ask("rates_to_wake", asked)):
        cell = Cell(arrival, wake_at)
        counts[queue, key], next_at = limits.woken(cell, rates[queue], now, most)
        cells[queue, key] = cell._replace(wake_at=next_at)
    if not cells:
        return
    yield from unblock(out, Blocked.RATE, counts)
    more = {(queue, key) for queue, key in (yield Ask("beyond_rate", _keys(cells)))}
    yield from keep(
        {key: cell if key in more else cell._replace(wake_at=None) for key, cell in cells.items()}
    )


def rooms(given: Mapping[str, Limits], now: int) -> Steps[dict[str, int]]:
    """How many jobs those of these queues may start that are limited as a whole."""
    running, cells = yield from _of_queues(given)
    found = {}
    for queue, kept in given.items():
        room = limits.room_of(kept, running[queue], cells.get((queue, OF_QUEUE)), now)
        if room is not None:
            found[queue] = room
    return found


def waits(given: Mapping[str, Limits], now: int) -> Steps[dict[str, tuple[int, int | None]]]:
    """Microseconds until each queue may start a job, and until its blocked ones are looked at.

    Those that may start none before one of their jobs ends are left out.
    """
    running, cells = yield from _of_queues(given)
    found_wakes = yield Ask("first_wakes", {"queues": Texts(given)})
    wakes: dict[str, int | None] = dict(found_wakes)
    found: dict[str, tuple[int, int | None]] = {}
    for queue, kept in given.items():
        wait = limits.wait_of(kept, running[queue], cells.get((queue, OF_QUEUE)), now)
        at = wakes.get(queue)
        if wait is not None:
            found[queue] = wait, None if at is None else at - now
    return found


def inform(gate: Gate, candidates: Sequence[Candidate]) -> Steps[None]:
    """Tell a gate what it must know before it meets these."""
    held, paced = gate.unknown(candidates)
    if held:
        for queue, key, count in (yield Ask("slots_taken", _keys(held))):
            gate.running[queue, key] = count
    if paced:
        gate.cells.update((yield from _cells(paced)))


def close(gate: Gate, given: Mapping[str, Limits]) -> Steps[None]:
    """Write what is left of each rate."""
    paced = [(queue, OF_QUEUE) for queue, kept in given.items() if kept.rate is not None]
    gate.cells.update((yield from _cells(paced)))
    yield from keep(gate.changed())


def park(out: Effects, parked: Sequence[tuple[Candidate, Blocked]]) -> Steps[None]:
    """Block these jobs."""
    if parked:
        out.freed += limits.given_up(parked)
        reasons = Texts(str(reason) for _, reason in parked)
        yield Ask("block", {"ids": Texts(job.id for job, _ in parked), "reasons": reasons})


def keep(cells: Mapping[Key, Cell]) -> Steps[None]:
    """Keep what is known of rates."""
    if cells:
        values = {
            "arrivals": Bigints(cell.arrival for cell in cells.values()),
            "wakes": sparse(Bigints, (cell.wake_at for cell in cells.values())),
        }
        yield Ask("keep_rates", _keys(cells) | values)


def turns(keys: Iterable[FairKey]) -> Steps[Turns]:
    """Who takes turns, as it stands."""
    return Turns((yield from last_turns(keys)))


def last_turns(keys: Iterable[FairKey]) -> Steps[dict[FairKey, int]]:
    """The highest ranks of those who are due and wait, by key."""
    asked = sorted(keys)
    if not asked:
        return {}
    values = {
        "queues": Texts(queue for queue, _, _ in asked),
        "keys": Texts(key for _, key, _ in asked),
        "priorities": Integers(priority for _, _, priority in asked),
    }
    found = yield Ask("last_turns", values)
    return {(queue, key, priority): rank for queue, key, priority, rank in found}


def _of_queues(given: Mapping[str, Limits]) -> Steps[tuple[dict[str, int], dict[Key, Cell]]]:
    running = dict.fromkeys(given, 0)
    counted = [queue for queue, kept in given.items() if kept.concurrency is not None]
    if counted:
        running |= dict((yield Ask("running_in_queues", {"queues": Texts(counted)})))
    paced = [(queue, OF_QUEUE) for queue, kept in given.items() if kept.rate is not None]
    return running, (yield from _cells(paced))


def _cells(keys: Iterable[Key]) -> Steps[dict[Key, Cell]]:
    asked = list(keys)
    if not asked:
        return {}
    found = yield Ask("rates", _keys(asked))
    return {(queue, key): Cell(arrival, wake_at) for queue, key, arrival, wake_at in found}


def _keys(keys: Iterable[Key]) -> dict[str, Any]:
    listed = list(keys)
    return {"queues": Texts(queue for queue, _ in listed), "keys": Texts(key for _, key in listed)}
