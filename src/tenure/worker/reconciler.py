"""Makes the schedules of a store agree with what an app declares, unless a newer release did."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import msgspec

from tenure.clock import Clock
from tenure.core.reconcile import (
    Declared,
    Plan,
    Standing,
    fingerprint_of,
    is_release,
    reconciled,
    release_change,
    release_of,
    source_of,
)
from tenure.core.schedule import Schedule
from tenure.declarations import Declarations
from tenure.engines.protocol import Engine
from tenure.observe.hooks import Hooks

log = logging.getLogger("tenure.schedules")

TERM = 600.0
"""Seconds after which a release that nobody confirmed any more is replaced by an older one."""

_CONFIRM = TERM / 4
_TRIES = 10

Rows = Mapping[str, Schedule]


class Reconciler:
    """Reconciles again and again, each time with all schedules of the store.

    Workers of the release in force confirm it now and then. One of an older release changes
    nothing, until it has seen no confirmation for `TERM` seconds by its own watch: then that
    release is gone, as after a rollback.
    """

    def __init__(
        self, engine: Engine, declarations: Declarations, clock: Clock, hooks: Hooks
    ) -> None:
        self._engine = engine
        self._hooks = hooks
        self._declarations = declarations
        self._clock = clock
        self._seen = -1
        self._seen_at = 0.0
        self._told: set[tuple[str, str]] = set()

    async def run(self, now: int, *, force: bool = False) -> tuple[dict[str, Schedule], Plan]:
        """All schedules by name, once they are as declared, and what that took.

        `force` puts this release in force, whatever came before. `now` is the store's time.
        """
        declared, broken = self._declarations.all()
        done = Plan()
        for _ in range(_TRIES):
            rows = {row.name: row for row in await self._engine.schedules()}
            in_force = await self._in_force(declared, rows, force=force)
            if in_force is None:
                continue
            if not in_force:
                break
            plan = reconciled(self._declarations.app, declared, rows, now, spared=broken)
            done = _together(done, plan)
            if not plan.changes:
                break
            force = False
            await self._engine.save_schedules(plan.changes)
        rejected = {**done.rejected, **broken}
        for name, why in rejected.items():
            self._warn(name, why)
        schedules = {name: row for name, row in rows.items() if not is_release(row)}
        return schedules, msgspec.structs.replace(done, rejected=rejected)

    async def _in_force(self, declared: list[Declared], rows: Rows, *, force: bool) -> bool | None:
        """Whether this release is in force, if need be by putting it there.

        None: another one wrote the release meanwhile, so that all is to be read again.
        """
        app = self._declarations.app
        row = rows.get(source_of(app))
        release = release_of(row)
        if row is None and not declared:
            return False  # an app without schedules leaves no trace
        fingerprint = fingerprint_of(declared)
        standing = Standing.NEW if release is None else release.standing(fingerprint)
        watched = self._watched(row)
        if standing is Standing.CURRENT and watched < _CONFIRM:
            return True
        if standing is Standing.OLDER and not force and watched < TERM:
            self._tell_older(declared, rows)
            return False
        [saved] = await self._engine.save_schedules([release_change(app, row, fingerprint)])
        if saved is None:
            return None
        self._watched(saved)
        return True

    def _watched(self, row: Schedule | None) -> float:
        """For how many seconds the release has been seen unchanged."""
        revision, now = 0 if row is None else row.revision, self._clock.monotonic()
        if revision != self._seen:
            self._seen, self._seen_at = revision, now
        return now - self._seen_at

    def _tell_older(self, declared: list[Declared], rows: Rows) -> None:
        names = [
            one.name for one in declared if one.name not in rows or not one.matches(rows[one.name])
        ]
        if names:
            why = "a newer release has another definition; "
            why += "after a rollback, `tenure schedules sync` puts this one in force at once"
            for name in names:
                self._warn(name, why)

    def _warn(self, name: str, why: str) -> None:
        """Say it once."""
        if (name, why) not in self._told:
            self._told.add((name, why))
            self._hooks.emit("schedule.rejected", schedule=name, reason=why)
            log.warning("schedule.rejected: %s: %s", name, why, extra={"schedule": name})


def _together(one: Plan, other: Plan) -> Plan:
    """What two rounds did."""
    changed = {*one.created, *one.replaced}
    return Plan(
        created=tuple(sorted({*one.created, *other.created})),
        kept=tuple(name for name in other.kept if name not in changed),
        replaced=tuple(sorted({*one.replaced, *other.replaced} - {*one.created})),
        retired=tuple(sorted({*one.retired, *other.retired})),
        rejected=other.rejected,
    )
