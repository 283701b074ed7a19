"""Arguments on their way into a payload and back: every kind of parameter, every kind of value."""

import dataclasses
import enum
import math
import random
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import pytest

from tenure import INJECTED, JobContext, TaskRef, task
from tenure.core import codec
from tenure.errors import ConfigurationError, InvalidArguments, PayloadError, TenureError


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int
    where: Path


class Box(msgspec.Struct):
    size: Decimal
    labels: set[str]


class Pair(NamedTuple):
    left: int
    right: str


class Options(TypedDict):
    deep: bool


def payload(bound: Any) -> Any:
    return codec.decode(bound.payload)


def called(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """What the body gets when a job of this call runs, after a trip through the store."""
    made = task(function)
    positional, named = made.signature.decode(payload(made.bind(*args, **kwargs)))
    return function(*positional, **named)


# Kinds of parameters


def test_a_payload_is_an_object_by_parameter_name() -> None:
    def body(a: int, /, b: int, *rest: int, c: int, d: int = 4, **more: int) -> None: ...

    bound = task(body).bind(1, 2, 3, 33, c=5, x=6)
    assert payload(bound) == {"a": 1, "b": 2, "rest": [3, 33], "c": 5, "more": {"x": 6}}


def test_defaults_are_left_to_the_code_that_runs() -> None:
    def body(a: int = 1, b: int = 2) -> None: ...

    assert payload(task(body).bind(b=3)) == {"b": 3}


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((1,), {"c": 0}),
        ((1, 2), {"c": 0}),
        ((1, 2, 3, 4), {"c": 0, "d": 9}),
        ((1,), {"b": 5, "c": 0, "x": 6, "y": 7}),
        ((1,), {"c": 0, "a": 8}),  # `a` is positional-only, so this one goes to **more
    ],
)
def test_every_kind_of_parameter_gets_what_a_call_gives(
    args: tuple[int, ...], kwargs: dict[str, int]
) -> None:
    def body(a: int, /, b: int = 2, *rest: int, c: int, d: int = 4, **more: int) -> Any:
        return a, b, rest, c, d, more

    assert called(body, *args, **kwargs) == body(*args, **kwargs)


def test_a_positional_only_default_stands_before_what_follows() -> None:
    def body(a: int = 1, b: int = 2, /, *rest: int) -> Any:
        return a, b, rest

    made = task(body)
    args, kwargs = made.signature.decode({"b": 5, "rest": [6]})
    assert body(*args, **kwargs) == (1, 5, (6,))


def test_a_default_is_not_taken_by_the_rest() -> None:
    def body(a: int, b: int = 2, *rest: int) -> Any:
        return a, b, rest

    args, kwargs = task(body).signature.decode({"a": 1, "rest": [3]})
    assert body(*args, **kwargs) == (1, 2, (3,))


@pytest.mark.parametrize("name", ["self", "args", "kwargs", "task", "function", "name", "limit"])
def test_any_parameter_name_will_do(name: str) -> None:
    namespace: dict[str, Any] = {}
    exec(f"def body({name}): return {name}", namespace)
    assert called(namespace["body"], **{name: 7}) == 7
    assert payload(TaskRef("elsewhere").bind(**{name: 7})) == {name: 7}


# Injected parameters


def test_an_injected_parameter_is_no_part_of_the_payload() -> None:
    def body(a: int, *, ctx: JobContext = INJECTED) -> None: ...

    made = task(body)
    assert payload(made.bind(1)) == {"a": 1}
    assert made.signature.decode({"a": 1}) == ([], {"a": 1})
    with pytest.raises(InvalidArguments, match="ctx is injected and cannot be given"):
        made.bind(1, ctx=None)  # type: ignore[arg-type]
    with pytest.raises(PayloadError, match="unknown argument 'ctx'"):
        made.signature.decode({"a": 1, "ctx": 2})


def test_an_injected_parameter_in_front_is_passed_over() -> None:
    def body(ctx: JobContext = INJECTED, a: int = 0) -> None: ...

    assert payload(task(body).bind(a=3)) == {"a": 3}


def test_nor_does_extra_replace_an_injected_parameter() -> None:
    def body(*, ctx: JobContext = INJECTED, **more: int) -> None: ...

    with pytest.raises(PayloadError, match="'ctx' is given twice"):
        task(body).signature.decode({"more": {"ctx": 1}})


def test_extra_does_not_replace_an_argument() -> None:
    def body(a: int, **more: int) -> None: ...

    with pytest.raises(PayloadError, match="'a' is given twice"):
        task(body).signature.decode({"a": 1, "more": {"a": 2}})


def test_an_injected_parameter_must_be_one_that_a_name_can_fill() -> None:
    def positional(ctx: JobContext = INJECTED, /) -> None: ...
    def before(a: int, ctx: JobContext = INJECTED, *rest: int) -> None: ...

    with pytest.raises(ConfigurationError, match=r"positional.*'ctx' cannot be positional-only"):
        task(positional)
    with pytest.raises(ConfigurationError, match=r"before.*'ctx' must come after \*rest"):
        task(before)


def test_an_injected_value_that_is_used_outside_a_job_says_so() -> None:
    with pytest.raises(AttributeError, match=r"'progress'.*filled when a job runs"):
        INJECTED.progress(1)
    assert repr(INJECTED) == "INJECTED"


# Wrong calls


