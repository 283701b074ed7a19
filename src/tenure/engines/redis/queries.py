"""Questions about jobs. Nothing here changes anything."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from tenure.core.columns import matches_inside
from tenure.core.job import JobRow
from tenure.core.query import SCAN_MAX, Filter, Found, Page, QueueStats
from tenure.engines.redis import limiting
from tenure.engines.redis.deciding import chunks
from tenure.engines.redis.link import Link
from tenure.engines.redis.rows import Packed, kept_states, to_row

_decode_rows = msgspec.msgpack.Decoder(list[Packed | None]).decode
_decode_page = msgspec.msgpack.Decoder(tuple[str | None, int, list[Packed]]).decode
_decode_insides = msgspec.msgpack.Decoder(
    tuple[str | None, int, list[tuple[str, str | None, str | None, str | bool | None]]]
).decode
_decode_stats = msgspec.msgpack.Decoder(list[list[Any]]).decode
_READ = 200
"""Jobs that are read at once, each of which may have a megabyte."""


async def get(link: Link, ids: Sequence[str]) -> list[JobRow | None]:
    """See `Engine.get`."""
    found: list[JobRow | None] = []
    for part in chunks(ids, _READ):
        answer = _decode_rows(await link.run("rows", list(part), repeat=True))
        found += [None if row is None else to_row(row) for row in answer]
    return found


async def find(link: Link, where: Filter, page: Page) -> Found:
    """See `Engine.find`."""
    if where.ids:
        rows = await get(link, list(dict.fromkeys(where.ids)))
        fits = [
            row
            for row in rows
            if row is not None
            and where.matches(row)
            and (page.before is None or row.id < page.before)
        ]
        first = sorted(fits, key=lambda row: row.id, reverse=True)[: page.limit]
        return Found(first, first[-1].id if len(first) == page.limit else None)
    found: list[JobRow] = []
    before, left = page.before, SCAN_MAX
    while left > 0 and len(found) < page.limit:
        limit = min(page.limit - len(found), _READ)
        scan = await _scan(link, where, before, limit, left)
        found += scan.rows
        before, left = scan.next, left - scan.looked
        if before is None:
            break
    return Found(found, before)


class _Scan(NamedTuple):
    """What one step found; `next` is the id before which to go on."""

    next: str | None
    looked: int
    rows: list[JobRow]


async def every(link: Link) -> AsyncIterator[list[JobRow]]:
    """All jobs, a part at a time."""
    before: str | None = None
    while True:
        scan = await _scan(link, Filter(), before, _READ, SCAN_MAX)
        yield scan.rows
        before = scan.next
        if before is None:
            return


async def _scan(link: Link, where: Filter, before: str | None, limit: int, most: int) -> _Scan:
    """Look at the next jobs, `most` or 1,000, until `limit` match."""
    asked = [
        False if before is None else before,
        limit,
        min(most, 1000),
        *(list(wanted) or False for wanted in _lists(where)),
        [_instant(at) for at in (where.created_from, where.created_to)],
        [_instant(at) for at in (where.finished_from, where.finished_to)],
        where.looks_inside,
    ]
    answer = await link.run("find", asked, repeat=True)
    if not where.looks_inside:
        following, looked, packed = _decode_page(answer)
        return _Scan(following, looked, [to_row(row) for row in packed])
    following, looked, insides = _decode_insides(answer)
    ids = []
    for job_id, tags, metadata, error in insides:
        if matches_inside(where, tags, metadata, error if isinstance(error, str) else None):
            ids.append(job_id)
            if len(ids) == limit:
                following = job_id  # what else it looked at is looked at again
                break
    rows = [row for row in await get(link, ids) if row is not None and where.matches(row)]
    return _Scan(following, looked, rows)


def _lists(where: Filter) -> Iterator[Sequence[str]]:
    yield kept_states(where.states)
    yield from (where.queues, where.tasks, where.keys, where.schedules, where.actors)


def _instant(at: int | None) -> str | bool:
    return False if at is None else str(at)


async def next_due(
    link: Link, queues: Sequence[str], tasks: Sequence[str] | None, now: int | None
) -> int | None:
    """See `Engine.next_due`."""
    asked = [list(dict.fromkeys(queues)), False if tasks is None else list(dict.fromkeys(tasks))]
    answer = _decode_due(await link.run("next_due", asked, now, repeat=True))
    at = int(answer.now)
    waits = [] if answer.first is None else [_wait(answer.first, at)]
    for queue in answer.limited:
        least = limiting.wait(queue.settings, queue.running, queue.arrival, at)
        firsts = [] if queue.wake is None else [int(queue.wake) - at]
        if queue.first is not None:
            firsts.append(_wait(queue.first, at))
        if least is not None and firsts:
            waits.append(max(0, least, min(firsts)))
    return min(waits, default=None)


class _Limited(msgspec.Struct, array_like=True):
    """What is known of a limited queue; see next_due.lua."""

    settings: str
    running: int
    first: str | None
    arrival: str | None
    wake: str | None


class _Due(msgspec.Struct, array_like=True):
    now: str
    first: str | None
    limited: list[_Limited]


_decode_due = msgspec.msgpack.Decoder(_Due).decode


def _wait(first: str, now: int) -> int:
    """Microseconds until an instant; nothing: a job is ready."""
    return max(0, int(first) - now) if first else 0


async def stats(link: Link, queues: Sequence[str], now: int | None) -> list[QueueStats]:
    """See `Engine.stats`."""
    asked = sorted(set(queues)) or False
    found = []
    for queue, *counts, oldest in _decode_stats(await link.run("stats", asked, now, repeat=True)):
        numbers: list[Any] = [int(count) for count in counts]
        if queues or any(numbers):
            numbers.append(int(oldest) if oldest else None)
            found.append(QueueStats(queue, *numbers))
    return sorted(found, key=lambda one: one.queue)
