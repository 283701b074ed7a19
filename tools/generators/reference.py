"""Writes the tables of the reference: options from docstrings, engines from their traits."""

from __future__ import annotations

import inspect
import re
from typing import Any

from tenure.engines.open import open_engine
from tenure.options import TaskOptions
from tenure.recurring import ScheduleOptions
from tenure.settings import Settings
from tenure.worker.options import WorkerOptions

_ITEM = re.compile(r"^- (.*?)(?=^- |^\S|\Z)", re.M | re.S)


def _items(cls: type[Any]) -> str:
    """The list in a class's docstring; every field of its own must be in it."""
    text = inspect.getdoc(cls) or ""
    items = [" ".join(item.split()) for item in _ITEM.findall(text)]
    own = [f for f in cls.__struct_fields__ if f in cls.__annotations__]
    missing = [f for f in own if not any(f"`{f}`" in item for item in items)]
    if missing:
        raise ValueError(f"{cls.__name__} does not document {', '.join(missing)}")
    return "\n".join(f"- {item}" for item in items) + "\n"


def _engines() -> str:
    rows = ["| URL | durable | shared | push | largest payload |", "|---|---|---|---|---|"]
    urls = "sqlite:///jobs.db postgresql://host/database redis://host/0 memory://".split()
    for url in urls:
        traits = open_engine(url).traits
        flags = " | ".join(
            "yes" if on else "no" for on in (traits.durable, traits.shared, traits.push)
        )
        rows.append(f"| `{url}` | {flags} | {traits.max_payload // 1024} KiB |")
    return "\n".join(rows) + "\n"


OUTPUTS = {
    "docs/reference/options.md#task-options": lambda: _items(TaskOptions),
    "docs/reference/options.md#schedule-options": lambda: _items(ScheduleOptions),
    "docs/reference/options.md#worker-options": lambda: _items(WorkerOptions),
    "docs/reference/options.md#settings": lambda: _items(Settings),
    "docs/reference/engines.md#engines": _engines,
}
