"""The words for a job that was expected and is not there: what comes near."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tenure.core.job import Job

_SHOWN = 5
_LONGEST = 80


def describe_misses(
    name: str, wanted: Mapping[str, Any], defaults: Mapping[str, Any], jobs: Sequence[Job]
) -> str:
    """No job of this task had these arguments: the nearest of the same task, and what else is."""
    asked = f" with {_listed(wanted)}" if wanted else ""
    lines = [f"no job of {name}{asked} was enqueued"]
    same = [job for job in jobs if job.task == name]
    gaps = sorted(
        ((_differences({**defaults, **job.arguments}, wanted), job) for job in same),
        key=lambda gap: len(gap[0]),
    )
    if same:
        lines.append(f"there are {len(same)} of {name}:" if len(same) > 1 else f"one of {name} is:")
    for differences, job in gaps[:_SHOWN]:
        state = "" if job.label == "pending" else f", {job.label}"
        lines.append(f"  {job.id}{state}: {'; '.join(differences)}")
    if len(gaps) > _SHOWN:
        lines.append(f"  and {len(gaps) - _SHOWN} more")
    others = Counter(job.task for job in jobs if job.task != name)
    if others:
        counts = ", ".join(f"{task} ({count})" for task, count in sorted(others.items()))
        lines.append(f"of other tasks: {counts}")
    if not jobs:
        lines.append("no job was enqueued at all")
    return "\n".join(lines)


def _differences(arguments: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    found = []
    for name, value in wanted.items():
        if name not in arguments:
            found.append(f"{name} is not given")
        elif arguments[name] != value:
            found.append(f"{name}={_short(arguments[name])}, not {_short(value)}")
    return found


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={_short(value)}" for name, value in values.items())


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
