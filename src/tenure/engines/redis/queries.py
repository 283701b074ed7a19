"""Questions about jobs. Nothing here changes anything."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec

from tenure.core.job import JobRow
from tenure.core.query import Filter, Page, QueueStats
from tenure.engines.redis.deciding import chunks
from tenure.engines.redis.link import Link
from tenure.engines.redis.rows import Packed, kept_states, to_row

_decode_rows = msgspec.msgpack.Decoder(list[Packed | None]).decode
_decode_page = msgspec.msgpack.Decoder(tuple[str | None, list[Packed]]).decode
_decode_stats = msgspec.msgpack.Decoder(list[list[Any]]).decode
_MIDDLE = 2**63
_READ = 200
"""Jobs that are read at once, each of which may have a megabyte."""


async def get(link: Link, ids: Sequence[str]) -> list[JobRow | None]:
    """See `Engine.get`."""
    found: list[JobRow | None] = []
    for part in chunks(ids, _READ):
        answer = _decode_rows(await link.run("rows", list(part), repeat=True))
        found += [None if row is None else to_row(row) for row in answer]
    return found


async def find(link: Link, where: Filter, page: Page) -> list[JobRow]:
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
        return sorted(fits, key=lambda row: row.id, reverse=True)[: page.limit]
    found: list[JobRow] = []
    before: str | None = page.before
    while True:
        limit = min(page.limit - len(found), _READ)
        before, rows_here = await _page(link, where, before, limit)
        found += rows_here
        if before is None or len(found) >= page.limit:
            return found


async def every(link: Link) -> AsyncIterator[list[JobRow]]:
    """All jobs, a part at a time."""
    before: str | None = None
    while True:
        before, rows = await _page(link, Filter(), before, _READ)
        yield rows
        if before is None:
            return


async def _page(
    link: Link, where: Filter, before: str | None, limit: int
) -> tuple[str | None, list[JobRow]]:
    asked = [
        False if before is None else before,
        limit,
        kept_states(where.states) or False,
        list(where.queues) or False,
        list(where.tasks) or False,
    ]
    following, rows = _decode_page(await link.run("find", asked, repeat=True))
    return following, [to_row(row) for row in rows]


async def next_due(
    link: Link, queues: Sequence[str], tasks: Sequence[str] | None, now: int | None
) -> int | None:
    """See `Engine.next_due`."""
    asked = [list(dict.fromkeys(queues)), False if tasks is None else list(dict.fromkeys(tasks))]
    at, first = await link.run("next_due", asked, now, repeat=True)
    if first is None:
        return None
    if not first:
        return 0
    return max(0, int.from_bytes(first, "big") - _MIDDLE - int(at))


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
