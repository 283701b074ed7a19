"""Bytes <-> values. JSON by msgspec, with the silent conversions of JSON refused.

What JSON cannot hold faithfully (NaN, infinities, NUL characters, lone surrogates, keys that are
not strings, integers beyond 64 bits) is refused with the path to the value. Never pickle.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import math
import pathlib
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from tenure.errors import PayloadError

JSON = "json"
MAX_DEPTH = 100

_INT_MIN, _INT_MAX = -(2**63), 2**64 - 1
_MINUTE = dt.timedelta(minutes=1)
# What msgspec writes by itself, and what a subclass, which it refuses, is written as.
_ATOMS: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (bytes, bytes),
    (bytearray, bytes),
    (dt.datetime, dt.datetime.isoformat),
    (dt.date, dt.date.isoformat),
    (dt.time, dt.time.isoformat),
    (dt.timedelta, lambda v: dt.timedelta(v.days, v.seconds, v.microseconds)),
    (uuid.UUID, uuid.UUID.__str__),
    (decimal.Decimal, decimal.Decimal.__str__),
)

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder()


def encode(value: Any, root: str = "value") -> bytes:
    """The JSON bytes of `value`. Raises `PayloadError` naming the path from `root`."""
    try:
        return _encoder.encode(_plain(value, root, 0))
    except PayloadError:
        raise
    except Exception as error:
        raise PayloadError(f"{root}: cannot be stored as JSON: {_shown(error)}") from error


def encode_result(value: Any, most: int) -> bytes | None:
    """What is stored of a body's result; None of None.

    Raises `PayloadError` for what cannot be stored, or takes more than `most` bytes.
    """
    if value is None:
        return None
    data = encode(value, "result")
    if len(data) > most:
        raise PayloadError(f"result: {len(data)} bytes are more than the {most} allowed")
    return data


def decode(data: bytes) -> Any:
    """Plain JSON values. Raises `PayloadError` for bytes that are not JSON."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PayloadError(f"stored value is not JSON: {error}") from error


def convert(value: Any, annotation: Any, path: str) -> Any:
    """A plain JSON value as the annotated type. Raises `PayloadError` naming `path`."""
    if annotation is Any or annotation is object:
        return value
    try:
        return msgspec.convert(value, annotation, dec_hook=_from_plain)
    except msgspec.ValidationError as error:
        raise PayloadError(f"{path}: {error}") from error
    except Exception as error:  # the constructor of a user's class may raise anything
        raise PayloadError(
            f"{path}: {_shown(annotation)} cannot be read from JSON: {_shown(error)}"
        ) from error


def check_text(text: str, path: str) -> str:
    """`text` itself. Raises `PayloadError` if it holds a NUL or a lone surrogate."""
    if "\x00" in text:
        raise PayloadError(f"{path}: text with a NUL character cannot be stored")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise PayloadError(f"{path}: text with a lone surrogate cannot be stored") from error
    return text


def printable(text: str) -> str:
    """`text` with what cannot be stored (NUL, lone surrogates) shown as backslash escapes."""
    if "\x00" not in text and text.isascii():
        return text
    return text.replace("\x00", "\\x00").encode(errors="backslashreplace").decode()


def _plain(value: Any, path: str, depth: int) -> Any:
    """`value` as what msgspec encodes without losing anything, or an error that names the path."""
    kind = type(value)
    if kind is str:
        return check_text(value, path)
    if value is None or kind is bool:
        return value
    if kind is int:
        if not _INT_MIN <= value <= _INT_MAX:
            raise PayloadError(f"{path}: integers beyond 64 bits cannot be stored")
        return value
    if kind is float:
        if not math.isfinite(value):
            raise PayloadError(f"{path}: {value} cannot be stored; JSON has no such number")
        return value
    if depth >= MAX_DEPTH:
        raise PayloadError(f"{path}: nested deeper than {MAX_DEPTH} levels")
    try:
        if isinstance(value, Mapping):
            return _plain_mapping(value, path, depth)
        if isinstance(value, list | tuple | set | frozenset):
            return _plain_items(value, path, depth)
        return _plain_object(value, path, depth)
    except (PayloadError, RecursionError):
        raise
    except Exception as error:  # looking into a user's object may raise anything
        raise PayloadError(
            f"{path}: {type(value).__qualname__} cannot be stored as JSON: {_shown(error)}"
        ) from error


