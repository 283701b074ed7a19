"""What callers look for, checked where it is given."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tenure.core import codec
from tenure.core.query import PAGE_MAX, Filter, Page
from tenure.core.states import State
from tenure.errors import ConfigurationError, InvalidArguments

SWEEP_MAX = 10_000


def checked_ids(values: tuple[Any, ...]) -> tuple[str, ...]:
    """The ids themselves. Raises `InvalidArguments` for what is no id, saying what to give."""
    for value in values:
        if not isinstance(value, str):
            hint = ""
            if isinstance(value, Iterable):
                hint = "; give several one by one, as in (*ids)"
            elif hasattr(value, "id"):
                hint = "; give its .id"
            raise InvalidArguments(f"a job id is text, not {type(value).__name__}{hint}")
        codec.check_text(value, "job id")
    return values


def selection(states: Any, tasks: Any, queues: Any) -> Filter:
    """The filter of these values; a single text stands for a list of one."""
    return Filter(
        states=_states(states), tasks=names(tasks, "tasks"), queues=names(queues, "queues")
    )


def page(limit: Any, before: Any) -> Page:
    """The page of this many jobs before the one with the id `before`."""
    if before is not None:
        checked_ids((before,))
    return Page(limit=count(limit, PAGE_MAX), before=before)


def count(value: Any, most: int) -> int:
    """A limit from 1 to `most`. Raises `ConfigurationError`."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise ConfigurationError(f"limit must be an integer from 1 to {most}, not {value!r}")
    return value


def names(values: Any, what: str) -> tuple[str, ...]:
    """Names of tasks or queues. Raises `InvalidArguments` naming `what`."""
    listed = _listed(values, what)
    for value in listed:
        if not isinstance(value, str):
            hint = "; give its .name" if hasattr(value, "name") else ""
            raise InvalidArguments(f"{what} must be names, not {type(value).__name__}{hint}")
        codec.check_text(value, what)
    return listed


def _states(values: Any) -> tuple[State, ...]:
    listed = _listed(values, "states")
    try:
        return tuple(State(value) for value in listed)
    except ValueError:
        allowed = ", ".join(State)
        raise ConfigurationError(f"states must be of {allowed}; not {values!r}") from None


def _listed(values: Any, what: str) -> tuple[Any, ...]:
    if isinstance(values, str):
        return (values,)
    if not isinstance(values, Iterable):
        raise InvalidArguments(f"{what} must be a list, not {type(values).__name__}")
    return tuple(values)
