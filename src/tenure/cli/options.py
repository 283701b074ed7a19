"""Options that commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def common(function: F) -> F:
    """`--json` and `--traceback`."""
    json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    traceback = click.option(
        "--traceback",
        "show_traceback",
        is_flag=True,
        help="If the app cannot be imported, show where.",
    )
    return json(traceback(function))


app_argument = click.argument("app", required=False, metavar="[APP]")


class Names(click.ParamType):  # type: ignore[type-arg]  # older clicks take none
    """One or several names, separated by commas."""

    name = "name,…"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        names = tuple(part.strip() for part in str(value).split(","))
        if not all(names):
            self.fail(f"{value!r} holds an empty name", param, ctx)
        return names


def flat(values: tuple[tuple[str, ...], ...]) -> tuple[str, ...]:
    """All names of an option that was given several times, once each."""
    return tuple(dict.fromkeys(name for names in values for name in names))
