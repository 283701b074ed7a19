"""core/codec.py: what is refused, with the path to it, and never with another error."""

from __future__ import annotations

import dataclasses
import enum
import re
from collections import UserDict, deque
from collections.abc import Mapping
from datetime import UTC, datetime, time, timedelta, tzinfo
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.core import codec
from tenure.errors import PayloadError

NAN, INF = float("nan"), float("inf")


class Point(NamedTuple):
    x: Any


@dataclasses.dataclass
class Box:
    inside: Any


class Crate(msgspec.Struct, rename="camel"):
    the_load: Any


class Shelf(msgspec.Struct, array_like=True):
    load: Any


class Level(enum.Enum):
    BAD = NAN


class Colour(enum.Enum):
    RED = "red"


def refusal(value: Any, root: str = "value") -> str:
    with pytest.raises(PayloadError) as caught:
        codec.encode(value, root)
    return str(caught.value)


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


PLACES = [
    (lambda v: v, "args"),
    (lambda v: [0, v], "args[1]"),
    (lambda v: (v,), "args[0]"),
    (lambda v: {"a": v}, "args.a"),
    (lambda v: {"a": [{"b": v}]}, "args.a[0].b"),
    (lambda v: Point(v), "args.x"),
    (lambda v: Box([v]), "args.inside[0]"),
    (lambda v: Crate({"k": v}), "args.theLoad.k"),
    (lambda v: Shelf(v), "args.load"),
    (lambda v: [Box(Crate(Point(v)))], "args[0].inside.theLoad.x"),
]
BAD = [
    (NAN, "nan cannot be stored; JSON has no such number"),
    (INF, "inf cannot be stored; JSON has no such number"),
    (-INF, "-inf cannot be stored; JSON has no such number"),
    (Decimal("NaN"), "NaN cannot be stored; JSON has no such number"),
    (Decimal("sNaN"), "sNaN cannot be stored; JSON has no such number"),
    (Decimal("-Infinity"), "-Infinity cannot be stored; JSON has no such number"),
    (Level.BAD, "nan cannot be stored; JSON has no such number"),
    ("a\x00", "text with a NUL character cannot be stored"),
    ("é\x00", "text with a NUL character cannot be stored"),
    ("\udce4", "text with a lone surrogate cannot be stored"),
    ("\ud83d\ude00", "text with a lone surrogate cannot be stored"),
    (Path("a\udcff"), "text with a lone surrogate cannot be stored"),
    (2**64, "integers beyond 64 bits cannot be stored"),
    (-(2**63) - 1, "integers beyond 64 bits cannot be stored"),
    (10**5000, "integers beyond 64 bits cannot be stored"),
    (datetime(2026, 1, 1), "a datetime needs a time zone; 2026-01-01T00:00:00 is naive"),  # noqa: DTZ001
    (
        time(1, tzinfo=ZoneInfo("Europe/Berlin")),
        "a time of day needs an offset of whole minutes, or none",
    ),
    ({1: 2}, "key 1 is int; JSON keys are strings"),
    ({None: 2}, "key None is NoneType; JSON keys are strings"),
    ({True: 2}, "key True is bool; JSON keys are strings"),
    ({b"k": 2}, "key b'k' is bytes; JSON keys are strings"),
    ({(1, 2): 2}, "key (1, 2) is tuple; JSON keys are strings"),
    ({Colour.RED: 2}, "key <Colour.RED: 'red'> is Colour; JSON keys are strings"),
    (object(), "object cannot be stored as JSON"),
    (1j, "complex cannot be stored as JSON"),
    (deque(), "deque cannot be stored as JSON"),
    (memoryview(b""), "memoryview cannot be stored as JSON"),
    (ValueError("x"), "ValueError cannot be stored as JSON"),
    (len, "builtin_function_or_method cannot be stored as JSON"),
    (refusal, "function cannot be stored as JSON"),
    (lambda: 0, "function cannot be stored as JSON"),
    (Box, "type cannot be stored as JSON"),
    (Crate, "StructMeta cannot be stored as JSON"),
    (Colour, "EnumType cannot be stored as JSON"),
]


