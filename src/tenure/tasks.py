"""Tasks: code known by name."""

from __future__ import annotations

import copy
import functools
import importlib
import inspect
import pkgutil
import typing
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any, Generic, NamedTuple, ParamSpec, Protocol, TypeVar, Unpack, overload

import anyio.to_thread

from tenure.core import codec
from tenure.core.identity import OnConflict, UniqueBy, UniqueUntil
from tenure.core.job import NewJob
from tenure.core.keys import DEFAULT_IDENTITY_MAX, arguments_key, task_key
from tenure.errors import (
    ConfigurationError,
    InvalidArguments,
    MissingDependency,
    PayloadError,
    UnknownTask,
)
from tenure.keys import made_keys
from tenure.options import CODE, TaskChanges, TaskOptions, changed, check_name
from tenure.recurring import ScheduleChanges
from tenure.signatures import Signature, largest_of, object_of

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Task(Generic[P, R]):
    """A function that can be enqueued. Made by `@jobs.task` or `@task`; immutable.

    `await task(...)` runs the body here and now, a `def` body in a worker thread.
    """

    def __init__(self, function: Callable[P, Any], spec: TaskOptions) -> None:
        _check_function(function)
        self.function = function
        self.spec = spec
        self.name = check_name(spec.name or _name_of(function), "name")
        self.is_async = any(map(inspect.iscoroutinefunction, _bodies(function)))
        self.signature = Signature(function, self.name)
        # Not what a function carries in its __dict__: that could be `name`, or `options`.
        functools.update_wrapper(self, function, updated=())

    async def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the body directly: no job, no lease, no retry."""
        if self.is_async:
            result: R = await self.function(*args, **kwargs)
            return result
        call = functools.partial(self.function, *args, **kwargs)
        return await anyio.to_thread.run_sync(call)

    def options(self, **changes: Unpack[TaskChanges]) -> Task[P, R]:
        """A copy with some options changed and everything else kept."""
        _refuse_fixed(changes, "cannot be changed for a call")
        twin = copy.copy(self)
        twin.spec = changed(self.spec, changes)
        return twin

    def bind(self, /, *args: P.args, **kwargs: P.kwargs) -> BoundTask[R]:
        """The task with checked and encoded arguments, for `enqueue_many`."""
        payload = self.signature.encode(args, kwargs)
        keys = made_keys(self.spec, lambda: self.signature.arguments(args, kwargs))
        return BoundTask(self.name, payload, self.spec, self, keys)

    def bound_to(self, payload: bytes, spec: TaskOptions) -> BoundTask[R]:
        """The task with arguments that are encoded already, and these options."""
        keys = made_keys(spec, lambda: self.signature.arguments_in(payload))
        return BoundTask(self.name, payload, spec, self, keys)

    @property
    def place(self) -> str:
        """Where the function is: `module:line`."""
        code = getattr(inspect.unwrap(self.function), "__code__", None)
        line = f":{code.co_firstlineno}" if code else ""
        return f"{getattr(self.function, '__module__', '?')}{line}"

    def result_from(self, data: bytes | None) -> R:
        """A stored result as the annotated return type."""
        value = None if data is None else codec.decode(data)
        converted: R = codec.convert(value, self.signature.annotation("return"), "result")
        return converted

    def __repr__(self) -> str:
        return f"<Task {self.name} at {self.place}>"


class TaskRef:
    """A task whose code lives elsewhere: its name and options.

    Arguments are given by keyword; what the function calls `*args` and `**kwargs` by these names,
    as a list and as a mapping.
    """

    def __init__(self, name: str, /, **options: Unpack[TaskChanges]) -> None:
        self.name = check_name(name, "name")
        _refuse_fixed(options, "are given where the code is")
        self.spec = changed(TaskOptions(), options)

    def options(self, **changes: Unpack[TaskChanges]) -> TaskRef:
        """A copy with some options changed and everything else kept."""
        _refuse_fixed(changes, "are given where the code is")
        twin = TaskRef(self.name)
        twin.spec = changed(self.spec, changes)
        return twin

    def bind(self, /, *args: Any, **kwargs: Any) -> BoundTask[Any]:
        """The task with encoded arguments; they must be given by keyword."""
        if args:
            raise InvalidArguments(f"{self.name}: arguments of a TaskRef are given by keyword")
        try:
            payload = object_of(kwargs)
        except PayloadError as error:
            raise PayloadError(f"{self.name}: {error}") from error
        return BoundTask(self.name, payload, self.spec, None, made_keys(self.spec, lambda: kwargs))

    def __repr__(self) -> str:
        return f"<TaskRef {self.name}>"


class Limits(NamedTuple):
    """The most bytes that the arguments of one job may have, and what its key is made of."""

    payload: int
    identity: int = DEFAULT_IDENTITY_MAX


class BoundTask(Generic[R_co]):
    """A task and its encoded arguments: what `enqueue_many` takes."""

    __slots__ = ("keys", "name", "payload", "spec", "task")

    def __init__(
        self,
        name: str,
        payload: bytes,
        spec: TaskOptions,
        task: Task[..., R_co] | None,
        keys: Mapping[str, Any],
    ) -> None:
        self.name = name
        self.payload = payload
        self.spec = spec
        self.task = task
        self.keys = keys

    def new_job(self, id: str, limits: Limits, headers: Mapping[str, str] | None = None) -> NewJob:
        """The job to insert.

        Raises `PayloadError` and `IdentityTooLarge` for what is larger than `limits`, and
        `ConfigurationError` for options that contradict each other.
        """
        size = len(self.payload)
        if size > limits.payload:
            raise PayloadError(
                f"{self.name}: the arguments are {size} bytes, most of them in "
                f"{largest_of(self.payload)!r}; {limits.payload} are allowed"
            )
        spec = self.spec
        values: dict[str, Any] = {}
        key = self.unique_key(limits.identity)
        if key is not None:
            values["unique_key"] = key
            values["unique_until"] = spec.unique_until
            values["on_conflict"] = spec.on_conflict
        if spec.actor is not None:
            values["actor"] = spec.actor_now()
        if headers:
            values["headers"] = headers
        values |= self.keys
        return NewJob(id=id, task=self.name, payload=self.payload, **spec.of_job, **values)

    def unique_key(self, limit: int = DEFAULT_IDENTITY_MAX) -> str | None:
        """The unique key that the job will have, if any.

        The first of `unique_key` of the call, that of the task, and what `unique_by` makes; only
        "arguments" looks at the arguments, and raises `IdentityTooLarge` if their canonical JSON
        has more than `limit` bytes.
        """
        spec = self.spec
        if spec.unique_key is not None:
            return spec.unique_key
        if spec.unique_by == UniqueBy.TASK:
            return task_key(self.name)
        if spec.unique_by == UniqueBy.ARGUMENTS:
            if self.task is None:
                raise ConfigurationError(
                    f"{self.name}: unique_by='arguments' needs the code of the task, which says "
                    "what was left out; a TaskRef takes a unique_key"
                )
            arguments = self.task.signature.complete(self.payload)
            return arguments_key(self.name, arguments, limit)
        for name, usual in _FOR_KEYS:
            if getattr(spec, name) != usual:
                raise ConfigurationError(
                    f"{self.name}: {name}={getattr(spec, name)!r} needs a unique_key or unique_by"
                )
        return None

    def rebound(self, arguments: Mapping[str, Any], spec: TaskOptions) -> BoundTask[R_co]:
        """The same task with other arguments, by parameter name, and options.

        Raises `InvalidArguments` or `PayloadError`, naming the argument.
        """
        if self.task is not None:
            return self.task.bound_to(self.task.signature.encode_values(arguments), spec)
        try:
            payload = object_of(arguments)
        except PayloadError as error:
            raise PayloadError(f"{self.name}: {error}") from error
        return BoundTask(self.name, payload, spec, None, made_keys(spec, lambda: arguments))

    def __repr__(self) -> str:
        return f"<BoundTask {self.name}, {len(self.payload)} bytes>"


_FOR_KEYS = (("unique_until", UniqueUntil.FINISHED), ("on_conflict", OnConflict.RETURN))


def bound_tasks(items: Iterable[BoundTask[R]]) -> list[BoundTask[R]]:
    """The items as a list. Raises `InvalidArguments` naming the one that is no `BoundTask`."""
    if not isinstance(items, Iterable):
        raise InvalidArguments(f"a list of bound tasks is needed, not {type(items).__name__}")
    listed = list(items)
    for index, item in enumerate(listed):
        if not isinstance(item, BoundTask):
            raise InvalidArguments(
                f"item {index} is a {type(item).__name__}, not a bound task; write task.bind(...)"
            )
    return listed


class Decorator(Protocol):
    """What `@task(...)` returns."""

    @overload
    def __call__(self, function: Callable[P, Awaitable[R]], /) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...


@overload
def task(function: Callable[P, Awaitable[R]], /) -> Task[P, R]: ...
@overload
def task(function: Callable[P, R], /) -> Task[P, R]: ...
@overload
def task(**options: Unpack[TaskChanges]) -> Decorator: ...
def task(function: Any = None, /, **options: Unpack[TaskChanges]) -> Any:
    """Make a task that belongs to no service yet; a service collects it by `tasks=[...]`."""
    spec = changed(TaskOptions(), options)
    if function is not None:
        return Task(function, spec)
    return lambda function: Task(function, spec)


class TaskSet:
    """The tasks a service knows, by name and alias."""

    def __init__(self) -> None:
        self._tasks: dict[str, Task[..., Any]] = {}

    def add(self, task: Task[..., Any]) -> None:
        """Know this task. Raises `ConfigurationError` naming both places if a name is taken.

        A function that is known stays as it was first declared. One of the same place in the code,
        as comes of reloading a module or running a notebook's cell again, replaces the older.
        """
        names = (task.name, *task.spec.aliases)
        reloaded: list[Task[..., Any]] = []
        for name in names:
            known = self._tasks.get(name)
            if known is None or known.function is task.function:
                continue
            if not _same_place(known, task):
                raise ConfigurationError(
                    f"two tasks are named {name!r}: {known.place} and {task.place}"
                )
            reloaded.append(known)
        kept = {name: known for name, known in self._tasks.items() if known not in reloaded}
        self._tasks = dict.fromkeys(names, task) | kept

    def collect(self, sources: Iterable[str | ModuleType | Task[..., Any]]) -> None:
        """Know these tasks, and those in these modules and all their submodules."""
        if isinstance(sources, str) or not isinstance(sources, Iterable):
            raise ConfigurationError(f"tasks must be a list of modules and tasks, not {sources!r}")
        for source in sources:
            if isinstance(source, Task):
                self.add(source)
                continue
            module = importlib.import_module(source) if isinstance(source, str) else source
            if not isinstance(module, ModuleType):
                raise ConfigurationError(
                    f"tasks: {source!r} is neither a module nor a task; "
                    "was the function decorated with @task?"
                )
            for part in _with_submodules(module):
                for value in list(vars(part).values()):
                    # By its true type: asking a lazy object for its class may wake it up.
                    if issubclass(type(value), Task):
                        self.add(value)

    def get(self, name: str) -> Task[..., Any]:
        """The task of this name or alias. Raises `UnknownTask`."""
        try:
            return self._tasks[name]
        except KeyError:
            known = ", ".join(sorted(self._tasks)) or "none"
            raise UnknownTask(f"no task is named {name!r}; known: {known}") from None

    @property
    def names(self) -> tuple[str, ...]:
        """Every name and alias, sorted."""
        return tuple(sorted(self._tasks))

    def __contains__(self, name: object) -> bool:
        return name in self._tasks

    def __iter__(self) -> Iterator[Task[..., Any]]:
        return iter({id(task): task for task in self._tasks.values()}.values())


def injected_values(
    task: Task[..., Any], context: Any, dependencies: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """What fills the injected parameters of a task: the context, by its annotation, else what
    `dependencies` has by its name.

    Raises `MissingDependency` naming a parameter that nobody fills.
    """
    values: dict[str, Any] = {}
    given = dependencies or {}
    for name in task.signature.injected:
        annotation = task.signature.annotation(name)
        wanted = (annotation, *typing.get_args(annotation))  # JobContext, JobContext | None
        if any(kind in wanted for kind in type(context).__mro__[:-1]):
            values[name] = context
        elif name in given:
            values[name] = given[name]
        else:
            raise MissingDependency(f"{task.name}: nobody fills the injected parameter {name!r}")
    return values


def _with_submodules(module: ModuleType) -> Iterator[ModuleType]:
    yield module
    path = getattr(module, "__path__", None)
    if path is not None:
        for info in pkgutil.walk_packages(path, module.__name__ + "."):
            if not info.name.endswith(".__main__"):
                yield importlib.import_module(info.name)


def _same_place(one: Task[..., Any], other: Task[..., Any]) -> bool:
    """Whether two functions have one place in one module, so that the later was the former.

    A function within a function is made anew by each call, so its name says nothing.
    """
    first, second = (
        (getattr(task.function, "__module__", None), getattr(task.function, "__qualname__", ""))
        for task in (one, other)
    )
    return first == second and bool(first[1]) and "<locals>" not in first[1]


def _bodies(function: Any) -> tuple[Any, Any]:
    """What may be a coroutine function: a callable, or what calling it calls."""
    return function, type(function).__call__


def _name_of(function: Callable[..., Any]) -> str:
    name = getattr(function, "__name__", "")
    if not name or name == "<lambda>":
        raise ConfigurationError(f"a task made of {function!r} needs a name=")
    return str(name)


def _check_function(function: Any) -> None:
    """Raise `ConfigurationError` for what cannot be a task's body, saying why."""
    if isinstance(function, Task):
        raise ConfigurationError(
            f"{function!r} is a task already; give it to the service by tasks=[...]"
        )
    if isinstance(function, type) or not callable(function):
        raise ConfigurationError(f"a task must be a function, not {function!r}")
    for body in _bodies(function):
        if inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body):
            raise ConfigurationError(
                f"a task must be a function that returns; {function!r} is a generator"
            )


def _refuse_fixed(changes: Mapping[str, Any], why: str) -> None:
    for name in ("name", "aliases"):
        if name in changes:
            raise InvalidArguments(f"{name} belongs to the task: names {why}")
    for name in ScheduleChanges.__optional_keys__ & changes.keys():
        raise InvalidArguments(
            f"{name} belongs to the task; more schedules are made with jobs.schedules"
        )
    for name in CODE:
        if name in changes:
            raise InvalidArguments(f"{name} is code and belongs to the task: give it to @task")
