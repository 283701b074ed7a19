"""What a benchmark yields, and the table made of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from benchmarks.measure import Sample, Spread, ratio, spread
from benchmarks.targets import TARGETS


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One comparison. `now` is what the target bounds, in `unit` (`x`: ours / the other one)."""

    name: str
    engine: str
    measure: str
    now: Spread | None = None
    unit: str = "x"
    ours: str = ""
    beside: str = ""
    note: str = ""

    @property
    def target(self) -> str:
        target = TARGETS.get((self.name, self.engine))
        return "" if target is None else target.text(_suffix(self.unit))

    @property
    def verdict(self) -> str:
        """`met`, `missed`, `unclear` if the middle half lies on both sides; else nothing."""
        target = TARGETS.get((self.name, self.engine))
        if target is None or self.now is None:
            return ""
        met = {target.met(value) for value in self.now}
        return "unclear" if len(met) > 1 else "met" if met == {True} else "missed"


def against(
    name: str,
    engine: str,
    measure: str,
    ours: Sequence[Sample],
    other: str,
    others: Sequence[Sample],
    note: str = "",
) -> Row:
    """Our rate as a multiple of another one's, round by round."""
    return Row(
        name=name,
        engine=engine,
        measure=measure,
        now=ratio([s.rate for s in ours], [s.rate for s in others]),
        ours=per_second(ours),
        beside=f"{other} {per_second(others)}",
        note=note,
    )


def missing(name: str, engine: str, measure: str, note: str, unit: str = "x") -> Row:
    """A row that could not be measured here, and why."""
    return Row(name=name, engine=engine, measure=measure, note=note, unit=unit)


def per_second(samples: Sequence[Sample]) -> str:
    return f"{short(spread(s.rate for s in samples).median)}/s"


def cpu_each(samples: Sequence[Sample]) -> str:
    return f"{short(spread(s.cpu_us for s in samples).median)} us"


def short(value: float) -> str:
    """A number with about three digits that mean something."""
    if abs(value) >= 100:
        return f"{float(f'{value:.3g}'):,.0f}"
    return f"{value:.3g}"


HEAD = ("benchmark", "engine", "measure", "target", "now", "middle half", "", "tenure", "beside")


def cells(row: Row) -> tuple[str, ...]:
    """The row as text, in the order of `HEAD`."""
    if row.now is None:
        now, middle = row.note or "-", ""
    else:
        suffix = _suffix(row.unit)
        now = f"{short(row.now.median)}{suffix}"
        middle = f"{short(row.now.low)} - {short(row.now.high)}"
    beside = "; ".join(filter(None, (row.beside, row.note if row.now else "")))
    return (
        row.name, row.engine, row.measure, row.target, now, middle, row.verdict, row.ours, beside,
    )  # fmt: skip


def as_text(rows: Iterable[Row]) -> str:
    """An aligned table for a terminal."""
    table = [HEAD, *(cells(row) for row in rows)]
    widths = [max(len(line[i]) for line in table) for i in range(len(HEAD))]
    lines = ("  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) for line in table)
    return "\n".join(line.rstrip() for line in lines)


def as_markdown(rows: Iterable[Row]) -> str:
    table = [HEAD, ("---",) * len(HEAD), *(cells(row) for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in table)


def _suffix(unit: str) -> str:
    return unit if unit in ("x", "%") else f" {unit}"
