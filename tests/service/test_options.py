"""Options: what is accepted, what is refused and with which words."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta, timezone
from functools import partial
from typing import Any

import pytest

from tenure import QueueService, Retry, RetryPolicy, TaskRef, retry_after_of, task
from tenure.errors import ConfigurationError, InvalidArguments, TenureError
from tenure.options import TaskOptions, changed

NAIVE = datetime(2030, 1, 1)  # noqa: DTZ001
AWARE = datetime(2030, 1, 1, tzinfo=UTC)
FAR = timezone(timedelta(hours=14))
WEST = timezone(timedelta(hours=-14))


async def _awaited(*_: object) -> None: ...


REFUSED: list[tuple[str, Any, str]] = [
    ("run_at", NAIVE, "naive"),
    ("run_at", date(2030, 1, 1), "datetime, not date"),
    ("run_at", "2030-01-01", "datetime, not str"),
    ("run_at", datetime(1969, 12, 31, tzinfo=UTC), "between 1970 and 9999"),
    ("run_at", datetime.max.replace(tzinfo=WEST), "between 1970 and 9999"),
    ("run_at", datetime.min.replace(tzinfo=FAR), "between 1970 and 9999"),
    ("expires_at", NAIVE, "naive"),
    ("expires_at", 5, "datetime, not int"),
    ("delay", -1, "at least 0"),
    ("delay", timedelta(seconds=-1), "at least 0"),
    ("delay", True, "bool"),
    ("delay", "5", "str"),
    ("delay", None, "NoneType"),
    ("delay", math.nan, "finite"),
    ("delay", math.inf, "finite"),
    ("delay", 1e12, "at most"),
    ("delay", timedelta.max, "at most"),
    ("delay", 8000 * 366 * 86400, "at most"),
    ("expires_in", -0.5, "at least 0"),
    ("expires_in", 1e12, "at most"),
    ("timeout", 0, "at least 0.001"),
    ("timeout", -1, "at least 0.001"),
    ("timeout", False, "bool"),
    ("priority", 40_000, "-32768 to 32767"),
    ("priority", -40_000, "-32768 to 32767"),
    ("priority", True, "integer"),
    ("priority", 1.0, "integer"),
    ("priority", "high", "integer"),
    ("max_attempts", 0, "1 to 32767"),
    ("max_attempts", True, "integer"),
    ("max_attempts", None, "integer"),
    ("max_lapses", -1, "0 to 32767"),
    ("max_interruptions", 2**15, "0 to 32767"),
    ("retry", 3, "RetryPolicy"),
    ("retry", {"base": 3}, "RetryPolicy"),
    ("queue", "", "1 to 255"),
    ("queue", "q" * 256, "1 to 255"),
    ("queue", "a b", "spaces"),
    ("queue", "a,b", "commas"),
    ("queue", "a:1", "colons"),
    ("queue", "a\x00", "control"),
    ("queue", "\udce4", "control"),
    ("queue", None, "text"),
    ("queue", 3, "text"),
    ("tags", "mail", "list of names"),
    ("tags", {"mail"}, "list of names"),
    ("tags", ["a b"], "spaces"),
    ("tags", [1], "text"),
    ("tags", ["x"] * 33, "at most 32"),
    ("metadata", [1], "mapping"),
    ("metadata", {"a": math.nan}, "metadata.a"),
    ("metadata", {1: 2}, "keys are strings"),
    ("metadata", {"a": object()}, "metadata.a"),
    ("metadata", {"a": "x" * 70_000}, "65536 bytes"),
    ("description", 3, "text"),
    ("description", "a\x00", "NUL"),
    ("description", "\udce4", "surrogate"),
    ("description", "x" * 1001, "1000 characters"),
    ("actor", 3, "text, not int"),
    ("actor", "", "1 to 255"),
    ("actor", "x" * 256, "1 to 255"),
    ("actor", "a\x00", "NUL"),
    ("actor", _awaited, "plain function"),
    ("unique_key", 3, "text"),
    ("unique_key", "", "1 to 512"),
    ("unique_key", "x" * 513, "1 to 512"),
    ("unique_by", "args", "'task', 'arguments'"),
    ("unique_by", True, "'task', 'arguments'"),
    ("unique_until", "done", "'started', 'finished', 'forever'"),
    ("unique_until", None, "'started', 'finished', 'forever'"),
    ("on_conflict", "ignore", "'return', 'replace', 'raise'"),
    ("on_shutdown", "wait", "'release', 'run_out', 'fail'"),
    ("on_shutdown", None, "'release', 'run_out', 'fail'"),
    ("log_success", "yes", "True, False or None"),
    ("log_success", 1, "True, False or None"),
    ("log_level", "LOUD", "'INFO', or a number from 0 to 1000"),
    ("log_level", True, "a number from 0 to 1000"),
    ("log_level", -1, "a number from 0 to 1000"),
    ("log_level", 1001, "a number from 0 to 1000"),
]

CODE = [
    ("retry_for", ValueError(), "exception classes"),
    ("retry_for", "ValueError", "exception classes"),
    ("retry_for", [ValueError, "KeyError"], "exception classes"),
    ("retry_for", int, "exception classes"),
    ("discard_for", None, "exception classes"),
    ("discard_for", (Retry,), "Retry is an instruction"),
    ("retry_if", True, "plain function"),
    ("retry_if", _awaited, "plain function"),
    ("on_failure", "notify", "must be a function"),
    ("on_lost", 3, "must be a function"),
]


@pytest.mark.parametrize(("option", "value", "word"), CODE)
def test_bad_code_is_refused_where_the_task_is_declared(option: str, value: Any, word: str) -> None:
    with pytest.raises(ConfigurationError, match=option) as caught:
        task(**{option: value})
    assert word in str(caught.value)


@pytest.mark.parametrize("option", sorted({option for option, _, _ in CODE}))
def test_code_belongs_to_the_task_since_it_is_not_stored(option: str) -> None:
    """What a call said would be forgotten by the time that the job runs, so it is refused."""

    def body() -> None: ...

    ways: list[Any] = [task(body).options, TaskRef("t").options, partial(TaskRef, "t")]
    for refused in ways:
        with pytest.raises(InvalidArguments, match=f"{option} is code and belongs to the task"):
            refused(**{option: None})


def test_rules_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="OSError is in retry_for and in discard_for"):
        task(retry_for=(KeyError, OSError), discard_for=OSError)


def test_what_says_who_acts_is_asked_at_each_enqueue() -> None:
    names = iter(["one", "two", None, 3])
    jobs = QueueService("memory://")

    @jobs.task(actor=lambda: next(names))  # type: ignore[arg-type]
    def body() -> None: ...

    made = [jobs.sync.enqueue(body).job().actor for _ in range(3)]
    assert made == ["one", "two", None]
    with pytest.raises(ConfigurationError, match="actor must be text, not int"):
        jobs.sync.enqueue(body)
    assert jobs.sync.enqueue(body.options(actor="me")).job().actor == "me"
    assert len(jobs.sync.find()) == 4
    jobs.sync.close()


@pytest.mark.parametrize(("option", "value", "word"), REFUSED)
def test_a_bad_value_is_refused_by_the_name_of_its_option(
    option: str, value: Any, word: str
) -> None:
    def body() -> None: ...

    with pytest.raises(ConfigurationError, match=option) as caught:
        task(body).options(**{option: value})
    assert word in str(caught.value)
    assert isinstance(caught.value, ValueError)
    with pytest.raises(ConfigurationError, match=option):
        task(**{option: value})
    with pytest.raises(ConfigurationError, match=option):
        TaskRef("t", **{option: value})


@pytest.mark.parametrize("value", [1e305, 10**400, -(10**400)], ids=["1e305", "10^400", "-10^400"])
def test_absurd_numbers_are_refused_too(value: float) -> None:
    with pytest.raises(ConfigurationError, match="delay"):
        TaskRef("t", delay=value)


def test_an_unknown_option_is_refused_with_those_that_exist() -> None:
    with pytest.raises(InvalidArguments, match=r"'prioritty'; the options are .*priority"):
        TaskRef("t").options(prioritty=5)  # type: ignore[call-arg]
    with pytest.raises(InvalidArguments, match="'max_atempts'"):
        task(max_atempts=5)  # type: ignore[call-overload]
    with pytest.raises(InvalidArguments, match="'max_atempts'"):
        QueueService("memory://").task(max_atempts=5)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "changes",
    [
        {"delay": 5, "run_at": AWARE},
        {"expires_in": 5, "expires_at": AWARE},
        {"expires_in": 0, "expires_at": AWARE},
    ],
)
def test_two_ways_to_say_when_exclude_each_other(changes: Any) -> None:
    with pytest.raises(ConfigurationError, match="exclude each other"):
        TaskRef("t", **changes)


def test_one_way_to_say_when_replaces_the_other() -> None:
    spec = changed(TaskOptions(), {"delay": 5, "expires_in": 7})
    spec = changed(spec, {"run_at": AWARE, "expires_at": AWARE})
    assert (spec.delay, spec.run_at, spec.expires_in, spec.expires_at) == (0, AWARE, None, AWARE)
    spec = changed(spec, {"delay": timedelta(minutes=1), "expires_in": 7})
    assert (spec.delay_us, spec.run_at, spec.expires_in_us, spec.expires_at) == (
        60_000_000,
        None,
        7_000_000,
        None,
    )


def test_a_copy_keeps_all_else() -> None:
    def body(a: int) -> None: ...

    everything: dict[str, Any] = {
        "queue": "mail",
        "priority": 3,
        "max_attempts": 4,
        "retry": RetryPolicy(base=1),
        "timeout": 5,
        "delay": 6,
        "expires_in": 7,
        "max_lapses": 8,
        "max_interruptions": 9,
        "tags": ("a",),
        "metadata": {"b": [1]},
        "description": "c",
        "actor": "d",
        "unique_key": "e",
        "unique_by": "task",
        "unique_until": "forever",
        "on_conflict": "raise",
        "on_shutdown": "fail",
        "log_success": True,
        "log_level": "DEBUG",
        "retry_for": (OSError,),
        "discard_for": (KeyError,),
        "retry_if": retry_after_of,
        "on_failure": _awaited,
        "on_lost": _awaited,
    }
    made = task(name="n", aliases=["old"], **everything)(body)
    copy = made.options(priority=-1)
    assert copy is not made
    assert copy.spec == changed(made.spec, {"priority": -1})
    assert copy.spec != made.spec
    assert (copy.name, copy.function, copy.spec.aliases) == ("n", body, ("old",))
    assert copy.signature is made.signature
    for name, value in everything.items():
        assert getattr(made.spec, name) == value
    ref = TaskRef("r", queue="mail", priority=3)
    assert (ref.options(priority=4).name, ref.options(priority=4).spec.queue) == ("r", "mail")
    assert ref.spec.priority == 3


def test_a_job_gets_every_option_that_is_not_its_default() -> None:
    assert TaskOptions().of_job == {}
    values: dict[str, Any] = {
        "queue": "q",
        "priority": 3,
        "max_attempts": 4,
        "max_lapses": 5,
        "max_interruptions": 6,
        "retry": RetryPolicy(),
        "tags": ("a",),
        "metadata": {"m": 1},
        "description": "d",
        "on_shutdown": "run_out",
        "log_success": False,
        "log_level": 10,
    }
    times: dict[str, Any] = {"delay": 2, "expires_in": 3, "timeout": 4}
    assert TaskOptions(**values, **times).of_job == values | {
        "delay": 2_000_000,
        "expires_in": 3_000_000,
        "timeout": 4.0,
    }
    at = datetime(2030, 1, 1, tzinfo=UTC)
    micros = round(at.timestamp() * 1e6)
    spec = changed(TaskOptions(**values, **times), {"run_at": at, "expires_at": at})
    assert spec.of_job == values | {"run_at": micros, "expires_at": micros, "timeout": 4.0}


def test_names_belong_to_the_task() -> None:
    def body() -> None: ...

    for changes in ({"name": "x"}, {"aliases": ["x"]}):
        with pytest.raises(InvalidArguments, match="cannot be changed for a call"):
            task(body).options(**changes)
        with pytest.raises(InvalidArguments, match="given where the code is"):
            TaskRef("r", **changes)
        with pytest.raises(InvalidArguments, match="given where the code is"):
            TaskRef("r").options(**changes)


def test_a_change_of_the_callers_metadata_changes_nothing() -> None:
    metadata: dict[str, Any] = {"a": [1], "at": AWARE}
    spec = changed(TaskOptions(), {"metadata": metadata})
    metadata["a"].append(object())
    assert spec.metadata == {"a": [1], "at": "2030-01-01T00:00:00Z"}


@pytest.mark.parametrize("name", ["", "a b", "x" * 256, "a,b", 3])
def test_a_bad_task_name_is_refused(name: Any) -> None:
    with pytest.raises(TenureError, match="name must"):
        task(name=name)
    with pytest.raises(TenureError, match="name must"):
        TaskRef(name)
    with pytest.raises(TenureError, match="aliases must"):
        task(aliases=[name])
