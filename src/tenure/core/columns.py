"""A row as plain column values, for engines that keep tables.

Values are what any database driver takes: `str`, `int`, `float`, `bytes` and None. Structured
values are JSON text, and None when empty. Every engine goes through here, the one in memory too,
so that no live object is ever shared between a caller and a store.

What a user put into tags, headers or metadata is refused with `PayloadError` where JSON cannot
hold it. What a run reports (errors, progress) always fits, so an outcome can always be saved.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import NoneType
from typing import Any

import msgspec

from tenure.core import codec
from tenure.core.job import COLUMNS, JobRow
from tenure.core.query import Filter
from tenure.core.reports import JobError, Progress
from tenure.core.retry import RetryPolicy
from tenure.core.states import State

_encoder = msgspec.json.Encoder()
_STATES: Mapping[str, State] = {str(state): state for state in State}


def _json(value: Any) -> str | None:
    return _encoder.encode(value).decode() if value else None


def _given(name: str) -> Callable[[Any], str | None]:
    return lambda value: codec.encode(value, name).decode() if value else None


def _structured(value: Any) -> str | None:
    return None if value is None else _encoder.encode(value).decode()


def _flag(value: bool | None) -> int | None:
    return None if value is None else int(value)


_TO: Mapping[str, Callable[[Any], Any]] = {
    "ready": int,
    "state": str,
    "cancel_requested": int,
    "retry": _structured,
    "error": _structured,
    "errors": _json,
    "progress": _structured,
    "tags": _given("tags"),
    "headers": _given("headers"),
    "metadata": _given("metadata"),
    "log_success": _flag,
}
# name: (how to read a value that is not None, what makes the value that None stands for)
_FROM: Mapping[str, tuple[Callable[[Any], Any], Callable[[], Any]]] = {
    "ready": (bool, bool),
    "state": (_STATES.__getitem__, NoneType),
    "cancel_requested": (bool, bool),
    "retry": (msgspec.json.Decoder(RetryPolicy).decode, NoneType),
    "error": (msgspec.json.Decoder(JobError).decode, NoneType),
    "errors": (msgspec.json.Decoder(tuple[JobError, ...]).decode, tuple),
    "progress": (msgspec.json.Decoder(Progress).decode, NoneType),
    "tags": (msgspec.json.Decoder(tuple[str, ...]).decode, tuple),
    "headers": (msgspec.json.Decoder(dict[str, str]).decode, dict),
    "metadata": (msgspec.json.Decoder(dict[str, Any]).decode, dict),
    "log_success": (bool, NoneType),
}
_READERS = tuple((COLUMNS.index(name), read, empty) for name, (read, empty) in _FROM.items())
_CODEC = COLUMNS.index("codec")
_UNREADABLE = "unreadable: "
_WRITERS = tuple((COLUMNS.index(name), write) for name, write in _TO.items())


def to_columns(row: JobRow) -> list[Any]:
    """The row's values in the order of `COLUMNS`."""
    values = list(msgspec.structs.astuple(row))
    for index, write in _WRITERS:
        values[index] = write(values[index])
    return values


def from_columns(values: Sequence[Any]) -> JobRow:
    """The row of values in the order of `COLUMNS`.

    Text that cannot be read comes back as if it was empty, and `codec` says so (`unreadable`), so
    that the job is not run as something else. One such row must not stop the claim of others.
    """
    items = list(values)
    for index, read, empty in _READERS:
        value = items[index]
        if value is None:
            items[index] = empty()
            continue
        try:
            items[index] = read(value)
        except msgspec.DecodeError:
            items[index] = empty()
            items[_CODEC] = _UNREADABLE + COLUMNS[index]
    return JobRow(*items)


def unreadable(row: JobRow) -> str | None:
    """The name of a column of which the stored text could not be read, if there is one."""
    return row.codec.removeprefix(_UNREADABLE) if row.codec.startswith(_UNREADABLE) else None


def to_column_values(changes: Mapping[str, Any]) -> dict[str, Any]:
    """The column values of some named fields, as for `to_columns`."""
    return {name: _TO[name](value) if name in _TO else value for name, value in changes.items()}


def matches_inside(
    where: Filter, tags: str | None, metadata: str | None, error: str | None
) -> bool:
    """`Filter.matches_inside` of column values; text that cannot be read counts as empty."""
    return where.matches_inside(
        _read("tags", tags), _read("metadata", metadata), _read("error", error)
    )


def _read(name: str, value: str | None) -> Any:
    read, empty = _FROM[name]
    if value is None:
        return empty()
    try:
        return read(value)
    except msgspec.DecodeError:
        return empty()
