"""What callers look for, checked where it is given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, TypedDict

from tenure.core import codec
from tenure.core.durations import instant
from tenure.core.query import PAGE_MAX, Filter, Page, Scalar
from tenure.core.states import State
from tenure.errors import ConfigurationError, InvalidArguments

SWEEP_MAX = 10_000
_INT_MIN, _INT_MAX = -(2**63), 2**63 - 1


class Selection(TypedDict, total=False):
    """Which jobs: those that match everything that is given; of several values, any.

    What is given empty is refused: a list that came out empty must not stand for all jobs.

    - `states`, `tasks`, `queues`, `keys` (unique keys), `tags`, `schedules`, `actors`: one or
      several of each.
    - `metadata`: entries that are there with these values: text, a whole number, a bool or None.
    - `created_after`, `created_before`, `finished_after`, `finished_before`: datetimes with a time
      zone; `after` includes that instant, `before` does not.
    - `error`: a part of the last error's kind or message, in upper or lower case.
    """

    states: Iterable[State | str]
    tasks: Iterable[str]
    queues: Iterable[str]
    keys: Iterable[str]
    tags: Iterable[str]
    schedules: Iterable[str]
    actors: Iterable[str]
    metadata: Mapping[str, Scalar]
    created_after: datetime
    created_before: datetime
    finished_after: datetime
    finished_before: datetime
    error: str


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


def selection(where: Selection, ids: tuple[str, ...] = ()) -> Filter:
    """The filter of these values; a single text stands for a list of one.

    Raises `InvalidArguments` for one that is not known, naming those that are, or of a wrong type,
    and `ConfigurationError` for a bad value.
    """
    unknown = where.keys() - Selection.__annotations__.keys()
    if unknown:
        known = ", ".join(Selection.__annotations__)
        raise InvalidArguments(f"jobs cannot be found by {min(unknown)!r}; one of: {known}")
    values: dict[str, Any] = {"ids": ids}
    for name, value in where.items():
        read: Callable[[Any, str], Any] = _READERS.get(name, names)
        given = read(value, name)
        if given in ((), {}, ""):  # which would match all, where nothing was meant
            raise InvalidArguments(f"{name} is empty; leave it out to match any")
        values[_FIELDS.get(name, name)] = given
    return Filter(**values)


def page(limit: Any, before: Any) -> Page:
    """The page of this many jobs before the one with the id `before`."""
    if before is not None:
        checked_ids((before,))
    return Page(limit=count(limit, PAGE_MAX), before=before)


def count(value: Any, most: int, name: str = "limit") -> int:
    """A number from 1 to `most`. Raises `ConfigurationError` naming it."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise ConfigurationError(f"{name} must be an integer from 1 to {most}, not {value!r}")
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


def _states(values: Any, _: str) -> tuple[State, ...]:
    listed = _listed(values, "states")
    try:
        return tuple(State(value) for value in listed)
    except ValueError:
        allowed = ", ".join(State)
        raise ConfigurationError(f"states must be of {allowed}; not {values!r}") from None


def _entries(value: Any, what: str) -> dict[str, Scalar]:
    if not isinstance(value, Mapping):
        raise InvalidArguments(f"{what} must be a mapping, not {type(value).__name__}")
    for name, wanted in value.items():
        codec.check_text(name, what)
        if isinstance(wanted, str):
            codec.check_text(wanted, f"{what}.{name}")
        elif wanted is not None and not isinstance(wanted, int):
            raise InvalidArguments(
                f"{what}.{name} must be text, a whole number, a bool or None, "
                f"not {type(wanted).__name__}"
            )
        elif isinstance(wanted, int) and not _INT_MIN <= wanted <= _INT_MAX:
            raise ConfigurationError(f"{what}.{name} must fit into 64 bits, not {wanted}")
    return dict(value)


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise InvalidArguments(f"{what} must be text, not {type(value).__name__}")
    codec.check_text(value, what)
    return value


_FIELDS = {
    "created_after": "created_from",
    "created_before": "created_to",
    "finished_after": "finished_from",
    "finished_before": "finished_to",
}
_READERS: dict[str, Callable[[Any, str], Any]] = {
    "states": _states,
    "metadata": _entries,
    "error": _text,
    **dict.fromkeys(_FIELDS, instant),
}


def _listed(values: Any, what: str) -> tuple[Any, ...]:
    if isinstance(values, str):
        return (values,)
    if not isinstance(values, Iterable):
        raise InvalidArguments(f"{what} must be a list, not {type(values).__name__}")
    return tuple(values)
