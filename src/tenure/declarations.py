"""What a service knows of schedules: those it declares, and how their jobs are made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from tenure.core import codec
from tenure.core.durations import LAST_INSTANT
from tenure.core.job import NewJob
from tenure.core.reconcile import API, Declared, Definition, definition_of, source_of
from tenure.core.schedule import Overlap, Schedule, Tick
from tenure.core.ticks import Planned, Timing, jitter_of, tick_id
from tenure.errors import ConfigurationError, InvalidArguments, TenureError
from tenure.keys import KEYS
from tenure.options import CODE, TaskOptions, check_name
from tenure.recurring import ScheduleChanges, ScheduleOptions, schedule_options
from tenure.tasks import BoundTask, Task, TaskRef, TaskSet

NewJobOf = Callable[[BoundTask[Any], str], NewJob]
"""Makes the job with this id of a bound task."""

Given = Task[..., Any] | BoundTask[Any] | TaskRef | str
"""What users give as the task of a schedule."""

_OF_THE_TASK = {"name", "aliases", *ScheduleOptions.__struct_fields__, *CODE}
_TEXTS = {"actor", *KEYS}  # or code, which is not kept
_OPTIONS: dict[str, Any] = {
    field.name: str | None if field.name in _TEXTS else field.type
    for field in msgspec.structs.fields(TaskOptions)
    if field.name not in _OF_THE_TASK
}
"""What a task says of its jobs: the types of the options."""


class Declarations:
    """The schedules that the code of one app declares, and the tasks it knows."""

    def __init__(self, tasks: TaskSet, app: str, new_job: NewJobOf) -> None:
        self.app = app
        self._tasks = tasks
        self._new_job = new_job
        self._declared: dict[str, tuple[Given, ScheduleOptions]] = {}

    def declare(self, name: str, task: Given, options: ScheduleChanges) -> None:
        """Declare a schedule. Raises `ConfigurationError` if its name is taken by another."""
        check_name(name, "name")
        chosen = schedule_options(options)
        if name in self._declared:
            raise ConfigurationError(f"two schedules are named {name!r}")
        self._declared[name] = task, chosen

    def all(self) -> tuple[list[Declared], dict[str, str]]:
        """All that are declared, by tasks too; and by name why some are none."""
        declared: list[Declared] = []
        rejected: dict[str, str] = {}
        given: list[tuple[str, Given, ScheduleOptions]] = [
            *((task.name, task, task.spec) for task in self._tasks if task.spec.recurring),
            *((name, task, chosen) for name, (task, chosen) in self._declared.items()),
        ]
        for name, task, options in sorted(given, key=lambda one: one[0]):
            try:
                if declared and declared[-1].name == name:
                    raise ConfigurationError("a task with a schedule has this name")
                declared.append(self.declared(name, task, options))
            except TenureError as error:
                rejected[name] = str(error)
        return declared, rejected

    def declared(self, name: str, task: Given, options: ScheduleOptions) -> Declared:
        """A checked schedule. Raises for a task that is unknown or whose arguments do not fit."""
        bound = self.bound(task)
        return Declared(
            name=check_name(name, "name"),
            task=bound.name,
            overlap=Overlap(options.overlap),
            definition=Definition(
                timing=options.timing(),
                arguments=codec.decode(bound.payload),
                options=self._differences(bound),
            ),
        )

    def bound(self, task: Given) -> BoundTask[Any]:
        """The task with its arguments, if it needs none. Raises `InvalidArguments`."""
        if isinstance(task, str):
            task = self._tasks.get(task)
        if isinstance(task, Task | TaskRef):
            return task.bind()
        if not isinstance(task, BoundTask):
            raise InvalidArguments(
                f"a schedule needs a task, task.bind(...) or a task's name, not {task!r}"
            )
        return task

    def known(self, rows: Iterable[Schedule]) -> dict[str, Definition]:
        """The definitions, by name, that this app knows, so that it may fire their ticks.

        Of a schedule from code, only who declares exactly this one knows it; of one that was made
        at run time, whoever has the task.
        """
        source, declared = source_of(self.app), {one.name: one for one in self.all()[0]}
        known = {}
        for row in rows:
            if row.source == source:
                mine = row.name in declared and declared[row.name].matches(row)
            else:
                mine = row.source == API
            definition = definition_of(row) if mine and row.task in self._tasks else None
            if definition is not None:
                known[row.name] = definition
        return known

    def tick(self, row: Schedule, definition: Definition, planned: Planned) -> Tick:
        """What to offer to the store. Raises `TenureError` if its job cannot be made."""
        return Tick(
            row.name,
            row.revision,
            planned.at,
            planned.next_at,
            self.job(row, definition, planned.at),
            planned.missed_from,
            planned.leap,
        )

    def job(self, row: Schedule, definition: Definition, at: int, id: str | None = None) -> NewJob:
        """The job of the tick at this instant.

        It has the task's options; its delay and its expiry count from the nominal instant.
        """
        task = self._tasks.get(row.task)
        payload = codec.encode(definition.arguments, "arguments")
        spec = msgspec.structs.replace(task.spec, **_options(definition))
        bound = task.bound_to(payload, spec)
        new = self._new_job(bound, tick_id(row.name, at) if id is None else id)
        expires_at = new.expires_at if new.expires_in is None else at + new.expires_in
        return msgspec.structs.replace(
            new,
            delay=0,
            run_at=_run_at(row.name, definition.timing, new, at),
            expires_in=None,
            expires_at=expires_at,
            schedule=row.name,
        )

    def _differences(self, bound: BoundTask[Any]) -> Mapping[str, Any]:
        """How the bound task's options differ from those of the task as it is known here.

        Of a task that is known by name only, the options that were given.
        """
        by_code = bound.task is not None and bound.name in self._tasks
        known = self._tasks.get(bound.name).spec if by_code else TaskOptions()
        differences = {}
        for option in _OPTIONS:
            value = getattr(bound.spec, option)
            if value != getattr(known, option):
                try:
                    differences[option] = msgspec.to_builtins(value)
                except TypeError as error:
                    raise ConfigurationError(
                        f"{option} cannot be kept with a schedule; give it to the task"
                    ) from error
        return differences


def _options(definition: Definition) -> dict[str, Any]:
    """The options of the task that a definition replaces."""
    try:
        return {
            name: msgspec.convert(value, _OPTIONS[name])
            for name, value in definition.options.items()
        }
    except (msgspec.ValidationError, KeyError) as error:
        raise ConfigurationError(f"options: {error}") from error


def _run_at(name: str, timing: Timing, new: NewJob, at: int) -> int:
    if new.run_at is not None:
        return new.run_at
    return min(at + new.delay + jitter_of(name, at, timing.jitter), LAST_INSTANT)
