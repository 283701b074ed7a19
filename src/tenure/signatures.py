"""The way of arguments into a payload and back, by the parameters of a function."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any, Final

from tenure.core import codec
from tenure.errors import ConfigurationError, InvalidArguments, PayloadError
from tenure.options import TaskOptions


class _Injected:
    def __repr__(self) -> str:
        return "INJECTED"

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"no attribute {name!r}: an injected parameter is filled when a job runs; "
            "who calls the function directly gives it"
        )


INJECTED: Final[Any] = _Injected()
"""The default of a parameter that is filled when the job runs, never by who enqueues it."""


class Signature:
    """The parameters of a function, split into arguments and injected ones.

    Raises `ConfigurationError` for an injected parameter that cannot be filled by its name.
    """

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        self._function = function
        self._task = name
        parameters = inspect.signature(function).parameters.values()
        self._parameters = {p.name: p for p in parameters if p.default is not INJECTED}
        self.injected = tuple(p.name for p in parameters if p.default is INJECTED)
        self._rest = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), None)
        for parameter in parameters:
            if parameter.default is INJECTED:
                self._check_injected(parameter)
        self._binder = inspect.Signature(list(self._parameters.values()))
        by_position = all(p.kind in _POSITIONAL for p in self._parameters.values())
        self._plain = len(self._parameters) if by_position else None

    @functools.cached_property
    def hints(self) -> Mapping[str, Any]:
        """The annotations, resolved at first use, when every module has been imported."""
        function = self._function
        while isinstance(function, functools.partial):
            function = function.func
        if not inspect.isroutine(function):
            function = type(function).__call__  # an object that can be called
        try:
            return typing.get_type_hints(function, include_extras=True)
        except Exception as error:
            hint = ""
            if isinstance(error, NameError):
                hint = "; it must be importable at run time, at the top of the task's module"
            raise ConfigurationError(
                f"the annotations of task {self._task} cannot be resolved: {error}{hint}"
            ) from error

    def encode(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
        """The payload of a call: a JSON object by parameter name.

        Raises `InvalidArguments` or `PayloadError`, naming the argument.
        """
        for name in self.injected:
            if name in kwargs:
                raise InvalidArguments(f"{self._task}: {name} is injected and cannot be given")
        return self.encode_values(self._bound(args, kwargs))

    def encode_values(self, values: Mapping[str, Any]) -> bytes:
        """The payload of these arguments, by parameter name. Raises as `encode` does."""
        try:
            payload = object_of(values)
        except PayloadError as error:
            raise PayloadError(f"{self._task}: {error}") from error
        try:
            self.decode(codec.decode(payload))
        except PayloadError as error:
            raise InvalidArguments(f"{self._task}: {error}") from error
        return payload

    def arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
        """The arguments of a call by parameter name, with defaults. Raises as `encode` does."""
        given = self._bound(args, kwargs)
        bound = inspect.BoundArguments(self._binder, dict(given))
        bound.apply_defaults()
        return bound.arguments

    def arguments_in(self, payload: bytes) -> Mapping[str, Any]:
        """The same, of the arguments in a payload."""
        args, kwargs = self.decode(codec.decode(payload))
        return self.arguments(tuple(args), kwargs)

    def _bound(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
        """The arguments by parameter name, in the order of the parameters."""
        if not kwargs and len(args) == self._plain:  # most calls; `bind` takes its time
            return dict(zip(self._parameters, args, strict=True))
        try:
            return self._binder.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise InvalidArguments(f"{self._task}: {error}{self._hint(kwargs)}") from error

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
            by_position = self._by_position(parameter, values)
            if name in values:
                value = self._converted(parameter, values[name])
            elif parameter.kind in _VARIADIC:
                continue
            elif parameter.default is parameter.empty:
                raise PayloadError(f"missing argument {name!r}")
            elif by_position:
                value = parameter.default
            else:
                continue
            if parameter.kind is parameter.VAR_POSITIONAL:
                args.extend(value)
            elif parameter.kind is parameter.VAR_KEYWORD:
                self._check_extra(value, kwargs)
                kwargs |= value
            elif by_position:
                args.append(value)
            else:
                kwargs[name] = value
        return args, kwargs

    def complete(self, payload: bytes) -> dict[str, Any]:
        """Every argument of a payload as a plain value, as equal calls have them alike.

        Defaults are applied, and values written as their annotated types are: for a `float`, 1 and
        1.0 are one. Raises `PayloadError` naming an argument.
        """
        values = codec.decode(payload)
        complete: dict[str, Any] = {}
        for name, parameter in self._parameters.items():
            if name in values:
                plain = values[name]
            elif parameter.kind in _VARIADIC:
                plain = [] if parameter.kind is parameter.VAR_POSITIONAL else {}
            else:
                plain = codec.decode(codec.encode(parameter.default, name))
            try:
                typed = self._converted(parameter, plain)
            except PayloadError:
                typed = plain  # a default need not be of the annotated type
            complete[name] = codec.decode(codec.encode(typed, name))
        return complete

    def annotation(self, name: str) -> Any:
        """The resolved annotation of a parameter, or of `return`; `Any` where there is none."""
        return self.hints.get(name, Any)

    def _by_position(self, parameter: inspect.Parameter, values: Mapping[str, Any]) -> bool:
        """Whether a parameter must be passed by position: as all before a filled `*args` must."""
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
            return bool(self._rest is not None and values.get(self._rest))
        return parameter.kind is parameter.POSITIONAL_ONLY

    def _converted(self, parameter: inspect.Parameter, value: Any) -> Any:
        name, annotation = parameter.name, self.annotation(parameter.name)
        if parameter.kind is parameter.VAR_POSITIONAL:
            items = codec.convert(value, list[Any], name)
            return [codec.convert(v, annotation, f"{name}[{i}]") for i, v in enumerate(items)]
        if parameter.kind is parameter.VAR_KEYWORD:
            extra = codec.convert(value, dict[str, Any], name)
            return {k: codec.convert(v, annotation, f"{name}.{k}") for k, v in extra.items()}
        return codec.convert(value, annotation, name)

    def _check_extra(self, extra: Mapping[str, Any], kwargs: Mapping[str, Any]) -> None:
        clash = extra.keys() & (kwargs.keys() | set(self.injected))
        if clash:
            raise PayloadError(f"the argument {min(clash)!r} is given twice")

    def _check_injected(self, parameter: inspect.Parameter) -> None:
        problem = ""
        if parameter.kind is parameter.POSITIONAL_ONLY:
            problem = "cannot be positional-only"
        elif parameter.kind is parameter.POSITIONAL_OR_KEYWORD and self._rest is not None:
            problem = f"must come after *{self._rest}"
        if problem:
            raise ConfigurationError(
                f"task {self._task}: the injected parameter {parameter.name!r} {problem}"
            )

    def _hint(self, kwargs: Mapping[str, Any]) -> str:
        """What may have been meant by arguments that the function does not take."""
        meant = [n for n in kwargs if n not in self._parameters and n in _OPTIONS]
        if not meant:
            return ""
        return f"; options are given by {self._task}.options({meant[0]}=...)"


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_OPTIONS = frozenset(TaskOptions.__struct_fields__)


def object_of(values: Mapping[str, Any]) -> bytes:
    """The JSON object of these arguments. Raises `PayloadError` naming the argument."""
    members = [_member(name) + codec.encode(value, name) for name, value in values.items()]
    return b"{" + b",".join(members) + b"}"


@functools.lru_cache(1024)
def _member(name: str) -> bytes:
    """The beginning of a member of a JSON object."""
    return codec.encode(name, "a name") + b":"


def largest_of(payload: bytes) -> str:
    """The name of the argument that takes the most room in a payload."""
    values: dict[str, Any] = codec.decode(payload)
    return max(values, key=lambda name: len(codec.encode(values[name])))
