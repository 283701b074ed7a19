"""Tasks: code known by name, and the way of arguments into a payload and back."""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
import typing
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any, Final, Generic, ParamSpec, Protocol, TypeVar, Unpack, overload

import anyio.to_thread

from tenure.core import codec
from tenure.errors import (
    ConfigurationError,
    InvalidArguments,
    MissingDependency,
    PayloadError,
    UnknownTask,
)
from tenure.options import TaskChanges, TaskOptions, changed, check_name

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class _Injected:
    def __repr__(self) -> str:
        return "INJECTED"


INJECTED: Final[Any] = _Injected()
"""The default of a parameter that is filled when the job runs, never by who enqueues it."""


class Signature:
    """The parameters of a function, split into arguments and injected ones."""

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        self._function = function
        self._task = name
        parameters = inspect.signature(function).parameters.values()
        self._parameters = {p.name: p for p in parameters if p.default is not INJECTED}
        self.injected = tuple(p.name for p in parameters if p.default is INJECTED)
        self._binder = inspect.Signature(list(self._parameters.values()))

    @functools.cached_property
    def hints(self) -> Mapping[str, Any]:
        """The annotations, resolved at first use, when every module has been imported."""
        try:
            return typing.get_type_hints(self._function, include_extras=True)
        except Exception as error:
            raise ConfigurationError(
                f"the annotations of task {self._task} cannot be resolved: {error}"
            ) from error

    def encode(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
        """The payload of a call: a JSON object by parameter name.

        Raises `InvalidArguments` or `PayloadError`, naming the argument.
        """
        for name in self.injected:
            if name in kwargs:
                raise InvalidArguments(f"{self._task}: {name} is injected and cannot be given")
        try:
            bound = self._binder.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise InvalidArguments(f"{self._task}: {error}") from error
        payload = b"{" + b",".join(self._member(name, bound[name]) for name in bound) + b"}"
        try:
            self.decode(codec.decode(payload))
        except PayloadError as error:
            raise InvalidArguments(f"{self._task}: {error}") from error
        return payload

    def decode(self, values: Any) -> tuple[list[Any], dict[str, Any]]:
        """The positional and keyword arguments of a payload, as the annotated types.

        Raises `PayloadError` naming the argument that is missing, unknown or of a wrong type.
        """
        if not isinstance(values, dict):
            raise PayloadError(f"the payload is a {type(values).__name__}, not an object")
        unknown = values.keys() - self._parameters.keys()
        if unknown:
            raise PayloadError(f"unknown argument {min(unknown)!r}")
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for name, parameter in self._parameters.items():
            if name in values:
                self._place(parameter, values[name], args, kwargs)
            elif parameter.default is parameter.empty and parameter.kind not in _VARIADIC:
                raise PayloadError(f"missing argument {name!r}")
            elif parameter.kind is parameter.POSITIONAL_ONLY:
                args.append(parameter.default)
        return args, kwargs

    def annotation(self, name: str) -> Any:
        """The resolved annotation of a parameter, or of `return`; `Any` where there is none."""
        return self.hints.get(name, Any)

    def _member(self, name: str, value: Any) -> bytes:
        return codec.encode(name) + b":" + codec.encode(value, name)

    def _place(
        self,
        parameter: inspect.Parameter,
        value: Any,
        args: list[Any],
        kwargs: dict[str, Any],
    ) -> None:
        name, annotation = parameter.name, self.annotation(parameter.name)
        if parameter.kind is parameter.VAR_POSITIONAL:
            items = codec.convert(value, list[Any], name)
            # Everything before *args must be positional for the rest to land there.
            args.extend(kwargs.values())
            kwargs.clear()
            args.extend(codec.convert(v, annotation, f"{name}[{i}]") for i, v in enumerate(items))
        elif parameter.kind is parameter.VAR_KEYWORD:
            extra = codec.convert(value, dict[str, Any], name)
            kwargs |= {k: codec.convert(v, annotation, f"{name}.{k}") for k, v in extra.items()}
        elif parameter.kind is parameter.POSITIONAL_ONLY:
            args.append(codec.convert(value, annotation, name))
        else:
            kwargs[name] = codec.convert(value, annotation, name)


_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class Task(Generic[P, R]):
    """A function that can be enqueued. Made by `@jobs.task` or `@task`; immutable.

    `await task(...)` runs the body here and now, a `def` body in a worker thread.
    """

    def __init__(self, function: Callable[P, Any], spec: TaskOptions) -> None:
        if not callable(function):
            raise ConfigurationError(f"a task must be a function, not {function!r}")
        self.function = function
        self.spec = spec
        self.name = check_name(spec.name or getattr(function, "__name__", ""), "name")
        self.is_async = inspect.iscoroutinefunction(function)
        self.signature = Signature(function, self.name)
        functools.update_wrapper(self, function)

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the body directly: no job, no lease, no retry."""
        if self.is_async:
            result: R = await self.function(*args, **kwargs)
            return result
        call = functools.partial(self.function, *args, **kwargs)
        return await anyio.to_thread.run_sync(call)

    def options(self, **changes: Unpack[TaskChanges]) -> Task[P, R]:
        """A copy with some options changed and everything else kept."""
        if "name" in changes:
            raise InvalidArguments("name belongs to the task; it cannot be changed for a call")
        return Task(self.function, changed(self.spec, changes))

    def bind(self, *args: P.args, **kwargs: P.kwargs) -> BoundTask[R]:
        """The task with checked and encoded arguments, for `enqueue_many`."""
        return BoundTask(self.name, self.signature.encode(args, kwargs), self.spec, self)

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
    """A task whose code lives elsewhere: its name and options. Arguments are given by keyword."""

    def __init__(self, name: str, /, **options: Unpack[TaskChanges]) -> None:
        self.name = check_name(name, "name")
        self.spec = changed(TaskOptions(), options)

    def options(self, **changes: Unpack[TaskChanges]) -> TaskRef:
        """A copy with some options changed and everything else kept."""
        copy = TaskRef(self.name)
        copy.spec = changed(self.spec, changes)
        return copy

    def bind(self, *args: Any, **kwargs: Any) -> BoundTask[Any]:
        """The task with encoded arguments; they must be given by keyword."""
        if args:
            raise InvalidArguments(f"{self.name}: arguments of a TaskRef are given by keyword")
        members = (codec.encode(n) + b":" + codec.encode(v, n) for n, v in kwargs.items())
        return BoundTask(self.name, b"{" + b",".join(members) + b"}", self.spec, None)

    def __repr__(self) -> str:
        return f"<TaskRef {self.name}>"


class BoundTask(Generic[R_co]):
    """A task and its encoded arguments: what `enqueue_many` takes."""

    __slots__ = ("name", "payload", "spec", "task")

    def __init__(
        self, name: str, payload: bytes, spec: TaskOptions, task: Task[..., R_co] | None
    ) -> None:
        self.name = name
        self.payload = payload
        self.spec = spec
        self.task = task


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
        """Know this task. Raises `ConfigurationError` naming both places if a name is taken."""
        names = (task.name, *task.spec.aliases)
        for name in names:
            known = self._tasks.get(name)
            if known is not None and known.function is not task.function:
                raise ConfigurationError(
                    f"two tasks are named {name!r}: {known.place} and {task.place}"
                )
        self._tasks |= dict.fromkeys(names, task)

    def collect(self, sources: Iterable[str | ModuleType | Task[..., Any]]) -> None:
        """Know these tasks, and those in these modules and all their submodules."""
        for source in sources:
            if isinstance(source, Task):
                self.add(source)
                continue
            module = importlib.import_module(source) if isinstance(source, str) else source
            for part in _with_submodules(module):
                for value in list(vars(part).values()):
                    if isinstance(value, Task):
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


def injected_values(task: Task[..., Any], context: Any) -> dict[str, Any]:
    """What fills the injected parameters of a task: the context, by its annotation.

    Raises `MissingDependency` naming a parameter that nobody fills.
    """
    values: dict[str, Any] = {}
    for name in task.signature.injected:
        annotation = task.signature.annotation(name)
        if not (isinstance(annotation, type) and isinstance(context, annotation)):
            raise MissingDependency(f"{task.name}: nobody fills the injected parameter {name!r}")
        values[name] = context
    return values


def _with_submodules(module: ModuleType) -> Iterator[ModuleType]:
    yield module
    path = getattr(module, "__path__", None)
    if path is not None:
        for info in pkgutil.walk_packages(path, module.__name__ + "."):
            if not info.name.endswith(".__main__"):
                yield importlib.import_module(info.name)
