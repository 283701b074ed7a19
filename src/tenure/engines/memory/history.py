"""The events that are kept."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import msgspec

from tenure.core import codec
from tenure.core.event import EventFilter, NewEvent, StoredEvent
from tenure.errors import ConfigurationError

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(StoredEvent).decode


class History:
    """Events in the order in which they were kept. A cursor is the number of an event."""

    def __init__(self) -> None:
        self._events: dict[int, bytes] = {}
        self._last = 0

    def append(self, events: Sequence[NewEvent], now: int) -> None:
        encoded = []
        for number, event in enumerate(events, self._last + 1):
            facts = codec.decode(codec.encode(event.facts, "facts"))
            stored = StoredEvent(
                cursor=str(number),
                at=now,
                name=event.name,
                job_id=event.job_id,
                task=event.task,
                queue=event.queue,
                facts=facts,
            )
            encoded.append((number, _encode(stored)))
        self._events.update(encoded)
        self._last += len(encoded)

    def read(self, where: EventFilter, after: str | None, limit: int) -> list[StoredEvent]:
        start = 0 if after is None else _number(after)
        later = (_decode(data) for number, data in self._events.items() if number > start)
        return list(islice(filter(where.matches, later), limit))

    def prune(self, before: int, limit: int) -> int:
        first = islice(self._events.items(), limit)
        gone = [number for number, data in first if _decode(data).at < before]
        for number in gone:
            del self._events[number]
        return len(gone)


def _number(cursor: str) -> int:
    if not (cursor.isascii() and cursor.isdigit()):
        raise ConfigurationError(f"{cursor!r} is no cursor of this store")
    return int(cursor)
