"""From the words of a command line to arguments."""

from __future__ import annotations

import dataclasses
import enum
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, NewType, Optional
from uuid import UUID

import pytest

from tenure import INJECTED, JobContext, task
from tenure.cli.errors import Refusal
from tenure.cli.values import BadText, arguments_of, from_text, sort_out
from tenure.core import codec


class Color(enum.Enum):
    RED = "red"
    TWO = 2


@dataclasses.dataclass
class Size:
    width: int
    height: int


Name = NewType("Name", str)


@pytest.mark.parametrize(
    ("text", "annotation", "value"),
    [
        ("5", str, "5"),
        ("5", Any, "5"),
        ("5", object, "5"),
        ("5", int, 5),
        ("-5", int, -5),
        ("5", float, 5.0),
        ("1e3", float, 1000.0),
        ("yes", bool, True),
        ("FALSE", bool, False),
        ("0", bool, False),
        ("red", Color, Color.RED),
        ("RED", Color, Color.RED),
        ("2", Color, Color.TWO),
        ("2", Literal["a", 2], 2),
        ("a", Literal["a", 2], "a"),
        ("5", Optional[int], 5),  # noqa: UP045 - the old spelling is what is tested
        ("5", int | str, 5),
        ("x", int | str, "x"),
        ("x", str | int, "x"),
        ("none", str | None, "none"),
        ("x", Annotated[str, "doc"], "x"),
        ("x", Name, "x"),
        ("[1, 2]", list[int], [1, 2]),
        ('{"a": 1}', dict[str, int], {"a": 1}),
        ('{"width": 1, "height": 2}', Size, {"width": 1, "height": 2}),
        ("2026-01-31T12:00:00Z", datetime, datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ("1.5", timedelta, timedelta(seconds=1.5)),
        ("hi", bytes, b"hi"),
        ("a/b", Path, "a/b"),
        ("1.10", Decimal, "1.10"),
    ],
)
def test_a_text_is_read_by_the_annotation(text, annotation, value):
    read = from_text(text, annotation)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("text", "annotation", "message"),
    [
        ("x", int, "an integer"),
        ("1.5", int, "an integer"),
        ("x", float, "a number"),
        ("maybe", bool, "true or false"),
        ("green", Color, "one of RED, TWO, red, 2"),
        ("b", Literal["a", 2], "one of a, 2"),
        ("x", int | float | None, "an integer or a number"),
        ("[1", list[int], "JSON"),
        ("today", datetime, "a time such as"),
    ],
)
def test_a_text_that_does_not_fit_is_explained(text, annotation, message):
    with pytest.raises(BadText, match=message.replace("|", "\\|")):
        from_text(text, annotation)


def test_words_are_sorted_out():
    positional, named, exact = sort_out(
        ["a", "x=1", "y:=[1]", "http://h/?q=1", "z=a=b", "=", "1=2"]
    )
    assert positional == ["a", "http://h/?q=1", "=", "1=2"]
    assert named == {"x": "1", "z": "a=b"}
    assert exact == {"y": [1]}


@pytest.mark.parametrize("words", [["x=1", "x=2"], ["x=1", "x:=2"], ["x:=oops"]])
def test_words_that_cannot_be_sorted_out(words):
    with pytest.raises(Refusal, match="x"):
        sort_out(words)


def decoded(job: Any, *words: str) -> Any:
    args, kwargs = arguments_of(job, words)
    return codec.decode(job.bind(*args, **kwargs).payload)


def test_arguments_by_position_and_by_name():
    @task
    def resize(
        path: Path, width: int = 1, *, keep: bool = False, ctx: JobContext = INJECTED
    ) -> None: ...

    assert decoded(resize, "a.jpg", "5") == {"path": "a.jpg", "width": 5}
    assert decoded(resize, "keep=on", "path=a") == {"path": "a", "keep": True}
    assert decoded(resize, "a", "width:=7") == {"path": "a", "width": 7}


def test_arguments_of_any_number():
    @task
    def collect(first: str, *rest: int, **more: float) -> None: ...

    assert decoded(collect, "1", "2", "3", "x=4") == {
        "first": "1",
        "rest": [2, 3],
        "more": {"x": 4.0},
    }


def test_types_that_are_stored_as_text():
    @task
    def keep(id: UUID, amount: Decimal, wait: timedelta, data: bytes) -> None: ...

    words = ["12345678123456781234567812345678", "1.10", "90", "hi"]
    args, kwargs = arguments_of(keep, words)
    values, _ = keep.signature.decode(codec.decode(keep.bind(*args, **kwargs).payload))
    assert not values
    read = keep.signature.decode(codec.decode(keep.bind(*args, **kwargs).payload))[1]
    assert read == {
        "id": UUID(words[0]),
        "amount": Decimal("1.10"),
        "wait": timedelta(seconds=90),
        "data": b"hi",
    }
