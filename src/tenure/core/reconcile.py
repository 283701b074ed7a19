"""What declarations in code and the schedules of a store have to do with each other.

All that one release of an app declares is a set with a fingerprint. The store keeps, in a row of
its own beside the app's schedules, which set is in force and which ones came before it. So a worker
of an older release that starts late knows that it is the older one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from hashlib import sha256
from typing import Any

import msgspec

from tenure.core import codec
from tenure.core.schedule import Overlap, Schedule, ScheduleChange
from tenure.core.ticks import Timing, first_tick
from tenure.errors import ConfigurationError

API = "api"
_CODE = "code:"
_OLDER_MAX = 100


class Definition(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """What a schedule's row says of its ticks and jobs.

    `arguments` by parameter name, as JSON values; `options`: those of the task that are replaced.
    """

    timing: Timing
    arguments: Mapping[str, Any] = {}
    options: Mapping[str, Any] = {}


class Declared(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as code wants it."""

    name: str
    task: str
    definition: Definition
    overlap: Overlap = Overlap.ALLOW

    @property
    def plain(self) -> dict[str, Any]:
        """The definition as it comes back from a store."""
        values: dict[str, Any] = codec.decode(
            codec.encode(msgspec.to_builtins(self.definition), "definition")
        )
        return values

    def matches(self, row: Schedule) -> bool:
        """Whether the row says exactly this."""
        wanted = (self.task, self.overlap, self.plain)
        return (row.task, row.overlap, row.definition) == wanted

    def row(self, source: str, now: int) -> Schedule:
        """The row of a new schedule."""
        return Schedule(
            name=self.name,
            source=source,
            task=self.task,
            definition=self.plain,
            overlap=self.overlap,
            next_at=first_tick(self.definition.timing, now),
        )

    def over(self, row: Schedule, source: str, now: int) -> Schedule:
        """The row that takes the place of `row`. The plan stays if the times are the same."""
        old, new = definition_of(row), self.row(source, now)
        same = old is not None and old.timing == self.definition.timing
        plan = row.next_at if same else new.next_at
        return msgspec.structs.replace(new, next_at=plan, paused=row.paused)


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What it takes to make a store agree with what an app declares. Names, sorted.

    `rejected`: what is not done, and why.
    """

    created: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    retired: tuple[str, ...] = ()
    rejected: Mapping[str, str] = {}
    changes: tuple[ScheduleChange, ...] = ()


class Standing(StrEnum):
    """What a set of declarations is to the store."""

    NEW = "new"
    CURRENT = "current"
    OLDER = "older"


class Release(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which set of declarations is in force, and which ones came before, the latest first."""

    current: str
    older: tuple[str, ...] = ()

    def standing(self, fingerprint: str) -> Standing:
        if fingerprint == self.current:
            return Standing.CURRENT
        return Standing.OLDER if fingerprint in self.older else Standing.NEW

    def followed_by(self, fingerprint: str) -> Release:
        """The release after this one; one of the older ones may come back."""
        older = (self.current, *(one for one in self.older if one != fingerprint))
        return Release(fingerprint, older[:_OLDER_MAX])


def source_of(app: str) -> str:
    """The `source` of an app's schedules, and the name of the row that has its release."""
    return _CODE + app


def app_of(source: str) -> str | None:
    """The app that declared it; None for what was made at run time."""
    return source.removeprefix(_CODE) if source.startswith(_CODE) else None


def is_release(row: Schedule) -> bool:
    """Whether this is no schedule, but says which release of an app is in force."""
    return row.name.startswith(_CODE)


def definition_of(row: Schedule) -> Definition | None:
    """The definition that a row has; None for one of another version of tenure."""
    try:
        return msgspec.convert(row.definition, Definition)
    except (msgspec.ValidationError, ConfigurationError):
        return None


def release_of(row: Schedule | None) -> Release | None:
    """The release that a row tells of; None where there is none that can be read."""
    if row is None:
        return None
    try:
        return msgspec.convert(row.definition, Release)
    except msgspec.ValidationError:
        return None


def release_change(app: str, row: Schedule | None, fingerprint: str) -> ScheduleChange:
    """Put this set in force, or say once more that it is."""
    known = release_of(row)
    if known is None:
        release = Release(fingerprint)
    else:
        release = known if known.current == fingerprint else known.followed_by(fingerprint)
    name = source_of(app)
    new = Schedule(name=name, source=name, task="", definition=msgspec.to_builtins(release))
    return ScheduleChange(name, 0 if row is None else row.revision, new)


def fingerprint_of(declared: Iterable[Declared]) -> str:
    """What tells one set of declarations from another."""
    told = sorted([one.name, one.task, str(one.overlap), one.plain] for one in declared)
    return sha256(msgspec.json.encode(told, order="sorted")).hexdigest()


def reconciled(
    app: str,
    declared: Sequence[Declared],
    rows: Mapping[str, Schedule],
    now: int,
    *,
    spared: Collection[str] = (),
) -> Plan:
    """What to change in `rows`, all schedules of a store by name, so that they are as declared.

    Only the app's own are touched: not what was made or edited at run time, nor another app's, nor
    what is `spared`.
    """
    source = source_of(app)
    created, kept, replaced, changes = [], [], [], []
    rejected = {}
    for one in declared:
        row = rows.get(one.name)
        if row is None:
            created.append(one.name)
            changes.append(ScheduleChange(one.name, 0, one.row(source, now)))
        elif row.source == API or (row.source == source and one.matches(row)):
            kept.append(one.name)
        elif row.source != source:
            rejected[one.name] = f"the app {app_of(row.source)!r} has a schedule of this name"
        else:
            replaced.append(one.name)
            changes.append(ScheduleChange(one.name, row.revision, one.over(row, source, now)))
    names = {*spared, *(one.name for one in declared)}
    retired = [
        row for row in rows.values()
        if row.source == source and row.name not in names and not is_release(row)
    ]  # fmt: skip
    changes += [ScheduleChange(row.name, row.revision, None) for row in retired]
    return Plan(
        created=tuple(sorted(created)),
        kept=tuple(sorted(kept)),
        replaced=tuple(sorted(replaced)),
        retired=tuple(sorted(row.name for row in retired)),
        rejected=rejected,
        changes=tuple(changes),
    )
