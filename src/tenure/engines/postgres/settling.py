"""What holders of leases write: beats and settlements. Each answers for itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from tenure.core.columns import to_column_values
from tenure.core.lease import Beat, Busy, Extended, Extension, Lost
from tenure.core.outcomes import Change, Settled, Settlement, Verdict
from tenure.core.states import State, check
from tenure.engines.postgres.arrays import Bigints, Blobs, Flags, Integers, Texts, sparse
from tenure.engines.postgres.steps import Ask, Effects, Steps

CHUNK = 1000
"""How many rows one statement locks."""


class Fence(NamedTuple):
    """What decides about a write that shows a token. `over`: the lease ran out."""

    token: int
    owner: str | None
    state: State
    cancel_requested: bool
    over: bool
    queue: str
    concurrency_key: str | None


def extend(out: Effects, beats: Sequence[Beat]) -> Steps[list[Extension]]:
    """See `Engine.extend`. `Busy` also for a row that is locked for a moment only."""
    answers: list[Extension | None] = [None] * len(beats)
    for wave in waves(beats):
        flags = yield from _prolong(out, [beats[place] for place in wave])
        missing = [place for place in wave if beats[place].id not in flags]
        fences = yield from _fences(out, [beats[place].id for place in missing])
        over = [job_id for job_id, fence in fences.items() if fence.over]
        locked = yield from _locked(over)
        for place in wave:
            beat = beats[place]
            if beat.id in flags:
                answers[place] = Extended(beat.seconds, flags[beat.id])
            else:
                answers[place] = _refused(beat, fences.get(beat.id), locked)
    return [answer for answer in answers if answer is not None]


def _prolong(out: Effects, beats: Sequence[Beat]) -> Steps[dict[str, bool]]:
    found = yield Ask(
        "extend",
        {
            "ids": Texts(beat.id for beat in beats),
            "tokens": Bigints(beat.token for beat in beats),
            "owners": Texts(beat.owner for beat in beats),
            "lengths": Bigints(round(beat.seconds * 1_000_000) for beat in beats),
            "progress": sparse(Texts, (_json("progress", beat.progress) for beat in beats)),
            "now": out.now,
        },
    )
    return dict(found)


def _refused(beat: Beat, fence: Fence | None, locked: set[str]) -> Extension:
    if fence is None:
        return Lost("gone")
    if (fence.token, fence.owner) != (beat.token, beat.owner):
        return Lost("taken")
    if fence.state is not State.RUNNING:
        return Lost("settled")
    if fence.over and beat.id not in locked:
        return Lost("lapsed")
    return Busy(fence.cancel_requested)


def _locked(ids: Sequence[str]) -> Steps[set[str]]:
    """Those of these jobs that somebody has locked: a holder's own transaction keeps the job."""
    if not ids:
        return set()
    found = yield Ask("unlocked", {"ids": Texts(ids)})
    return set(ids) - {row[0] for row in found}


def settle(out: Effects, settlements: Sequence[Settlement]) -> Steps[list[Settled]]:
    """See `Engine.settle`. `BUSY` also for a row that is locked for a moment only."""
    answers: list[Settled | None] = [None] * len(settlements)
    for wave in waves(settlements):
        left = list(wave)
        # Mostly nobody asked to cancel; those that somebody did are known by a second look.
        for asked in (False, True):
            applied = yield from _apply(out, [settlements[place] for place in left], asked=asked)
            for place in left:
                item = settlements[place]
                if item.id in applied:
                    change = item.if_cancel_requested if asked else item.next
                    answers[place] = Settled(item.id, Verdict.APPLIED, change.state, change.event)
            left = [place for place in left if answers[place] is None]
            fences = yield from _fences(out, [settlements[place].id for place in left])
            for place in left:
                fence = fences.get(settlements[place].id)
                answer = answers[place] = _verdict(settlements[place], fence)
                if answer.verdict is Verdict.ALREADY and fence and fence.concurrency_key:
                    # By a transaction of the caller, which cannot pass the slot on before it ends.
                    out.doubtful.add((fence.queue, fence.concurrency_key))
            left = [place for place in left if _flagged(settlements[place], fences)]
            if not left:
                break
    return [answer for answer in answers if answer is not None]


