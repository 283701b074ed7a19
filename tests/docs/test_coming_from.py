"""The page for those who come from another queue names things and tests that are there."""

from __future__ import annotations

import builtins
import keyword
import re
from typing import Any

import pytest_tenure
import tenure
import tenure.testing
from tenure import JobContext, JobError, JobHandle, QueueService, RetryPolicy, errors
from tenure.cli.root import COMMANDS
from tenure.options import TaskOptions
from tenure.settings import Settings
from tenure.tasks import Task
from tenure.worker.options import WorkerOptions
from tests.docs.pages import ROOT

PAGE = ROOT / "docs/explain/coming-from-litestar-queues.md"
KNOWN: dict[str, Any] = {
    "jobs": QueueService("memory://"),
    "task": Task,
    "handle": JobHandle,
    "ctx": JobContext,
    "error": JobError,
    "tenure": tenure,
    "tenure_jobs": pytest_tenure.tenure_jobs,
    "asyncio": __import__("asyncio"),
}
"""What stands before a dot."""
NAMES = {
    *dir(tenure),
    *dir(errors),
    *dir(builtins),
    *keyword.kwlist,
    *TaskOptions.__struct_fields__,
    *Settings.__struct_fields__,
    *WorkerOptions.__struct_fields__,
    *RetryPolicy.__struct_fields__,
}
PARAMETERS = {
    *("after", "allowed", "actual", "app", "budget", "connection", "created", "force", "id", "job"),
    *("jobs", "seconds", "tasks", "traceparent", "url", "where", "error", "ctx", "kind", "tests"),
}
"""Of calls that the page shows."""


def rows() -> list[tuple[str, str]]:
    """What is there and how it is had here, but for the faults."""
    text = PAGE.read_text(encoding="utf-8").partition("## What goes wrong there")[0]
    lines = [row for row in text.splitlines() if row.startswith("| ") and "| there |" not in row]
    cells = [line.strip("| ").split(" | ") for line in lines]
    assert all(len(row) == 2 for row in cells)
    return [(row[0], row[1]) for row in cells]


def unknown(code: str) -> list[str]:
    """The names in a piece of code that nothing here has."""
    command = re.fullmatch(r"tenure ([a-z-]+)( .*)?", code)
    if command is not None:
        return [] if command[1] in COMMANDS else [code]
    missing = []
    for name in re.findall(r"(?<![\w.])[A-Za-z_]\w*(?:\.\w+)*", re.sub(r'"[^"]*"', "", code)):
        first, *rest = name.split(".")
        if not rest:
            if first not in NAMES | PARAMETERS | set(KNOWN):
                missing.append(name)
            continue
        thing = KNOWN.get(first)
        for part in rest:
            fields = getattr(thing, "__struct_fields__", ())
            known = part in fields or part in getattr(thing, "__annotations__", {})
            if not known and not hasattr(thing, part):
                missing.append(name)
                break
            thing = getattr(thing, part, None)
    return missing


def test_everything_that_it_names_is_there() -> None:
    found = rows()
    assert len(found) > 60
    for there, here in found:
        if not here.startswith("planned"):
            for code in re.findall(r"`([^`]+)`", here):
                assert unknown(code) == [], (there, code)


def test_only_what_runs_elsewhere_or_in_a_framework_is_planned() -> None:
    planned = [here for _, here in rows() if here.startswith("planned")]
    assert planned
    for here in planned:
        assert re.search(r"executor|transport|tenure\.contrib\.litestar|jobs\.events", here), here


def test_each_fault_is_shown_by_a_test_that_is_there() -> None:
    faults = PAGE.read_text(encoding="utf-8").partition("## What goes wrong there")[2]
    lines = [row for row in faults.splitlines() if row.startswith("| ")][1:]
    assert len(lines) > 40
    for row in lines:
        named = re.findall(r"`([\w/.]+\.py)::(test_\w+)`", row)
        assert named, row
        for path, name in named:
            text = (ROOT / path).read_text(encoding="utf-8")
            assert re.search(rf"def {name}\(", text), f"{path}::{name}"
