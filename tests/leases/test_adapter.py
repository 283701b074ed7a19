"""Clients made of functions, and what the exceptions of other people's clients mean."""

from __future__ import annotations

import threading
import urllib.error
from datetime import timedelta
from email.message import Message
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from tenure.core.lease import Beat, Busy, Extended, Failed, Lost
from tenure.core.retry import RetryPolicy
from tenure.errors import ConfigurationError, EngineUnavailable, LeaseLost
from tenure.leases import LeaseRenewal, client_from, verdict
from tenure.leases.verdicts import UNAUTHORIZED
from tests.leases.kit import opened, until
from tests.leases.service import Status

BEAT = Beat("r1", 0, "", 60.0)


def ask(client: Any, how: str = "extend") -> Any:
    async def main():
        [answer] = await getattr(client, how)([BEAT])
        return answer

    return anyio.run(main)


@pytest.mark.parametrize(
    ("returned", "means"),
    [
        (None, Extended(60.0)),
        (30, Extended(30.0)),
        (1.5, Extended(1.5)),
        (timedelta(minutes=2), Extended(120.0)),
        (Extended(10.0, cancel_requested=True), Extended(10.0, cancel_requested=True)),
        (Busy(), Busy()),
        (Lost("taken"), Lost("taken")),
        (Failed("odd", 3.0), Failed("odd", 3.0)),
    ],
)
@pytest.mark.parametrize("kind", ["plain", "async", "awaitable"])
def test_what_a_function_returns(returned, means, kind):
    async def later() -> object:
        return returned

    async def function(receipt, seconds):
        assert (receipt, seconds) == ("r1", 60.0)
        return returned

    functions = {
        "plain": lambda receipt, seconds: returned,
        "async": function,
        "awaitable": lambda receipt, seconds: later(),
    }
    assert ask(client_from(functions[kind])) == means


@pytest.mark.parametrize("returned", [True, "60", object()])
def test_what_a_function_may_not_return(returned):
    with pytest.raises(TypeError, match="renew must return"):
        ask(client_from(lambda receipt, seconds: returned))


def test_explicit_extensions_may_have_a_function_of_their_own():
    client = client_from(lambda r, s: 1.0, lambda r, s: 2.0)
    assert ask(client) == Extended(1.0)
    assert ask(client, "change") == Extended(2.0)
    assert ask(client_from(lambda r, s: 1.0), "change") == Extended(1.0)


def test_what_is_no_function_is_refused():
    nothing: Any = 0
    for arguments in ((None,), ("renew",), (print, "extend")):
        with pytest.raises(ConfigurationError, match="must be a function"):
            client_from(*arguments)
    with pytest.raises(ConfigurationError, match="prepare must be"):
        client_from(print, prepare=nothing)
    with pytest.raises(ConfigurationError, match="judge must be"):
        client_from(print, judge=nothing)


def test_its_defaults_are_those_of_message_services():
    client = client_from(print)
    assert client.resolution == 1.0
    assert client.retry == RetryPolicy.constant(3.0)
    assert not hasattr(client, "prepare")


def raising(error: BaseException):
    def function(receipt, seconds):
        raise error

    return function


def test_an_exception_is_judged():
    assert ask(client_from(raising(Status(404)))) == Lost("gone")
    assert ask(client_from(raising(Status(500)))) == Failed("Status: status 500")
    with pytest.raises(ZeroDivisionError):
        ask(client_from(raising(ZeroDivisionError())))
    client = client_from(raising(ZeroDivisionError()), judge=lambda error: Lost("odd"))
    assert ask(client) == Lost("odd")


def test_leases_that_need_new_credentials_share_one_fetch():
    fetched: list[int] = []
    current = ["old"]

    async def renew(receipt, seconds):
        if current[0] == "old":
            raise Status(401)

    async def prepare():
        fetched.append(1)
        await anyio.sleep(0.01)
        current[0] = "new"

    client = client_from(renew, prepare=prepare)

    async def main():
        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(client.extend, [BEAT])

    anyio.run(main)
    assert len(fetched) == 1


def test_credentials_that_can_not_be_fetched_are_final():
    async def prepare():
        raise OSError("no identity")

    assert ask(client_from(raising(Status(401)), prepare=prepare)) == Lost("unauthorized")


def test_a_blocking_client_runs_in_bounded_daemon_threads_of_the_keeper(desk):
    gate = threading.Event()
    inside: set[threading.Thread] = set()
    most: list[int] = []

    def renew(receipt, seconds):
        inside.add(threading.current_thread())
        most.append(len(inside))
        gate.wait(10)
        inside.discard(threading.current_thread())

    client = client_from(renew)
    renewals = [LeaseRenewal(client, f"r{i}", keeper=desk.keeper) for i in range(50)]
    LeaseRenewal.start_all(renewals)
    desk.clock.advance(60)
    until(lambda: len(inside) == 32)
    assert all(thread.daemon for thread in inside)
    assert threading.current_thread() not in inside
    assert not any("keeper" in thread.name for thread in inside)
    gate.set()
    until(desk.settled)
    assert max(most) == 32
    assert all(renewal.remaining() == 270 for renewal in renewals)
    LeaseRenewal.stop_all(renewals)


