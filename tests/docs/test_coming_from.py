"""The page for those who come from another queue names tests that are there."""

from __future__ import annotations

import re

from tests.docs.pages import ROOT

PAGE = ROOT / "docs/explain/coming-from-litestar-queues.md"


def test_each_fault_is_shown_by_a_test_that_is_there() -> None:
    faults = PAGE.read_text(encoding="utf-8").partition("## What goes wrong there")[2]
    rows = [row for row in faults.splitlines() if row.startswith("| ")][1:]
    assert len(rows) > 30
    for row in rows:
        named = re.findall(r"`([\w/.]+\.py)::(test_\w+)`", row)
        assert named, row
        for path, name in named:
            text = (ROOT / path).read_text(encoding="utf-8")
            assert re.search(rf"def {name}\(", text), f"{path}::{name}"