def _plain_mapping(value: Mapping[Any, Any], path: str, depth: int) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for key, item in value.items():
        if not isinstance(key, str):
            kind = type(key).__name__
            raise PayloadError(f"{path}: key {_shown(key)} is {kind}; JSON keys are strings")
        # The text itself: str() of a subclass or an Enum may say something else.
        name = check_text(str.__str__(key), f"{path}.{printable(key)}")
        if name in plain:
            raise PayloadError(f"{path}: key {name!r} occurs twice")
        plain[name] = _plain(item, f"{path}.{name}", depth + 1)
    return plain


def _plain_items(value: Any, path: str, depth: int) -> list[Any]:
    fields = getattr(value, "_fields", None)
    if fields is not None:
        return [_plain(v, f"{path}.{f}", depth + 1) for f, v in zip(fields, value, strict=True)]
    items = [_plain(item, f"{path}[{i}]", depth + 1) for i, item in enumerate(value)]
    if isinstance(value, set | frozenset):
        items.sort(key=_encoder.encode)  # one order in every process: equal sets, equal bytes
    return items


def _plain_object(value: Any, path: str, depth: int) -> Any:
    if isinstance(value, enum.Enum):
        return _plain(value.value, path, depth + 1)
    if isinstance(value, decimal.Decimal) and not value.is_finite():
        raise PayloadError(f"{path}: {value} cannot be stored; JSON has no such number")
    if isinstance(value, dt.datetime | dt.time):
        value = _plain_time(value, path)
    for kind, as_base in _ATOMS:
        if isinstance(value, kind):
            return value if type(value) is kind else as_base(value)
    if isinstance(value, pathlib.PurePath):
        return check_text(str(value), path)
    if isinstance(value, str):
        return check_text(str.__str__(value), path)
    if isinstance(value, int):
        return _plain(int(value), path, depth)
    if isinstance(value, float):
        return _plain(float(value), path, depth)
    if isinstance(value, msgspec.Struct):
        return _plain_struct(value, path, depth)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return {name: _plain(getattr(value, name), f"{path}.{name}", depth + 1) for name in names}
    dump = getattr(value, "model_dump", None)
    if callable(dump):  # a pydantic model, without importing pydantic
        return _plain(dump(mode="json"), path, depth + 1)
    raise PayloadError(f"{path}: {type(value).__qualname__} cannot be stored as JSON")


def _plain_time(value: dt.datetime | dt.time, path: str) -> dt.datetime | dt.time:
    """`value` with an offset that its text can hold: whole minutes."""
    offset = value.utcoffset()
    if isinstance(value, dt.datetime):
        if offset is None:
            raise PayloadError(
                f"{path}: a datetime needs a time zone; {value.isoformat()} is naive"
            )
        return value.astimezone(dt.UTC) if offset % _MINUTE else value
    if value.tzinfo is not None and (offset is None or offset % _MINUTE):
        raise PayloadError(f"{path}: a time of day needs an offset of whole minutes, or none")
    return value


def _plain_struct(value: msgspec.Struct, path: str, depth: int) -> Any:
    """The fields of a msgspec struct, by the names or in the places they are read back from."""
    config = value.__struct_config__
    names = zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True)
    fields = {encoded: getattr(value, name) for name, encoded in names}
    tag = {} if config.tag_field is None else {config.tag_field: config.tag}
    if config.array_like:
        values = [_plain(item, f"{path}.{name}", depth + 1) for name, item in fields.items()]
        return [*tag.values(), *values]
    return tag | {
        name: _plain(item, f"{path}.{name}", depth + 1)
        for name, item in fields.items()
        if item is not msgspec.UNSET
    }


def _shown(value: object) -> str:
    try:
        return printable(repr(value))
    except Exception:
        return f"<{type(value).__qualname__}>"


def _from_plain(annotation: Any, value: Any) -> Any:
    """Types that msgspec does not read by itself."""
    if isinstance(annotation, type):
        if issubclass(annotation, pathlib.PurePath):
            return annotation(value)
        validate = getattr(annotation, "model_validate", None)
        if callable(validate):
            try:
                return validate(value)
            except Exception as error:
                raise ValueError(str(error)) from error
    raise TypeError(f"values of {annotation!r} are not supported")
