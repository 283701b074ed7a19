"""The schedules that are kept."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tenure.core import codec
from tenure.core.schedule import Schedule, ScheduleChange, Tick, accepts, advanced, saved

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Schedule).decode


class Schedules:
    """Schedules by name, as JSON text, so that no live object is shared with a caller."""

    def __init__(self) -> None:
        self._kept: dict[str, bytes] = {}
        self._revision = 0

    def get(self, name: str) -> Schedule | None:
        data = self._kept.get(name)
        return None if data is None else _decode(data)

    def all(self) -> list[Schedule]:
        return [_decode(self._kept[name]) for name in sorted(self._kept)]

    def save(self, changes: Sequence[ScheduleChange]) -> list[Schedule | None]:
        plain = [_plain(change) for change in changes]  # first: what is refused changes nothing
        return [self._save(change) for change in plain]

    def advance(self, tick: Tick) -> None:
        """Plan the next tick of a schedule that is kept."""
        self._kept[tick.name] = _encode(advanced(_decode(self._kept[tick.name]), tick))

    def _save(self, change: ScheduleChange) -> Schedule | None:
        kept = self.get(change.name)
        if not accepts(kept, change):
            return None
        new = saved(kept, change, self._revision + 1)
        if new is None:
            self._kept.pop(change.name, None)
            return None
        self._revision += 1
        self._kept[change.name] = _encode(new)
        return new


def _plain(change: ScheduleChange) -> ScheduleChange:
    """The change with a definition of plain JSON values."""
    if change.schedule is None:
        return change
    data = codec.encode(change.schedule.definition, "definition")
    plain = msgspec.structs.replace(change.schedule, definition=codec.decode(data))
    return msgspec.structs.replace(change, schedule=plain)
