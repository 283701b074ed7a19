"""What tasks say about exceptions: which are tried again, which are not, and when."""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import httpx
import pytest
import requests

from tenure import Cancel, Discard, Retry, Snooze, retry_after_of
from tenure.core.directives import Handoff
from tenure.core.durations import SECOND
from tenure.core.job import Job, NewJob, new_row
from tenure.core.states import State
from tenure.errors import ConfigurationError, MissingDependency
from tenure.failures import AFTER_MAX, FailureRules
from tenure.signatures import INJECTED
from tests.worker.kit import House, made
from tests.worker.puppet import Strings
from tests.worker.test_endings import raising

pytestmark = pytest.mark.anyio
JOB = Job(new_row(NewJob(id="a", task="work"), 0))


@pytest.fixture
def house(memory: tuple[House, Strings]) -> House:
    """One engine will do: rules are asked before anything is written."""
    return memory[0]


async def run_once(house: House, kind: str, act: Any, **options: Any) -> Job:
    """The job after one attempt of a body that ends as `act` does; three are allowed."""
    options = {"max_attempts": 3, **options}
    job_id = await house.put(house.task(made(kind, "body", act), **options), run_at=1)
    await house.burst()
    return await house.job(job_id)


# The rules themselves


@pytest.mark.parametrize(
    ("rules", "error", "again"),
    [
        ({}, ValueError(), True),
        ({"retry_for": (OSError,)}, ConnectionError(), True),
        ({"retry_for": (OSError,)}, ValueError(), False),
        ({"discard_for": (ValueError,)}, UnicodeError(), False),
        ({"discard_for": (ValueError,)}, KeyError(), True),
        # The nearest class decides, whichever list it is in.
        ({"retry_for": (OSError,), "discard_for": (FileNotFoundError,)}, OSError(), True),
        (
            {"retry_for": (OSError,), "discard_for": (FileNotFoundError,)},
            FileNotFoundError(),
            False,
        ),
        ({"retry_for": (ConnectionError,), "discard_for": (OSError,)}, BrokenPipeError(), True),
        ({"retry_for": (ConnectionError,), "discard_for": (OSError,)}, PermissionError(), False),
        ({"retry_for": (ConnectionError,), "discard_for": (OSError,)}, KeyError(), False),
        # What the function says goes before, unless it has no opinion.
        ({"retry_if": lambda e, j: False}, ValueError(), False),
        ({"retry_if": lambda e, j: True, "discard_for": (ValueError,)}, ValueError(), True),
        ({"retry_if": lambda e, j: None, "discard_for": (ValueError,)}, ValueError(), False),
        ({"retry_if": lambda e, j: None, "retry_for": (ValueError,)}, ValueError(), True),
    ],
)
def test_the_answer(rules: Any, error: BaseException, again: bool) -> None:
    assert FailureRules(**rules).answer(error, JOB) is again


def test_a_function_is_asked_about_the_exception_and_its_job() -> None:
    asked: list[tuple[object, object]] = []
    error = ValueError("x")
    rules = FailureRules(retry_if=lambda e, j: asked.append((e, j)))
    assert rules.answer(error, JOB) is True
    assert asked == [(error, JOB)]


