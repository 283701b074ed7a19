"""The options of a task, all in one frozen value."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from typing import Any, Literal

import msgspec

from tenure.context import JobContext
from tenure.core import codec
from tenure.core.durations import SECOND, Seconds, instant, micros
from tenure.core.identity import OnConflict, UniqueBy, UniqueUntil
from tenure.core.job import PRIORITY_MAX, PRIORITY_MIN, Job, JobError, NewJob
from tenure.core.keys import check_key
from tenure.core.outcomes import OnShutdown
from tenure.core.retry import RetryPolicy
from tenure.errors import ConfigurationError, InvalidArguments, PayloadError
from tenure.failures import FailureRules, Predicate, check_rules, exception_types
from tenure.keys import KEYS, KeyOf, check_key_of
from tenure.recurring import ScheduleChanges, ScheduleOptions
from tenure.settings import level_of

NAME_MAX = 255
ATTEMPTS_MAX = 32_767
TAGS_MAX = 32
METADATA_MAX = 64 * 1024
DESCRIPTION_MAX = 1000
DELAY_MAX = 100 * 366 * 86_400.0
ACTOR_MAX = 255

Exceptions = type[BaseException] | Sequence[type[BaseException]]
OnFailure = Callable[[Job, JobError], object]
"""Called once after a job has failed for good; `async def` or `def`."""

OnLost = Callable[[JobContext, str], object]
"""Called when an attempt has lost its lease, with the reason; `async def` or `def`."""

Actor = str | Callable[[], str | None]


class TaskChanges(ScheduleChanges, total=False):
    """The options by name, for `@task(...)` and `task.options(...)`; see `TaskOptions`."""

    name: str | None
    aliases: Sequence[str]
    queue: str
    priority: int
    max_attempts: int
    retry: RetryPolicy | None
    timeout: Seconds | None
    delay: Seconds
    run_at: datetime | None
    expires_in: Seconds | None
    expires_at: datetime | None
    max_lapses: int
    max_interruptions: int
    tags: Sequence[str]
    metadata: Mapping[str, Any]
    description: str | None
    executor: Literal["inline"] | None
    actor: Actor | None
    unique_key: str | None
    unique_by: Literal["task", "arguments"] | None
    unique_until: Literal["started", "finished", "forever"]
    on_conflict: Literal["return", "replace", "raise"]
    on_shutdown: Literal["release", "run_out", "fail"]
    log_success: bool | None
    log_level: int | str | None
    retry_for: Exceptions
    discard_for: Exceptions
    retry_if: Predicate | None
    on_failure: OnFailure | None
    on_lost: OnLost | None
    concurrency_key: KeyOf
    rate_key: KeyOf
    fair_key: KeyOf


CODE = ("retry_for", "discard_for", "retry_if", "on_failure", "on_lost")
"""Options that are code: read from the task when a job runs, so they belong where the task is."""


class TaskOptions(ScheduleOptions, frozen=True, kw_only=True, dict=True):
    """How a task's jobs are kept and run, and when, if it is recurring: see `ScheduleOptions`.

    - `name`: the task's name in the store; by default the function's. `aliases`: older names that
      a worker still runs.
    - `queue`: the lane; 1 to 255 characters, without commas, colons, spaces or control characters.
    - `priority`: -32,768 to 32,767, higher is earlier; one unit is worth one hour of waiting.
    - `max_attempts`: 1 to 32,767; errored attempts before the job is failed. Default 1.
    - `retry`: backoff between attempts; default 5 s, tripled each time, at most 1 h, jittered.
    - `timeout`: seconds that one attempt may take; None for no limit.
    - `delay` (seconds) or `run_at` (aware datetime): not before.
    - `expires_in` (seconds) or `expires_at` (aware datetime): not started after, retries included.
    - `max_lapses`: 0 to 32,767 crashed or frozen workers before the job is failed. Default 3.
    - `max_interruptions`: 0 to 32,767 shutdowns before one counts as an error. Default 3.
    - `tags`: up to 32 words. `metadata`: a JSON object of yours, up to 64 KiB. `description`: up
      to 1,000 characters.
    - `executor`: `inline` runs a due job where it is enqueued, before `enqueue` returns; None: a
      worker runs it.
    - `actor`: who enqueues: text of up to 255 characters, or a function without arguments that
      gives it or None at each enqueue.
    - `unique_key`: a text of up to 512 bytes that one job at a time may have. `unique_by`: "task"
      or "arguments" makes one where none is given.
    - `unique_until`: how long it is taken: "started", "finished" (default) or "forever".
    - `on_conflict`: an enqueue whose key is taken gives the job that has it ("return", default),
      changes that job if it still waits ("replace"), or raises `DuplicateJob` ("raise").
    - `on_shutdown`: a job that outlasts the worker's `shutdown_timeout` is given back ("release",
      default), waited for ("run_out") or failed ("fail").
    - `log_success`: whether a line is logged when a job completes; None: as the worker says.
      `log_level`: the level of that line, a name or number; None: as the worker says.
    - `retry_for`, `discard_for`: exception classes worth another attempt, and not worth one; if
      `retry_for` is given, all others are not. The nearest class decides.
    - `retry_if`: a function of the exception and the job that is asked first: True, False, a
      directive such as `Retry(after=60)`, or None to leave it to the classes.
    - `on_failure`: a function of the job and its error, called once after the job has failed.
      `on_lost`: a function of the context and a reason, called when an attempt loses its lease.
    - `concurrency_key`, `rate_key`: of jobs with the same key, the queue runs or starts as many at
      a time as `jobs.queues.limit` says. `fair_key`: jobs of different keys take turns. Each is
      text of up to 512 bytes, or a function that makes it of the arguments its parameters name.

    Raises `ConfigurationError` naming the option and what is allowed.
    """

    name: str | None = None
    aliases: tuple[str, ...] = ()
    queue: str = "default"
    priority: int = 0
    max_attempts: int = 1
    retry: RetryPolicy | None = None
    timeout: Seconds | None = None
    delay: Seconds = 0
    run_at: datetime | None = None
    expires_in: Seconds | None = None
    expires_at: datetime | None = None
    max_lapses: int = 3
    max_interruptions: int = 3
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = {}
    description: str | None = None
    executor: Literal["inline"] | None = None
    actor: Actor | None = None
    unique_key: str | None = None
    unique_by: str | None = None
    unique_until: str = UniqueUntil.FINISHED.value
    on_conflict: str = OnConflict.RETURN.value
    on_shutdown: str = OnShutdown.RELEASE.value
    log_success: bool | None = None
    log_level: int | str | None = None
    retry_for: tuple[type[BaseException], ...] = ()
    discard_for: tuple[type[BaseException], ...] = ()
    retry_if: Predicate | None = None
    on_failure: OnFailure | None = None
    on_lost: OnLost | None = None
    concurrency_key: KeyOf = None
    rate_key: KeyOf = None
    fair_key: KeyOf = None

    def __post_init__(self) -> None:
        if self.name is not None:
            check_name(self.name, "name")
        check_name(self.queue, "queue")
        for alias in self.aliases:
            check_name(alias, "aliases")
        _whole(self.priority, "priority", PRIORITY_MIN, PRIORITY_MAX)
        _whole(self.max_attempts, "max_attempts", 1, ATTEMPTS_MAX)
        _whole(self.max_lapses, "max_lapses", 0, ATTEMPTS_MAX)
        _whole(self.max_interruptions, "max_interruptions", 0, ATTEMPTS_MAX)
        if self.retry is not None and not isinstance(self.retry, RetryPolicy):
            raise ConfigurationError(f"retry must be a RetryPolicy, not {self.retry!r}")
        if self.timeout is not None:
            micros(self.timeout, "timeout", minimum=0.001, maximum=DELAY_MAX)
        if self.executor not in (None, "inline"):
            raise ConfigurationError(f"executor must be 'inline' or None, not {self.executor!r}")
        self._check_times()
        self.check_schedule()
        if len(self.tags) > TAGS_MAX:
            raise ConfigurationError(f"tags: at most {TAGS_MAX}, not {len(self.tags)}")
        for tag in self.tags:
            check_name(tag, "tags")
        self._check_texts()
        for name in KEYS:
            check_key_of(getattr(self, name), name)
        self._check_choices()
        self._check_code()

    def _check_times(self) -> None:
        if self.delay and self.run_at is not None:
            raise ConfigurationError("delay and run_at exclude each other")
        if self.expires_in is not None and self.expires_at is not None:
            raise ConfigurationError("expires_in and expires_at exclude each other")
        micros(self.delay, "delay", maximum=DELAY_MAX)
        if self.expires_in is not None:
            micros(self.expires_in, "expires_in", maximum=DELAY_MAX)
        if self.run_at is not None:
            instant(self.run_at, "run_at")
        if self.expires_at is not None:
            instant(self.expires_at, "expires_at")

    def _check_texts(self) -> None:
        text = self.description
        if text is None:
            return
        if not isinstance(text, str):
            raise ConfigurationError(f"description must be text, not {type(text).__name__}")
        if len(text) > DESCRIPTION_MAX:
            raise ConfigurationError(
                f"description may have {DESCRIPTION_MAX} characters, not {len(text)}"
            )
        try:
            codec.check_text(text, "description")
        except PayloadError as error:
            raise ConfigurationError(str(error)) from error

    def _check_choices(self) -> None:
        if self.unique_key is not None:
            check_key(self.unique_key, "unique_key")
        if self.unique_by is not None:
            one_of(self.unique_by, "unique_by", UniqueBy)
        one_of(self.unique_until, "unique_until", UniqueUntil)
        one_of(self.on_conflict, "on_conflict", OnConflict)
        one_of(self.on_shutdown, "on_shutdown", OnShutdown)
        if self.log_success is not None and not isinstance(self.log_success, bool):
            raise ConfigurationError(
                f"log_success must be True, False or None, not {self.log_success!r}"
            )
        if self.log_level is not None:
            level_of(self.log_level, "log_level")
        if self.actor is not None and not callable(self.actor):
            check_actor(self.actor)
        if inspect.iscoroutinefunction(self.actor):
            raise ConfigurationError("actor must be text or a plain function, not a coroutine's")

    def _check_code(self) -> None:
        check_rules(self.retry_for, self.discard_for, self.retry_if)
        for name in ("on_failure", "on_lost"):
            value = getattr(self, name)
            if value is not None and not callable(value):
                raise ConfigurationError(f"{name} must be a function, not {value!r}")

    @cached_property
    def failure_rules(self) -> FailureRules | None:
        """What `retry_for`, `discard_for` and `retry_if` say; None if they say nothing."""
        if self.retry_for or self.discard_for or self.retry_if is not None:
            return FailureRules(self.retry_for, self.discard_for, self.retry_if)
        return None

    def actor_now(self) -> str | None:
        """Who enqueues, as of now. Raises `ConfigurationError` if a function gives no text."""
        actor = self.actor() if callable(self.actor) else self.actor
        return actor if actor is None else check_actor(actor)

    @property
    def delay_us(self) -> int:
        return micros(self.delay, "delay")

    @property
    def run_at_us(self) -> int | None:
        return None if self.run_at is None else instant(self.run_at, "run_at")

    @property
    def expires_in_us(self) -> int | None:
        return None if self.expires_in is None else micros(self.expires_in, "expires_in")

    @property
    def expires_at_us(self) -> int | None:
        return None if self.expires_at is None else instant(self.expires_at, "expires_at")

    @property
    def timeout_seconds(self) -> float | None:
        return None if self.timeout is None else micros(self.timeout, "timeout") / SECOND

    @cached_property
    def of_job(self) -> Mapping[str, Any]:
        """What these options say of every job, as fields of `NewJob`; defaults are left out."""
        values = {
            "queue": self.queue,
            "priority": self.priority,
            "delay": self.delay_us,
            "run_at": self.run_at_us,
            "expires_in": self.expires_in_us,
            "expires_at": self.expires_at_us,
            "max_attempts": self.max_attempts,
            "max_lapses": self.max_lapses,
            "max_interruptions": self.max_interruptions,
            "timeout": self.timeout_seconds,
            "retry": self.retry,
            "tags": self.tags,
            "metadata": self.metadata,
            "description": self.description,
            "on_shutdown": None if self.on_shutdown == OnShutdown.RELEASE else self.on_shutdown,
            "log_success": self.log_success,
            "log_level": None if self.log_level is None else level_of(self.log_level, "log_level"),
        }
        for name in KEYS:  # what functions make of the arguments is another one for each job
            key = getattr(self, name)
            values[name] = None if callable(key) else key
        return {name: value for name, value in values.items() if value != _DEFAULTS[name]}


_DEFAULTS = msgspec.structs.asdict(NewJob(id="", task=""))


def changed(options: TaskOptions, changes: TaskChanges) -> TaskOptions:
    """A checked copy with some options replaced.

    Giving one of `delay`/`run_at` or of `expires_in`/`expires_at` replaces the other too. Raises
    `InvalidArguments` for an unknown option, `ConfigurationError` for a bad value.
    """
    values: dict[str, Any] = dict(changes)
    unknown = values.keys() - set(TaskOptions.__struct_fields__)
    if unknown:
        known = ", ".join(TaskOptions.__struct_fields__)
        raise InvalidArguments(f"unknown option {min(unknown)!r}; the options are {known}")
    for one, other, unset in _EXCLUSIVE:
        if one in values and other not in values:
            values[other] = unset
    for name in ("aliases", "tags"):
        if name in values:
            values[name] = _names(values[name], name)
    for name in ("retry_for", "discard_for"):
        if name in values:
            values[name] = exception_types(values[name], name)
    if "metadata" in values:
        values["metadata"] = _kept(values["metadata"])
    return msgspec.structs.replace(options, **values)


_EXCLUSIVE: tuple[tuple[str, str, Any], ...] = (
    ("delay", "run_at", None),
    ("run_at", "delay", 0),
    ("expires_in", "expires_at", None),
    ("expires_at", "expires_in", None),
)


def check_name(value: Any, what: str) -> str:
    """`value` itself if it can name a task, queue or tag; else `ConfigurationError`."""
    if not isinstance(value, str):
        raise ConfigurationError(f"{what} must be text, not {type(value).__name__}")
    if not 1 <= len(value) <= NAME_MAX:
        raise ConfigurationError(f"{what} must have 1 to {NAME_MAX} characters, not {len(value)}")
    if any(c in ",:" or c.isspace() or not c.isprintable() for c in value):
        raise ConfigurationError(
            f"{what} must not hold commas, colons, spaces or control characters: "
            f"{codec.printable(value)!r}"
        )
    return value


def check_actor(value: Any) -> str:
    """`value` itself if it can say who acts; else `ConfigurationError`."""
    if not isinstance(value, str):
        raise ConfigurationError(f"actor must be text, not {type(value).__name__}")
    if not 1 <= len(value) <= ACTOR_MAX:
        raise ConfigurationError(f"actor must have 1 to {ACTOR_MAX} characters, not {len(value)}")
    try:
        return codec.check_text(value, "actor")
    except PayloadError as error:
        raise ConfigurationError(str(error)) from error


def one_of(value: Any, name: str, choices: type[StrEnum]) -> None:
    """Raise `ConfigurationError` naming what is allowed, unless `value` is one of it."""
    allowed = [choice.value for choice in choices]
    if not isinstance(value, str) or value not in allowed:
        listed = ", ".join(repr(choice) for choice in allowed)
        raise ConfigurationError(f"{name} must be one of {listed}, not {value!r}")


def _names(value: Any, what: str) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ConfigurationError(f"{what} must be a list of names, not {value!r}")
    return tuple(value)


def _kept(metadata: Any) -> Any:
    """Metadata as it will be read back, so that later changes by the caller have no part in it."""
    if not isinstance(metadata, Mapping):
        raise ConfigurationError(f"metadata must be a mapping, not {type(metadata).__name__}")
    try:
        data = codec.encode(metadata, "metadata")
    except PayloadError as error:
        raise ConfigurationError(str(error)) from error
    if len(data) > METADATA_MAX:
        raise ConfigurationError(f"metadata may have {METADATA_MAX} bytes, not {len(data)}")
    return codec.decode(data)


def _whole(value: Any, name: str, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ConfigurationError(f"{name} must be an integer from {low} to {high}, not {value!r}")


assert set(TaskChanges.__required_keys__ | TaskChanges.__optional_keys__) == set(
    TaskOptions.__struct_fields__
)