def _flagged(item: Settlement, fences: dict[str, Fence]) -> bool:
    fence = fences.get(item.id)
    return fence is not None and fence.cancel_requested and fence.state is State.RUNNING


def _apply(out: Effects, items: Sequence[Settlement], *, asked: bool) -> Steps[set[str]]:
    """Write the branches that belong to this value of the cancel flag; the ids of those written."""
    final: list[tuple[Settlement, Change]] = []
    pending: list[tuple[Settlement, Change]] = []
    for item in items:
        change = item.if_cancel_requested if asked else item.next
        check(State.RUNNING, change.event, change.state)
        (final if change.state.final else pending).append((item, change))
    applied: set[str] = set()
    if final:
        values = _arrays(final, asked) | {"states": Texts(c.state for _, c in final)}
        states = {item.id: change.state for item, change in final}
        for job_id, queue, key, limited in (yield Ask("settle_final", values | {"now": out.now})):
            out.changes.append((job_id, "", states[job_id], False))
            if limited:
                out.leave(queue, key)
            applied.add(job_id)
    if pending:
        values = _arrays(pending, asked) | {"delays": Bigints(c.delay for _, c in pending)}
        found = yield Ask("settle_pending", values | {"now": out.now})
        for job_id, queue, key, limited in found:
            out.changes.append((job_id, queue, State.PENDING, True))
            if limited:
                out.leave(queue, key)
            applied.add(job_id)
    return applied


def _arrays(items: Sequence[tuple[Settlement, Change]], asked: bool) -> dict[str, Any]:
    changes = [change for _, change in items]
    return {
        "ids": Texts(item.id for item, _ in items),
        "tokens": Bigints(item.token for item, _ in items),
        "owners": Texts(item.owner for item, _ in items),
        # None: either branch writes the same, so the flag does not matter.
        "flags": sparse(Flags, (None if _alike(item) else asked for item, _ in items)),
        "failures": Integers(change.failures for change in changes),
        "lapses": Integers(change.lapses for change in changes),
        "releases": Integers(change.releases for change in changes),
        "results": sparse(Blobs, (change.result for change in changes)),
        "error": sparse(Texts, (_json("error", change.error) for change in changes)),
        "errors": sparse(Texts, (_json("errors", change.errors) for change in changes)),
    }


def _alike(item: Settlement) -> bool:
    return item.next is item.if_cancel_requested or item.next == item.if_cancel_requested


def _json(name: str, value: Any) -> str | None:
    text: str | None = to_column_values({name: value})[name] if value else None
    return text


def _verdict(item: Settlement, fence: Fence | None) -> Settled:
    if fence is None:
        return Settled(item.id, Verdict.LOST)
    if (fence.token, fence.owner) != (item.token, item.owner):
        return Settled(item.id, Verdict.LOST, fence.state)
    if fence.state is not State.RUNNING:
        return Settled(item.id, Verdict.ALREADY, fence.state)
    return Settled(item.id, Verdict.BUSY, fence.state)


def _fences(out: Effects, ids: Sequence[str]) -> Steps[dict[str, Fence]]:
    if not ids:
        return {}
    found = yield Ask("fences", {"ids": Texts(ids), "now": out.now})
    return {
        row[0]: Fence(row[1], row[2], State(row[3]), row[4], bool(row[5]), row[6], row[7])
        for row in found
    }


def waves(items: Iterable[Any]) -> list[list[int]]:
    """Places of the items in groups of at most `CHUNK`, no id twice in a group, in order."""
    found: list[list[int]] = []
    last: dict[str, int] = {}
    for place, item in enumerate(items):
        wave = last.get(item.id, -1) + 1
        while wave < len(found) and len(found[wave]) >= CHUNK:
            wave += 1
        if wave == len(found):
            found.append([])
        found[wave].append(place)
        last[item.id] = wave
    return found