@pytest.mark.parametrize(("place", "path"), PLACES, ids=[path for _, path in PLACES])
@pytest.mark.parametrize(("value", "text"), BAD, ids=[text[:30] for _, text in BAD])
def test_the_path_and_the_reason(place, path, value, text):
    assert refusal(place(value), "args") == f"{path}: {text}"


def test_a_generator_and_an_open_file(tmp_path):
    assert refusal([(x for x in "a")]) == "value[0]: generator cannot be stored as JSON"
    with (tmp_path / "f").open("w") as file:
        assert refusal({"f": file}) == "value.f: TextIOWrapper cannot be stored as JSON"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a\x00": 1}, "value.a\\x00: text with a NUL character cannot be stored"),
        ({"x": {"\udce4": 1}}, "value.x.\\udce4: text with a lone surrogate cannot be stored"),
    ],
)
def test_a_bad_key_is_shown_escaped(value, message):
    assert refusal(value) == message
    message.encode()


def test_depth():
    assert codec.decode(codec.encode(nested(100))) == nested(100)
    deep = refusal(nested(101))
    assert deep == "value" + "[0]" * 100 + ": nested deeper than 100 levels"


def test_what_holds_itself():
    ring: list[Any] = [1]
    ring.append(ring)
    assert refusal(ring) == "value" + "[1]" * 100 + ": nested deeper than 100 levels"
    table: dict[str, Any] = {}
    table["t"] = table
    assert refusal(table) == "value" + ".t" * 100 + ": nested deeper than 100 levels"
    box = Box(None)
    box.inside = box
    assert refusal(box) == "value" + ".inside" * 100 + ": nested deeper than 100 levels"


class Endless(Mapping[str, Any]):
    def __getitem__(self, key):
        return Endless()

    def __iter__(self):
        return iter(["k"])

    def __len__(self):
        return 1


class Silent:
    def __repr__(self):
        raise RuntimeError("no words")

    __str__ = __repr__


class Broken(Mapping[str, Any]):
    def __getitem__(self, key):
        raise OSError("gone")

    def __iter__(self):
        return iter(["k"])

    def __len__(self):
        return 1


class Mute(Mapping[str, Any]):
    def __getitem__(self, key):
        raise Wordless

    def __iter__(self):
        return iter(["k"])

    def __len__(self):
        return 1


class Wordless(Exception):
    def __repr__(self):
        raise RuntimeError("no words")

    __str__ = __repr__


class Twice(UserDict[str, Any]):
    def items(self):
        return [("a", 1), ("a", 2)]


class Dump:
    def model_dump(self, *, mode):
        raise ZeroDivisionError("in the model")


class Nowhere(tzinfo):
    def utcoffset(self, moment):
        return None

    def dst(self, moment):
        return None

    def tzname(self, moment):
        return "nowhere"


@dataclasses.dataclass
class Unset:
    a: int = dataclasses.field(init=False)


class Odd(tuple[int, ...]):
    __slots__ = ()
    _fields = ("a", "b")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (Endless(), "value" + ".k" * 100 + ": nested deeper than 100 levels"),
        ({Silent(): 1}, "value: key <Silent> is Silent; JSON keys are strings"),
        ([Silent()], "value[0]: Silent cannot be stored as JSON"),
        ([Broken()], "value[0]: Broken cannot be stored as JSON: OSError('gone')"),
        ([Mute()], "value[0]: Mute cannot be stored as JSON: <Wordless>"),
        ([Twice()], "value[0]: key 'a' occurs twice"),
        ([Dump()], "value[0]: Dump cannot be stored as JSON: ZeroDivisionError('in the model')"),
        (
            datetime(2026, 1, 1, tzinfo=Nowhere()),
            "value: a datetime needs a time zone; 2026-01-01T00:00:00 is naive",
        ),
    ],
)
def test_objects_that_misbehave(value, message):
    assert refusal(value) == message


