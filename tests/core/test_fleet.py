"""core/fleet.py: what is wrong with a row, and how it is told."""

from __future__ import annotations

import pytest

from tenure.core.fleet import Flaw, findings, flaw_of
from tests.core.rows import NOW, SECOND, pending, running

FIELDS = ("state", "ready", "available_at", "owner", "lease_until", "finished_at")


def flaw(row, now: int = NOW) -> Flaw | None:
    return flaw_of(**{name: getattr(row, name) for name in FIELDS}, now=now)


@pytest.mark.parametrize(
    ("row", "wanted"),
    [
        (pending(), None),
        (pending(available_at=NOW + 60 * SECOND), None),
        (pending(available_at=NOW + 60 * SECOND + 1), Flaw.TOO_EARLY),
        (pending(available_at=NOW + 99 * SECOND, ready=False), None),
        (pending(owner="host:1:abc"), None),
        (running(), None),
        (running(available_at=NOW + 99 * SECOND), None),
        (running(lease_until=NOW - 60 * SECOND), None),
        (running(lease_until=NOW - 60 * SECOND - 1), Flaw.LEFT),
        (running(owner=None), Flaw.NO_HOLDER),
        (running(lease_until=None), Flaw.NO_HOLDER),
        (pending(state="failed"), Flaw.NO_END),
        (pending(state="failed", finished_at=NOW), None),
        (pending(state="stuck"), Flaw.NO_STATE),
    ],
)
def test_what_is_wrong_with_a_row(row, wanted):
    assert flaw(row) == wanted


def test_findings_name_the_jobs_in_a_steady_order():
    flawed = {Flaw.NO_END: ["b", "a"], Flaw.NO_STATE: [str(n) for n in range(9)]}
    first, second = findings(flawed)
    assert (first.code, second.code) == ("job-without-state", "job-ended-without-time")
    assert first.text.startswith("9 jobs have a state that does not exist")
    assert first.text.endswith(": 0, 1, 2, 3, 4, ...")
    assert second.text.endswith(": a, b")
    assert all(found.problem and found.remedy for found in (first, second))
    (hint,) = findings({Flaw.LEFT: ["a"]})
    assert not hint.problem
    assert findings({}) == ()


def test_every_flaw_can_be_told():
    for kind in Flaw:
        (found,) = findings({kind: ["x"]})
        assert found.code == kind
