"""Random histories: two engines that do the same must answer the same, and stay sound."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from tenure.core.durations import SECOND
from tenure.core.job import PRIORITY_MAX, PRIORITY_MIN, JobRow, NewJob, Progress
from tenure.core.lease import Beat, Lost
from tenure.core.outcomes import (
    Cancelled,
    Completed,
    Errored,
    Outcome,
    Released,
    ReleaseReason,
    Settlement,
    Snoozed,
)
from tenure.core.query import CancelResult, Filter, Page, RequeueResult
from tenure.core.retry import RetryPolicy
from tenure.core.rules import admit, decide
from tenure.core.states import State
from tenure.engines.protocol import ALL_ARMS, Arm, Claim, Engine
from tenure.testing.conformance.kit import NOW, boom, job_id
from tenure.testing.conformance.ledger import Ledger

QUEUES, TASKS, OWNERS = ("a", "b"), ("x", "y", "z"), ("host:1:a", "host:2:b", "host:3:c")
SHOWN = 12


class Step(NamedTuple):
    """One operation, to be done on each engine. `text` is what a failure shows of it."""

    name: str
    text: str
    call: Callable[[Engine], Awaitable[Any]]


async def compare(engine_a: Engine, engine_b: Engine, seed: int, steps: int) -> Counter[str]:
    """Do the same random `steps` on two engines, opened on empty stores; demand the same answers.

    After every step all rows are compared and checked against the table of transitions. The same
    seed gives the same history; time is turned by `now`. Returns how often each operation and
    each kind of answer occurred. Raises `AssertionError`, which shows the last steps.
    """
    history, ledger, tally = _History(seed), Ledger(), Counter[str]()
    log: list[str] = []
    for number in range(steps):
        step = history.step()
        log.append(f"{number}: {step.text}")
        try:
            answer = await _same(step, engine_a, engine_b)
            if step.name == "claim":
                ledger.claimed(answer)
                history.tickets += answer
            for look in history.looks():
                rows = await _same(look, engine_a, engine_b)
                if look.name == "get":
                    ledger.stands(row for row in rows if row is not None)
        except AssertionError as error:
            shown = "\n".join(log[-SHOWN:])
            raise AssertionError(f"seed {seed}, step {number}: {error}\n{shown}") from error
        tally.update([step.name, *_kinds(answer)])
    return tally


async def _same(step: Step, engine_a: Engine, engine_b: Engine) -> Any:
    """The answer of both engines."""
    a, b = await step.call(engine_a), await step.call(engine_b)
    if a != b:
        raise AssertionError(
            f"{step.name} differs\n{engine_a.url}: {_difference(a, b)}\n"
            f"{engine_b.url}: {_difference(b, a)}"
        )
    return a


def _difference(mine: Any, other: Any) -> str:
    """What of an answer is not in the other one; rows by their differing columns."""
    if not isinstance(mine, list) or not isinstance(other, list) or len(mine) != len(other):
        return repr(mine)
    parts = []
    for one, two in zip(mine, other, strict=True):
        if one == two:
            continue
        if isinstance(one, JobRow) and isinstance(two, JobRow):
            names = [n for n in JobRow.__struct_fields__ if getattr(one, n) != getattr(two, n)]
            parts.append(f"{one.id}: { ({n: getattr(one, n) for n in names}) }")
        else:
            parts.append(repr(one))
    return "; ".join(parts)


def _kinds(answer: Any) -> list[str]:
    """The kinds of answer in it, for the tally."""
    if isinstance(answer, CancelResult | RequeueResult):
        names = answer.__struct_fields__
        return [name for name in names for _ in getattr(answer, name)]
    kinds = []
    for item in answer or ():
        if isinstance(item, JobRow):
            kinds.append("lapsed arm" if item.lapses and item.claims > 1 else "due arm")
        elif isinstance(item, Lost):
            kinds.append(item.reason)
        else:
            kinds.append(str(getattr(item, "verdict", type(item).__name__)))
            kinds.extend(f"to {state}" for state in [getattr(item, "state", None)] if state)
    return kinds


class _History:
    """Makes steps that often hit: known ids, held tickets, times around deadlines."""

    def __init__(self, seed: int) -> None:
        self.tickets: list[JobRow] = []
        self._random = random.Random(seed)
        self._now = self._latest = NOW
        self._count = 0
        self._makers = {
            self._insert: 4,
            self._claim: 6,
            self._extend: 3,
            self._settle: 6,
            self._sweep: 1,
            self._cancel: 2,
            self._requeue: 2,
        }

    def step(self) -> Step:
        """The next operation, at a time that mostly went on."""
        self._turn()
        (make,) = self._random.choices(list(self._makers), list(self._makers.values()))
        return make()

    def looks(self) -> list[Step]:
        """What is read after every step: all rows, and one question of each other kind."""
        now, pick = self._now, self._random
        everything = [job_id(n) for n in range(self._count)]
        queues, tasks = self._some(QUEUES), pick.choice([None, self._some(TASKS)])
        where = Filter(
            states=self._some(tuple(State)) if pick.random() < 0.5 else (),
            tasks=self._some(TASKS) if pick.random() < 0.5 else (),
            queues=self._some(QUEUES) if pick.random() < 0.3 else (),
        )
        page = Page(pick.randint(1, 5), pick.choice([None, job_id(pick.randint(0, self._count))]))
        looks = [
            Step("get", "", lambda engine: engine.get(everything)),
            Step("find", "", lambda engine: engine.find(where, page)),
            Step("stats", "", lambda engine: engine.stats(now=now)),
        ]
        if now == self._latest:  # when a ready job is due is no question for a clock gone back
            due = Step("next_due", "", lambda engine: engine.next_due(queues, tasks, now=now))
            looks.append(due)
        return looks

    def _turn(self) -> None:
        roll = self._random.random()
        if roll < 0.03:
            self._now -= self._random.randint(1, 20 * SECOND)
        elif roll < 0.85:
            self._now += self._random.choice((0, 1, SECOND, 2 * SECOND, 5 * SECOND))
        else:
            self._now += self._random.choice((30 * SECOND, 3600 * SECOND))
        self._latest = max(self._latest, self._now)

    def _insert(self) -> Step:
        now, jobs = self._now, [self._job() for _ in range(self._random.randint(1, 4))]
        text = f"insert {[job.id for job in jobs]} at {now}"
        return Step("insert", text, lambda engine: engine.insert(jobs, now=now))

    def _job(self) -> NewJob:
        pick = self._random
        if self._count and pick.random() < 0.1:
            number = pick.randrange(self._count)
        else:
            number = self._count
            self._count += 1
        return NewJob(
            id=job_id(number),
            task=pick.choice(TASKS),
            queue=pick.choice(QUEUES),
            priority=pick.choice((0, 0, 0, 1, -1, 3, PRIORITY_MIN, PRIORITY_MAX)),
            payload=pick.randbytes(4),
            delay=pick.choice((0, 0, 0, 1, SECOND, 10 * SECOND)),
            expires_in=pick.choice((None, None, None, SECOND, 5 * SECOND, 60 * SECOND)),
            max_attempts=pick.randint(1, 3),
            max_lapses=pick.randint(0, 3),
            max_interruptions=pick.randint(0, 2),
            retry=pick.choice((None, RetryPolicy(base=0.5, factor=2.0, cap=4.0))),
        )

    def _claim(self) -> Step:
        pick, now = self._random, self._now
        arms = ALL_ARMS if pick.random() < 0.6 else frozenset(self._some(tuple(Arm)))
        claim = Claim(
            owner=pick.choice(OWNERS),
            limit=pick.randint(0, 4),
            lease=pick.choice((SECOND, 5 * SECOND, 30 * SECOND)),
            queues=self._some(QUEUES),
            tasks=pick.choice((None, self._some(TASKS))),
            ids=self._ids(6) if pick.random() < 0.2 else (),
            arms=arms,
        )
        return Step("claim", f"{claim} at {now}", lambda engine: engine.claim(claim, now=now))

    def _extend(self) -> Step:
        now, pick = self._now, self._random
        beats = []
        for row in self._holders():
            progress = Progress(pick.random()) if pick.random() < 0.3 else None
            seconds = pick.choice((0.5, 1.0, 30.0))
            beats.append(Beat(row.id, row.token, row.owner or "", seconds, progress))
        return Step("extend", f"{beats} at {now}", lambda engine: engine.extend(beats, now=now))

    def _settle(self) -> Step:
        now = self._now
        batch = [self._settlement(row) for row in self._holders()]
        text = f"settle {[(s.id, s.token, s.owner, s.next.event) for s in batch]} at {now}"
        return Step("settle", text, lambda engine: engine.settle(batch, now=now))

    def _settlement(self, row: JobRow) -> Settlement:
        outcome = admit(row)
        if outcome is None or self._random.random() < 0.2:
            outcome = self._outcome()
        late = self._random.choice((0, 1, SECOND))
        return decide(row, outcome, now=self._now - late, roll=self._random.random())

    def _outcome(self) -> Outcome:
        pick = self._random
        error = boom(f"error {pick.randint(0, 99)}", at=self._now)
        return pick.choice(
            (
                Completed(pick.randbytes(3)),
                Completed(),
                Errored(error),
                Errored(error, after=pick.choice((0, SECOND))),
                Errored(error, retryable=False),
                Snoozed(pick.choice((0, SECOND, 50 * SECOND))),
                Released(pick.choice(tuple(ReleaseReason))),
                Cancelled(pick.choice((None, error))),
            )
        )

    def _holders(self) -> Sequence[JobRow]:
        """Rows as they were claimed: mostly of late, some long lost, some that never were."""
        pick = self._random
        recent = self.tickets[-6:] if pick.random() < 0.8 else self.tickets
        rows = [pick.choice(recent) for _ in range(pick.randint(1, 4)) if recent]
        return [row if pick.random() < 0.9 else self._forged(row) for row in rows]

    def _forged(self, row: JobRow) -> JobRow:
        wrong: dict[str, Any] = self._random.choice(
            ({"token": row.token + 1}, {"owner": "host:9:z"}, {"id": job_id(999_999)})
        )
        return msgspec.structs.replace(row, **wrong)

    def _sweep(self) -> Step:
        now, limit = self._now, self._random.randint(0, 4)
        return Step("sweep", f"sweep {limit} at {now}", lambda engine: engine.sweep(limit, now=now))

    def _cancel(self) -> Step:
        now, ids, force = self._now, self._ids(3), self._random.random() < 0.3
        name = "force" if force else "cancel"
        return Step(
            name, f"{name} {ids} at {now}", lambda engine: engine.cancel(ids, force=force, now=now)
        )

    def _requeue(self) -> Step:
        now, ids = self._now, self._ids(4)
        return Step(
            "requeue", f"requeue {ids} at {now}", lambda engine: engine.requeue(ids, now=now)
        )

    def _ids(self, most: int) -> tuple[str, ...]:
        """Ids of known jobs, and now and then one more that is unknown."""
        count = self._random.randint(1, most)
        return tuple(job_id(self._random.randint(0, self._count)) for _ in range(count))

    def _some(self, items: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(self._random.sample(items, self._random.randint(1, len(items))))
