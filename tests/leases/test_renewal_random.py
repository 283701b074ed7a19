"""Random interleavings of all that can happen to renewals, against a model: 50,000 steps, seeded.

The threads are left out: what the keeper does in its own thread is done here, step by step, so that
a failure can be repeated. `tests/leases/test_keeper_threads.py` is about the threads.
"""

from __future__ import annotations

import functools
import random
import warnings
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest

from tenure.core.lease import Busy, Extended, Extension, Failed, Lost
from tenure.leases import Grant, LeaseKeeper, LeaseRenewal
from tenure.leases.request import Errand, Request
from tenure.leases.runner import Plan, Runner
from tests.leases.kit import ManualClock
from tests.leases.service import Service

STEPS = 10_000


class Puppet:
    """Stands in for the keeper's thread; the test is what runs in it."""

    def __init__(self, master: Any) -> None:
        self.master = master
        self.ready = True
        self.error: BaseException | None = None
        self.alive = True
        self.lasted = True
        self.here = True
        self.reported = Set()
        self.over = Unset()

    def start(self) -> None: ...
    def wake(self) -> None: ...
    def stop(self) -> None: ...
    def end_link(self, client: object) -> Any:
        return Set()


class Set:
    def is_set(self) -> bool:
        return True

    def wait(self, timeout: float) -> bool:
        return True

    async def wait_async(self, timeout: float) -> bool:
        return True


class Unset(Set):
    def is_set(self) -> bool:
        return False


@dataclass
class Model:
    """What must be true of one handle."""

    renewal: LeaseRenewal
    until: float  # at the service
    started: bool = False
    closed: bool = False
    renewed: bool = False
    """Whether the keeper keeps it."""
    told: list[str | None] = field(default_factory=list)
    taken: bool = False
    suspensions: int = 0