def test_a_blocking_client_that_hangs_holds_up_its_own_lease_only(desk):
    gate = threading.Event()
    calls: list[str] = []

    def renew(receipt, seconds):
        calls.append(receipt)
        if receipt == "stuck":
            gate.wait(10)

    client = client_from(renew)
    stuck, fine = (LeaseRenewal(client, name, keeper=desk.keeper) for name in ("stuck", "fine"))
    LeaseRenewal.start_all([stuck, fine])
    for _ in range(5):
        desk.clock.advance(60)
        until(lambda: fine.remaining() == 270)
    until(lambda: stuck.lease._told_lost)
    assert stuck.reason == "deadline"
    assert calls.count("stuck") == 1  # never two of one lease, whatever the time limits say
    gate.set()
    LeaseRenewal.stop_all([stuck, fine])


class Blocking:
    """A client of plain methods only."""

    resolution = 0
    retry = RetryPolicy.constant(1.0)

    def __init__(self) -> None:
        self.log: list[str] = []

    def note(self, what: str) -> None:
        self.log.append(f"{what} in {threading.current_thread().name.split('-')[0]}")

    def open(self) -> None:
        self.note("open")

    def close(self) -> None:
        self.note("close")

    def extend(self, beats, /):
        self.note("extend")
        return [Extended(beat.seconds) for beat in beats]


def test_a_client_may_be_made_of_plain_methods(desk):
    client = Blocking()
    desk.keeper.register(client, [desk.lease("a"), desk.lease("b")])
    desk.clock.advance(10)
    until(desk.settled)
    desk.keeper.discard(client)
    assert [line.split()[0] for line in client.log] == ["open", "extend", "close"]
    assert not any("tenure" in line for line in client.log)  # never on the keeper's own thread


def test_stateless_clients_leave_nothing_behind(desk):
    for i in range(5):
        with LeaseRenewal(client_from(lambda r, s: None), f"r{i}", keeper=desk.keeper):
            desk.clock.advance(60)
            until(desk.settled)
    desk.look()
    until(lambda: not desk.keeper._book._desks)
    runner = desk.keeper._runner
    assert runner is not None
    until(lambda: not runner._links)


def test_a_late_answer_of_a_forgotten_client_is_waited_for(desk):
    """Forgetting an idle client must not cut off what is still under way."""
    gate = threading.Event()
    done: list[str] = []

    async def renew(receipt, seconds):
        await opened(gate)
        done.append(receipt)

    renewal = LeaseRenewal(client_from(renew), "r1", keeper=desk.keeper)
    renewal.start()
    desk.clock.advance(60)
    until(lambda: renewal.lease._flight)
    renewal.stop(wait=False)
    desk.look()
    gate.set()
    renewal.stop()
    assert done == ["r1"]


# What exceptions mean


def http_error(code: int, **headers: str) -> urllib.error.HTTPError:
    message = Message()
    for name, value in headers.items():
        message[name.replace("_", "-")] = value
    return urllib.error.HTTPError("http://x", code, "text", message, None)


class Odd(Exception):
    def __init__(self, **attributes) -> None:
        self.__dict__.update(attributes)


@pytest.mark.parametrize(
    ("error", "means"),
    [
        (LeaseLost("x"), Lost("taken")),
        (http_error(404), Lost("gone")),
        (http_error(409), Lost("taken")),
        (http_error(410), Lost("settled")),
        (http_error(400), Lost("refused")),
        (http_error(403), Lost("refused")),
        (Odd(status=401), UNAUTHORIZED),
        (Odd(response=SimpleNamespace(status_code=404, headers={})), Lost("gone")),
        (Odd(response=SimpleNamespace(status=410)), Lost("settled")),
        (Odd(response={"ResponseMetadata": {"HTTPStatusCode": 409}}), Lost("taken")),
        (Odd(response={"Error": {}}), None),
        (Odd(code=lambda: 5), None),
        (Odd(status=True), None),
        (Odd(code=7), None),
        (ZeroDivisionError(), None),
    ],
    ids=repr,
)  # fmt: skip
def test_what_an_exception_means(error, means):
    assert verdict(error) == means


@pytest.mark.parametrize(
    ("error", "after"),
    [
        (http_error(429), None),
        (http_error(429, Retry_After="7"), 7.0),
        (http_error(503, Retry_After="7.5"), 7.5),
        (http_error(500, Retry_After="soon"), None),
        (http_error(408), None),
        (Odd(status_code=429, retry_after=9), 9.0),
        (Odd(status_code=429, retry_after=float("inf")), None),
        (Odd(status=503, response=SimpleNamespace(headers={"retry-after": "4"})), 4.0),
        (ConnectionResetError(), None),
        (TimeoutError(), None),
        (EngineUnavailable("x"), None),
    ],
    ids=repr,
)
def test_what_passes_and_when_to_come_back(error, after):
    answer = verdict(error)
    assert isinstance(answer, Failed)
    assert answer.after == after


def test_a_date_to_come_back_without_a_clock_to_compare_uses_this_machines():
    from email.utils import formatdate

    from tenure.clock import SYSTEM_CLOCK

    date = formatdate(SYSTEM_CLOCK.time_us() / 1e6 + 50, usegmt=True)
    answer = verdict(http_error(429, Retry_After=date))
    assert isinstance(answer, Failed)
    assert 40 < (answer.after or 0) <= 51
