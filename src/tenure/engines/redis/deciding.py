"""Operations that `core` decides: read what the decision is made from, decide, then write it, if
what was read still stands; else begin again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from tenure.core.fair import FairKey
from tenure.core.identity import Holder, Reservation
from tenure.core.job import JobRow
from tenure.core.limits import Key, Stand, frees
from tenure.core.states import State
from tenure.engines.protocol import Topic
from tenure.engines.redis.link import Runs
from tenure.engines.redis.rows import Packed, to_kept, to_row
from tenure.engines.signals import signals_of
from tenure.errors import EngineUnavailable

T = TypeVar("T")

TURNS = 50
"""How often others may change what was read before a call gives up."""

EVERYBODY = 2
"""So many new jobs make all listeners of a queue look, not just one."""

_Row = Packed | None
_Answer = tuple[
    list[_Row],
    list[tuple[str, _Row, str | bool, _Row]],
    list[str | bool],
    str,
    list[list[Packed]],
    list[str | bool],
    list[str | bool],
    list[tuple[str, str, str, str]],
]
_decode = msgspec.msgpack.Decoder(tuple[str, str, _Answer]).decode


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What a decision needs to know; see `scripts/parts/look.lua`.

    `more`: also who has the keys of the jobs `ids`, and who takes turns with them. `lapsed`:
    instead of `ids`, the first so many jobs whose lease ran out.
    """

    ids: Sequence[str] = ()
    keys: Sequence[str] = ()
    ticks: Sequence[tuple[str, int]] = ()
    known: Sequence[str] = ()
    living: Sequence[str] = ()
    schedules: Sequence[str] = ()
    queues: Sequence[str] = ()
    turns: Sequence[FairKey] = ()
    more: bool = False
    lapsed: int | None = None

    def arguments(self) -> list[Any]:
        return [
            list(self.ids),
            list(self.keys),
            [tick_name(*tick) for tick in self.ticks],
            list(self.known),
            list(self.living),
            list(self.schedules),
            list(self.queues),
            [(queue, key, str(priority)) for queue, key, priority in self.turns],
            self.more,
            False if self.lapsed is None else self.lapsed,
        ]


class Seen:
    """The answer to a question, at the store's time `now`."""

    def __init__(self, question: Question, now: int, answer: _Answer) -> None:
        rows, holders, ticks, flags, living, schedules, settings, turns = answer
        self.now = now
        self.rows = [None if row is None else to_row(row) for row in rows]
        self.holders = {
            key: Holder(_row(twin) if not kept else _row(job), _reservation(key, kept))
            for key, twin, kept, job in holders
        }
        self.ticks = {
            tick: job
            for tick, job in zip(question.ticks, ticks, strict=True)
            if isinstance(job, str)
        }
        self.known = {i for i, flag in zip(question.known, flags, strict=True) if flag == "1"}
        self.living = [list(map(to_row, rows)) for rows in living]
        self.schedules = [text if isinstance(text, str) else None for text in schedules[:-1]]
        self.revision = int(schedules[-1] or 0) if schedules else 0
        self.settings = [text if isinstance(text, str) else None for text in settings]
        self.last = {(queue, key, int(pri)): int(rank) for queue, key, pri, rank in turns}


class Plan:
    """What is to be written, and told."""

    def __init__(self) -> None:
        self._rows: dict[str, JobRow] = {}
        self._hashes: list[tuple[str, str, Any]] = []
        self._changes: list[tuple[str, JobRow]] = []
        self._bereft: dict[str, None] = {}
        self._freed: Counter[Key] = Counter()
        self._left: Counter[str] = Counter()
        self._woken: list[str] = []
        self.writes = 0

    @property
    def empty(self) -> bool:
        return not self._rows and not self._hashes

    def put(self, row: JobRow) -> None:
        """Write a whole row."""
        self._rows[row.id] = row
        self._changes.append((row.id, row))
        self.writes += 1

    def change(self, row: JobRow, values: Mapping[str, Any]) -> JobRow:
        """Write a row with these values changed."""
        changed = msgspec.structs.replace(row, **values)
        self.put(changed)
        key = frees(_stand(row), _stand(changed))
        if key is not None:
            self._freed[key] += 1
        if row.state is State.RUNNING and changed.state is not State.RUNNING:
            self._left[row.queue] += 1
        return changed

    def mark(self, row: JobRow, values: Mapping[str, Any]) -> JobRow:
        """Write what leads to no other state, so that nobody but the holder is told."""
        changed = msgspec.structs.replace(row, **values)
        self._rows[row.id] = changed
        return changed

    def keep(self, name: str, field: str, value: str | None) -> None:
        """Write or remove a field of one of the store's hashes."""
        self._hashes.append((name, field, False if value is None else value))

    def reserve(self, kept: Reservation) -> None:
        """Take a key for ever."""
        self.keep("forever", kept.key, f"{kept.at}:{kept.job_id}")

    def bereave(self, job_id: str) -> None:
        """Tell the holder of a job that it is asked to stop, or lost it."""
        self._bereft[job_id] = None

    def wake(self, queue: str) -> None:
        """Tell whoever listens to a queue to look again."""
        self._woken.append(queue)

    def signals(self) -> tuple[dict[str, int], list[str], list[str]]:
        """How many jobs each queue got, and the ids of those that ended and were taken."""
        told = signals_of((i, row.queue, row.state, row.ready) for i, row in self._changes)
        done = [signal.key for signal in told if signal.topic is Topic.DONE]
        pending = (row.queue for _, row in self._changes if row.state is State.PENDING)
        woken = Counter(pending) + Counter(dict.fromkeys(self._woken, EVERYBODY))
        return dict(woken), done, list(self._bereft)

    def arguments(self) -> list[Any]:
        rows = [to_kept(row) for row in self._rows.values()]
        freed = [(queue, key, count) for (queue, key), count in self._freed.items()]
        return [rows, self._hashes, *self.signals(), freed, dict(self._left)]


async def decided(
    link: Runs,
    name: str,
    question: Question,
    decide: Callable[[Seen, Plan], T],
    now: int | None,
) -> T:
    """The answer of `decide`, once what it planned was written. It may be called several times.

    What it raises is raised, with nothing written.
    """
    asked = question.arguments()
    for _ in range(TURNS):
        at, digest, answer = _decode(await link.run("look", asked, now, repeat=True))
        plan = Plan()
        result = decide(Seen(question, int(at), answer), plan)
        if plan.empty:
            return result
        written = [asked, digest, *plan.arguments()]
        if await link.run("write", written, int(at)):
            return result
    raise EngineUnavailable(f"{name}: others kept changing the same jobs")


def tick_name(schedule: str, tick: int) -> str:
    """The field of the job of a tick."""
    return f"{tick}:{schedule}"


def chunks(items: Sequence[T], size: int = 1000) -> Iterable[Sequence[T]]:
    """Parts of at most so many items, in order."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _stand(row: JobRow) -> Stand:
    return Stand(row.state, row.ready, row.blocked, row.queue, row.concurrency_key)


def _row(packed: _Row) -> JobRow | None:
    return None if packed is None else to_row(packed)


def _reservation(key: str, kept: str | bool) -> Reservation | None:
    if not isinstance(kept, str):
        return None
    at, _, job_id = kept.partition(":")
    return Reservation(key, job_id, int(at))
