"""benchmarks: each one yields plausible rows at a tiny size. Nothing here judges a time."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import __main__, cases, report
from benchmarks.measure import Sample, Spread, duel, percentile, ratio, spread
from benchmarks.rows import Row, against, as_text, missing
from benchmarks.setting import ENGINES, POSTGRESQL, TINY, Setting, settings
from benchmarks.targets import TARGETS

PLACES = [
    (name, engine) for name, benchmark in cases.load().items() for engine in benchmark.ENGINES
]


@pytest.mark.parametrize(("name", "engine"), PLACES)
def test_a_benchmark_yields_rows_with_numbers(
    name: str, engine: str, request: pytest.FixtureRequest
) -> None:
    server = request.getfixturevalue("postgres_server") if engine == POSTGRESQL else None
    with settings(engine, TINY, server) as setting:
        rows = list(cases.load()[name].run(setting))
        assert not list(setting.folder.iterdir()), "it cleans up"
    assert rows
    for row in rows:
        assert row.engine == engine
        if row.now is None:
            assert row.note, "a row without a number says why"
        else:
            assert row.now.low <= row.now.high
            assert math.isfinite(row.now.median)
            assert row.now.median > 0
            assert row.ours


def test_every_target_has_a_benchmark_for_its_engine() -> None:
    measured = {engine for _, engine in PLACES}
    assert {engine for _, engine in TARGETS} <= measured <= set(ENGINES)


def test_every_benchmark_has_a_purpose() -> None:
    for benchmark in cases.load().values():
        assert cases.purpose(benchmark).endswith(".") or cases.purpose(benchmark).count(":") == 1


def test_contestants_take_turns_and_a_first_round_is_dropped() -> None:
    order: list[str] = []

    def contestant(name: str) -> Sample:
        order.append(name)
        return Sample(len(order), 1.0, 1.0)

    samples = duel({"a": lambda: contestant("a"), "b": lambda: contestant("b")}, 2)
    assert "".join(order) == "ab" + "ba" + "ab"
    assert [sample.count for sample in samples["a"]] == [4, 5]


def test_ratios_are_taken_round_by_round() -> None:
    assert ratio([10, 40], [20, 40]) == Spread(0.75, 0.5, 1.0)
    assert spread([1, 2, 3, 4, 100]) == Spread(3, 2, 4)
    assert percentile([3, 1, 2], 50) == 2
    assert percentile([1], 99) == 1


def test_the_table_judges_by_the_target() -> None:
    slow, fast = [Sample(100, 1.0, 0.1)], [Sample(200, 1.0, 0.1)]
    met = against("drain", "sqlite-full", "drain / ideal", slow, "ideal", fast)
    missed = against("enqueue", "sqlite-full", "enqueue / raw", slow, "raw", fast)
    free = against("drain", "memory", "drain / ideal", slow, "ideal", fast)
    assert [met.verdict, missed.verdict, free.verdict] == ["met", "missed", ""]
    stalled = [*fast, Sample(1, 1.0, 0.1)]
    noisy = against("drain-peer", "sqlite-full", "drain / huey", slow * 2, "huey", stalled)
    assert noisy.verdict == "unclear"
    assert met.target == ">= 0.45x"
    text = as_text([met, missed, missing("drain-peer", "sqlite-full", "huey", "not installed")])
    assert "0.5x" in text
    assert "not installed" in text


def test_the_list_names_every_benchmark(capsys: pytest.CaptureFixture[str]) -> None:
    assert __main__.main(["--list"]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert listed == list(cases.NAMES)


def test_an_unknown_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert __main__.main(["nothing"]) == 2
    assert "drain" in capsys.readouterr().err


def test_one_that_fails_takes_no_other_along(monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing:
        ENGINES = ("memory", "any")

        def run(self, setting: Setting) -> Iterator[Row]:
            if setting.engine == "memory":
                raise AssertionError("a lease was lost")
            yield missing("it", setting.engine, "m", "there")

    monkeypatch.setattr(cases, "load", lambda: {"it": Failing()})
    failed, there = __main__.measure(["it"], ENGINES, TINY)
    assert (failed.engine, there.note) == ("memory", "there")
    assert "a lease was lost" in failed.note


def test_results_are_written_as_pages_and_json(tmp_path: Path) -> None:
    rows = [
        Row(name="drain", engine="sqlite-full", measure="m", now=Spread(1, 1, 1), ours="1/s"),
        Row(name="drain", engine="memory", measure="m", now=Spread(1, 1, 1), ours="1/s"),
        Row(name="import", engine="any", measure="m", now=Spread(1, 1, 1), unit="ms", ours="1 ms"),
    ]
    pages = report.write(rows, "tiny", tmp_path)
    assert [page.name for page in pages] == ["bench-sqlite.md", "bench-memory.md"]
    for page in pages:
        text = page.read_text()
        assert text.count("| import |") == text.count("| drain |") == 1
        assert str(tmp_path) not in text
    written = json.loads(__main__.as_json(rows, "tiny"))
    assert written["rows"][0]["verdict"] == "met"
