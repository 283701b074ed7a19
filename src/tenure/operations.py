"""What people do to many jobs at once: look for them, cancel, requeue and remove them.

An engine works on ids, some at a time: what a filter matches is read page by page, and the ids of
each page are passed on. Jobs that change in between are judged by the engine, as they are then.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from tenure.core import codec
from tenure.core.job import JobRow
from tenure.core.query import PAGE_MAX, CancelResult, Filter, Found, Page, RequeueResult
from tenure.core.states import FINAL, State
from tenure.engines.protocol import Engine, Prunable
from tenure.errors import InvalidArguments, PayloadError
from tenure.signatures import object_of
from tenure.tasks import Task

LIVING = (State.PENDING, State.RUNNING)
_SIMPLE = frozenset({"states", "tasks", "queues", "finished_to"})


async def found(engine: Engine, where: Filter, page: Page) -> list[JobRow]:
    """A full page, if there are so many: in as many steps as that takes."""
    rows: list[JobRow] = []
    before = page.before
    while True:
        part = await engine.find(where, Page(page.limit - len(rows), before))
        rows += part
        before = part.next
        if before is None or len(rows) >= page.limit:
            return rows


async def pages(engine: Engine, where: Filter, size: int = PAGE_MAX) -> AsyncIterator[Found]:
    """All pages, each one call; some may be empty."""
    for ids in _chunks(where.ids) if where.ids else [()]:
        part = msgspec.structs.replace(where, ids=tuple(ids))
        before = None
        while True:
            page = await engine.find(part, Page(size, before))
            yield page
            before = page.next
            if before is None:
                break


async def cancel(engine: Engine, ids: Sequence[str], *, force: bool) -> CancelResult:
    """Cancel these jobs, some at a time."""
    result = CancelResult()
    for part in _chunks(ids):
        result = result.and_then(await engine.cancel(part, force=force))
    return result


async def cancel_matching(
    engine: Engine, where: Filter, *, force: bool, dry_run: bool
) -> CancelResult:
    """Cancel what matches, or tell what that would do. No states given: whatever has not ended."""
    if not where.states and not where.ids:
        where = msgspec.structs.replace(where, states=LIVING)
    result = CancelResult(not_found=await _missing(engine, where))
    async for page in pages(engine, where):
        if dry_run:
            result = result.and_then(_would_cancel(page, force=force))
        elif page:
            ids = [row.id for row in page]
            result = result.and_then(await engine.cancel(ids, force=force))
    return result


def _would_cancel(rows: Sequence[JobRow], *, force: bool) -> CancelResult:
    asks = [row.id for row in rows if row.state is State.RUNNING and not force]
    ends = [row.id for row in rows if not row.state.final and row.id not in asks]
    over = [row.id for row in rows if row.state.final]
    return CancelResult(cancelled=tuple(ends), requested=tuple(asks), already_final=tuple(over))


async def requeue(
    engine: Engine, ids: Sequence[str], payload: bytes | None = None
) -> RequeueResult:
    """Requeue these jobs, some at a time."""
    result = RequeueResult()
    for part in _chunks(ids):
        result = result.and_then(await engine.requeue(part, payload=payload))
    return result


async def requeue_matching(engine: Engine, where: Filter, *, dry_run: bool) -> RequeueResult:
    """Requeue what matches, or tell what that would do. No states given: what failed."""
    if not where.states and not where.ids:
        where = msgspec.structs.replace(where, states=(State.FAILED,))
    result = RequeueResult(not_found=await _missing(engine, where))
    async for page in pages(engine, where):
        if dry_run:
            result = result.and_then(_would_requeue(page))
        elif page:
            result = result.and_then(await engine.requeue([row.id for row in page]))
    return result


def _would_requeue(rows: Sequence[JobRow]) -> RequeueResult:
    return RequeueResult(
        requeued=tuple(row.id for row in rows if row.state.final),
        not_final=tuple(row.id for row in rows if not row.state.final),
    )


async def _missing(engine: Engine, where: Filter) -> tuple[str, ...]:
    """Those of the ids that a filter names which no job has."""
    there: set[str] = set()
    if where.ids:
        async for page in pages(engine, Filter(ids=where.ids)):
            there.update(row.id for row in page)
    return tuple(job_id for job_id in dict.fromkeys(where.ids) if job_id not in there)


async def prune_matching(engine: Engine, where: Filter, before: int, *, dry_run: bool) -> int:
    """Remove what matches and ended before an instant, or count it."""
    states = FINAL.intersection(where.states) if where.states else FINAL
    if not states:
        return 0
    end = before if where.finished_to is None else min(before, where.finished_to)
    where = msgspec.structs.replace(where, states=tuple(sorted(states)), finished_to=end)
    count = 0
    if not dry_run and _is_simple(where):
        while True:
            removed = await engine.prune(Prunable.JOBS, end, where=where, limit=PAGE_MAX)
            count += removed
            if removed < PAGE_MAX:
                return count
    async for page in pages(engine, where):
        if dry_run:
            count += len(page)
        elif page:
            ids = Filter(ids=tuple(row.id for row in page))
            count += await engine.prune(Prunable.JOBS, end, where=ids, limit=PAGE_MAX)
    return count


def _is_simple(where: Filter) -> bool:
    """Whether an engine can remove what matches without being told the ids."""
    plain = msgspec.structs.asdict(Filter())
    return all(
        name in _SIMPLE or value == plain[name]
        for name, value in msgspec.structs.asdict(where).items()
    )


def edited(task: Task[..., Any] | None, name: str, arguments: Mapping[str, Any]) -> bytes:
    """The payload of these arguments, given by parameter name as a job shows them.

    They are checked against the function where it is known. Raises `InvalidArguments` or
    `PayloadError`, naming the argument.
    """
    if not isinstance(arguments, Mapping):
        raise InvalidArguments(f"arguments must be a mapping, not {type(arguments).__name__}")
    try:
        payload = object_of(arguments)
        if task is None:
            return payload
        args, kwargs = task.signature.decode(codec.decode(payload))
    except PayloadError as error:
        raise InvalidArguments(f"{name}: {error}") from error
    return task.signature.encode(tuple(args), kwargs)


def _chunks(given: Sequence[str]) -> Iterator[Sequence[str]]:
    ids = list(dict.fromkeys(given))
    for start in range(0, len(ids), PAGE_MAX):
        yield ids[start : start + PAGE_MAX]
