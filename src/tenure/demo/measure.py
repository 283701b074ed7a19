"""The work itself, without a word of tenure: facts about one Python file."""

from __future__ import annotations

import ast
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

_SKIPPED = frozenset({"site-packages", "dist-packages", "__pycache__"})


class Measured(msgspec.Struct, frozen=True):
    """The facts about one file."""

    sha256: str
    size: int
    lines: int
    functions: int
    classes: int


def measure(path: Path) -> Measured:
    """The facts about a Python file. Raises what Python raises for one that it cannot parse."""
    data = path.read_bytes()
    functions = classes = 0
    for node in ast.walk(ast.parse(data, filename=path.name)):
        functions += isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        classes += isinstance(node, ast.ClassDef)
    digest = hashlib.sha256(data).hexdigest()
    return Measured(digest, len(data), len(data.splitlines()), functions, classes)


def attempt(path: Path) -> Measured | str:
    """The facts, or what kind of error there was instead, and its text."""
    try:
        return measure(path)
    except Exception as error:
        return f"{type(error).__qualname__}: {error}"


def python_files(folder: Path) -> list[Path]:
    """Every `.py` file in `folder` and below it, in order, without installed packages."""
    return sorted(_walk(folder.resolve()))


def _walk(folder: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in _SKIPPED]
        for name in files:
            if name.endswith(".py") and os.path.isfile(os.path.join(place, name)):
                yield Path(place, name)
