"""Ending and prolonging attempts: one script each, for any number of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tenure.core.columns import to_column_values
from tenure.core.durations import SECOND
from tenure.core.lease import Beat, Extended, Extension, Lost
from tenure.core.outcomes import Change, Settled, Settlement, Verdict
from tenure.core.states import State, check
from tenure.engines.redis.link import Link, encode
from tenure.engines.redis.rows import opaque

_decode_verdicts = msgspec.msgpack.Decoder(tuple[str, list[tuple[str, str | bool, int]]]).decode
_decode_texts = msgspec.msgpack.Decoder(list[str]).decode
_VERDICTS = {str(verdict): verdict for verdict in Verdict}
_STATES = {str(state): state for state in State}
_COUNTERS = ("failures", "lapses", "releases")


async def settle(link: Link, settlements: Sequence[Settlement], now: int | None) -> list[Settled]:
    """See `Engine.settle`."""
    items = [
        (
            item.id,
            str(item.token),
            item.owner,
            _branch(item.next),
            False if item.if_cancel_requested is item.next else _branch(item.if_cancel_requested),
        )
        for item in settlements
    ]
    _, verdicts = _decode_verdicts(await link.run("settle", items, now, repeat=True))
    return [_settled(item, *verdict) for item, verdict in zip(settlements, verdicts, strict=True)]


def _settled(item: Settlement, verdict: str, state: str | bool, branch: int) -> Settled:
    event = None
    if branch:
        event = (item.next if branch == 1 else item.if_cancel_requested).event
    shown = _STATES[state] if isinstance(state, str) else None
    return Settled(item.id, _VERDICTS[verdict], shown, event)


def _branch(change: Change) -> tuple[Any, ...]:
    check(State.RUNNING, change.event, change.state)
    fields: list[str] = []
    for name in _COUNTERS:
        value = getattr(change, name)
        if value:
            fields += (name, str(value))
    if change.error is not None:
        kept = to_column_values({"error": change.error, "errors": change.errors})
        fields += ("error", kept["error"], "errors", kept["errors"])
    result = False if change.result is None else opaque(encode(change.result))
    return str(change.state), str(change.delay), result, fields


async def extend(link: Link, beats: Sequence[Beat], now: int | None) -> list[Extension]:
    """See `Engine.extend`."""
    items = [
        (
            beat.id,
            str(beat.token),
            beat.owner,
            round(beat.seconds * SECOND),
            False
            if beat.progress is None
            else to_column_values({"progress": beat.progress})["progress"],
        )
        for beat in beats
    ]
    answers = _decode_texts(await link.run("extend", items, now, repeat=True))
    return [
        Extended(beat.seconds, answer == "stop") if answer in ("kept", "stop") else Lost(answer)
        for beat, answer in zip(beats, answers, strict=True)
    ]