async def nobody_awaits(error: BaseException, job: Job) -> bool:
    return False


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda e, j: 1 / 0, "raised ZeroDivisionError"),
        (lambda e: True, "raised TypeError"),
        (lambda e, j: "yes", "answered with a str"),
        (lambda e, j: 1, "answered with a int"),
        (lambda e, j: Handoff(), "answered with a Handoff"),
        (lambda e, j: ValueError(), "answered with a ValueError"),
        (lambda e, j: nobody_awaits(e, j), "answered with a coroutine"),
    ],
)
def test_a_function_that_fails_has_no_say(
    function: Any, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    secret = ValueError("hunter2")
    assert FailureRules((), (ValueError,), function).answer(secret, JOB) is False
    assert FailureRules(retry_if=function).answer(secret, JOB) is True
    [record, _] = caplog.records
    assert (record.levelno, words in record.getMessage()) == (logging.ERROR, True)
    assert "hunter2" not in caplog.text


# What becomes of jobs


async def test_an_exception_that_is_not_worth_it_fails_at_once(house: House, kind: str) -> None:
    job = await run_once(house, kind, raising(ValueError("no")), discard_for=ValueError)
    assert (job.state, job.row.failures, job.max_attempts) == (State.FAILED, 1, 3)
    assert job.error is not None
    assert (job.error.kind, job.error.message) == ("ValueError", "no")


async def test_one_that_is_worth_it_is_tried_again(house: House, kind: str) -> None:
    options = {"retry_for": [OSError], "discard_for": [ValueError]}
    job = await run_once(house, kind, raising(ConnectionError("down")), **options)
    assert (job.label, job.row.failures) == ("retrying", 1)


@pytest.mark.parametrize("depth", [1, 2])
async def test_one_exception_in_groups_is_judged_as_itself(
    house: House, kind: str, depth: int
) -> None:
    error: Exception = ValueError("alone")
    for _ in range(depth):
        error = ExceptionGroup("of a task group", [error])
    job = await run_once(house, kind, raising(error), discard_for=(ValueError,))
    assert job.state is State.FAILED


async def test_a_group_of_several_is_a_group(house: House, kind: str) -> None:
    error = ExceptionGroup("several", [ValueError(), KeyError()])
    job = await run_once(house, kind, raising(error), discard_for=(ValueError,))
    assert job.label == "retrying"


@pytest.mark.parametrize(
    ("said", "state", "failures"),
    [
        (Retry(after=50), State.PENDING, 1),
        (Snooze(50), State.PENDING, 0),
        (Cancel("why"), State.CANCELLED, 0),
        (Discard("why"), State.FAILED, 1),
    ],
)
async def test_a_function_may_answer_as_a_body_may_end(
    house: House, kind: str, said: Any, state: State, failures: int
) -> None:
    job = await run_once(house, kind, raising(ValueError("boom")), retry_if=lambda e, j: said)
    assert (job.state, job.row.failures) == (state, failures)
    if state is State.PENDING:
        assert 45 < (job.row.available_at - (job.row.started_at or 0)) / SECOND < 60
    if not isinstance(said, Snooze):
        assert job.error is not None
        assert job.error.message == "boom"  # the exception itself is what people want to read


async def test_a_timeout_is_judged_as_a_timeout_error(house: House, kind: str) -> None:
    async def slow() -> None:
        await asyncio.sleep(30)

    def blocked() -> None:
        time.sleep(0.2)

    asked: list[BaseException] = []

    def judge(error: BaseException, job: Job) -> bool:
        asked.append(error)
        return False

    body = slow if kind == "async" else blocked
    options: dict[str, Any] = {"timeout": 0.05, "max_attempts": 3}
    first = await house.put(house.task(body, name="a", discard_for=TimeoutError, **options))
    second = await house.put(house.task(body, name="b", retry_if=judge, **options))
    third = await house.put(house.task(body, name="c", retry_for=OSError, **options), run_at=1)
    await house.burst()
    jobs = [await house.job(one) for one in (first, second, third)]
    # TimeoutError is an OSError, so the third is worth another attempt.
    assert [job.state for job in jobs[:2]] == [State.FAILED, State.FAILED]
    assert all(job.error is not None and job.error.kind == "timeout" for job in jobs)
    assert [type(error) for error in asked] == [TimeoutError]
    assert "0.05 seconds" in str(asked[0])
    assert jobs[2].row.failures >= 1


async def test_what_cannot_be_prepared_is_judged_as_well(house: House) -> None:
    async def needs(*, db: object = INJECTED) -> None: ...

    task = house.task(needs, max_attempts=3, discard_for=MissingDependency)
    job_id = await house.put(task)
    await house.burst()
    job = await house.job(job_id)
    assert job.state is State.FAILED
    assert job.error is not None
    assert "'db'" in job.error.message


async def test_instructions_need_no_rule_and_hear_of_none(house: House, kind: str) -> None:
    never = {"retry_if": lambda e, j: False, "discard_for": Exception}
    job = await run_once(house, kind, raising(Retry("later", after=50)), **never)
    assert job.label == "retrying"


async def test_a_cancellation_that_was_asked_for_is_no_exception_to_judge(
    house: House, kind: str
) -> None:
    job = await run_once(house, kind, raising(Snooze(50)), discard_for=Exception)
    assert job.state is State.PENDING


# Waiting for as long as a server asks


def of_httpx(headers: dict[str, str], status: int = 429) -> Exception:
    request = httpx.Request("GET", "http://localhost/")
    response = httpx.Response(status, headers=headers, request=request)
    with pytest.raises(httpx.HTTPStatusError) as told:
        response.raise_for_status()
    return told.value


def of_requests(headers: dict[str, str], status: int = 503) -> Exception:
    response = requests.Response()
    response.status_code = status
    response.headers.update(headers)
    with pytest.raises(requests.HTTPError) as told:
        response.raise_for_status()
    return told.value


@pytest.mark.parametrize("error_with", [of_httpx, of_requests])
def test_a_server_asks_for_seconds_or_names_a_date(error_with: Any) -> None:
    said = retry_after_of(error_with({"Retry-After": "120"}))
    assert said is not None
    assert (said.after, said.spread) == (120 * SECOND, 0.2)
    assert "120 seconds" in str(said)
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=300), usegmt=True)
    said = retry_after_of(error_with({"retry-after": later}))
    assert said is not None
    assert said.after is not None
    assert 290 * SECOND < said.after <= 300 * SECOND
    past = format_datetime(datetime.now(UTC) - timedelta(seconds=300), usegmt=True)
    said = retry_after_of(error_with({"Retry-After": past}))
    assert said is not None
    assert said.after == SECOND  # not at once: it would burn all attempts
    said = retry_after_of(error_with({"Retry-After": "999999999999"}))
    assert said is not None
    assert said.after == AFTER_MAX * SECOND


