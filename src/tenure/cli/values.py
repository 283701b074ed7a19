"""From the words of a command line to the arguments of a task."""

from __future__ import annotations

import enum
import inspect
import json
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import PurePath
from typing import Any
from uuid import UUID

from tenure.cli.errors import Refusal
from tenure.tasks import Task

_BOOLS = {
    **dict.fromkeys(("true", "yes", "on", "1"), True),
    **dict.fromkeys(("false", "no", "off", "0"), False),
}


class BadText(ValueError):
    """The text is no value of the annotated type; the message says what would be."""


def sort_out(words: Iterable[str]) -> tuple[list[str], dict[str, str], dict[str, Any]]:
    """Positional texts, `name=text` and `name:=json` (decoded) of these words."""
    positional: list[str] = []
    named: dict[str, str] = {}
    exact: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        as_json = name.endswith(":")
        name = name.removesuffix(":")
        if not equals or not name.isidentifier():
            positional.append(word)
            continue
        if name in named or name in exact:
            raise Refusal(f"{name} is given twice")
        if as_json:
            exact[name] = _json(text, name)
        else:
            named[name] = text
    return positional, named, exact


def arguments_of(task: Task[..., Any], words: Iterable[str]) -> tuple[list[Any], dict[str, Any]]:
    """The arguments for `task.bind`, each text as the type of its parameter."""
    positional, named, exact = sort_out(words)
    places = _places(task)
    args = [
        _converted(text, name, annotation)
        for text, (name, annotation) in zip(
            positional, _along(places, len(positional)), strict=True
        )
    ]
    kwargs = {name: _converted(text, name, _annotation(task, name)) for name, text in named.items()}
    return args, kwargs | exact


def _places(task: Task[..., Any]) -> list[tuple[str, Any, bool]]:
    """The positional parameters: name, annotation, and whether it takes all that follow."""
    kinds = inspect.Parameter
    return [
        (name, task.signature.annotation(name), parameter.kind is kinds.VAR_POSITIONAL)
        for name, parameter in _parameters(task).items()
        if parameter.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)
        or parameter.kind is kinds.VAR_POSITIONAL
    ]


def _along(places: list[tuple[str, Any, bool]], count: int) -> Iterable[tuple[str, Any]]:
    """The name and annotation of each of `count` positions; what is too much is left as text."""
    for i in range(count):
        last = places[-1] if places else ("", Any, False)
        name, annotation, _ = places[i] if i < len(places) else last
        fits = i < len(places) or last[2]
        yield name, annotation if fits else Any


def _annotation(task: Task[..., Any], name: str) -> Any:
    parameters = _parameters(task)
    if name not in parameters:
        for other in parameters.values():
            if other.kind is inspect.Parameter.VAR_KEYWORD:
                return task.signature.annotation(other.name)
    return task.signature.annotation(name)


def _parameters(task: Task[..., Any]) -> Mapping[str, inspect.Parameter]:
    found = inspect.signature(task.function).parameters
    return {name: found[name] for name in found if name not in task.signature.injected}


def _converted(text: str, name: str, annotation: Any) -> Any:
    try:
        return from_text(text, annotation)
    except BadText as error:
        raise Refusal(f"{name}: {text!r} is not {error}") from None


def from_text(text: str, annotation: Any) -> Any:
    """`text` as a value of the annotated type. Raises `BadText` saying what it should be.

    What has no writing of its own (lists, dataclasses) is read as JSON. Types that are stored as
    text are left to the task, which checks every argument.
    """
    annotation = _bare(annotation)
    if annotation in (Any, object):
        return text
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return _any_of(text, typing.get_args(annotation))
    if typing.get_origin(annotation) is typing.Literal:
        return _chosen(text, {str(_plain(v)): v for v in typing.get_args(annotation)})
    if not isinstance(annotation, type) or typing.get_origin(annotation) is not None:
        return _as_json(text)
    if issubclass(annotation, enum.Enum):
        by_name = {member.name: member for member in annotation}
        return _chosen(text, by_name | {str(member.value): member for member in annotation})
    for kind, read in _READERS:
        if issubclass(annotation, kind):
            return read(text)
    return _as_json(text)


def _bare(annotation: Any) -> Any:
    """Without `Annotated`, `NewType` and aliases around it."""
    while True:
        if typing.get_origin(annotation) is typing.Annotated:
            annotation = typing.get_args(annotation)[0]
        elif isinstance(annotation, typing.NewType):
            annotation = annotation.__supertype__
        elif hasattr(annotation, "__value__"):  # type X = ...
            annotation = annotation.__value__
        else:
            return annotation


def _any_of(text: str, members: Iterable[Any]) -> Any:
    """The first member that takes the text; `str` takes any, so it is asked last."""
    wanted = []
    for member in sorted(members, key=lambda m: _bare(m) in (str, Any, object)):
        if member is type(None):
            continue
        try:
            return from_text(text, member)
        except BadText as error:
            wanted.append(str(error))
    raise BadText(" or ".join(wanted))


def _chosen(text: str, choices: Mapping[str, Any]) -> Any:
    if text not in choices:
        raise BadText(f"one of {', '.join(choices)}")
    return choices[text]


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, enum.Enum) else value


def _as_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise BadText("JSON, which this parameter needs") from None


def _json(text: str, name: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise Refusal(f"{name}:= needs JSON; {text!r} is not: {error}") from None


def _bool(text: str) -> bool:
    if text.lower() not in _BOOLS:
        raise BadText("true or false")
    return _BOOLS[text.lower()]


def _number(kind: Callable[[str], Any], what: str) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        try:
            return kind(text)
        except ValueError:
            raise BadText(what) from None

    return read


def _length(text: str) -> Any:
    try:
        return timedelta(seconds=float(text))
    except (ValueError, OverflowError):
        return text  # ISO 8601, as in PT1H


_READERS: tuple[tuple[type, Callable[[str], Any]], ...] = (
    (bool, _bool),
    (int, _number(int, "an integer")),
    (float, _number(float, "a number")),
    (str, str),
    (bytes, str.encode),
    (bytearray, str.encode),
    (datetime, _number(datetime.fromisoformat, "a time such as 2026-01-31T12:00:00+01:00")),
    (timedelta, _length),
    *((kind, str) for kind in (date, time, Decimal, UUID, PurePath)),
)
"""How the text of each type is read; of a type that fits several, the first counts."""
