"""Random histories: two engines that do the same must answer the same, and stay sound.

Needs hypothesis, which makes the histories, and makes one that fails as short as it can.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from tenure.core.durations import SECOND
from tenure.core.fleet import QueueChange, WorkerInfo
from tenure.core.identity import OnConflict
from tenure.core.job import JobRow, Progress
from tenure.core.lease import Beat
from tenure.core.limits import Limits
from tenure.core.outcomes import Outcome
from tenure.core.query import Filter
from tenure.core.rules import admit, decide
from tenure.core.schedule import Overlap, Schedule
from tenure.engines.protocol import Arm, Claim, Engine, Prunable
from tenure.testing.conformance.draws import (
    ACTIONS,
    ARMS,
    BACK,
    FLOWING,
    IDS,
    KEYED_WISH,
    LEASE,
    LIMITS,
    MANY,
    OUTCOMES,
    OWNER,
    POLICY,
    ROOM,
    TICKETS,
    WISH,
    action,
    some,
)
from tenure.testing.conformance.kit import REPLACE
from tenure.testing.conformance.ledger import Ledger
from tenure.testing.conformance.steps import (
    KEYS,
    QUEUES,
    SCHEDULES,
    TASKS,
    Raised,
    Step,
    Store,
    Wish,
    answer,
    append,
    cancel,
    claim_step,
    difference,
    fire,
    is_final,
    is_running,
    kinds,
    look,
    prune,
    remove,
    requeue,
    save,
)

SHOWN = 12


def compare(
    one: Callable[[], Engine],
    other: Callable[[], Engine],
    *,
    examples: int = 300,
    steps: int = 50,
    shrink: bool = True,
) -> Counter[str]:
    """Do the same random histories on two engines; demand the same answers.

    `one()` and `other()` give an unopened engine on a new and empty store each time. After every
    step all rows are compared, and checked against the table of transitions; time is turned by
    `now`. Returns how often each operation and each kind of answer occurred. Raises
    `AssertionError` for a history that fails, the shortest one that was found (unless `shrink` is
    False, which is quicker), and shows its last steps.

    Must not be called on a running event loop. What else can be said of a search (its seed, what
    it remembers) is hypothesis's profile.
    """
    tally: Counter[str] = Counter()
    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        phases=[phase for phase in settings().phases if shrink or phase is not Phase.shrink],
    )
    with asyncio.Runner() as runner:

        class Compared(History):
            def __init__(self) -> None:
                super().__init__(one(), other(), runner, tally)

        run_state_machine_as_test(Compared, settings=chosen)
    return tally


class History(RuleBasedStateMachine):
    """One history on two engines."""

    def __init__(
        self, one: Engine, other: Engine, runner: asyncio.Runner, tally: Counter[str]
    ) -> None:
        super().__init__()
        self._engines = (one, other)
        self._runner = runner
        self._tally = tally
        self._store = Store()
        self._ledger = Ledger()
        self._log: list[str] = []
        self._turn = 0
        for engine in self._engines:
            runner.run(engine.__aenter__())

    def teardown(self) -> None:
        for engine in self._engines:
            self._runner.run(engine.__aexit__(None, None, None))

    @action(4, wishes=st.lists(WISH, min_size=1, max_size=4))
    def insert(self, wishes: list[Wish]) -> None:
        self._insert(wishes)

    @action(3, wishes=st.lists(KEYED_WISH, min_size=1, max_size=3))
    def insert_keyed(self, wishes: list[Wish]) -> None:
        self._insert(wishes)

    @action(2, wishes=st.lists(FLOWING, min_size=2, max_size=4))
    def insert_flowing(self, wishes: list[Wish]) -> None:
        self._insert(wishes)

    @action(3, wish=WISH, back=BACK, policy=POLICY, stop=st.booleans())
    def insert_twin(self, wish: Wish, back: int, policy: OnConflict, stop: bool) -> None:
        row = self._store.holder(back)
        if row is None:
            return
        if stop:
            self._cancel([row.id], False)
        key = {"unique_key": row.unique_key, "unique_until": row.unique_until}
        more = {**wish.more, **key, "on_conflict": policy}
        self._insert([wish._replace(more=more, again=None)])

    def _insert(self, wishes: list[Wish]) -> None:
        now, jobs = self._store.now, [self._store.job(wish) for wish in wishes]
        text = f"insert {[(job.id, job.unique_key, job.on_conflict) for job in jobs]} at {now}"
        given = self._do(Step("insert", text, lambda engine: engine.insert(jobs, now=now)))
        if not isinstance(given, Raised):
            for job, inserted in zip(jobs, given, strict=True):
                replaced = not inserted.created and inserted.id != job.id
                self._tally["replaced"] += replaced and job.on_conflict == REPLACE

    @action(4, owner=OWNER, limit=MANY, lease=LEASE)
    def claim(self, owner: str, limit: int, lease: int) -> None:
        self._claim(Claim(owner=owner, limit=limit, lease=lease, queues=QUEUES))

    @action(
        2, owner=OWNER, limit=MANY, lease=LEASE, tasks=some(TASKS), queues=some(QUEUES), room=ROOM
    )
    def claim_lanes(
        self,
        owner: str,
        limit: int,
        lease: int,
        tasks: tuple[str, ...],
        queues: tuple[str, ...],
        room: dict[str, int],
    ) -> None:
        self._claim(
            Claim(owner=owner, limit=limit, lease=lease, queues=queues, tasks=tasks, room=room)
        )

    @action(2, owner=OWNER, limit=MANY, which=ARMS, ids=IDS, room=ROOM)
    def claim_named(
        self, owner: str, limit: int, which: frozenset[Arm], ids: list[int], room: dict[str, int]
    ) -> None:
        named = tuple(self._store.id_of(back) for back in ids) if ids[0] % 2 else ()
        self._claim(
            Claim(
                owner=owner,
                limit=limit,
                lease=SECOND,
                queues=QUEUES,
                ids=named,
                arms=which,
                room=room,
                held=tuple(self._store.held_by(owner)),
            )
        )

    @action(2, owner=OWNER, limit=MANY, lost=MANY)
    def claim_again(self, owner: str, limit: int, lost: int) -> None:
        held = self._store.held_by(owner)
        kept = tuple(held[: max(len(held) - lost, 0)])
        claim = Claim(owner=owner, limit=limit, lease=5 * SECOND, queues=QUEUES, held=kept)
        self._claim(claim)

    def _claim(self, claim: Claim) -> None:
        self._store.tickets += self._do(claim_step(claim, self._store.now), held=claim.held)

    @action(2, picks=TICKETS, seconds=st.sampled_from((30.0, 1.0, 0.5)), progress=st.booleans())
    def extend(
        self, picks: list[tuple[int, dict[str, Any]]], seconds: float, progress: bool
    ) -> None:
        report = Progress(0.5, 1.0, "half") if progress else None
        beats = [
            Beat(row.id, row.token, row.owner or "", seconds, report)
            for row in self._tickets(picks)
        ]
        now = self._store.now
        self._do(Step("extend", f"{beats} at {now}", lambda engine: engine.extend(beats, now=now)))

    @action(2, picks=TICKETS, outcome=OUTCOMES)
    def settle(self, picks: list[tuple[int, dict[str, Any]]], outcome: Outcome) -> None:
        self._settle(self._tickets(picks), outcome)

    @action(4, count=st.integers(1, 4), outcome=OUTCOMES)
    def settle_latest(self, count: int, outcome: Outcome) -> None:
        self._settle(self._store.tickets[-count:], outcome)

    def _settle(self, rows: list[JobRow], outcome: Outcome) -> None:
        now = self._store.now
        batch = [decide(row, admit(row) or outcome, now=now, roll=0.5) for row in rows]
        text = f"settle {[(s.id, s.token, s.owner, s.next.event) for s in batch]} at {now}"
        self._do(Step("settle", text, lambda engine: engine.settle(batch, now=now)))

    def _tickets(self, picks: list[tuple[int, dict[str, Any]]]) -> list[JobRow]:
        rows = [self._store.ticket(back, wrong) for back, wrong in picks]
        return [row for row in rows if row is not None]

    @action(2, limit=MANY, late=st.sampled_from((0, 0, 5 * SECOND, 30 * SECOND)))
    def sweep(self, limit: int, late: int) -> None:
        self._store.pass_time(late)
        now = self._store.now
        self._do(
            Step("sweep", f"sweep {limit} at {now}", lambda engine: engine.sweep(limit, now=now))
        )

    @action(2, backs=IDS, force=st.booleans())
    def cancel(self, backs: list[int], force: bool) -> None:
        self._cancel([self._store.id_of(back) for back in backs], force)

    @action(3, backs=IDS, force=st.sampled_from((False, False, True)))
    def cancel_running(self, backs: list[int], force: bool) -> None:
        self._cancel([self._store.aimed(back, is_running) for back in backs], force)

    def _cancel(self, ids: list[str], force: bool) -> None:
        self._do(cancel(ids, force, self._store.now))

    @action(3, backs=IDS, payload=st.sampled_from((None, None, b'{"edited":1}')))
    def requeue(self, backs: list[int], payload: bytes | None) -> None:
        now, ids = self._store.now, [self._store.aimed(back, is_final) for back in backs]
        self._do(requeue(ids, payload, now))

    @action(
        2,
        kind=st.sampled_from(Prunable),
        age=st.sampled_from((-1, 0, SECOND, 30 * SECOND)),
        where=st.sampled_from((None, Filter(queues=("a",)), Filter(tasks=("x", "y")))),
        limit=st.integers(1, 4),
    )
    def prune(self, kind: Prunable, age: int, where: Filter | None, limit: int) -> None:
        self._do(prune(kind, self._store.now - age, where, limit))

    @action(
        2,
        queue=st.sampled_from(("a", "a", "b")),
        paused=st.sampled_from((False, None, False, True)),
        limits=LIMITS,
    )
    def configure(self, queue: str, paused: bool | None, limits: Limits | None) -> None:
        given = QueueChange(queue, paused=paused, limits=limits)
        self._tally["paused"] += bool(paused)
        settings = self._do(Step("configure", str(given), lambda engine: engine.configure(given)))
        self._ledger.limited(settings)

    @action(
        3,
        name=st.sampled_from(SCHEDULES),
        overlap=st.sampled_from(Overlap),
        ahead=st.sampled_from((0, SECOND, -SECOND, SECOND, 0, None)),
        paused=st.sampled_from((False, False, False, False, True)),
        off=st.sampled_from((0, 0, 0, 1)),
    )
    def save_schedule(
        self, name: str, overlap: Overlap, ahead: int | None, paused: bool, off: int
    ) -> None:
        self._save(name, overlap, ahead, paused, off)

    def _save(self, name: str, overlap: Overlap, ahead: int | None, paused: bool, off: int) -> None:
        at = None if ahead is None else self._store.now + ahead
        given = Schedule(
            name=name, source="api", task="x", overlap=overlap, next_at=at, paused=paused
        )
        self._do(save(name, given, off))

    @action(1, name=st.sampled_from(SCHEDULES), off=st.sampled_from((0, 0, 1)))
    def remove_schedule(self, name: str, off: int) -> None:
        self._do(remove(name, off))

    @action(
        4,
        name=st.sampled_from(SCHEDULES),
        overlap=st.sampled_from((Overlap.SKIP, Overlap.CANCEL, Overlap.ALLOW)),
        wish=st.one_of(WISH, KEYED_WISH),
        passed=st.sampled_from((5 * SECOND, 0, 0, 60 * SECOND)),
        late=st.sampled_from((0, 0, 0, 0, 0, 1)),
        off=st.sampled_from((0, 0, 0, 0, 0, 1)),
        missed=st.sampled_from((None, None, None, 0, SECOND, -SECOND)),
    )
    def fire(
        self,
        name: str,
        overlap: Overlap,
        wish: Wish,
        passed: int,
        late: int,
        off: int,
        missed: int | None,
    ) -> None:
        kept = self._store.schedules.get(name)
        if kept is None or kept.next_at is None:
            self._save(name, overlap, 0, False, 0)
        else:
            self._store.pass_time(passed)
        job = self._store.job(wish._replace(again=None))
        self._do(fire(name, job, self._store.now, late, off, missed))

    @action(2, key=st.sampled_from((KEYS[1], KEYS[1], KEYS[0])), owner=st.one_of(st.none(), BACK))
    def release_identity(self, key: str, owner: int | None) -> None:
        holder = None if owner is None else self._store.id_of(owner)
        self._do(
            Step(
                "release_identity",
                f"release_identity {key} of {holder}",
                lambda engine: engine.release_identity(key, holder),
            )
        )

    @action(1, names=st.lists(st.sampled_from(("e", "f")), max_size=3))
    def append(self, names: list[str]) -> None:
        self._do(append(names, self._store.now))

    @action(1, owner=OWNER, ttl=st.sampled_from((0, SECOND, 3600 * SECOND)))
    def announce(self, owner: str, ttl: int) -> None:
        now = self._store.now
        worker = WorkerInfo(id=owner, queues=QUEUES, tasks=(), concurrency=2, started_at=now)
        self._do(
            Step(
                "leave" if ttl == 0 else "announce",
                f"announce {owner} for {ttl} at {now}",
                lambda engine: engine.announce(worker, ttl, now=now),
            )
        )

    @action(3, seconds=st.sampled_from((1, 5, 30, 3600)))
    def pass_time(self, seconds: int) -> None:
        self._store.pass_time(seconds * SECOND)

    @action(2, microseconds=st.sampled_from((1, SECOND, -1, -7 * SECOND)))
    def pass_moment(self, microseconds: int) -> None:
        self._store.pass_time(microseconds)

    @rule(chosen=st.sampled_from(range(len(ACTIONS))).flatmap(ACTIONS.__getitem__))
    def step(self, chosen: tuple[str, dict[str, Any]]) -> None:
        """One of the above; a single rule, so that each is as frequent as its weight says."""
        name, arguments = chosen
        getattr(self, name)(**arguments)

    def _do(self, step: Step, held: Sequence[str] | None = None) -> Any:
        """Do it on both engines; compare what they answer and what they hold then."""
        return self._runner.run(self._done(step, held))

    async def _done(self, step: Step, held: Sequence[str] | None) -> Any:
        self._turn += 1
        self._log.append(f"{self._turn}: {step.text}")
        try:
            given = await self._same(step)
            self._tally.update([step.name, *kinds(step, given)])
            if step.name == "claim":
                self._tally += self._ledger.claimed(given, held)
            ids = self._store.everything()
            rows = await self._same(Step("get", "", lambda engine: engine.get(ids)))
            self._store.rows = dict(zip(ids, rows, strict=True))
            self._tally += self._ledger.stands(self._store.rows)
            kept = await self._same(Step("schedules", "", lambda engine: engine.schedules()))
            self._store.schedules = {schedule.name: schedule for schedule in kept}
            await self._same(look(self._store, self._turn))
        except AssertionError as error:
            shown = "\n".join(self._log[-SHOWN:])
            raise AssertionError(f"step {self._turn}: {error}\n{shown}") from error
        return given

    async def _same(self, step: Step) -> Any:
        """The answer of both engines."""
        one, other = self._engines
        a, b = await answer(step, one), await answer(step, other)
        if a != b:
            raise AssertionError(
                f"{step.name} {step.text} differs\n{one.url}: {difference(a, b)}\n"
                f"{other.url}: {difference(b, a)}"
            )
        return a