class Duck(Exception):
    def __init__(self, response: object) -> None:
        self.response = response


class Reply:
    def __init__(self, headers: object) -> None:
        self.headers = headers


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no response"),
        Duck(None),
        Duck(Reply(None)),
        Duck(Reply({})),
        Duck(Reply({"Retry-After": "soon"})),
        Duck(Reply({"Retry-After": "-5"})),
        Duck(Reply({"Retry-After": "1.5e3"})),
        Duck(Reply({"Retry-After": "٣"})),
        Duck(Reply({"Retry-After": "Mon, 99 Foo 2026 00:00:00 GMT"})),
        httpx.ConnectError("refused"),
        requests.ConnectionError("refused"),
    ],
)
def test_without_a_wait_it_has_no_opinion(error: BaseException) -> None:
    assert retry_after_of(error) is None


def test_anything_with_headers_will_do() -> None:
    said = retry_after_of(Duck(Reply({"Retry-After": b"7"})), JOB)
    assert said is not None
    assert said.after == 7 * SECOND


async def test_it_is_a_rule_like_any_other(house: House, kind: str) -> None:
    error = of_httpx({"Retry-After": "50"})
    job = await run_once(house, kind, raising(error), retry_if=retry_after_of)
    assert 49 < (job.row.available_at - (job.row.started_at or 0)) / SECOND < 75
    assert job.error is not None
    assert job.error.kind == "HTTPStatusError"
    plain = of_httpx({}, status=404)
    options: Any = {"retry_if": retry_after_of, "discard_for": httpx.HTTPStatusError}
    job = await run_once(house, kind, raising(plain), name="other", **options)
    assert job.state is State.FAILED


@pytest.mark.parametrize("spread", [-0.1, 1.1, "much", True, float("nan")])
def test_a_spread_is_a_share(spread: Any) -> None:
    with pytest.raises(ConfigurationError, match="spread must be"):
        Retry(after=1, spread=spread)
