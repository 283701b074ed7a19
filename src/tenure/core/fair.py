"""Fair share: jobs with a `fair_key` take turns with those of other keys of their queue.

It is done by the rank alone, when a job becomes due, so claims cost what they always cost. A job
of a key that has others waiting ranks one step (an hour) behind the last of them, and never before
its own time. So of two keys with a backlog each gets every other place, whatever their length; a
key that comes anew stands behind at most one hour's worth of every other key's turns; and since a
rank never changes again, while new jobs rank ever later, nobody waits for ever: no job is passed by
one of the same priority that becomes due after the instant that its rank names.

A priority shifts ranks as always, one hour a unit. Keys take turns among jobs of one priority.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tenure.core.job import RANK_STEP, JobRow, rank_of

FairKey = tuple[str, str, int]
"""A queue, a fair key, a priority."""


def fair_key_of(row: JobRow) -> FairKey | None:
    """Who takes turns as this job does; None: it takes no turns."""
    return None if row.fair_key is None else (row.queue, row.fair_key, row.priority)


class Turns:
    """Ranks for jobs that become due, one after the other.

    `last` has the highest rank among jobs that are due and wait, by their key; left out: none.
    """

    def __init__(self, last: Mapping[FairKey, int]) -> None:
        self._last = dict(last)

    def rank(self, key: FairKey | None, due: int, priority: int) -> int:
        """The rank of a job that becomes due, having been due at `due`."""
        plain = rank_of(due, priority)
        if key is None:
            return plain
        last = self._last.get(key)
        found = plain if last is None else max(plain, last + RANK_STEP)
        self._last[key] = found if last is None else max(found, last)
        return found


def keys_of(rows: Iterable[JobRow]) -> set[FairKey]:
    """The keys of these jobs."""
    return {key for row in rows if (key := fair_key_of(row)) is not None}
