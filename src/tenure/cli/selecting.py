"""Options that say which jobs a command is about."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import click

from tenure.cli.options import Names, flat
from tenure.core.states import State
from tenure.lookups import Selection

F = TypeVar("F", bound=Callable[..., Any])

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_AGO = re.compile(r"(\d+(?:\.\d+)?)([smhd])")


def seconds_of(text: str) -> float | None:
    """A length of time such as `90s`, `15m`, `12h` or `7d`; None for anything else."""
    found = _AGO.fullmatch(text)
    return float(found[1]) * _SECONDS[found[2]] if found else None


class Age(click.ParamType):  # type: ignore[type-arg]  # older clicks take none
    """A length of time."""

    name = "age"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        seconds = seconds_of(str(value))
        if seconds is None:
            self.fail(f"{value!r} is no length of time such as 90s, 15m, 12h or 7d", param, ctx)
        return seconds


class When(click.ParamType):  # type: ignore[type-arg]
    """An ISO 8601 time (without a zone: UTC), or how long ago."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        text = str(value)
        ago = seconds_of(text)
        try:
            if ago is not None:
                return datetime.now(UTC) - timedelta(seconds=ago)
            moment = datetime.fromisoformat(text)
        except (ValueError, OverflowError):
            self.fail(f"{text!r} is neither a time such as 2026-01-31T12:00Z nor one ago, as 7d")
        return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


class Entry(click.ParamType):  # type: ignore[type-arg]
    """An entry of metadata."""

    name = "name=text|name:=json"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, Any]:
        name, equals, text = str(value).partition("=")
        if not equals or not name.removesuffix(":"):
            self.fail(f"{value!r} is no entry such as customer=ann or customer:=7", param, ctx)
        if not name.endswith(":"):
            return name, text
        try:
            return name.removesuffix(":"), json.loads(text)
        except ValueError:
            self.fail(f"{value!r}: := needs JSON", param, ctx)


def _several(*flags: str, help: str) -> Callable[[F], F]:
    return click.option(*flags, multiple=True, type=Names(), help=help)


_OPTIONS = (
    click.option(
        "--state",
        "states",
        multiple=True,
        type=click.Choice([str(state) for state in State]),
        help="In this state; may be repeated.",
    ),
    _several("--task", "tasks", help="Of these tasks."),
    _several("-q", "--queue", "queues", help="In these queues."),
    _several("--tag", "tags", help="With any of these tags."),
    click.option("--key", "keys", multiple=True, help="With this unique key; may be repeated."),
    _several("--schedule", "schedules", help="Of these schedules."),
    click.option("--actor", "actors", multiple=True, help="Enqueued by this actor."),
    click.option(
        "--metadata",
        multiple=True,
        type=Entry(),
        help="With this entry; may be repeated, and then all of them.",
    ),
    click.option("--error", help="With this text in the last error."),
    click.option("--created-after", type=When(), help="Enqueued then or later; or 7d, 12h ago."),
    click.option("--created-before", type=When(), help="Enqueued before."),
    click.option("--finished-after", type=When(), help="Ended then or later."),
    click.option("--finished-before", type=When(), help="Ended before."),
)
_LISTS = frozenset({"tasks", "queues", "tags", "schedules"})


def selecting(function: F) -> F:
    """The options of `Selection`; `selected` makes one of what they were given."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def selected(given: dict[str, Any]) -> Selection:
    """What was given of the options of `selecting`."""
    where: Any = {}
    for name, value in given.items():
        if value is None or value == ():
            continue
        if name in _LISTS:
            value = flat(value)
        elif name == "metadata":
            value = dict(value)
        where[name] = value
    chosen: Selection = where
    return chosen
