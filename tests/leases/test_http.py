"""The rules, against a service that is not ours: over HTTP, with a blocking and an async client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from email.utils import formatdate

import pytest

from tenure.core.lease import Extended, Lost
from tenure.errors import EngineUnavailable, LeaseLost
from tenure.leases import FunctionClient, LeaseRenewal, client_from
from tenure.leases import request as request_module
from tests.leases.http_service import RESET, SILENCE, Clients, Fault, HttpService
from tests.leases.kit import Desk, until
from tests.leases.test_renewal import advancing

KINDS = ["blocking", "async"]
Make = Callable[..., FunctionClient]


@pytest.fixture
def web(desk: Desk) -> Iterator[HttpService]:
    with HttpService(desk.clock) as service:
        yield service


@pytest.fixture
def clients(web: HttpService) -> Clients:
    return Clients(web)


@pytest.fixture(params=KINDS)
def make(request: pytest.FixtureRequest, clients: Clients) -> Make:
    def make(*, refresh: bool = True) -> FunctionClient:
        if request.param == "blocking":
            return client_from(clients.renew, prepare=clients.refresh if refresh else None)
        return client_from(clients.arenew, prepare=clients.arefresh if refresh else None)

    return make


@pytest.fixture
def renewal(desk: Desk, web: HttpService, make: Make) -> Iterator[LeaseRenewal]:
    with LeaseRenewal(make(), web.grant("r1"), keeper=desk.keeper) as renewal:
        yield renewal


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_module, "LONGEST_REQUEST", 0.3)


def tick(desk: Desk, seconds: float) -> None:
    desk.clock.advance(seconds)
    until(desk.settled)


def test_a_held_lease_is_renewed_for_as_long_as_it_takes(desk, web, renewal):
    for _ in range(20):
        tick(desk, 60)
    assert [asked.seconds for asked in web.asked] == [300.0] * 20
    assert renewal.remaining() == 270


@pytest.mark.parametrize(
    ("status", "reason"),
    [(404, "gone"), (409, "taken"), (410, "settled"), (400, "refused"), (403, "refused"),
     (422, "refused")],
)  # fmt: skip
def test_a_definitive_answer_ends_the_lease(desk, web, renewal, status, reason):
    web.faults.append(Fault(status))
    tick(desk, 60)
    assert renewal.reason == reason
    tick(desk, 120)
    assert len(web.asked) == 1


@pytest.mark.parametrize(
    "fault", [Fault(500), Fault(502), Fault(503), Fault(408), Fault(429), RESET, SILENCE],
    ids=lambda fault: str(getattr(fault, "status", fault)),
)  # fmt: skip
def test_a_passing_failure_is_tried_again_after_three_seconds(desk, web, renewal, fault, caplog):
    web.faults.extend([fault, fault])
    tick(desk, 60)
    for _ in range(2):
        tick(desk, 2.9)
        assert len(web.asked) in (1, 2)
        tick(desk, 0.1)
    assert len(web.asked) == 3
    assert not renewal.lost
    assert renewal.remaining() == 270
    assert caplog.text.count("could not be renewed") == 1
    tick(desk, 60)
    assert len(web.asked) == 4


@pytest.mark.parametrize(
    ("after", "waits"), [("20", 20), ("0", 1), ("-5", 1), ("3600", 60), ("nonsense", 3)]
)
@pytest.mark.parametrize("status", [429, 503])
def test_the_services_word_on_when_to_come_back_counts(desk, web, renewal, status, after, waits):
    web.faults.append(Fault(status, {"Retry-After": after}))
    tick(desk, 60)
    tick(desk, waits - 0.1)
    assert len(web.asked) == 1
    tick(desk, 0.1)
    assert len(web.asked) == 2
    assert not renewal.lost


def test_the_word_may_be_a_date_by_the_services_own_clock(desk, web, renewal):
    dates = {"Date": formatdate(1e9, usegmt=True), "Retry-After": formatdate(1e9 + 30, usegmt=True)}
    web.faults.append(Fault(429, dates))
    tick(desk, 60)
    tick(desk, 29.9)
    assert len(web.asked) == 1
    tick(desk, 0.1)
    assert len(web.asked) == 2


def test_throttling_never_waits_the_lease_away(desk, web, renewal):
    web.faults.extend([Fault(429, {"Retry-After": "60"})] * 50)
    tick(desk, 60)
    while not renewal.lost:
        desk.clock.advance(max(0.05, min(2.0, renewal.remaining() / 2)))
        until(desk.settled)
    assert renewal.reason == "deadline"
    gaps = [b.at - a.at for a, b in zip(web.asked, web.asked[1:], strict=False)]
    assert len(gaps) > 5
    assert all(gap <= 62 for gap in gaps)


def test_new_credentials_are_fetched_once(desk, web, clients, renewal):
    assert clients.refreshed == 1  # before the start
    web.password = "two"
    tick(desk, 60)
    assert [asked.authorization for asked in web.asked] == ["Bearer one", "Bearer two"]
    assert not renewal.lost
    assert renewal.remaining() == 270
    tick(desk, 60)
    assert clients.refreshed == 2


def test_credentials_that_do_not_help_end_the_lease(desk, web, renewal):
    web.faults.extend([Fault(401), Fault(401)])
    tick(desk, 60)
    assert renewal.reason == "unauthorized"
    assert len(web.asked) == 2


def test_without_a_way_to_fetch_credentials_they_are_final_at_once(desk, web, make):
    web.faults.append(Fault(401))
    with LeaseRenewal(make(refresh=False), web.grant("r1"), keeper=desk.keeper) as renewal:
        tick(desk, 60)
        assert renewal.reason == "unauthorized"
        assert len(web.asked) == 1


def test_a_service_that_is_gone_loses_the_lease_before_it_would_give_it_away(desk, web, renewal):
    web.faults.extend([Fault(503)] * 1000)
    lost_at = None
    while lost_at is None:
        tick(desk, 0.5)
        if renewal.lease._reason is not None:  # told, not computed by whoever looks
            lost_at = desk.clock.now
    assert renewal.reason == "deadline"
    assert web.until["r1"] - lost_at >= 15  # half of the margin


def test_a_lease_that_ran_out_at_the_service_is_lost(desk, web, renewal):
    web.until["r1"] = desk.clock.now
    tick(desk, 60)
    assert renewal.reason == "taken"


def test_extensions_by_hand(desk, web, renewal):
    assert renewal.extend(90) == Extended(90.0)
    web.faults.extend([Fault(503), RESET])
    with advancing(desk):
        assert renewal.extend(60) == Extended(60.0)
    web.faults.extend([Fault(500)] * 3)
    with advancing(desk), pytest.raises(EngineUnavailable, match="500"):
        renewal.extend(60)
    web.settled.add("r1")
    assert renewal.extend(60) == Lost("settled")
    web.settled.clear()
    web.until["r1"] = 0
    with pytest.raises(LeaseLost, match="taken"):
        renewal.extend(60)


def test_no_lease_waits_for_anothers_answer(desk, web, make):
    client = make()
    web.faults.append(SILENCE)
    renewals = [LeaseRenewal(client, web.grant(f"r{i}"), keeper=desk.keeper) for i in range(20)]
    LeaseRenewal.start_all(renewals)
    desk.clock.advance(60)
    until(lambda: sum(renewal.remaining() == 270 for renewal in renewals) == 19)
    until(desk.settled)
    tick(desk, 3)
    assert len(web.asked) == 21
    assert not any(renewal.lost for renewal in renewals)
    LeaseRenewal.stop_all(renewals)
