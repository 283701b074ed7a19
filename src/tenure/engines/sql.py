"""Statements kept in `.sql` files, by name.

A file holds statements of the form

    -- name: claim_due
    -- Take these jobs.
    UPDATE ...;

each with a name and at least one line that says what it is for. SQL is written there and nowhere
else: no text is ever put into a statement, lists travel as JSON.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import resources

_NAME = re.compile(r"^-- name: *(\S*) *$", re.MULTILINE)
_VALID = re.compile(r"[a-z][a-z0-9_]*")


class Statements:
    """The statements of one file. Asking for a name that is not there is an error."""

    def __init__(self, source: str, texts: Mapping[str, str]) -> None:
        self._source = source
        self._texts = dict(texts)

    def __getitem__(self, name: str) -> str:
        try:
            return self._texts[name]
        except KeyError:
            known = ", ".join(sorted(self._texts))
            raise LookupError(
                f"{self._source} has no statement {name!r}; it has: {known}"
            ) from None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._texts)


def read_text(package: str, path: str) -> str:
    """The text of a file that is part of the library."""
    return resources.files(package).joinpath(path).read_text("utf-8")


def load(package: str, path: str) -> Statements:
    """The statements of a file of the library. Raises `ValueError` for a malformed file."""
    return parse(path, read_text(package, path))


def parse(source: str, text: str) -> Statements:
    """The statements in `text`. Raises `ValueError` naming what is wrong with which statement."""
    parts = _NAME.split(text)
    if len(parts) == 1:
        raise ValueError(f"{source}: no statement begins with `-- name:`")
    texts: dict[str, str] = {}
    for name, body in zip(parts[1::2], parts[2::2], strict=True):
        if not _VALID.fullmatch(name):
            raise ValueError(f"{source}: {name!r} is not a name for a statement")
        if name in texts:
            raise ValueError(f"{source}: {name} is there twice")
        texts[name] = _statement(f"{source}: {name}", body)
    return Statements(source, texts)


def _statement(where: str, body: str) -> str:
    lines = body.strip().splitlines()
    if not lines or not lines[0].startswith("-- "):
        raise ValueError(f"{where}: has no description")
    text = "\n".join(line for line in lines if not line.lstrip().startswith("--")).strip()
    if not text:
        raise ValueError(f"{where}: is empty")
    return text.removesuffix(";")
