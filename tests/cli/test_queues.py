"""`tenure queues` and its commands."""

from __future__ import annotations

import pytest

from tenure.cli.rates import RateText, rate_text
from tenure.core.limits import Rate
from tests.cli.conftest import Project

SECOND = 1_000_000
URL = "sqlite:///queues.db"


def test_a_queue_is_paused_resumed_and_limited(tenure: Project) -> None:
    tenure("migrate", URL)
    assert tenure("queues", "pause", URL, "mail").stdout == "mail: paused\n"
    limits = ("--rate", "100/m:5", "--key-concurrency", "1")
    said = tenure("queues", "limit", URL, "mail", *limits).stdout
    assert said == "mail: paused, rate 100/m:5, key-concurrency 1\n"
    [shown] = tenure.lines("queues", URL)
    assert (shown["queue"], shown["paused"], shown["pending"]) == ("mail", True, 0)
    assert shown["limits"] == {
        "concurrency": None,
        "rate": {"count": 100, "per_seconds": 60.0, "burst": 5},
        "key_concurrency": 1,
        "key_rate": None,
    }
    assert "paused, rate 100/m:5, key-concurrency 1" in tenure("queues", "list", URL).stdout
    settings = tenure.json("queues", "resume", URL, "mail")
    assert (settings["paused"], settings["limits"]["key_concurrency"]) == (False, 1)
    assert tenure("queues", "limit", URL, "mail", "--none").stdout == "mail: no limits\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("pause", URL), "one queue, not 0"),
        (("pause", URL, "a", "b"), "one queue, not 2"),
        (("limit", URL, "a"), "give either limits or --none"),
        (("limit", URL, "a", "--none", "--concurrency", "1"), "either limits or"),
        (("limit", URL, "a", "--rate", "fast"), "'fast' is no rate"),
        (("limit", URL, "a", "--rate", "0/s"), "count must be an integer from 1"),
    ],
)
def test_what_is_wrong_is_said(tenure: Project, arguments: tuple[str, ...], message: str) -> None:
    assert message in tenure("queues", *arguments, code=2).output


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("100/s", Rate(100, SECOND)),
        ("5/m", Rate(5, 60 * SECOND)),
        ("5/h:2", Rate(5, 3600 * SECOND, 2)),
        ("1/d", Rate(1, 86_400 * SECOND)),
        ("10/30", Rate(10, 30 * SECOND)),
        ("10/0.5:3", Rate(10, SECOND // 2, 3)),
    ],
)
def test_a_rate_is_read_as_it_is_written(text: str, rate: Rate) -> None:
    assert RateText().convert(text, None, None) == rate
    assert rate_text(rate) == text