@pytest.mark.parametrize("value", [{Silent()}, [Unset()], Odd((1,)), {"a": Unset()}])
def test_objects_that_cannot_be_looked_into(value):
    assert re.match(r"value(\[0\]|\.a)?: \w+ cannot be stored as JSON", refusal(value))


def test_an_instant_without_utc_form():
    early = datetime.min.replace(tzinfo=ZoneInfo("Europe/Amsterdam"))
    assert refusal([early]).startswith("value[0]: datetime cannot be stored as JSON: Overflow")


def test_a_stack_that_is_nearly_used_up():
    def dive(levels: int) -> bytes:
        return codec.encode(nested(100)) if levels == 0 else dive(levels - 1)

    said = set()
    for levels in range(0, 1000, 20):
        try:
            dive(levels)
        except PayloadError as error:
            said.add(str(error)[:63])
        except RecursionError:
            break  # the dive itself
    assert said == {"value: cannot be stored as JSON: RecursionError('maximum recurs"}


scalars = st.text() | st.floats() | st.integers() | st.complex_numbers()
anything = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner)
)


@given(anything)
def test_a_value_is_stored_whole_or_refused(value):
    message = None
    try:
        data = codec.encode(value)
    except PayloadError as error:
        message = str(error)
    if message is None:
        assert codec.decode(data) == value
    else:
        assert message.startswith("value")
        assert codec.printable(message) == message


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"\xff", b'"\\ud800"', b"NaN", b"1e999", b"1 2", b"'a'"],
    ids=range(8),
)
def test_bytes_that_are_not_json(data):
    with pytest.raises(PayloadError, match=r"^stored value is not JSON: "):
        codec.decode(data)


def test_deep_bytes_are_refused_where_the_interpreter_cannot_follow():
    """How deep that is differs between versions of Python; nothing that encode() wrote is."""
    with pytest.raises(PayloadError, match=r"^stored value is not JSON: "):
        codec.decode(b"[" * 1_000_000)


class Strict:
    def __init__(self):
        raise AssertionError("made by nobody")


@dataclasses.dataclass
class Picky:
    n: int

    def __post_init__(self):
        if self.n == 1:
            raise ValueError("one is not enough")
        raise LookupError("nor is any other")


class Shades(enum.Enum):
    HALF = 0.5


@pytest.mark.parametrize(
    ("value", "annotation", "text"),
    [
        ("x", int, "Expected `int`, got `str`"),
        (True, int, "Expected `int`, got `bool`"),
        ({"a": ["x"]}, dict[str, list[int]], r"Expected `int`, got `str` - at `\$\[...\]\[0\]`"),
        ("purple", Colour, "Invalid enum value 'purple'"),
        ("yesterday", datetime, "Invalid RFC3339 encoded datetime"),
        (3, Path, ""),
        ([], Path, ""),
        ("x", Strict, ""),
        (0.5, Shades, "<enum 'Shades'> cannot be read from JSON"),
        ("x", Path | str, ".* cannot be read from JSON"),
        ({"n": 1}, Picky, "one is not enough"),
        ({"n": 2}, Picky, r".*Picky'> cannot be read from JSON: LookupError\('nor is any other'\)"),
        ({}, Box, "Object missing required field `inside`"),
    ],
)
def test_what_does_not_fit_its_annotation(value, annotation, text):
    with pytest.raises(PayloadError, match=rf"^arguments\.n: {text}"):
        codec.convert(value, annotation, "arguments.n")


@pytest.mark.parametrize("text", ["", "é", "\x01", "\U0001f600", "a" * 1000])
def test_text_that_passes(text):
    assert codec.check_text(text, "x") is text


def test_a_zone_with_a_fixed_offset_is_no_trouble():
    assert codec.encode(datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=1)) == (
        b'"2026-01-01T01:00:00Z"'
    )
