"""Limits at work: what a claim must know of them, and who goes on when they allow it.

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
from tenure.engines import sql
from tenure.engines.sqlite.thread import Transaction

SQL = sql.load("tenure.engines.sqlite", "statements.sql")

_SETTINGS = SQL["special_queues"]
_TASKS = {
    Blocked.CONCURRENCY: SQL["tasks_without_slot"],
    Blocked.RATE: SQL["tasks_beyond_rate"],
}
_FIRST = {
    Blocked.CONCURRENCY: SQL["first_without_slot"],
    Blocked.RATE: SQL["first_beyond_rate"],
}
_encode = msgspec.json.Encoder().encode
_decode = lru_cache(maxsize=1000)(msgspec.json.Decoder(Limits).decode)


class Special(NamedTuple):
    """The queues that are not treated as any other."""

    paused: frozenset[str]
    limits: Mapping[str, Limits]


def special(tx: Transaction) -> Special:
    """What the settings of all queues say."""
    found = tx.execute(_SETTINGS)
    return Special(
        frozenset(queue for queue, paused, _ in found if paused),
        {queue: read(text) for queue, _, text in found if text is not None},
    )


def read(text: str | None) -> Limits:
    """Limits as they are kept."""
    return NO_LIMITS if text is None else _decode(text)


def kept(given: Limits) -> str | None:
    """Limits as they are to be kept."""
    return None if given == NO_LIMITS else _encode(given).decode()


def pass_on(tx: Transaction) -> None:
    """After an operation: give each slot that it freed to the next ones that wait for it."""
    if tx.freed:
        freed = dict(sorted(tx.freed.items()))
        tx.freed.clear()
        unblock(tx, Blocked.CONCURRENCY, freed)
    if tx.left:
        limited = special(tx).limits
        tx.changes += [("", q, State.PENDING, True) for q in sorted(tx.left) if q in limited]
        tx.left.clear()


def unblock(tx: Transaction, reason: Blocked, counts: Mapping[Key, int]) -> None:
    """Make ready the first blocked jobs of these keys, so many of each task."""
    ids: list[str] = []
    for queue, key, task in tx.execute(_TASKS[reason], {"keys": _encode(list(counts)).decode()}):
        asked = {"queue": queue, "key": key, "task": task, "limit": counts[queue, key]}
        ids += [row[0] for row in tx.execute(_FIRST[reason], asked)]
        tx.changes.append(("", queue, State.PENDING, True))
    if ids:
        tx.write(SQL["unblock"], {"ids": _encode(ids).decode()})


def unblock_all(tx: Transaction, queue: str) -> None:
    """Make ready all jobs of a queue that the limits of keys held back."""
    tx.write(SQL["unblock_queue"], {"queue": queue})
    tx.write(SQL["wake_nobody"], {"queue": queue})


def wake(tx: Transaction, given: Mapping[str, Limits], most: int, now: int) -> None:
    """Make ready the blocked jobs of these queues whose rate allows more; of `most` keys."""
    rates = {queue: kept.key_rate for queue, kept in given.items() if kept.key_rate is not None}
    due: list[tuple[int, Key, Cell]] = []
    for queue, rate in rates.items():
        asked = {"queue": queue, "now": now, "longest": rate.longest, "limit": most}
        for key, arrival, wake_at in tx.execute(SQL["rates_to_wake"], asked):
            due.append((wake_at, (queue, key), Cell(arrival, wake_at)))
    for _, key, cell in sorted(due)[:most]:
        count, wake_at = limits.woken(cell, rates[key[0]], now, most)
        unblock(tx, Blocked.RATE, {key: count})
        more = tx.execute(_TASKS[Blocked.RATE], {"keys": _encode([key]).decode()})
        keep(tx, {key: cell._replace(wake_at=wake_at if more else None)})


def rooms(tx: Transaction, given: Mapping[str, Limits], now: int) -> dict[str, int]:
    """How many jobs those of these queues may start that are limited as a whole."""
    found = {}
    for queue, kept in given.items():
        room = limits.room_of(kept, _running(tx, queue, kept), _cell(tx, queue), now)
        if room is not None:
            found[queue] = room
    return found


def wait(tx: Transaction, queue: str, given: Limits, now: int) -> int | None:
    """See `core.limits.wait_of`."""
    return limits.wait_of(given, _running(tx, queue, given), _cell(tx, queue), now)


def first_wake(tx: Transaction, queue: str) -> int | None:
    """When the first jobs of a queue that its rates hold back are to be looked at."""
    found: int | None = tx.execute(SQL["first_wake"], {"queue": queue})[0][0]
    return found


def inform(tx: Transaction, gate: Gate, candidates: Sequence[Candidate]) -> None:
    """Tell a gate what it must know before it meets these."""
    held, paced = gate.unknown(candidates)
    if held:
        gate.running.update(dict.fromkeys(held, 0))
        for queue, key, count in tx.execute(SQL["slots_taken"], {"keys": _keys(held)}):
            gate.running[queue, key] = count
    if paced:
        gate.cells.update(_cells(tx, paced))


def close(tx: Transaction, gate: Gate, queues: Iterable[str]) -> None:
    """Write what is left of each rate, and who is blocked."""
    gate.cells.update(_cells(tx, [(queue, OF_QUEUE) for queue in queues]))
    keep(tx, gate.changed())


def park(tx: Transaction, parked: Sequence[tuple[Candidate, Blocked]]) -> None:
    """Block these jobs."""
    tx.freed += limits.given_up(parked)
    by_reason: dict[Blocked, list[str]] = {}
    for candidate, reason in parked:
        by_reason.setdefault(reason, []).append(candidate.id)
    for reason, ids in by_reason.items():
        tx.write(SQL["block"], {"ids": _encode(ids).decode(), "blocked": str(reason)})


def keep(tx: Transaction, cells: Mapping[Key, Cell]) -> None:
    """Keep what is known of rates."""
    tx.execute_many(SQL["keep_rate"], [(*key, *cell) for key, cell in cells.items()])


def tidy(tx: Transaction, now: int) -> None:
    """Forget cells that say nothing any more."""
    tx.write(SQL["forget_rates"], {"now": now})


def turns(tx: Transaction, keys: Iterable[FairKey]) -> Turns:
    """Who takes turns, as it stands."""
    return Turns(last_turns(tx, keys))


def last_turns(tx: Transaction, keys: Iterable[FairKey]) -> dict[FairKey, int]:
    """The highest ranks of those who are due and wait, by key."""
    found = {}
    for queue, key, priority in keys:
        asked = {"queue": queue, "key": key, "priority": priority}
        ((rank,),) = tx.execute(SQL["last_turn"], asked)
        if rank is not None:
            found[queue, key, priority] = rank
    return found


def _running(tx: Transaction, queue: str, given: Limits) -> int:
    if given.concurrency is None:
        return 0
    count: int = tx.execute(SQL["running_in_queue"], {"queue": queue})[0][0]
    return count


def _cell(tx: Transaction, queue: str) -> Cell | None:
    return _cells(tx, [(queue, OF_QUEUE)]).get((queue, OF_QUEUE))


def _cells(tx: Transaction, keys: Iterable[Key]) -> dict[Key, Cell]:
    found: list[Any] = tx.execute(SQL["rates"], {"keys": _keys(keys)})
    return {(queue, key): Cell(arrival, wake_at) for queue, key, arrival, wake_at in found}


def _keys(keys: Iterable[Key]) -> str:
    return _encode(list(keys)).decode()
