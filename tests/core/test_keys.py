"""Keys made of tasks and arguments: the same call gives the same key, everywhere and for ever."""

from __future__ import annotations

import pickle
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.core.keys import KEY_MAX, arguments_key, check_key, task_key
from tenure.errors import ConfigurationError, IdentityTooLarge, PayloadError

LIMIT = 64 * 1024

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(string.printable),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def test_the_format_is_fixed() -> None:
    """Stored keys must be found by later versions: a change here needs a new version number."""
    assert task_key("resize") == (
        "task:v1:195abd8985de0529ed96c42df6257d18758074e2a5b454738a8ddb10fe1894d2"
    )
    assert arguments_key("resize", {"width": 640, "path": "a.jpg"}, LIMIT) == (
        "arguments:v1:63268270dca35fa4f69e782e9a72f21e369bbe610fd0085772cc0756d578260b"
    )


@given(JSON, JSON)
def test_equal_arguments_and_only_they_have_one_key(one: object, other: object) -> None:
    first, second = (arguments_key("t", {"x": value}, LIMIT) for value in (one, other))
    same = repr(_sorted(one)) == repr(_sorted(other))
    assert (first == second) is same


def test_the_order_of_members_has_no_part_in_it() -> None:
    one = {"a": 1, "b": {"x": [1, {"p": 1, "q": 2}], "y": 2}}
    other = {"b": {"y": 2, "x": [1, {"q": 2, "p": 1}]}, "a": 1}
    assert arguments_key("t", one, LIMIT) == arguments_key("t", other, LIMIT)


def _sorted(value: object) -> object:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


def test_names_and_kinds_are_apart() -> None:
    keys = {
        task_key("a"),
        task_key("b"),
        arguments_key("a", {}, LIMIT),
        arguments_key("b", {}, LIMIT),
        arguments_key("a", {"x": 1}, LIMIT),
        arguments_key("a", {"x": True}, LIMIT),
        arguments_key("a", {"x": 1.0}, LIMIT),
        arguments_key("a", {"x": "1"}, LIMIT),
        arguments_key("a", {"x": None}, LIMIT),
        arguments_key("a", {"x": ["1"]}, LIMIT),
    }
    assert len(keys) == 10
    assert all(len(key.encode()) <= KEY_MAX for key in keys)


def test_the_limit_counts_the_bytes_of_the_canonical_json() -> None:
    canonical = '{"arguments":{"x":"é"},"task":"t","version":1}'
    size = len(canonical.encode())
    assert arguments_key("t", {"x": "é"}, size)
    with pytest.raises(IdentityTooLarge, match="max_identity_bytes") as told:
        arguments_key("t", {"x": "é"}, size - 1)
    assert (told.value.actual, told.value.allowed) == (size, size - 1)
    assert isinstance(told.value, PayloadError)
    copy = pickle.loads(pickle.dumps(told.value))
    assert (copy.actual, copy.allowed, str(copy)) == (size, size - 1, str(told.value))


@pytest.mark.parametrize(
    ("key", "words"),
    [
        (None, "text, not NoneType"),
        (7, "text, not int"),
        ("", "1 to 512 bytes, not 0"),
        ("é" * 257, "1 to 512 bytes, not 514"),
        ("a\x00", "NUL"),
        ("\udce4", "surrogate"),
    ],
)
def test_what_can_be_no_key_is_refused(key: object, words: str) -> None:
    with pytest.raises(ConfigurationError, match=f"unique_key.*{words}"):
        check_key(key, "unique_key")


def test_a_key_of_any_text_is_accepted() -> None:
    assert check_key("é" * 256, "key") == "é" * 256
    assert check_key("order 7: a,b", "key")
