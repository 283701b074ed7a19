"""Ids kept in order, in lanes by queue and task: the index of this engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heappush

_SLACK = 64
"""Dead entries that a lane may hold before it is rebuilt, beside as many as it has living ones."""


class Lane:
    """Ids in the order `(place, id)`. Adding and taking cost O(log n), dropping O(1) on average.

    An id that was dropped or moved leaves a dead entry in the heap. It is skipped when it comes
    up, and the heap is rebuilt when the dead outnumber the living.
    """

    __slots__ = ("_heap", "_places")

    def __init__(self) -> None:
        self._heap: list[tuple[int, str]] = []
        self._places: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._places)

    def put(self, job_id: str, place: int) -> None:
        """Add an id, or move it."""
        self._places[job_id] = place
        heappush(self._heap, (place, job_id))
        self._tidy()

    def drop(self, job_id: str) -> None:
        """Forget an id; nothing happens if it is not here."""
        if self._places.pop(job_id, None) is not None:
            self._tidy()

    def place(self, job_id: str) -> int | None:
        return self._places.get(job_id)

    def entries(self) -> Iterator[tuple[int, str]]:
        """All places and ids, in no order."""
        return ((place, job_id) for job_id, place in self._places.items())

    def first(self) -> tuple[int, str] | None:
        """The first place and id, which stay."""
        heap, places = self._heap, self._places
        while heap:
            place, job_id = heap[0]
            if places.get(job_id) == place:
                return heap[0]
            heappop(heap)
        return None

    def _tidy(self) -> None:
        if len(self._heap) > 2 * len(self._places) + _SLACK:
            self._heap = [(place, job_id) for job_id, place in self._places.items()]
            heapify(self._heap)


class Lanes:
    """Lanes by queue and task; a lane exists while it holds an id."""

    __slots__ = ("_queues",)

    def __init__(self) -> None:
        self._queues: dict[str, dict[str, Lane]] = {}

    def put(self, queue: str, task: str, job_id: str, place: int) -> None:
        """Add an id to a lane, or move it within that lane."""
        self._queues.setdefault(queue, {}).setdefault(task, Lane()).put(job_id, place)

    def drop(self, queue: str, task: str, job_id: str) -> None:
        """Forget an id; nothing happens if the lane does not hold it."""
        tasks = self._queues.get(queue, {})
        lane = tasks.get(task)
        if lane is None:
            return
        lane.drop(job_id)
        if not lane:
            del tasks[task]
            if not tasks:
                del self._queues[queue]

    def place(self, queue: str, task: str, job_id: str) -> int | None:
        """Where an id stands in a lane; None if it is not there."""
        lane = self._queues.get(queue, {}).get(task)
        return None if lane is None else lane.place(job_id)

    def first(self, queues: Iterable[str] | None, tasks: Iterable[str] | None) -> int | None:
        """The lowest place in these lanes (None: in all)."""
        firsts = (lane.first() for _, lane in self._chosen(queues, tasks))
        return min((entry[0] for entry in firsts if entry), default=None)

    def take(
        self,
        queues: Iterable[str] | None,
        tasks: Iterable[str] | None,
        limit: int,
        *,
        until: int | None = None,
        fits: Callable[[str], bool] = lambda _: True,
        room: dict[str, int] | None = None,
        closed: Callable[[], bool] = lambda: False,
    ) -> list[str]:
        """Remove and return up to `limit` ids in order from these lanes (None: all).

        Only ids with places up to `until` are taken; those that do not fit stay. `room` says how
        many a queue may give, if it names it, and is lowered by what it gave. It ends early once
        `closed` says so. The cost grows with the number of lanes and with what does not fit, not
        with what the lanes hold. The caller says by `put` or `drop` where each id is now.
        """
        rooms = {} if room is None else room
        heads: list[_Head] = []
        for queue, lane in self._chosen(queues, tasks):
            _offer(heads, queue, lane, until)
        taken: list[str] = []
        passed: list[_Head] = []
        while heads and len(taken) < limit and not closed():
            head = heappop(heads)
            _, job_id, queue, lane = head
            if rooms.get(queue, 1) <= 0:
                continue
            lane.drop(job_id)
            if fits(job_id):
                taken.append(job_id)
                if queue in rooms:
                    rooms[queue] -= 1
            else:
                passed.append(head)
            _offer(heads, queue, lane, until)
        for place, job_id, _, lane in passed:
            lane.put(job_id, place)
        return taken

    def until(self, queues: Iterable[str], until: int) -> list[str]:
        """The ids in order with places up to `until`, which stay."""
        found = [
            (place, job_id)
            for _, lane in self._chosen(queues, None)
            for place, job_id in lane.entries()
            if place <= until
        ]
        return [job_id for _, job_id in sorted(found)]

    def names(self, queue: str) -> list[str]:
        """The tasks of a queue that hold ids, sorted."""
        return sorted(self._queues.get(queue, {}))

    def _chosen(
        self, queues: Iterable[str] | None, tasks: Iterable[str] | None
    ) -> Iterator[tuple[str, Lane]]:
        for queue in self._queues if queues is None else dict.fromkeys(queues):
            lanes = self._queues.get(queue, {})
            names = lanes if tasks is None else dict.fromkeys(tasks)
            yield from ((queue, lanes[task]) for task in names if task in lanes)


_Head = tuple[int, str, str, Lane]


def _offer(heads: list[_Head], queue: str, lane: Lane, until: int | None) -> None:
    """Add the first of `lane`, if it is not past `until`, to the heap of heads."""
    first = lane.first()
    if first is not None and (until is None or first[0] <= until):
        heappush(heads, (*first, queue, lane))
