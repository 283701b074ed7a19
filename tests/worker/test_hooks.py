"""Who hears what: by the names of happenings."""

from __future__ import annotations

from tenure.observe.hooks import Happening, Hooks


def test_a_hook_hears_what_it_asked_for_and_one_that_asked_for_nothing_hears_all():
    every: list[Happening] = []
    some: list[Happening] = []
    hooks = Hooks(every.append)
    hooks.add(some.append, "job.failed", "job.lapsed")
    for name in ("job.started", "job.failed", "job.lapsed"):
        hooks.emit(name, fact=1)
    assert [happening.name for happening in every] == ["job.started", "job.failed", "job.lapsed"]
    assert [happening.name for happening in some] == ["job.failed", "job.lapsed"]


def test_it_is_known_who_wants_to_hear_a_name():
    hooks = Hooks()
    heard: list[Happening] = []
    remove = hooks.add(heard.append, "job.failed")
    assert hooks.hears("job.failed")
    assert not hooks.hears("job.started")
    remove_all = hooks.add(heard.append)
    assert hooks.hears("job.started")
    remove_all()
    remove()
    assert not hooks.hears("job.failed")


def test_a_hook_that_was_added_twice_is_removed_once():
    hooks = Hooks()
    heard: list[Happening] = []
    first = hooks.add(heard.append, "a")
    hooks.add(heard.append, "a")
    first()
    hooks.emit("a")
    assert len(heard) == 1
