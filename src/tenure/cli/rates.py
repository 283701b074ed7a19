"""Rates as they are written on a command line."""

from __future__ import annotations

import re
from typing import Any

import click

from tenure.core.durations import SECOND
from tenure.core.limits import Rate, rate
from tenure.errors import ConfigurationError

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_TEXT = re.compile(r"(\d+)/(?:([smhd])|(\d+(?:\.\d+)?))(?::(\d+))?")


class RateText(click.ParamType):  # type: ignore[type-arg]  # older clicks take none
    """COUNT/TIME or COUNT/TIME:BURST; the time in seconds, or one of s, m, h, d."""

    name = "count/time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Rate:
        if isinstance(value, Rate):
            return value
        found = _TEXT.fullmatch(str(value))
        if found is None:
            self.fail(f"{value!r} is no rate; write 100/s, 100/m, 100/30 or 100/m:20", param, ctx)
        count, unit, seconds, burst = found.groups()
        try:
            return rate(int(count), _UNITS[unit] if unit else float(seconds), int(burst or 1))
        except ConfigurationError as error:
            self.fail(str(error), param, ctx)


def rate_text(given: Rate) -> str:
    """A rate, as it is written."""
    seconds = given.period / SECOND
    unit = next((name for name, span in _UNITS.items() if span == seconds), f"{seconds:g}")
    return f"{given.count}/{unit}" + (f":{given.burst}" if given.burst > 1 else "")