class Play:
    def __init__(self, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.dice = random.Random(seed)
        self.clock = ManualClock()
        monkeypatch.setattr("tenure.leases.keeper.Runner", Puppet)
        monkeypatch.setattr("tenure.leases.renewal.STOP_TIMEOUT", 0.0)
        self.keeper = LeaseKeeper(self.clock)
        self.keeper._callbacks = Told()  # type: ignore[assignment]
        self.client = Service(self.clock).client()
        self.models: dict[str, Model] = {}
        self.flying: list[Request] = []
        self.errands: list[tuple[Model, Errand]] = []
        self.did: Counter[str] = Counter()
        self.made = 0

    @property
    def book(self):
        return self.keeper._book

    def some(self, *, started: bool | None = None, renewed: bool | None = None) -> Model | None:
        fitting = [
            model for model in self.models.values()
            if started in (None, model.started) and renewed in (None, model.renewed)
        ]  # fmt: skip
        return self.dice.choice(fitting) if fitting else None

    # What a holder does

    def make(self) -> None:
        self.made += 1
        if len(self.models) > 30:
            self.models.pop(next(iter(self.models))).renewal.stop(wait=False)
        name = f"r{self.made}"
        length = self.dice.choice([30, 60, 300])
        took = self.dice.random() * 5
        grant = Grant.claimed(self.clock.now - took)
        if self.dice.random() < 0.2:
            grant = Grant.left(length / 2)
            took = -length / 2
        renewal = LeaseRenewal(self.client, name, length, grant=grant, keeper=self.keeper)
        model = self.models[name] = Model(renewal, self.clock.now + length - max(took, 0.0))
        if took < 0:
            model.until = self.clock.now + length / 2
        renewal.lease.on_signal = lambda lease: model.told.append(lease._reason)

    def start(self) -> None:
        if (model := self.some()) is None:
            return
        allowed = not (model.started or model.closed)
        start = model.renewal.start
        if self.dice.random() < 0.3:
            start = functools.partial(anyio.run, model.renewal.astart)
        if allowed:
            start()
            model.started = model.renewed = True
            return
        with pytest.raises(RuntimeError, match="closed" if model.closed else "single-use"):
            start()

    def stop(self) -> None:
        if (model := self.some()) is None:
            return
        model.closed, model.renewed = True, False
        model.renewal.stop(wait=self.dice.random() < 0.5)
        assert not model.renewal.active

    def stop_all(self) -> None:
        chosen = self.dice.sample(list(self.models.values()), k=min(3, len(self.models)))
        LeaseRenewal.stop_all([model.renewal for model in chosen], wait=False)
        for model in chosen:
            model.closed, model.renewed = True, False

    def extend(self) -> None:
        if (model := self.some()) is None:
            return
        seconds = self.dice.choice([0, 5, 60, 600])
        if seconds == 0:
            model.closed, model.renewed = True, False
            model.renewal.stop(wait=False)
        errand = self.keeper.ask(self.client, model.renewal.lease, float(seconds))
        self.errands.append((model, errand))

    def suspend(self) -> None:
        model = self.some(renewed=True)
        if model is None or model.renewal.lease._over(self.clock.now):
            return
        self.keeper.suspend(model.renewal.lease)
        model.suspensions += 1

    def resume(self) -> None:
        suspended = [model for model in self.models.values() if model.suspensions]
        if suspended:
            model = self.dice.choice(suspended)
            model.suspensions -= 1
            self.keeper.resume(model.renewal.lease)

    def look(self) -> None:
        if (model := self.some()) is not None:
            model.renewal.lost  # noqa: B018 (writes down what it sees)

    def cancel(self) -> None:
        """A holder is cancelled while it waits for its stop, and stops again."""
        if (model := self.some(renewed=True)) is None:
            return

        async def cancelled() -> None:
            with anyio.CancelScope() as scope:
                scope.cancel()
                await model.renewal.astop()

        anyio.run(cancelled)
        model.closed, model.renewed = True, False

    def forget(self) -> None:
        """A handle is dropped unstopped: nobody could stop it any more."""
        if (model := self.some(renewed=True)) is None or model.suspensions:
            return
        if any(other is model for other, _ in self.errands):
            return
        del self.models[model.renewal.receipt or ""]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            model.renewal.__del__()
        model.renewal._closed = True

    def nudge(self) -> None:
        if (model := self.some()) is not None:
            self.keeper.nudge([model.renewal.receipt or ""])

    # What the thread does

    def tick(self) -> None:
        runner = self.keeper._runner
        if runner is None:
            return
        plan = self.keeper._plan(runner)
        assert isinstance(plan, Plan)
        for request in plan.requests:
            for lease in request.leases:
                over = [r for r in self.flying if lease in r.leases]
                # Only what was waited for too long is overtaken, and only by the holder's wish.
                assert not over or request.errand is not None
            self.flying.append(request)

    def serve(self) -> None:
        if not self.flying:
            return
        request = self.flying.pop(self.dice.randrange(len(self.flying)))
        answers: list[Extension] = []
        for beat in request.beats:
            model = self.models.get(beat.id)
            answers.append(self.answer(model, beat.seconds))
        self.file(request, answers)

    def answer(self, model: Model | None, seconds: float) -> Extension:
        if model is None:
            return Lost("gone")
        if model.taken or (model.until <= self.clock.now and not model.suspensions):
            return Lost("taken")
        roll = self.dice.random()
        if model.suspensions:
            return Busy()
        if roll < 0.1:
            return Failed("odd", self.dice.choice([None, 0.0, 7.0, 99.0]))
        model.until = self.clock.now + seconds
        return Extended(seconds)

    def break_off(self) -> None:
        if self.flying:
            request = self.flying.pop(self.dice.randrange(len(self.flying)))
            self.file(request, None)

    def file(self, request: Request, answers: list[Extension] | None) -> None:
        runner = self.keeper._runner
        if runner is not None:
            self.keeper._file(runner, request, answers, None if answers else OSError("down"))

    def die(self) -> None:
        """The thread dies; what it carried is carried over."""
        runner = self.keeper._runner
        if runner is None:
            return
        runner.alive = False  # type: ignore[misc]
        runner.lasted = self.dice.random() < 0.5  # type: ignore[misc]
        self.flying.clear()
        self.keeper._ended(runner, OSError("broken"))

    def fork(self) -> None:
        """This process goes on as the child: nothing is kept, and nothing of the past counts."""
        self.keeper._forget()
        self.keeper._callbacks = Told()  # type: ignore[assignment]
        self.flying.clear()
        self.errands.clear()
        self.end()

    def end(self) -> None:
        for model in self.models.values():
            model.renewal._closed = True  # so that it is not missed
        self.models.clear()

    def steal(self) -> None:
        if (model := self.some()) is not None and not model.suspensions:
            model.taken = True

    def jump(self) -> None:
        self.clock.ahead += self.dice.choice([-100, 3600])

    def wait(self) -> None:
        for _ in range(self.dice.randint(1, 3)):
            self.clock.now += self.dice.choice([0.01, 1, 5, 20])
            self.tick()

    # What must hold

    def check(self) -> None:
        now = self.clock.now
        kept = {lease.id for lease in self.book._entries}
        for name, model in self.models.items():
            lease = model.renewal.lease
            if model.told or lease._told_lost:
                model.renewed = False
                assert lease._reason is not None
            assert (name in kept) == model.renewed, name
            assert len(model.told) <= 1
            trusted = lease._reason is None and now < lease._deadline and lease._doubt is None
            # Once stopped, a late answer is ignored, so that only what is kept is known.
            if trusted and model.renewed and not (model.suspensions or model.taken):
                assert model.until > now, (name, model.until - now)
            if lease._flight is not None:
                assert not lease._flight.over.is_set()
                assert lease._flight in self.book._flying
        for entry in self.book._entries.values():
            assert entry.mark >= 0
        assert self.book._flying == set(self.flying)
        for model, errand in self.errands:
            waiting = any(errand in desk.errands for desk in self.book._desks.values())
            assert waiting != errand.over.is_set(), model
        self.errands = [pair for pair in self.errands if not pair[1].over.is_set()]


class Told:
    """Callbacks that are called at once."""

    def deliver(self, lease) -> None:
        if lease.on_signal is not None and lease._told_lost:
            lease.on_signal(lease)

    def close(self) -> None: ...


STEPS_OF = {
    "make": 8, "start": 10, "stop": 4, "stop_all": 1, "extend": 3, "suspend": 2, "resume": 4,
    "look": 4, "cancel": 1, "forget": 1, "nudge": 2, "tick": 20, "serve": 20, "break_off": 4,
    "die": 1, "fork": 0.2, "steal": 0.5, "jump": 0.3, "wait": 12,
}  # fmt: skip


@pytest.mark.parametrize("seed", range(5))
def test_fifty_thousand_random_steps(seed, monkeypatch, scaled, caplog):
    caplog.set_level("CRITICAL")
    play = Play(seed, monkeypatch)
    names, weights = list(STEPS_OF), list(STEPS_OF.values())
    for _ in range(scaled(STEPS, 20 * STEPS)):
        [name] = play.dice.choices(names, weights)
        play.did[name] += 1
        getattr(play, name)()
        play.check()
    assert play.did.keys() == STEPS_OF.keys()
    assert play.made > 100
    play.end()


def test_the_puppet_can_do_what_the_runner_can():
    for name in vars(Puppet(None)):
        assert hasattr(Runner, name) or name in {"master", "ready", "error", "reported", "over"}
