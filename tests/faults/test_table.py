"""The table of this folder names tests that are there, and all that are here."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

TEST = re.compile(r"^ *(?:async )?def (test_\w+)", re.MULTILINE)
NAMED = re.compile(r"`([\w/.]+\.py)::(test_\w+)`")


def named() -> list[tuple[Path, str]]:
    table = (HERE / "README.md").read_text(encoding="utf-8")
    return [
        (ROOT / path if "/" in path else HERE / path, name) for path, name in NAMED.findall(table)
    ]


def test_every_test_in_the_table_is_there():
    found = named()
    assert len(found) > 90
    for path, name in found:
        assert name in TEST.findall(path.read_text(encoding="utf-8")), f"{path.name}: {name}"


def test_every_test_of_this_folder_is_in_the_table():
    listed = set(named())
    for path in HERE.glob("test_*.py"):
        if path != Path(__file__):
            for name in TEST.findall(path.read_text(encoding="utf-8")):
                assert (path, name) in listed, f"{path.name}: {name}"
