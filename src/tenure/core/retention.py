"""How long what ended is kept."""

from __future__ import annotations

import msgspec

from tenure.core.durations import HOUR, SECOND, Seconds, micros
from tenure.core.states import FINAL, State

_DAY = 24 * HOUR // SECOND
_LONGEST = 100 * 366 * 86_400.0


class Retention(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long what ended is kept, counted from its end, in seconds (1 or more).

    `completed`: jobs that completed (7 days). `others`: those that failed, were cancelled or
    expired (30 days). `events`: history (7 days). None keeps for ever. Reservations of unique keys
    outlive their jobs. Raises `ConfigurationError`.
    """

    completed: Seconds | None = 7 * _DAY
    others: Seconds | None = 30 * _DAY
    events: Seconds | None = 7 * _DAY

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is not None:
                micros(value, f"retention: {name}", minimum=1, maximum=_LONGEST)

    def of_jobs(self, now: int) -> list[tuple[tuple[State, ...], int]]:
        """Which final states are kept since when, at the store's time `now`; not those for ever."""
        others = tuple(state for state in State if state in FINAL and state is not State.COMPLETED)
        kinds = (((State.COMPLETED,), self.completed), (others, self.others))
        return [(states, _since(age, now)) for states, age in kinds if age is not None]

    def of_events(self, now: int) -> int | None:
        """Since when events are kept; None: for ever."""
        return None if self.events is None else _since(self.events, now)


def _since(age: Seconds, now: int) -> int:
    return now - micros(age, "retention")