@pytest.mark.parametrize(
    ("args", "kwargs", "word"),
    [
        ((), {}, "missing a required argument: 'path'"),
        (("a", 1, 2), {}, "too many positional"),
        (("a",), {"widht": 7}, "unexpected keyword argument 'widht'"),
        (("a",), {"path": "b"}, "multiple values for argument 'path'"),
        ((3,), {}, "path: Expected `str`, got `int`"),
        (("a",), {"width": "7"}, "width: Expected `int`, got `str`"),
        (("a",), {"width": True}, "width: Expected `int`, got `bool`"),
        (("a",), {"width": None}, "width: Expected `int`, got `null`"),
        (("a",), {"delay": 3}, r"'delay'; options are given by resize\.options\(delay=\.\.\.\)"),
    ],
)
def test_a_wrong_call_is_refused_by_name(
    args: tuple[Any, ...], kwargs: dict[str, Any], word: str
) -> None:
    def resize(path: str, width: int = 800) -> None: ...

    with pytest.raises(InvalidArguments, match=f"resize: .*{word}") as caught:
        task(resize).bind(*args, **kwargs)
    assert isinstance(caught.value, TypeError)


def test_the_place_of_a_wrong_value_is_named() -> None:
    def body(*rest: int, **more: list[int]) -> None: ...

    with pytest.raises(InvalidArguments, match=r"rest\[1\]: Expected `int`"):
        task(body).bind(1, "x")  # type: ignore[arg-type]
    with pytest.raises(
        InvalidArguments, match=r"more\.x: Expected `int`, got `str` - at `\$\[0\]`"
    ):
        task(body).bind(x=["y"])  # type: ignore[list-item]


def test_arguments_for_code_elsewhere_are_given_by_keyword() -> None:
    with pytest.raises(InvalidArguments, match="render: arguments of a TaskRef"):
        TaskRef("render").bind("may")
    with pytest.raises(PayloadError, match="render: month: nan"):
        TaskRef("render").bind(month=math.nan)


# Values

UNSTORABLE = [
    (datetime(2024, 1, 1), "naive"),  # noqa: DTZ001
    (math.nan, "nan"),
    (math.inf, "inf"),
    ([1.0, -math.inf], r"value\[1\]: -inf"),
    ("a\x00b", "NUL"),
    ("\udce4", "surrogate"),
    ({"a": {"b": "\x00"}}, r"value\.a\.b: .*NUL"),
    ({"\x00": 1}, "NUL"),
    ({1: 2}, "keys are strings"),
    (2**64, "64 bits"),
    (-(2**63) - 1, "64 bits"),
    (object(), "object cannot be stored"),
    (len, "cannot be stored"),
    (ValueError("x"), "ValueError cannot be stored"),
    (1 + 2j, "complex cannot be stored"),
]


@pytest.mark.parametrize(("value", "word"), UNSTORABLE)
def test_what_the_store_cannot_hold_is_refused_by_name(value: Any, word: str) -> None:
    def keep(value: Any) -> None: ...

    with pytest.raises(PayloadError, match=f"keep: .*{word}") as caught:
        task(keep).bind(value)
    assert "value" in str(caught.value)
    with pytest.raises(PayloadError, match=word):
        TaskRef("keep").bind(value=value)


def test_what_contains_itself_ends_in_an_error() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(PayloadError, match="loop"):
        TaskRef("keep").bind(loop=loop)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (int, -(2**63)),
        (float, 2.5),
        (bool, True),
        (str, "zo\u00eb \U0001f980"),
        (bytes, b"\x00\xff"),
        (datetime, datetime(2024, 2, 29, 12, 30, 1, 7, tzinfo=UTC)),
        (date, date(2024, 2, 29)),
        (time, time(1, 2, 3)),
        (timedelta, timedelta(days=1, microseconds=1)),
        (UUID, UUID(int=7)),
        (Decimal, Decimal("1.10")),
        (Path, Path("/a/b")),
        (Path | None, Path("a")),
        (Path | None, None),
        (Colour, Colour.RED),
        (Point, Point(1, Path("x"))),
        (list[Point], [Point(1, Path("x"))]),
        (Box, Box(Decimal("0.1"), {"b", "a"})),
        (Pair, Pair(1, "x")),
        (Options, {"deep": True}),
        (Literal["a", "b"], "b"),
        (list[int], [1, 2]),
        (tuple[int, str], (1, "a")),
        (tuple[int, ...], (1, 2, 3)),
        (set[int], {3, 1}),
        (frozenset[str], frozenset({"x"})),
        (dict[str, Path], {"a": Path("b")}),
        (int | None, None),
        (int | str, "x"),
        (Any, {"a": [1, None]}),
    ],
)
def test_annotated_types_come_back_as_they_went(annotation: Any, value: Any) -> None:
    def body(value: Any) -> Any:
        return value

    body.__annotations__["value"] = annotation
    back = called(body, value)
    assert back == value
    assert type(back) is type(value)


def test_what_no_annotation_says_comes_back_plain() -> None:
    def body(value):
        return value

    assert called(body, {"p": Path("a")}) == {"p": "a"}


def test_a_change_after_the_call_changes_nothing() -> None:
    def body(value: list[int]) -> None: ...

    given = [1]
    bound = task(body).bind(given)
    given.append(2)
    assert payload(bound) == {"value": [1]}


def test_an_unusable_annotation_is_refused_at_the_call() -> None:
    class Strange: ...

    def body(value: Any) -> None: ...

    body.__annotations__["value"] = Strange
    with pytest.raises(TenureError, match=r"body: value: .*Strange"):
        task(body).bind(3)


def test_sets_have_one_order_in_every_process() -> None:
    words = [f"w{n}" for n in random.Random(1).sample(range(1000), 50)]
    code = (
        "import sys; from tenure import TaskRef\n"
        "sys.stdout.buffer.write(TaskRef('t').bind(value=set(sys.argv[1:])).payload)"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code, *words],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1
