"""What only the engine in memory promises, and the index under it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from threading import Lock

import pytest

from tenure.core.durations import HOUR, SECOND
from tenure.core.event import EventFilter
from tenure.core.fleet import Flaw, QueueChange, WorkerInfo
from tenure.core.limits import Limits, Rate
from tenure.core.query import Filter, Page
from tenure.engines.memory import MemoryEngine
from tenure.engines.memory.lanes import Lane, Lanes
from tenure.engines.memory.store import MemoryStore
from tenure.engines.protocol import ALL_FACETS, Facet, Prunable
from tenure.errors import EngineUnavailable
from tenure.testing.conformance.kit import NOW, job_id, new, put, stored, take

WORKER = WorkerInfo(id="w", queues=(), tasks=(), concurrency=1)


class FixedClock:
    """Stands still."""

    def time_us(self) -> int:
        return NOW

    def monotonic(self) -> float:
        return 0.0


class CountingLock:
    """A real lock that counts how often it was taken."""

    def __init__(self) -> None:
        self._lock = Lock()
        self.taken = 0

    def __enter__(self) -> None:
        assert self._lock.acquire(timeout=10)
        self.taken += 1

    def __exit__(self, *exc: object) -> None:
        self._lock.release()


OPERATIONS: dict[str, Callable[[MemoryEngine], Awaitable[object]]] = {
    "insert": lambda engine: engine.insert([new(1)], now=NOW),
    "claim": lambda engine: take(engine, 10),
    "extend": lambda engine: engine.extend([], now=NOW),
    "settle": lambda engine: engine.settle([], now=NOW),
    "sweep": lambda engine: engine.sweep(10, now=NOW),
    "get": lambda engine: engine.get([]),
    "next_due": lambda engine: engine.next_due(["default"], now=NOW),
    "cancel": lambda engine: engine.cancel([], now=NOW),
    "requeue": lambda engine: engine.requeue([], now=NOW),
    "find": lambda engine: engine.find(Filter(), Page()),
    "stats": lambda engine: engine.stats(now=NOW),
    "prune": lambda engine: engine.prune(Prunable.JOBS, NOW),
    "configure": lambda engine: engine.configure(QueueChange("a", paused=False)),
    "inspect": lambda engine: engine.inspect(now=NOW),
    "announce": lambda engine: engine.announce(WORKER, 1, now=NOW),
    "workers": lambda engine: engine.workers(now=NOW),
    "save_schedules": lambda engine: engine.save_schedules([]),
    "schedules": lambda engine: engine.schedules(),
    "fire": lambda engine: engine.fire([], now=NOW),
    "identity": lambda engine: engine.identity("k"),
    "release_identity": lambda engine: engine.release_identity("k"),
    "append": lambda engine: engine.append([], now=NOW),
    "read": lambda engine: engine.read(EventFilter()),
}
FLAWS: dict[Flaw, dict[str, object]] = {
    Flaw.NO_STATE: {"state": "lost"},
    Flaw.NO_HOLDER: {"owner": None},
    Flaw.NO_END: {"state": "failed", "lease_until": None},
    Flaw.TOO_EARLY: {"state": "pending", "ready": 1, "available_at": NOW + HOUR},
}


KEYS = {"concurrency_key": "c", "rate_key": "r", "fair_key": "f"}
LIMITS = Limits(key_concurrency=1, key_rate=Rate(5, SECOND, 5))


@pytest.mark.anyio
class TestMemoryEngine:
    @pytest.mark.parametrize("name", OPERATIONS)
    async def test_an_operation_holds_the_lock_once_from_start_to_end(
        self, name: str, monkeypatch: pytest.MonkeyPatch
    ):
        store, lock = MemoryStore(1000), CountingLock()
        monkeypatch.setattr(store, "_lock", lock)
        async with MemoryEngine(store=store) as engine:
            await OPERATIONS[name](engine)
        assert lock.taken == 1

    async def test_it_must_be_open(self):
        engine = MemoryEngine()
        with pytest.raises(EngineUnavailable, match="not open"):
            await engine.get([])
        async with engine:
            assert await engine.get([]) == []
        with pytest.raises(EngineUnavailable):
            await engine.get([])

    async def test_jobs_outlive_a_handle(self):
        engine = MemoryEngine()
        async with engine.side() as side:
            (row,) = await put(side, new(1))
        async with engine:
            assert await stored(engine, 1) == row

    async def test_engines_are_apart(self):
        async with MemoryEngine() as one, MemoryEngine() as two:
            await put(one, new(1))
            assert await take(two) == []

    async def test_its_clock_is_the_given_one(self):
        async with MemoryEngine(FixedClock()) as engine, engine.side() as side:
            await side.insert([new(1)])
            assert (await stored(engine, 1)).created_at == NOW

    async def test_a_busy_caller_does_not_starve_others(self):
        async with MemoryEngine() as engine:
            ran = asyncio.Event()
            other = asyncio.create_task(_set(ran))
            for _ in range(3):
                await engine.get([])
            assert ran.is_set()
            await other

    @pytest.mark.parametrize("flaw", FLAWS)
    async def test_a_job_in_an_impossible_condition_is_found(self, flaw: Flaw):
        store = MemoryStore(1000)
        async with MemoryEngine(store=store) as engine:
            await put(engine, *(new(n) for n in range(8)))
            await take(engine, 7)
            for n in range(6):
                store._rows[job_id(n)].update(FLAWS[flaw])
            (finding,) = (await engine.inspect(now=NOW)).findings
        assert (finding.code, finding.problem) == (flaw, True)
        shown = ", ".join(job_id(n) for n in range(5))
        assert finding.text.startswith("6 jobs ")
        assert finding.text.endswith(f": {shown}, ...")
        assert finding.remedy

    async def test_nothing_stays_in_an_index(self):
        store = MemoryStore(1000)
        async with MemoryEngine(store=store) as engine:
            jobs = [
                new(n, unique_key=f"k{n}", unique_until="finished", schedule="s", tick=n, **KEYS)
                for n in range(20)
            ]
            await engine.configure(QueueChange("default", limits=LIMITS))
            await engine.insert(jobs, now=NOW)
            await take(engine, 10)
            assert len(store._rows.blocked.names("concurrency default c")) == 1
            await engine.cancel([job.id for job in jobs], force=True, now=NOW)
            await engine.prune(Prunable.JOBS, NOW + 1)
        left = {name: value for name, value in vars(store._rows).items() if value}
        lanes = {name: value._queues for name, value in left.items() if isinstance(value, Lanes)}
        assert not any(lanes.values())
        assert left.keys() == lanes.keys()

    async def test_it_tells_what_it_is(self):
        engine = MemoryEngine()
        assert (engine.url, await engine.migrate()) == ("memory://", 1)
        traits = engine.traits
        assert (traits.name, traits.durable, traits.shared, traits.push) == (
            "memory",
            False,
            False,
            True,
        )
        assert ALL_FACETS - traits.facets == {Facet.TRANSACTIONS}


async def _set(event: asyncio.Event) -> None:
    event.set()


def test_a_lane_forgets_what_was_dropped_or_moved():
    lane = Lane()
    for n in range(10_000):
        lane.put(str(n), n)
        lane.put("moved", n)
        lane.drop(str(n))
    assert len(lane) == 1
    assert lane.first() == (9_999, "moved")
    assert len(lane._heap) < 100


@pytest.mark.parametrize("seed", range(20))
def test_lanes_are_as_a_sorted_list(seed: int):
    rolls = random.Random(seed)
    lanes, model = Lanes(), dict[tuple[str, str, str], int]()
    for n in range(600):
        key = (rolls.choice("ab"), rolls.choice("xyz"), f"{rolls.randrange(60):02d}")
        key = (*key[:2], key[2] + "".join(key[:2]))
        match rolls.randrange(4):
            case 0 | 1:
                model[key] = rolls.randrange(9)
                lanes.put(*key, model[key])
            case 2:
                lanes.drop(*key)
                model.pop(key, None)
            case 3:
                queues = rolls.choice([None, "a", "ba"])
                tasks = rolls.choice([None, "x", "zy"])
                until, limit = rolls.choice([None, 4]), rolls.randrange(5)
                found = sorted(
                    (place, key)
                    for key, place in model.items()
                    if (queues is None or key[0] in queues) and (tasks is None or key[1] in tasks)
                )
                assert lanes.first(queues, tasks) == (found[0][0] if found else None)
                fitting = sorted(
                    (place, key[2], key)
                    for place, key in found
                    if (until is None or place <= until) and key[2][0] != "3"
                )
                taken = lanes.take(
                    queues, tasks, limit, until=until, fits=lambda job_id: job_id[0] != "3"
                )
                assert taken == [job_id for _, job_id, _ in fitting[:limit]], n
                for _, _, key in fitting[:limit]:
                    del model[key]
        assert lanes.place(*key) == model.get(key)


def test_taking_looks_at_no_more_than_it_takes():
    lanes, looked = Lanes(), list[str]()

    def fits(job_id: str) -> bool:
        looked.append(job_id)
        return True

    for n in range(10_000):
        lanes.put("q", f"t{n % 3}", f"{n:05d}", n)
    lanes.take(["q"], ["t0", "t1"], 5, fits=fits)
    assert looked == ["00000", "00001", "00003", "00004", "00006"]


def test_an_empty_lane_is_gone():
    lanes = Lanes()
    lanes.put("q", "t", "1", 1)
    lanes.drop("q", "t", "1")
    lanes.drop("q", "t", "1")
    assert lanes._queues == {}
