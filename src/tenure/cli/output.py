"""Printing: tables for people, JSON for programs."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple
from unicodedata import east_asian_width

import click

from tenure.cli.text import line

_GAP = "  "


class Column(NamedTuple):
    """A column of a table."""

    title: str
    right: bool = False


def document(value: Any) -> None:
    """Print one JSON document, on one line, in ASCII: any terminal and any pipe can take it."""
    click.echo(json.dumps(value))


def documents(values: Iterable[Any]) -> None:
    """Print a list as one JSON document per line."""
    for value in values:
        document(value)


def note(text: str) -> None:
    """Print a remark that is not part of what was asked for."""
    click.echo(text, err=True)


def table(columns: Sequence[Column], rows: Iterable[Sequence[object]], empty: str) -> None:
    """Print rows under titles, as wide as they are; on a terminal the last column is cut to fit.

    With no rows, the remark `empty` is printed instead.
    """
    texts = [[line(cell) for cell in row] for row in rows]
    if not texts:
        note(empty)
        return
    titles = [column.title for column in columns]
    widths = [max(_width(row[i]) for row in [titles, *texts]) for i in range(len(columns))]
    if sys.stdout.isatty():
        used = sum(widths[:-1]) + len(_GAP) * (len(widths) - 1)
        widths[-1] = max(min(widths[-1], shutil.get_terminal_size().columns - used), 10)
    click.echo(click.style(_row(columns, titles, widths), bold=True))
    for row in texts:
        click.echo(_row(columns, row, widths))


def _row(columns: Sequence[Column], cells: Sequence[str], widths: Sequence[int]) -> str:
    parts = []
    for column, cell, width in zip(columns, cells, widths, strict=True):
        text = _cut(cell, width)
        filler = " " * (width - _width(text))
        parts.append(filler + text if column.right else text + filler)
    return _GAP.join(parts).rstrip()


def _width(text: str) -> int:
    """How many places of a terminal the text takes."""
    if text.isascii():
        return len(text)
    return sum(2 if east_asian_width(c) in "WF" else 1 for c in text)


def _cut(text: str, width: int) -> str:
    if _width(text) <= width:
        return text
    while _width(text) >= width:
        text = text[:-1]
    return text + "…"
