"""The benchmarks. Each module has a docstring, the `ENGINES` it is for, and `run(setting)`."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Protocol, cast

from benchmarks.rows import Row
from benchmarks.setting import Setting

NAMES = (
    "drain",
    "enqueue",
    "enqueue_sync",
    "enqueue_concurrent",
    "enqueue_many",
    "backlog",
    "limits",
    "wakeup",
    "idle",
    "processes",
    "redis",
    "lease_renewal",
    "lease_registration",
    "lease_handles",
    "startup",
)


class Benchmark(Protocol):
    """What a module of this package is."""

    ENGINES: tuple[str, ...]

    def run(self, setting: Setting) -> Iterator[Row]: ...


def purpose(benchmark: Benchmark) -> str:
    """The first line of its docstring."""
    return (benchmark.__doc__ or "").partition("\n")[0]


def load() -> Mapping[str, Benchmark]:
    """All of them, in the order in which they run."""
    return {name: cast(Benchmark, importlib.import_module(f"{__name__}.{name}")) for name in NAMES}
